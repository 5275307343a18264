"""Held-back text can still become a leaked format: some ending completes it."""

import itertools
from collections import deque
from collections.abc import Iterator
from functools import cache

import pytest

from memrecall.text import LeakFilter, filter_leaks
from memrecall.text.leaks.automaton import OTHER, AutomatonState
from memrecall.text.leaks.calls import (
    ARGUMENT_KEYS,
    CALL_KEYS,
    LIST_KEYS,
    MAX_JSON_LENGTH,
    NAME_KEYS,
    OTHER_KEYS,
)
from memrecall.text.leaks.catalog import FormatEntry, get_formats
from memrecall.text.leaks.filter import MAX_FORMAT_LENGTH
from memrecall.text.leaks.formats import ANSWERS, FormatKind, StartPosition
from memrecall.text.leaks.markdown import MAX_SPAN_LENGTH
from tests.cases import check_each, read_rows
from tests.text.leak_cases import CASES, TOOLS, UNLISTED_CHARACTER
from tests.text.leak_samples import TEMPLATE_SAMPLES

pytestmark = pytest.mark.texts

MAX_STATES = 3_000
KEYS = sorted(NAME_KEYS | CALL_KEYS | LIST_KEYS | ARGUMENT_KEYS | OTHER_KEYS)
WORDS = [
    *KEYS,
    *TOOLS,
    *(f"{space}search_memory" for space in ("functions.", "tools.", "mcp__x__")),
]
CALL = '"name": "search_memory", "arguments": {}}'
# Endings that close open strings, lists and objects, and endings that make a call.
CLOSERS = ["", "}", "]}", "1}", ": 1}", ": 1}}", "{}", "]", '"', '"}', '"]}', '": 1}', '": 1}]}']
TAILS = [
    *(CALL, ", " + CALL, "{" + CALL, "[{" + CALL, ': "search_memory", "arguments"'),
    *(': "1", ' + CALL, ': {"a": 1}, ' + CALL, ": {" + CALL, ": [{" + CALL, ', "arguments"'),
    *('search_memory", "arguments"', '"search_memory", "arguments"', "}", ': {"'),
]
# Each ends a code span: by the end of the line, or by a longer run of backticks.
LINE_ENDS = ["\n", "`\n", "``\n"]
ANSWER = "assistantfinal"  # turns the text before it into reasoning

# What may follow the beginning of any tag, token or bracketed word.
TAG_ENDS = [
    end + call
    for end in ("", ">", '">', "|>", "]", "▷", "⟩", "={}>", ">search_memory</x>")
    for call in ("{" + CALL, ' search_memory(query="x")\n', 'search_memory\n{"a": 1}[/x]')
]
ANY_LENGTH = range(1, 100_000)
CASES_WITH_REASONING = [case.text for case in CASES if case.reasoning == "keep"]

known_endings: dict[int, list[str]] = {}  # by the id of a state, which lives as long as the formats


def shortest_endings(state: AutomatonState[FormatEntry]) -> list[str]:
    """Return the shortest endings that complete a format and a call."""
    if id(state) not in known_endings:
        known_endings[id(state)] = list(find_endings(state))
    return known_endings[id(state)]


def find_endings(state: AutomatonState[FormatEntry]) -> Iterator[str]:
    queue, visited, is_first = deque([(state, "")]), {id(state)}, True
    while queue and len(visited) < MAX_STATES:
        reached, ending = queue.popleft()
        if reached.matched is not None:
            is_call = reached.matched.row.kind is FormatKind.CALL
            if is_first or is_call:
                yield ending
            if is_call:
                return
            is_first = False
        if reached.is_settled:
            continue
        for char in [*sorted(reached.characters), OTHER]:
            after = reached[char]
            if id(after) not in visited:
                visited.add(id(after))
                queue.append((after, ending + (char or UNLISTED_CHARACTER)))


def endings(held_text: str) -> Iterator[str]:
    """Yield texts that may complete the held-back text."""
    yield from (*LINE_ENDS, ANSWER)
    yield from TAG_ENDS
    formats = get_formats(tuple(sorted(TOOLS)), "keep")
    for watch, start_position in itertools.product(
        map(formats.prose, [None, *ANSWERS]), StartPosition
    ):
        state = watch.starts[start_position]
        for char in held_text:
            state = state[char]
        for ending in [] if state.is_settled else shortest_endings(state):
            yield ending
            yield ending + CALL.removeprefix('"')
            yield ending + ANSWER
    yield from json_endings(held_text.rsplit('"', 1)[-1].rsplit("'", 1)[-1])


def json_endings(word: str) -> Iterator[str]:
    yield from (closer + tail for closer in CLOSERS for tail in TAILS)
    for candidate in WORDS:
        if candidate.startswith(word.lower()):
            yield from (candidate[len(word) :] + quote + tail for quote in "\"'" for tail in TAILS)


@cache
def can_become_a_format(before: str, held_text: str, remaining: str) -> bool:
    """Return True if some ending hides exactly the held-back text."""
    for ending in itertools.chain([remaining], endings(held_text)):
        for end in ("", *LINE_ENDS):
            visible, leaks = filter_leaks(before + held_text + ending + end, TOOLS)
            if leaks and leaks[0].position == len(before):
                return True
            if not leaks and held_text not in visible:
                return True  # reasoning, or a token around an answer
    return False


def check(text: str, lengths: range = ANY_LENGTH) -> None:
    """Feed a text by characters and check the held-back text at some lengths."""
    leaks = LeakFilter(TOOLS)
    for length, char in enumerate(text, start=1):
        leaks.feed(char)
        if leaks.leaks:
            return
        if length in lengths and (held_text := leaks.held):
            before = text[: length - len(held_text)]
            assert can_become_a_format(before, held_text, text[length:]), (before, held_text)


def check_some_lengths(texts: list[str]) -> None:
    """Check every 18th length of a text, with another offset in each of 18 texts."""
    offsets_by_text = [(text, number % 18) for number, text in enumerate(texts)]
    check_each(offsets_by_text, lambda case: check(case[0], ANY_LENGTH[case[1] :: 18]))


def test_withheld_text_of_cases_can_complete_a_format() -> None:
    check_some_lengths(CASES_WITH_REASONING)


@pytest.mark.long
def test_withheld_text_of_cases_can_complete_a_format_at_any_length() -> None:
    check_each(CASES_WITH_REASONING, check)


def test_withheld_text_of_prose_can_complete_a_format() -> None:
    check_some_lengths(TEMPLATE_SAMPLES[::5])


@pytest.mark.long
def test_withheld_text_of_all_prose_can_complete_a_format() -> None:
    check_each(TEMPLATE_SAMPLES, check)


def test_withheld_text_examples() -> None:
    def check(case: tuple[str, str]) -> None:
        text, held_text = case
        whole, chunked = LeakFilter(TOOLS), LeakFilter(TOOLS)
        whole.feed(text)
        for char in text:
            chunked.feed(char)
        assert (whole.held, chunked.held) == (held_text, held_text)

    check_each(read_rows("withheld", "withheld"), check)


LONG_FORMS: list[tuple[str, int]] = [
    ("<tool_call" + " " * 9_999, MAX_JSON_LENGTH),  # blanks do not count as characters
    ("{" + "\n" * 9_999, MAX_JSON_LENGTH),
    ("<tool_call " + "x" * 9_999, MAX_FORMAT_LENGTH + 1),
    ("<tool_call" + " x" * 9_999, 2 * MAX_FORMAT_LENGTH),
    ('{"arguments": "' + "x" * 9_999, MAX_JSON_LENGTH),
    ('{"arguments": ' + "[" * 9_999, MAX_JSON_LENGTH),
    ("`" + '<tool_call>{"' * 999, MAX_SPAN_LENGTH),
    ("<" * 9_999, 2),
    ("z " + "`" * 9_999, 0),
]


def test_format_must_be_recognised_within_the_maximum_length() -> None:
    def check(case: tuple[str, int]) -> None:
        text, max_length = case
        leaks = LeakFilter(TOOLS)
        for char in text:
            leaks.feed(char)
            assert len(leaks.held) <= max_length

    check_each(LONG_FORMS, check)
