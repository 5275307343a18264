"""Deciding by rules: add, supersede, end or nothing; and what must never happen."""

from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import RETRACTION, Decision, Fact, Known, RuleExtractor
from memrecall.extraction.conflicts import ends, sign
from memrecall.extraction.decisions import apply, decide
from memrecall.extraction.protocol import MemoryType
from memrecall.extraction.rules.tables import load_table
from tests.cases import check_each

from .talking import NOW, talk


def fact(
    text: str,
    field: str | None = None,
    kind: MemoryType = "user_profile",
    *,
    subject: str = "user",
    negated: bool = False,
) -> Fact:
    return Fact(text, subject, kind, field, ("m0",), NOW, negated)


def known(
    text: str, field: str | None = None, kind: str = "user_profile", *, subject: str = "user"
) -> Known:
    return Known("k1", text, subject, field, kind, NOW)


def events(decisions: list[Decision]) -> list[tuple[str, str | None]]:
    return [(decision.event, decision.memory_key) for decision in decisions]


TABLE = {
    "new": (fact("User lives in Rome.", "home"), known("User likes tea.", "likes"), "ADD"),
    "the same again": (
        fact("User lives in Rome.", "home"),
        known("User lives in Rome.", "home"),
        "NONE",
    ),
    "the same in other words": (
        fact("User moved to Rome.", "home"),
        known("User lives in Rome.", "home"),
        "NONE",
    ),
    "the same with less detail": (
        fact("User has a dog.", "pet", "relationship"),
        known("User has a dog named Rex.", "pet", "relationship"),
        "NONE",
    ),
    "the same in another case and width": (
        fact("user LIVES in Ｒｏｍｅ", "home"),
        known("User lives in Rome.", "home"),
        "NONE",
    ),
    "moved": (
        fact("User moved to Berlin.", "home"),
        known("User lives in Rome.", "home"),
        "UPDATE",
    ),
    "new name": (fact("User's name is Eve.", "name"), known("User is Eva.", "name"), "UPDATE"),
    "older": (
        fact("User is 35 years old.", "age"),
        known("User is 34 years old.", "age"),
        "UPDATE",
    ),
    "no longer vegan": (
        fact("User is no longer vegan.", "diet", negated=True),
        known("User is vegan.", "diet"),
        "UPDATE",
    ),
    "a taste lost": (
        fact("User does not like sushi anymore.", "likes", "user_preference", negated=True),
        known("User loves sushi.", "likes", "user_preference"),
        "UPDATE",
    ),
    "a taste gained": (
        fact("User likes sushi.", "likes", "user_preference"),
        known("User hates sushi.", "likes", "user_preference"),
        "UPDATE",
    ),
    "another taste": (
        fact("User likes tea.", "likes", "user_preference"),
        known("User loves sushi.", "likes", "user_preference"),
        "ADD",
    ),
    "another favourite": (
        fact("User's favourite colour is red.", "favourite_colour", "user_preference"),
        known("User's favourite colour is green.", "favourite_colour", "user_preference"),
        "UPDATE",
    ),
    "a second allergy": (
        fact("User is allergic to cats.", "allergy"),
        known("User is allergic to nuts.", "allergy"),
        "ADD",
    ),
    "a plan moved": (
        fact("User's dentist appointment is on 2026-03-12.", None, "plan"),
        known("User's dentist appointment is on 2026-03-13.", None, "plan"),
        "UPDATE",
    ),
    "a plan dropped": (
        fact("User is not going to Japan anymore.", None, "plan", negated=True),
        known("User is going to Japan in April 2026.", None, "plan"),
        "UPDATE",
    ),
    "the same event on another day": (
        fact("User went to the dentist on 2026-03-12.", None, "event"),
        known("User went to the dentist on 2026-01-13.", None, "event"),
        "ADD",
    ),
    "a setting changed": (
        fact("The staging port is 5434.", "staging_port", "configuration"),
        known("The staging port is 5433.", "staging_port", "configuration"),
        "UPDATE",
    ),
    "another language of answers": (
        fact(
            "User wants the assistant to always answer in French.", "reply_language", "instruction"
        ),
        known(
            "User wants the assistant to always answer in Chinese.", "reply_language", "instruction"
        ),
        "UPDATE",
    ),
    "somebody else's": (
        fact("Bob lives in Berlin.", "home", subject="Bob"),
        known("Ann lives in Rome.", "home", subject="Ann"),
        "ADD",
    ),
    "retracted": (
        fact("User lives in Rome.", "home", RETRACTION),
        known("User lives in Rome.", "home"),
        "DELETE",
    ),
    "a slot retracted": (
        fact("User's address.", "address", RETRACTION, negated=True),
        known("User's address is 5 Elm Street.", "address"),
        "DELETE",
    ),
    "retracted, but unknown": (
        fact("User lives in Oslo.", "home", RETRACTION),
        known("User lives in Rome.", "home"),
        "NONE",
    ),
    "搬家": (fact("用户搬到武汉了。", "home"), known("用户住在长沙。", "home"), "UPDATE"),
    "再说一遍": (fact("用户住在长沙。", "home"), known("用户住在长沙。", "home"), "NONE"),
    "换句话说": (fact("用户搬到长沙了。", "home"), known("用户住在长沙。", "home"), "NONE"),
    "不再吃素": (
        fact("用户不再吃素了。", "diet", negated=True),
        known("用户吃素。", "diet"),
        "UPDATE",
    ),
    "不养狗了": (
        fact("用户不养狗了。", "pet", "relationship", negated=True),
        known("用户养了一只叫豆豆的狗。", "pet", "relationship"),
        "UPDATE",
    ),
    "不爱吃了": (
        fact("用户不喜欢吃辣了。", "likes", "user_preference", negated=True),
        known("用户喜欢吃辣。", "likes", "user_preference"),
        "UPDATE",
    ),
    "另一个爱好": (
        fact("用户喜欢钓鱼。", "likes", "user_preference"),
        known("用户喜欢摄影。", "likes", "user_preference"),
        "ADD",
    ),
    "会议改期": (
        fact("面试在2026年3月12日。", None, "plan"),
        known("面试在2026年3月13日。", None, "plan"),
        "UPDATE",
    ),
    "忘掉": (
        fact("用户养狗。", "pet", RETRACTION),
        known("用户养了一只叫豆豆的狗。", "pet", "relationship"),
        "DELETE",
    ),
}


def test_what_is_decided() -> None:
    def check(name: str) -> None:
        told, memory, event = TABLE[name]
        (decision,) = decide([told], [memory])
        assert decision.event == event
        assert decision.memory_key == (None if event == "ADD" else decision.memory_key)
        assert decision.reason
        if event in ("ADD", "UPDATE"):
            assert decision.text == told.text
        if event in ("UPDATE", "DELETE"):
            assert decision.memory_key == "k1"
        assert [one.event for one in decide([told], apply([decision], [memory]))] == ["NONE"]

    check_each(TABLE, check)


def test_nothing_extracted_decides_nothing() -> None:
    assert decide([], [known("User lives in Rome.", "home")]) == []


def test_of_several_memories_the_most_alike_is_superseded() -> None:
    memories = [
        Known("k1", "User is going to Oslo in May 2026.", memory_type="plan"),
        Known("k2", "User is going to Rome in May 2026.", memory_type="plan"),
    ]
    told = fact("User is not going to Rome anymore.", None, "plan", negated=True)
    assert events(decide([told], memories)) == [("UPDATE", "k2")]


def test_later_words_of_one_conversation_win() -> None:
    told = [fact("User lives in Rome.", "home"), fact("User moved to Berlin.", "home")]
    assert events(decide(told, [])) == [("NONE", None), ("ADD", None)]
    assert events(decide(told, [known("User lives in Oslo.", "home")])) == [
        ("NONE", None),
        ("UPDATE", "k1"),
    ]


def test_a_retraction_does_not_end_what_is_said_again_afterwards() -> None:
    rome = fact("User lives in Rome.", "home")
    forget = fact("User lives in Rome.", "home", RETRACTION)
    memory = known("User lives in Rome.", "home")
    assert events(decide([forget, rome], [memory])) == [("NONE", None), ("NONE", "k1")]
    assert events(decide([rome, forget], [memory])) == [("NONE", None), ("DELETE", "k1")]


def test_a_retraction_may_end_several_memories() -> None:
    forget = fact("User has a dog.", "pet", RETRACTION)
    memories = [
        Known("k1", "User has a dog named Rex.", field="pet"),
        Known("k2", "User has a brown dog.", field="pet"),
        Known("k3", "User has a cat.", field="pet"),
    ]
    assert events(decide([forget], memories)) == [("DELETE", "k1"), ("DELETE", "k2")]


async def test_from_words_to_decisions_and_back() -> None:
    extractor = RuleExtractor()
    memories: list[Known] = []
    for said, wanted in [
        ("I live in Paris and I have a dog named Rex.", ["ADD", "ADD"]),
        ("I live in Paris.", ["NONE"]),
        ("I moved to Berlin last week.", ["UPDATE"]),
        ("I don't have a dog anymore.", ["UPDATE"]),
        ("Please forget that I live in Berlin.", ["DELETE"]),
        ("Hello!", []),
    ]:
        found = await extractor.facts(talk(said), now=NOW, zone=UTC)
        decided = await extractor.decide(found.facts, memories)
        assert [one.event for one in decided.decisions] == wanted, said
        memories = apply(decided.decisions, memories)
    assert [one.text for one in memories] == ["User does not have a dog anymore."]


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
def memories(draw: st.DrawFn) -> list[Known]:
    told = draw(st.lists(facts(), max_size=5))
    return [
        Known(f"k{number}", one.text, one.subject, one.field, one.memory_type)
        for number, one in enumerate(told)
        if one.memory_type != RETRACTION
    ]


@given(st.lists(facts(), max_size=4), memories())
def test_deciding_on_the_result_of_a_decision_does_nothing(
    told: list[Fact], memories: list[Known]
) -> None:
    after = apply(decide(told, memories), memories)
    assert {one.event for one in decide(told, after)} <= {"NONE"}


@given(st.lists(facts(), max_size=4), memories())
def test_what_can_be_done_is_done_to_what_exists(told: list[Fact], memories: list[Known]) -> None:
    keys = {one.memory_key for one in memories}
    decisions = decide(told, memories)
    assert {id(one.fact) for one in decisions} == {id(one) for one in told}
    changed = [one.memory_key for one in decisions if one.event in ("UPDATE", "DELETE")]
    assert set(changed) <= keys
    superseding = {id(one.fact) for one in decisions if one.event == "UPDATE"}
    for one in decisions:
        stored_too = id(one.fact) in superseding
        assert (one.event == "DELETE") <= (one.fact.memory_type == RETRACTION or stored_too)
        assert (one.event in ("ADD", "UPDATE")) == bool(one.text)
        assert one.event != "ADD" or one.memory_key is None


@given(facts(), memories())
def test_the_same_fact_again_never_deletes(told: Fact, memories: list[Known]) -> None:
    stored = Known("same", told.text, told.subject, told.field, told.memory_type)
    if told.memory_type != RETRACTION:
        assert [one.event for one in decide([told], [*memories, stored])] == ["NONE"]


@given(facts(), memories())
def test_nobody_changes_what_is_known_of_another(told: Fact, memories: list[Known]) -> None:
    others = {one.memory_key for one in memories if one.subject != told.subject}
    touched = {one.memory_key for one in decide([told], memories)}
    assert not touched & others


@given(facts(), memories())
def test_a_contradiction_leaves_the_new_value(told: Fact, memories: list[Known]) -> None:
    after = apply(decide([told], memories), memories)
    if told.memory_type != RETRACTION:
        again = decide([told], after)[0].memory_key
        assert any(one.memory_key == again and one.subject == told.subject for one in after)
        gone = {one.memory_key for one in memories} - {one.memory_key for one in after}
        for memory in memories:  # nothing ends but what the new fact says is over
            assert memory.memory_key not in gone or ends(told, sign(memory))
        if told.field in load_table("shared").words("single_value_slots"):
            assert decide([told], after)[0].event == "NONE"
