"""The filter of leaked calls: every case, for any chunks."""

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from memrecall.errors import InvalidArgument
from memrecall.text import LeakFilter, filter_leaks
from memrecall.text.leaks import Leak
from memrecall.text.leaks.catalog import Reasoning
from tests.cases import check_each
from tests.text.leak_cases import CASES, TOOLS, Case, stream

pytestmark = pytest.mark.texts

CALL = '<tool_call>{"name": "search_memory", "arguments": {}}</tool_call>'
SIZES = (2, 3, 5, 7, 11, 23)  # of chunks
CODE = [
    f"`{CALL}`",
    f"see `{CALL}` and `` `{CALL}` ``",
    f"```\n{CALL}\n```",
    f"text\n  ```xml\n{CALL}\n  ```  \nmore",
    f"> ```\n> {CALL}\n> ```\nmore",
    f"~~~~\n~~~\n{CALL}\n~~~~~\nmore",
    f"```inline {CALL}``` here",
    f"```\n{CALL}",
    f"``` {CALL}",
]
OUTSIDE_CODE = [
    ("a ` stray mark ", "\n`"),
    ("`code` ", ""),
    ("```\ncode\n```\n", ""),
    ("``code` ", ""),
    ("```\n``\n```\n", "\n```"),
    ("a ` mark and ``code`` ", "\n"),
    (f"`{'long ' * 300}", "`"),
    ("~~~ inline? no: a fence\n~~~\n", ""),
    ("text ~~~\n", "\n~~~"),
]


def label(case: Case) -> str:
    return f"{case.source}:{case.family}"


class TestCases:
    def test_visible_text_of_cases(self) -> None:
        def check(case: Case) -> None:
            visible, leaks = stream(case.filter(), [case.text])
            assert visible == case.visible
            assert bool(leaks) == case.leak

        check_each(CASES, check, label)

    def test_reported_leaks_of_cases(self) -> None:
        def check(case: Case) -> None:
            _, leaks = stream(case.filter(), [case.text])
            assert {leak.family for leak in leaks} == ({case.family} if case.leak else set())
            if case.names is not None:
                assert tuple(leak.name for leak in leaks) == case.names
            positions = [leak.position for leak in leaks]
            assert positions == sorted(positions)
            if case.position is not None:
                assert positions[0] == case.position

        check_each(CASES, check, label)

    def test_one_chunk_border_does_not_matter(self) -> None:
        """Try every eighth cut of a case, with another offset in each of eight cases."""

        def check(numbered_case: tuple[int, Case]) -> None:
            number, case = numbered_case
            check_cuts(case, range(number % 8, len(case.text) + 1, 8))

        check_each(enumerate(CASES), check, lambda numbered_case: label(numbered_case[1]))

    @pytest.mark.long
    def test_no_chunk_border_matters(self) -> None:
        check_each(CASES, lambda case: check_cuts(case, range(len(case.text) + 1)), label)

    def test_chunk_size_does_not_matter(self) -> None:
        """Try two chunk sizes with each case, one of them a single character."""

        def check(numbered_case: tuple[int, Case]) -> None:
            number, case = numbered_case
            check_sizes(case, (1, SIZES[number % len(SIZES)]))

        check_each(enumerate(CASES), check, lambda numbered_case: label(numbered_case[1]))

    @pytest.mark.long
    def test_no_chunk_size_matters(self) -> None:
        check_each(CASES, lambda case: check_sizes(case, (1, *SIZES)), label)


def check_cuts(case: Case, cuts: Iterable[int]) -> None:
    whole = stream(case.filter(), [case.text])
    for cut in cuts:
        assert stream(case.filter(), [case.text[:cut], case.text[cut:]]) == whole, cut


def check_sizes(case: Case, sizes: Iterable[int]) -> None:
    whole = stream(case.filter(), [case.text])
    for size in sizes:
        chunks = [case.text[at : at + size] for at in range(0, len(case.text), size)]
        assert stream(case.filter(), chunks) == whole, size


def test_lines_before_a_call_do_not_affect_it() -> None:
    def check(case: Case) -> None:
        is_standalone = stream(case.filter(), [case.text])[1]
        for before in ("第一行。\n", "First line.\n\n", "`code` and\n> "):
            visible, leaks = stream(case.filter(), [before, case.text])
            assert visible == before + case.visible
            assert leaks == [
                replace(leak, position=leak.position + len(before)) for leak in is_standalone
            ]

    cases = [case for case in CASES if case.leak and not case.at_start]
    # A retraction also takes back the lines before.
    check_each([case for case in cases if case.reasoning != "auto"], check, label)


class TestFilter:
    def test_prose_is_streamed_without_delay(self) -> None:
        leaks = LeakFilter(TOOLS)
        assert [leaks.feed(word) for word in ("The ", "deploy ", "is ", "done.")] == [
            "The ",
            "deploy ",
            "is ",
            "done.",
        ]
        assert leaks.close() == ""
        assert leaks.leaks == []

    def test_leak_is_reported_as_soon_as_it_is_certain(self) -> None:
        leaks = LeakFilter(TOOLS)
        assert leaks.feed("Wait <tool_call>") == "Wait "
        assert leaks.leaks == []
        assert leaks.feed('{"') == ""
        assert leaks.leaks == [Leak("hermes_json", 5)]
        leaks.feed('name": "search_memory"')
        assert leaks.leaks == [Leak("hermes_json", 5, "search_memory")]

    def test_everything_after_a_call_is_hidden(self) -> None:
        leaks = LeakFilter(TOOLS)
        assert leaks.feed(f"A {CALL} and more") == "A "
        assert leaks.feed("and more") == ""
        assert leaks.close() == ""

    def test_without_tools_only_unambiguous_formats_match(self) -> None:
        bare = '{"name": "search_memory", "arguments": {}}'
        assert filter_leaks(bare) == (bare, [])
        assert filter_leaks(bare, TOOLS).visible == ""
        assert filter_leaks(CALL).visible == ""

    def test_closed_filter_rejects_more_text(self) -> None:
        leaks = LeakFilter(TOOLS)
        leaks.close()
        assert leaks.close() == ""
        with pytest.raises(ValueError, match="create a new one for each answer"):
            leaks.feed("more")

    def test_invalid_arguments_are_rejected(self) -> None:
        with pytest.raises(
            InvalidArgument, match="a list of names, not the string 'search_memory'"
        ):
            LeakFilter("search_memory")
        with pytest.raises(InvalidArgument, match="reasoning False is unknown"):
            LeakFilter(TOOLS, reasoning=cast("Reasoning", False))

    def test_filters_are_independent(self) -> None:
        first, second = LeakFilter(TOOLS), LeakFilter(TOOLS)
        first.feed(CALL)
        assert second.feed("text ") == "text "
        assert second.leaks == []

    def test_empty_chunk_is_ignored(self) -> None:
        text = "x commentary to=functions.search_memory json{}"
        chunks = [piece for char in text for piece in ("", char, "")]
        assert stream(LeakFilter(TOOLS), chunks) == stream(LeakFilter(TOOLS), [text])
        inside_a_word = ["mus", "", "commentary to=functions.search_memory json{}"]
        assert stream(LeakFilter(TOOLS), inside_a_word)[0].startswith("mus")

    def test_tool_names_in_any_script(self) -> None:
        visible, leaks = filter_leaks('{"name": "查询记忆", "arguments": {}}', ["查询记忆"])
        assert (visible, [leak.name for leak in leaks]) == ("", ["查询记忆"])

    def test_tool_names_with_pattern_characters(self) -> None:
        assert filter_leaks("a|b(x=1)", ["a|b"]).visible == ""
        assert filter_leaks("a(x=1)", ["a|b"]).leaks == []

    def test_text_may_begin_inside_reasoning(self) -> None:
        assert filter_leaks("hm</think>Yes", TOOLS, reasoning="open").visible == "Yes"
        assert filter_leaks("hm", TOOLS, reasoning="open").visible == ""


class TestMarkdown:
    def test_markdown_code_is_unchanged(self) -> None:
        def check(text: str) -> None:
            assert filter_leaks(text, TOOLS) == (text, [])

        check_each(CODE, check)

    def test_text_outside_markdown_code_is_filtered(self) -> None:
        def check(around: tuple[str, str]) -> None:
            before, after = around
            visible, leaks = filter_leaks(before + CALL + after, TOOLS)
            assert visible == before
            assert len(leaks) == 1

        check_each(OUTSIDE_CODE, check)

    def test_stray_backtick_does_not_break_a_later_span(self) -> None:
        text = f"it`s said: `` {CALL} ``\nmore"
        assert filter_leaks(text, TOOLS) == (text, [])
