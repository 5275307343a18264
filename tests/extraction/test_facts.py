"""Facts by rules: which messages give facts, and the fields of a fact."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import Fact, RuleExtractor, Utterance
from memrecall.extraction.protocol import Extracted
from memrecall.types import Role
from tests.cases import check_each_async

from .conversations import NO_FACTS, STATEMENTS, read_cases
from .transcripts import NOW, Conversation, parse_turns

EXTRACTOR = RuleExtractor()


async def extract(messages: Sequence[Utterance], context: Sequence[Utterance] = ()) -> Extracted:
    return await EXTRACTOR.facts(messages, now=NOW, zone=UTC, context=context)


async def extract_one(*turns: str) -> Fact:
    facts = (await extract(parse_turns(*turns))).facts
    assert len(facts) == 1, facts
    return facts[0]


async def check_facts(case: Conversation) -> None:
    _, messages, facts = case
    assert [fact.text for fact in (await extract(messages)).facts] == facts


def case_name(case: Conversation) -> str:
    return case[1][0].text[:60]


async def test_facts_of_statements() -> None:
    await check_each_async(STATEMENTS, check_facts, case_name)
    languages = [language for language, _, _ in STATEMENTS]
    assert min(languages.count("en"), languages.count("zh")) >= 60


async def test_messages_without_facts() -> None:
    async def check(reason: str) -> None:
        for message in NO_FACTS[reason]:
            assert (await extract([message])).facts == (), message.text
        assert (await extract(NO_FACTS[reason])).facts == ()

    await check_each_async(NO_FACTS, check)


async def test_fact_has_type_slot_and_negation() -> None:
    async def check(case: dict[str, Any]) -> None:
        fact = await extract_one(case["text"])
        found = {"type": fact.memory_type, "field": fact.field, "negated": fact.negated}
        assert {"text": case["text"], **found} == case
        assert fact.subject == "user"

    await check_each_async(read_cases("slots"), check)


async def test_weekday_of_an_appointment_is_the_coming_one() -> None:
    tuesday = datetime(2026, 11, 17, 9, tzinfo=UTC)
    cases = [
        ("I have a dentist appointment on Thursday.", "2026-11-19"),
        ("I'm seeing the dentist on Monday.", "2026-11-23"),
        ("My dentist appointment is on Tuesday.", "2026-11-17"),
        ("Dentist on Thursday.", "2026-11-19"),
        ("周四看牙。", "2026年11月19日"),
        ("我周一要看牙。", "2026年11月23日"),
        ("星期二看牙。", "2026年11月17日"),
    ]

    async def check(case: tuple[str, str]) -> None:
        (fact,) = (await extract([Utterance("m", None, Role.USER, case[0], tuesday)])).facts
        assert case[1] in fact.text
        assert fact.memory_type == "plan"

    await check_each_async(cases, check)


async def test_fact_has_sources_and_keywords() -> None:
    messages = parse_turns("I live in Berlin.", "assistant| Nice!", "I live in Berlin.")
    (fact,) = (await extract(messages)).facts
    assert fact.source_ids == ("m0", "m2")
    assert "Berlin" in fact.keywords
    assert "User" not in fact.keywords


async def test_correction_has_both_messages_as_sources() -> None:
    assert (await extract_one("My exam is on Friday.", "Actually, it's Monday.")).source_ids == (
        "m0",
        "m1",
    )


async def test_valid_from_of_facts() -> None:
    fact = await extract_one("I moved to Lisbon last week.")
    assert fact.valid_from == datetime(2026, 3, 2, tzinfo=UTC)
    assert (await extract_one("I live in Lisbon.")).valid_from == NOW
    plan = await extract_one("I'm flying to Tokyo next Friday.")
    assert plan.valid_from == NOW  # the plan is valid now, whatever its date
    assert (await extract_one("我上个月搬到深圳了。")).valid_from == datetime(
        2026, 2, 1, tzinfo=UTC
    )


async def test_dates_are_relative_to_message_time_and_zone() -> None:
    sent_at = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
    messages = [Utterance("m", None, Role.USER, "I moved to Rome today.", sent_at)]
    in_shanghai = await EXTRACTOR.facts(messages, now=NOW, zone=ZoneInfo("Asia/Shanghai"))
    assert in_shanghai.facts[0].text == "User moved to Rome on 2026-03-11."
    unknown = [Utterance("m", None, Role.USER, "I moved to Rome today.")]
    assert (await extract(unknown)).facts[0].text == "User moved to Rome on 2026-03-10."


async def test_group_chat_assigns_facts_to_speakers() -> None:
    messages = parse_turns(
        "Ann| I live in Rome.", "Bob| I'm vegan.", "Ann| Bob hates olives.", "Bob| 我养了一只猫。"
    )
    facts = (await extract(messages)).facts
    assert [(fact.subject, fact.source_ids) for fact in facts] == [
        ("Ann", ("m0",)),
        ("Bob", ("m1",)),
        ("Bob", ("m3",)),
    ]
    assert all("User" not in fact.text and "用户" not in fact.text for fact in facts)


async def test_context_resolves_corrections_and_gives_no_facts() -> None:
    context = parse_turns("My exam is on Friday.", "assistant| Where do you live?")
    assert (await extract(parse_turns("Rome"), context)).facts == ()
    corrected = await extract(parse_turns("Actually, it's Monday."), context[:1])
    assert [fact.text for fact in corrected.facts] == ["User's exam is on 2026-03-16."]


async def test_yes_fills_no_slot() -> None:
    for question, reply in [("Do you live in Rome?", "yes"), ("你住在北京吗？", "嗯")]:
        assert (await extract(parse_turns(f"assistant| {question}", reply))).facts == ()


async def test_rules_ignore_prompt() -> None:
    messages = parse_turns("I live in Rome.")
    guided = await EXTRACTOR.facts(messages, now=NOW, zone=UTC, prompt="only food")
    assert guided == await extract(messages)
    assert (guided.by, guided.problem) == ("rules", "")


async def test_third_person_statements_about_user_give_facts() -> None:
    assert (await extract_one("用户喜欢编程")).text == "用户喜欢编程。"
    assert (await extract_one("User likes programming.")).subject == "user"


WORDS = [
    *("I", "we", "my", "you", "if", "not", "live in", "moved to", "Berlin", "love", "hate", "tea"),
    *("on Friday", "yesterday", "called Rex", "and", "but", "she", "always", "```", ">", ".", "?"),
    *("!", ",", "\n", "我", "我们", "不", "住在", "上海", "喜欢", "下周三", "了", "。", "，", "？"),
    *("叫", "李明", "他", "“", "”", "忘掉", "以后"),
]


def utterances() -> st.SearchStrategy[list[Utterance]]:
    words = st.sampled_from(WORDS)
    text = st.one_of(st.text(max_size=60), st.lists(words, max_size=14).map(" ".join))
    role = st.sampled_from(list(Role))
    speaker = st.sampled_from([None, "Ann", "老王"])
    utterance = st.builds(Utterance, st.just("m"), speaker, role, text, st.just(NOW))
    return st.lists(utterance, max_size=4)


@given(utterances())
async def test_facts_of_any_text_are_well_formed(messages: list[Utterance]) -> None:
    result = await extract(messages)
    assert result == await extract(messages)
    for fact in result.facts:
        assert fact.text.strip() == fact.text
        assert len(fact.text) > 1  # one character to forget, and a full stop
        assert "\n" not in fact.text
        assert fact.source_ids == ("m",)
    if not any(item.role in (Role.USER, Role.OTHER) for item in messages):
        assert result.facts == ()


@pytest.mark.parametrize(
    ("day", "date"), [("5th", "2026-04-05"), ("28th", "2026-03-28"), ("31st", "2026-03-31")]
)
async def test_day_of_month_in_plan_is_next_one(day: str, date: str) -> None:
    assert (await extract_one(f"My exam is on the {day}.")).text == f"User's exam is on {date}."
