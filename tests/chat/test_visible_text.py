"""How answers in a group begin: own names are taken off, silence is known, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.chat.visible_text import PrefixFilter, VisibleText
from memrecall.memory import Library
from memrecall.testing import say
from tests.cases import check_each

from .stage import TEAM, group, play, stored

NAMES = ("bot", "小助手", "Helper", "[B]")


def heard(text: str, cuts: list[int], *, may_pass: bool) -> tuple[str, bool]:
    """What is shown of an answer that comes in pieces, and whether it is silence."""
    speech = VisibleText(
        ["recall_memory"], "m", prefix_filter=PrefixFilter(NAMES, may_pass=may_pass)
    )
    speech.begin()
    bounds = zip([0, *cuts], [*cuts, len(text)], strict=True)
    shown = "".join(speech.feed(text[start:end]) for start, end in bounds) + speech.end()
    assert shown == speech.text
    return shown, speech.is_silent


def test_variants_of_pass_are_silence_if_allowed() -> None:
    cases: list[str] = [
        "[pass]",
        " [PASS].\n",
        "[pass] 我没什么说的",
        "pass",
        "Pass.",
        "**[pass]**",
        "【pass】",
        "（pass）",
        "小助手: [pass]",
        "[pass]\n\nI have nothing to add.",
    ]

    def check(text: str) -> None:
        assert heard(text, [], may_pass=True) == ("", True)

    check_each(cases, check)


def test_pass_variants_are_text_if_silence_is_not_allowed() -> None:
    cases: list[tuple[str, str, bool]] = [
        ("[pass]", "", True),
        ("[pass] 我没什么说的", "我没什么说的", False),
        ("Pass.", "Pass.", False),  # an answer to “pass or fail?”
        ("Helper: [pass]", "", True),
    ]

    def check(case: tuple[str, str, bool]) -> None:
        text, shown, passed = case
        assert heard(text, [], may_pass=False) == (shown, passed)

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
        text, shown = case
        assert heard(text, [], may_pass=may_pass) == (shown, False)

    check_each(cases, check)


PIECES = st.sampled_from(
    [
        "小助手",
        "Helper",
        "bot",
        "[B]",
        ":",
        "：",
        " ",
        "\n",
        "[pass]",
        "pass",
        "[",
        "]",
        "*",
        "在。",
        "p",
    ]
)


@given(st.lists(PIECES, max_size=6), st.booleans(), st.data())
def test_prefix_filter_is_independent_of_chunks(
    parts: list[str], may_pass: bool, data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    every = list(range(1, len(text)))
    whole = heard(text, [], may_pass=may_pass)
    assert heard(text, cuts, may_pass=may_pass) == whole
    assert heard(text, every, may_pass=may_pass) == whole


async def test_answer_is_stored_without_the_speakers_name(lite: Library) -> None:
    chat = group(lite, say("小助手: 在罗索。"))
    await chat.post("ann", "@小助手 在哪里？")
    played = await play(chat.stream("bot"))
    assert played.final.text == "在罗索。"
    assert (await stored(lite, TEAM))[-1].content == "在罗索。"


async def test_silence_with_extra_text_stores_nothing(lite: Library) -> None:
    chat = group(lite, say("[pass] 我没什么说的"))
    await chat.post("ann", "我去吃饭了")
    played = await play(chat.stream("bot"))
    assert (played.final.silent, played.final.text, played.deltas) == (True, "", [])
    assert len(await stored(lite, TEAM)) == 1
