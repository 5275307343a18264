"""Summaries without a model: informative sentences in order, with speaker and day."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction.protocol import Utterance
from memrecall.extraction.summaries import shorten, summarise, summarise_with
from memrecall.types import Role

from .transcripts import NOW

LATER = NOW + timedelta(days=1)
CONVERSATION = [
    Utterance(
        "1", "Ann", Role.USER, "Hi all! I moved to Berlin last week. The street is quiet.", NOW
    ),
    Utterance(
        "2", "Bob", Role.USER, "Nice! I booked the Italian place at 19:00 for six people.", NOW
    ),
    Utterance("3", "Ann", Role.USER, "I'm allergic to shellfish. Shall I bring a cake?", LATER),
    Utterance("4", None, Role.ASSISTANT, "I can remind you on Friday.", LATER),
]
CONVERSATION_ZH = [
    Utterance("1", None, Role.USER, "你好！我上个月搬到深圳了。今天天气不错。", NOW),
    Utterance("2", None, Role.ASSISTANT, "恭喜！需要我推荐餐厅吗？", NOW),
    Utterance("3", None, Role.USER, "好的，我对花生过敏，预算500元。", LATER),
]


def test_short_conversation_is_kept_whole() -> None:
    assert summarise(CONVERSATION, 1_000) == (
        "[2026-03-10] Ann: Hi all. I moved to Berlin last week. The street is quiet.\n"
        "Bob: Nice. I booked the Italian place at 19:00 for six people.\n"
        "[2026-03-11] Ann: I'm allergic to shellfish. Shall I bring a cake?\n"
        "Assistant: I can remind you on Friday."
    )


def test_summary_keeps_most_informative_sentences() -> None:
    assert summarise(CONVERSATION, 150) == (
        "[2026-03-10] Ann: I moved to Berlin last week. The street is quiet.\n"
        "Bob: I booked the Italian place at 19:00 for six people."
    )


def test_summary_of_chinese_is_chinese() -> None:
    assert summarise(CONVERSATION_ZH, 62) == (
        "[2026-03-10] 用户: 我上个月搬到深圳了。\n[2026-03-11] 用户: "
        "好的，我对花生过敏，预算500元。"
    )


def test_plain_texts_and_summaries_can_be_summarised() -> None:
    text = "Ann lives in Rome. It was sunny. Ann is allergic to nuts and cats. Well."
    assert summarise(text, 60) == "Ann lives in Rome. Ann is allergic to nuts and cats."
    assert summarise(["Ann lives in Rome.", CONVERSATION[2]], 100).startswith("Ann lives in Rome.")


def test_long_sentence_is_cut() -> None:
    long = "I live in a very old house with a large garden near the river in Berlin"
    short = summarise(long, 40)
    assert len(short) <= 40
    assert short.endswith("…")
    assert long.startswith(short[:-1])


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_limit_without_space_gives_empty_summary(limit: int) -> None:
    assert summarise(CONVERSATION, limit) == ""


def test_summary_of_a_summary_is_not_empty() -> None:
    for text in (
        "[2026-05-01] 用户: 我不吃辣，火锅要清汤的。\n助手: 好的，清汤火锅。",
        "[2026-05-01] User: I moved to Faro.\nAssistant: Noted.",
    ):
        assert all(line.rstrip(".。") in summarise([text], 1_000) for line in text.split("\n"))


def test_summary_of_nothing_is_empty() -> None:
    assert summarise([], 100) == ""
    assert summarise("", 100) == ""
    assert summarise("```\n---\n```", 100) == ""
    assert summarise("```\nmake test\n```", 100) == "make test."


async def test_summary_names_its_source() -> None:
    summary = await summarise_with(None, CONVERSATION, 1_000)
    assert (summary.text, summary.by) == (summarise(CONVERSATION, 1_000), "text")


def test_shorten_ends_after_a_sentence() -> None:
    assert shorten("One is here. Two is there. Three.", 27) == "One is here. Two is there."
    assert shorten("一在这里。二在那里。", 6) == "一在这里。"
    assert shorten("short", 10) == "short"
    assert len(shorten("no end in sight at all", 10)) <= 10


_TEXTS = st.lists(
    st.one_of(
        st.text(max_size=80),
        st.sampled_from(
            ["I live in Rome.", "我住在上海。", "Hi!", "What? I paid 40 euros on Friday."]
        ),
    ),
    max_size=8,
)


@given(_TEXTS, st.integers(-5, 200))
def test_summary_is_deterministic_and_within_limit(texts: list[str], limit: int) -> None:
    messages = [Utterance(str(at), "Ann", Role.USER, text, NOW) for at, text in enumerate(texts)]
    short = summarise(messages, limit)
    assert len(short) <= max(limit, 0)
    assert short == summarise(messages, limit)


@given(_TEXTS)
def test_summary_keeps_order_of_sentences(texts: list[str]) -> None:
    messages = [f"Number {at} lives in Rome. {text}" for at, text in enumerate(texts)]
    short = summarise(messages, 120)
    included = [at for at in range(len(messages)) if f"Number {at} " in short]
    places = [short.index(f"Number {at} ") for at in included]
    assert places == sorted(places)


def test_later_value_replaces_earlier_one() -> None:
    moved = [
        Utterance("1", None, Role.USER, "I live in Porto with my sister and her kids.", NOW),
        Utterance("2", None, Role.ASSISTANT, "Sure, I will look for flats near Porto.", NOW),
        Utterance("3", None, Role.USER, "The weather was nice today, by the way.", NOW),
        Utterance("4", None, Role.USER, "I moved to Faro in May.", LATER),
    ]
    assert summarise(moved, 50) == "[2026-03-11] User: I moved to Faro in May."
    chinese = [
        Utterance("1", None, Role.USER, "我住在北京。今天天气真不错啊。", NOW),
        Utterance("2", None, Role.USER, "我现在住在杭州。", LATER),
    ]
    assert summarise(chinese, 32) == "[2026-03-11] 用户: 我现在住在杭州。"


def test_summary_of_summaries_says_less() -> None:
    parts = [
        "Ann: I moved to Berlin last week. The street is quiet.",
        "Ann: I'm allergic to shellfish. Shall I bring a cake?",
        "Bob: I booked the Italian place at 19:00. See you.",
    ]
    whole = sum(map(len, parts))
    short = summarise(parts, 1_000)
    assert 0 < len(short) < 0.75 * whole
    assert "Berlin" in short
    assert "19:00" in short
    assert "cake" not in short


def test_summary_of_summaries_prefers_what_the_user_said() -> None:
    parts = [
        "[2026-03-10] User: I live in Porto.\nAssistant: Noted, will do.\n"
        "User: I'm allergic to peanuts.\nAssistant: Noted, will do.\n"
        "User: My phone number is 555-4000.",
        "[2026-03-11] User: Okay.\nAssistant: Noted, will do.\n"
        "User: My phone number is 555-5000 now.",
    ]
    assert summarise(parts, 150) == (
        "[2026-03-10] User: I live in Porto. I'm allergic to peanuts. "
        "My phone number is 555-4000.\n"
        "[2026-03-11] User: My phone number is 555-5000 now."
    )
    chinese = [
        "[2026-03-10] 用户: 我对花生过敏。\n助手: 好的，记下了。\n"
        "用户: 我住在上海。\n助手: 好的，记下了。"
    ]
    assert summarise([*chinese, "助手: 好的，记下了。"], 35) == (
        "[2026-03-10] 用户: 我对花生过敏。我住在上海。"
    )
