"""The visible text of group answers: name prefixes and silence, for any chunking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat.visible_text import AnswerReasoning, MemberFilter, VisibleText
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, say
from tests.cases import check_each

from .chat_helpers import (
    DSML,
    TEAM,
    shown_text,
    stored_messages,
    take_group_turn,
)

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


def test_pass_alone_or_at_the_end_is_silence_if_allowed() -> None:
    cases: list[str] = [
        *("[pass]", " [PASS].\n", "[pass] 我没什么说的", "pass", "Pass.", "**[pass]**", "【pass】"),
        *("（pass）", "小助手: [pass]", "[pass]\n\nI have nothing to add."),
        *("[PASS: they can handle it]", "【pass，没有补充】", "pass - nothing to add"),
        "Pass: 没什么要补充的。",
        # At the end
        *("I have nothing to add. [pass]", "没什么要补充的。[pass]"),
        *("没什么要补充的。\n\n【pass】。", "They can handle it.\n\n**[Pass]**"),
        *("Nothing from me\n\nPass.", "好的\n\n（pass）", "Helper: Nothing new. ［ pass ］"),
        *("Nothing to add (pass)", "没有补充。（PASS）", "OK [pass]\n\n(Nothing to add.)"),
        *("好的。[pass]（没有要补充的。）", "Fine. [PASS: not my topic]"),
        *("OK\n\npass - nothing to add", "pass — not for me"),
    ]

    def check(text: str) -> None:
        assert visible_text(text, [], may_pass=True) == ("", True)
        assert visible_text(text, list(range(len(text))), may_pass=True) == ("", True)

    check_each(cases, check)


def test_pass_sign_is_removed_and_other_words_stay_if_silence_is_not_allowed() -> None:
    cases: list[tuple[str, str]] = [  # an answer of nothing else is silent all the same
        ("[pass]", ""),
        ("[pass] 我没什么说的", "我没什么说的"),
        ("Pass.", "Pass."),  # an answer to “pass or fail?”
        ("Helper: [pass]", ""),
        ("At five. [pass]", "At five."),
        ("五点。【pass】。", "五点。"),
        ("It did\n\nPass.", "It did\n\nPass."),
        ("See [pass", "See [pass"),
        ("The [pass] is closed in winter.", "The [pass] is closed in winter."),
        ("Take the [passport]", "Take the [passport]"),
        ("At five. [pass: done]\n\n(Nothing to add.)", "At five."),
        ("See [pass: a", "See [pass: a"),
    ]

    def check(case: tuple[str, str]) -> None:
        text, expected = case
        for cuts in ([], list(range(len(text)))):
            assert visible_text(text, cuts, may_pass=False) == (expected, not expected)

    check_each(cases, check)


def test_sentences_with_the_word_pass_are_shown() -> None:
    cases: list[str] = [
        "You need 60 points to pass",
        "It will not come to pass.",
        "Pass - the Brenner - is open.",
        "Pass: 60 points or more.",
        "I would say\n\nPass: 60 points",
        "The [pass] (2,500 m) is closed in winter.",
        "不及格就拿不到 pass",
    ]

    def check(text: str) -> None:
        assert visible_text(text, [], may_pass=True) == (text, False)
        assert visible_text(text, list(range(len(text))), may_pass=True) == (text, False)

    check_each(cases, check)


@pytest.mark.parametrize("may_pass", [True, False])
def test_only_the_own_name_is_removed(may_pass: bool) -> None:
    cases: list[tuple[str, str]] = [
        ("小助手: 在罗索。", "在罗索。"),
        ("小助手：\n在罗索。", "在罗索。"),
        ("**Helper:** In Lisbon.", "In Lisbon."),
        ("[B]: yes", "yes"),
        ("BOT : yes", "yes"),
        ("小助手在这里。", "小助手在这里。"),
        ("Helper, that is me.", "Helper, that is me."),
        ("小助手", "小助手"),
        ("Helpers: many", "Helpers: many"),
        ("[passport] is the word", "[passport] is the word"),
        ("passing by", "passing by"),
        ("- one\n- two", "- one\n- two"),
    ]

    def check(case: tuple[str, str]) -> None:
        text, expected = case
        assert visible_text(text, [], may_pass=may_pass) == (expected, False)

    check_each(cases, check)


def test_answer_ends_where_it_goes_on_as_another_member() -> None:
    cases: list[tuple[str, str]] = [
        ("在里斯本。\nAnn: 谢谢\n小助手: 不客气", "在里斯本。"),
        ("In Lisbon.\n\n**Annie:** thanks!", "In Lisbon."),
        ("In Lisbon.\n[小波]：好的", "In Lisbon."),
        ("In Lisbon.\n  deep thought (10:32): ok", "In Lisbon."),
        ("Helper: In Lisbon.\nANN : thanks", "In Lisbon."),
        ("Ann: 谢谢", ""),
        ("Ok.\n10:03 Ann: thanks", "Ok."),
        ("Ok.\n[2026-03-05 10:03] Ann: thanks", "Ok."),
        ("好。\n3月5日 小波：我来", "好。"),
        ("Ok.\n1. Ann: the cake\n2 Ann: the tea", "Ok.\n1. Ann: the cake\n2 Ann: the tea"),
        ("At\n10:03 trains leave.", "At\n10:03 trains leave."),
        ("小助手: Ann: thanks", ""),
        # Not another speaker
        ("Ann, in Lisbon.\nAnn said: thanks", "Ann, in Lisbon.\nAnn said: thanks"),
        ("In Lisbon.\n@Ann: is that right?", "In Lisbon.\n@Ann: is that right?"),
        ("In Lisbon.\nAnna: a name", "In Lisbon.\nAnna: a name"),
        ("In Lisbon.\nHelper: and Porto", "In Lisbon.\nHelper: and Porto"),
        ("Who does what:\nAnn: slides\n小波：场地", "Who does what:\nAnn: slides\n小波：场地"),
        ("**分工：**\n\nAnn: slides\nDone.\nAnn: ok", "**分工：**\n\nAnn: slides\nDone."),
        ("Yes.\n- Ann: slides\n- 小波: venue", "Yes.\n- Ann: slides\n- 小波: venue"),
        ("Yes.\n```yaml\nAnn: 1\n```\nAnn: ok", "Yes.\n```yaml\nAnn: 1\n```"),
        ("Yes.\nAnn", "Yes.\nAnn"),
    ]

    def check(case: tuple[str, str]) -> None:
        text, expected = case
        for may_pass in (True, False):
            assert visible_text(text, [], may_pass=may_pass) == (expected, False)
            positions = list(range(1, len(text)))
            assert visible_text(text, positions, may_pass=may_pass) == (expected, False)

    check_each(cases, check)


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
