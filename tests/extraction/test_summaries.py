"""Summaries by rules: telling sentences in their order, within a limit, with who and when."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import RuleExtractor, Utterance
from memrecall.extraction.summaries import shorten, summarise
from memrecall.types import Role

from .talking import NOW

LATER = NOW + timedelta(days=1)
TALK = [
    Utterance(
        "1", "Ann", Role.USER, "Hi all! I moved to Berlin last week. The street is quiet.", NOW
    ),
    Utterance(
        "2", "Bob", Role.USER, "Nice! I booked the Italian place at 19:00 for six people.", NOW
    ),
    Utterance("3", "Ann", Role.USER, "I'm allergic to shellfish. Shall I bring a cake?", LATER),
    Utterance("4", None, Role.ASSISTANT, "I can remind you on Friday.", LATER),
]
TALK_ZH = [
    Utterance("1", None, Role.USER, "你好！我上个月搬到深圳了。今天天气不错。", NOW),
    Utterance("2", None, Role.ASSISTANT, "恭喜！需要我推荐餐厅吗？", NOW),
    Utterance("3", None, Role.USER, "好的，我对花生过敏，预算500元。", LATER),
]


def test_what_fits_is_told_in_full() -> None:
    assert summarise(TALK, 1_000) == (
        "[2026-03-10] Ann: Hi all. I moved to Berlin last week. The street is quiet.\n"
        "Bob: Nice. I booked the Italian place at 19:00 for six people.\n"
        "[2026-03-11] Ann: I'm allergic to shellfish. Shall I bring a cake?\n"
        "Assistant: I can remind you on Friday."
    )


def test_what_does_not_fit_is_told_by_its_most_telling_sentences() -> None:
    assert summarise(TALK, 150) == (
        "[2026-03-10] Ann: I moved to Berlin last week.\n"
        "Bob: I booked the Italian place at 19:00 for six people.\n"
        "[2026-03-11] Ann: I'm allergic to shellfish."
    )


def test_chinese_conversations_are_told_in_chinese() -> None:
    assert summarise(TALK_ZH, 62) == (
        "[2026-03-10] 用户: 我上个月搬到深圳了。\n[2026-03-11] 用户: "
        "好的，我对花生过敏，预算500元。"
    )


def test_the_language_names_those_without_a_name() -> None:
    said = [Utterance("1", None, Role.USER, "I like tea.", None)]
    assert summarise(said, 100, "zh") == "用户: I like tea."
    assert summarise(said, 100) == "User: I like tea."


def test_plain_texts_and_earlier_summaries_can_be_summarised() -> None:
    text = "Ann lives in Rome. It was sunny. Ann is allergic to nuts and cats. Well."
    assert summarise(text, 60) == "Ann lives in Rome. Ann is allergic to nuts and cats."
    assert summarise(["Ann lives in Rome.", TALK[2]], 100).startswith("Ann lives in Rome.")


def test_a_sentence_that_is_too_long_is_cut() -> None:
    long = "I live in a very old house with a large garden near the river in Berlin"
    short = summarise(long, 40)
    assert len(short) <= 40
    assert short.endswith("…")
    assert long.startswith(short[:-1])


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_no_room_gives_no_words(limit: int) -> None:
    assert summarise(TALK, limit) == ""


def test_nothing_gives_nothing() -> None:
    assert summarise([], 100) == ""
    assert summarise("", 100) == ""
    assert summarise("```\ncode\n```", 100) == ""


async def test_the_extractor_says_who_summarised() -> None:
    summary = await RuleExtractor().summarise(TALK, 1_000)
    assert (summary.text, summary.by) == (summarise(TALK, 1_000), "rules")


def test_a_text_is_shortened_after_a_sentence() -> None:
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
def test_a_summary_never_exceeds_its_limit_and_never_changes(texts: list[str], limit: int) -> None:
    said = [Utterance(str(at), "Ann", Role.USER, text, NOW) for at, text in enumerate(texts)]
    short = summarise(said, limit)
    assert len(short) <= max(limit, 0)
    assert short == summarise(said, limit)


@given(_TEXTS)
def test_sentences_keep_their_order(texts: list[str]) -> None:
    said = [f"Number {at} lives in Rome. {text}" for at, text in enumerate(texts)]
    short = summarise(said, 120)
    told = [at for at in range(len(said)) if f"Number {at} " in short]
    places = [short.index(f"Number {at} ") for at in told]
    assert places == sorted(places)
