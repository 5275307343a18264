"""The visible text of group answers: name prefixes and silence, for any chunking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat.visible_text import AnswerReasoning, MemberFilter, VisibleText
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, say
from tests.cases import check_each, read_rows

from .chat_helpers import DSML, TEAM, shown_text, stored_messages, take_group_turn

NAMES = ("bot", "小助手", "Helper", "[B]")
OTHERS = ("ann", "Ann", "Annie", "小波", "Helper", "deep thought")


def visible_text(text: str, cuts: list[int], *, may_pass: bool) -> tuple[str, bool]:
    """Return the visible text of a chunked answer and whether it is silence."""
    visible = VisibleText(
        ["recall_memory"],
        "m",
        AnswerReasoning(ScriptedClient([])),
        member_filter=MemberFilter(NAMES, OTHERS, may_pass=may_pass),
    )
    visible.begin()
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    events = [event for start, end in bounds for event in visible.feed(text[start:end])]
    text_shown = shown_text([*events, *visible.end()])
    assert text_shown == visible.text
    return text_shown, visible.is_silent


def test_preamble_and_answer_in_channels_are_two_paragraphs() -> None:
    text = (
        "<|channel|>commentary<|message|>I will check.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Rex.<|return|>"
    )
    for cuts in ([], list(range(len(text)))):
        assert visible_text(text, cuts, may_pass=False) == ("I will check.\n\nRex.", False)


def test_pass_alone_or_at_the_end_is_silence_if_allowed() -> None:
    def check(text: str) -> None:
        assert visible_text(text, [], may_pass=True) == ("", True)
        assert visible_text(text, list(range(len(text))), may_pass=True) == ("", True)

    check_each(read_rows("answers", "silence"), check)


def test_pass_sign_is_removed_and_other_words_stay_if_silence_is_not_allowed() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        for cuts in ([], list(range(len(text)))):
            assert visible_text(text, cuts, may_pass=False) == (expected, not expected)

    check_each(read_rows("answers", "no silence"), check)


def test_sentences_with_the_word_pass_are_shown() -> None:
    def check(text: str) -> None:
        assert visible_text(text, [], may_pass=True) == (text, False)
        assert visible_text(text, list(range(len(text))), may_pass=True) == (text, False)

    check_each(read_rows("answers", "no sign"), check)


@pytest.mark.parametrize("may_pass", [True, False])
def test_only_the_own_name_is_removed(may_pass: bool) -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert visible_text(text, [], may_pass=may_pass) == (expected, False)

    check_each(read_rows("answers", "own name"), check)


def test_answer_ends_where_it_goes_on_as_another_member() -> None:
    def check(case: tuple[str, str]) -> None:
        text, expected = case
        for may_pass in (True, False):
            assert visible_text(text, [], may_pass=may_pass) == (expected, False)
            positions = list(range(1, len(text)))
            assert visible_text(text, positions, may_pass=may_pass) == (expected, False)

    check_each(read_rows("answers", "other members"), check)


def test_silence_before_another_speaker_is_silence() -> None:
    text = "Nothing to add. [pass]\nAnn: ok"
    assert visible_text(text, list(range(len(text))), may_pass=True) == ("", True)
    assert visible_text(text, [], may_pass=False) == ("Nothing to add.", False)


PIECES = st.sampled_from(
    [
        *("Ann", "小波", "```", "(a)", "小助手", "Helper", "bot", "10:03 ", "1", "[B]", ":", "："),
        *(" ", "\n", "[pass]", "pass", "[", "]", "*", "在。", "p"),
    ]
)


@given(st.lists(PIECES, max_size=6), st.booleans(), st.data())
def test_member_filter_is_independent_of_chunks(
    parts: list[str], may_pass: bool, data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    positions = list(range(1, len(text)))
    whole = visible_text(text, [], may_pass=may_pass)
    assert visible_text(text, cuts, may_pass=may_pass) == whole
    assert visible_text(text, positions, may_pass=may_pass) == whole


async def test_answer_is_stored_without_the_speakers_name(sqlite_library: Library) -> None:
    turn = await take_group_turn(sqlite_library, "ann", "@小助手 在哪里？", say("小助手: 在罗索。"))
    assert turn.final.text == "在罗索。"
    assert (await stored_messages(sqlite_library, TEAM))[-1].content == "在罗索。"


async def test_nothing_of_a_silent_turn_is_shown_or_stored(sqlite_library: Library) -> None:
    first = say(f"Let me look. {DSML}")
    turn = await take_group_turn(
        sqlite_library, "ann", "我去吃饭了", first, say("Nothing to add here. [pass]")
    )
    assert (turn.final.silent, turn.final.text, turn.final.message_id) == (True, "", None)
    assert [m.speaker for m in await stored_messages(sqlite_library, TEAM)] == ["Ann"]
