"""Decisions by rules: add, supersede, delete or nothing, and their invariants."""

from datetime import UTC
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import Fact, KnownMemory, RuleExtractor
from memrecall.extraction.conflicts import ends
from memrecall.extraction.decisions import decide
from memrecall.extraction.protocol import RETRACTION, Decision, FactType
from memrecall.extraction.rules.tables import load_table
from tests.cases import check_each

from .conversations import read_cases
from .helpers import apply_decisions
from .transcripts import NOW, parse_turns


def make_fact(
    text: str,
    field: str | None = None,
    kind: FactType = "user_profile",
    *,
    subject: str = "user",
    negated: bool = False,
) -> Fact:
    return Fact(text, subject, kind, field, ("m0",), NOW, negated)


def make_memory(
    text: str, field: str | None = None, kind: str = "user_profile", *, subject: str = "user"
) -> KnownMemory:
    return KnownMemory("k1", text, subject, field, kind, NOW)


def events(decisions: list[Decision]) -> list[tuple[str, str | None]]:
    return [(decision.event, decision.memory_key) for decision in decisions]


def test_decide_gives_expected_event() -> None:
    def check(case: dict[str, Any]) -> None:
        fact, known, event = case["fact"], case["memory"], case["event"]
        new_fact = make_fact(
            fact["text"],
            fact["field"],
            fact["type"],
            subject=fact["subject"],
            negated=fact["negated"],
        )
        memory = make_memory(known["text"], known["field"], known["type"], subject=known["subject"])
        (decision,) = decide([new_fact], [memory])
        assert decision.event == event
        assert decision.memory_key == (None if event == "ADD" else decision.memory_key)
        assert decision.reason
        if event in ("ADD", "UPDATE"):
            assert decision.text == new_fact.text
        if event in ("UPDATE", "DELETE"):
            assert decision.memory_key == "k1"
        again = decide([new_fact], apply_decisions([decision], [memory]))
        assert [item.event for item in again] == ["NONE"]

    check_each(read_cases("decisions"), check, itemgetter("name"))


def test_decide_without_facts_returns_nothing() -> None:
    assert decide([], [make_memory("User lives in Rome.", "home")]) == []


def test_update_supersedes_most_similar_memory() -> None:
    memories = [
        KnownMemory("k1", "User is going to Oslo in May 2026.", memory_type="plan"),
        KnownMemory("k2", "User is going to Rome in May 2026.", memory_type="plan"),
    ]
    new_fact = make_fact("User is not going to Rome anymore.", None, "plan", negated=True)
    assert events(decide([new_fact], memories)) == [("UPDATE", "k2")]


def test_later_fact_replaces_earlier_fact_of_same_conversation() -> None:
    new_facts = [
        make_fact("User lives in Rome.", "home"),
        make_fact("User moved to Berlin.", "home"),
    ]
    assert events(decide(new_facts, [])) == [("NONE", None), ("ADD", None)]
    assert events(decide(new_facts, [make_memory("User lives in Oslo.", "home")])) == [
        ("NONE", None),
        ("UPDATE", "k1"),
    ]


def test_retraction_keeps_memory_that_is_restated_later() -> None:
    rome = make_fact("User lives in Rome.", "home")
    retraction = make_fact("User lives in Rome.", "home", RETRACTION)
    memory = make_memory("User lives in Rome.", "home")
    assert events(decide([retraction, rome], [memory])) == [("NONE", None), ("NONE", "k1")]
    assert events(decide([rome, retraction], [memory])) == [("NONE", None), ("DELETE", "k1")]


def test_retraction_deletes_several_memories() -> None:
    retraction = make_fact("User has a dog.", "pet", RETRACTION)
    memories = [
        KnownMemory("k1", "User has a dog named Rex.", field="pet"),
        KnownMemory("k2", "User has a brown dog.", field="pet"),
        KnownMemory("k3", "User has a cat.", field="pet"),
    ]
    assert events(decide([retraction], memories)) == [("DELETE", "k1"), ("DELETE", "k2")]


async def test_decisions_on_extracted_facts() -> None:
    extractor = RuleExtractor()
    memories: list[KnownMemory] = []
    for text, expected in [
        ("I live in Paris and I have a dog named Rex.", ["ADD", "ADD"]),
        ("I live in Paris.", ["NONE"]),
        ("I moved to Berlin last week.", ["UPDATE"]),
        ("I don't have a dog anymore.", ["UPDATE"]),
        ("Please forget that I live in Berlin.", ["DELETE"]),
        ("Hello!", []),
    ]:
        result = await extractor.facts(parse_turns(text), now=NOW, zone=UTC)
        decisions = await extractor.decide(result.facts, memories)
        assert [item.event for item in decisions.decisions] == expected, text
        memories = apply_decisions(decisions.decisions, memories)
    assert [item.text for item in memories] == ["User no longer has a dog."]


_VALUES = st.sampled_from(["Rome", "Berlin", "tea", "dogs", "上海", "咖啡", "2026-03-12", "5433"])
_FORMS = st.sampled_from(
    [
        ("User lives in {}.", "home", "user_profile"),
        ("User moved to {}.", "home", "user_profile"),
        ("User likes {}.", "likes", "user_preference"),
        ("User does not like {}.", "likes", "user_preference"),
        ("User hates {}.", "likes", "user_preference"),
        ("User has a meeting on {}.", None, "plan"),
        ("用户住在{}。", "home", "user_profile"),
        ("用户不喜欢{}。", "likes", "user_preference"),
        ("用户喜欢{}和{}。", "likes", "user_preference"),
        ("The port is {}.", "port", "configuration"),
        ("User went to {} yesterday.", None, "event"),
    ]
)
_SUBJECTS = st.sampled_from(["user", "Ann"])


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    form, field, kind = draw(_FORMS)
    text = form.format(draw(_VALUES), draw(_VALUES))
    retracted = draw(st.booleans()) and draw(st.booleans())
    memory_type = RETRACTION if retracted else kind
    return Fact(text, draw(_SUBJECTS), memory_type, field, ("m",))  # type: ignore[arg-type]


@st.composite
def memories(draw: st.DrawFn) -> list[KnownMemory]:
    stored_facts = draw(st.lists(facts(), max_size=5))
    return [
        KnownMemory(
            f"k{number}", make_fact.text, make_fact.subject, make_fact.field, make_fact.memory_type
        )
        for number, make_fact in enumerate(stored_facts)
        if make_fact.memory_type != RETRACTION
    ]


@given(st.lists(facts(), max_size=4), memories())
def test_decide_is_idempotent(new_facts: list[Fact], memories: list[KnownMemory]) -> None:
    after = apply_decisions(decide(new_facts, memories), memories)
    assert {item.event for item in decide(new_facts, after)} <= {"NONE"}


@given(st.lists(facts(), max_size=4), memories())
def test_decisions_refer_to_existing_memories(
    new_facts: list[Fact], memories: list[KnownMemory]
) -> None:
    keys = {item.memory_key for item in memories}
    decisions = decide(new_facts, memories)
    assert {id(item.fact) for item in decisions} == {id(item) for item in new_facts}
    changed = [item.memory_key for item in decisions if item.event in ("UPDATE", "DELETE")]
    assert set(changed) <= keys
    superseding = {id(item.fact) for item in decisions if item.event == "UPDATE"}
    for item in decisions:
        stored_too = id(item.fact) in superseding
        assert (item.event == "DELETE") <= (item.fact.memory_type == RETRACTION or stored_too)
        assert (item.event in ("ADD", "UPDATE")) == bool(item.text)
        assert item.event != "ADD" or item.memory_key is None


@given(facts(), memories())
def test_repeated_fact_changes_nothing(new_fact: Fact, memories: list[KnownMemory]) -> None:
    memory = KnownMemory(
        "same", new_fact.text, new_fact.subject, new_fact.field, new_fact.memory_type
    )
    if new_fact.memory_type != RETRACTION:
        assert [item.event for item in decide([new_fact], [*memories, memory])] == ["NONE"]


@given(facts(), memories())
def test_decisions_keep_memories_of_other_subjects(
    new_fact: Fact, memories: list[KnownMemory]
) -> None:
    others = {item.memory_key for item in memories if item.subject != new_fact.subject}
    assert not {item.memory_key for item in decide([new_fact], memories)} & others


@given(facts(), memories())
def test_contradiction_stores_new_value(new_fact: Fact, memories: list[KnownMemory]) -> None:
    after = apply_decisions(decide([new_fact], memories), memories)
    if new_fact.memory_type != RETRACTION:
        key = decide([new_fact], after)[0].memory_key
        assert any(item.memory_key == key and item.subject == new_fact.subject for item in after)
        deleted = {item.memory_key for item in memories} - {item.memory_key for item in after}
        for memory in memories:  # only what the new fact contradicts is ended
            assert memory.memory_key not in deleted or ends(new_fact, memory)
        if new_fact.field in load_table("shared").words("single_value_slots"):
            assert decide([new_fact], after)[0].event == "NONE"
