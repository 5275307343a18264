"""What is held back can still become a form: an ending is found for it that makes it one."""

import itertools
from collections import deque
from collections.abc import Iterator
from functools import cache

import pytest

from memrecall.text import LeakFilter, filter_leaks
from memrecall.text.leaks.automaton import OTHER, AutomatonState
from memrecall.text.leaks.buffer import MAX_FORMAT_LENGTH
from memrecall.text.leaks.formats import ANSWERS, FormatKind, StartPosition
from memrecall.text.leaks.json_calls import (
    ARGUMENT_KEYS,
    CALL_KEYS,
    LIST_KEYS,
    MAX_JSON_LENGTH,
    NAME_KEYS,
    OTHER_KEYS,
)
from memrecall.text.leaks.markdown import MAX_SPAN_LENGTH
from memrecall.text.leaks.matchers import FormatEntry, get_formats
from tests.cases import check_each
from tests.text.leak_cases import CASES, TOOLS
from tests.text.leak_samples import MADE_SAMPLES

MOST_STATES = 3_000
UNNAMED = "好"  # a character that no pattern names
KEYS = sorted(NAME_KEYS | CALL_KEYS | LIST_KEYS | ARGUMENT_KEYS | OTHER_KEYS)
WORDS = [*KEYS, *TOOLS, *(f"{space}.search_memory" for space in ("functions", "tools"))]
CALL = '"name": "search_memory", "arguments": {}}'
# What closes the strings, lists and objects that are open, and what makes the rest a call.
CLOSERS = ["", "}", "]}", "1}", ": 1}", ": 1}}", "{}", "]", '"', '"}', '"]}', '": 1}', '": 1}]}']
TAILS = [
    *(CALL, ", " + CALL, "{" + CALL, "[{" + CALL, ': "search_memory", "arguments"'),
    *(': "1", ' + CALL, ': {"a": 1}, ' + CALL, ": {" + CALL, ": [{" + CALL, ', "arguments"'),
    *('search_memory", "arguments"', '"search_memory", "arguments"', "}", ': {"'),
]
# Each undoes a span: by the line's end, and by making a run longer that would have closed it.
LINE_ENDS = ["\n", "`\n", "``\n"]
ANSWER = "assistantfinal"  # makes a thought of what may be one

ANY_LENGTH = range(1, 100_000)
KEPT_CASES = [case.text for case in CASES if case.reasoning == "keep"]

known_endings: dict[int, list[str]] = {}  # by state: those live as long as the formats


def shortest_endings(state: AutomatonState[FormatEntry]) -> list[str]:
    """The fewest characters that complete a form, and the fewest that complete a call."""
    if id(state) not in known_endings:
        known_endings[id(state)] = list(find_endings(state))
    return known_endings[id(state)]


def find_endings(state: AutomatonState[FormatEntry]) -> Iterator[str]:
    todo, seen, is_first = deque([(state, "")]), {id(state)}, True
    while todo and len(seen) < MOST_STATES:
        reached, ending = todo.popleft()
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
            if id(after) not in seen:
                seen.add(id(after))
                todo.append((after, ending + (char or UNNAMED)))


def endings(held: str) -> Iterator[str]:
    """Texts that may complete what has begun."""
    yield from (*LINE_ENDS, ANSWER)
    formats = get_formats(tuple(sorted(TOOLS)), "keep")
    for watch, start_position in itertools.product(
        map(formats.prose, [None, *ANSWERS]), StartPosition
    ):
        state = watch.starts[start_position]
        for char in held:
            state = state[char]
        for found in [] if state.is_settled else shortest_endings(state):
            yield found
            yield found + CALL.removeprefix('"')
            yield found + ANSWER
    yield from json_endings(held.rsplit('"', 1)[-1].rsplit("'", 1)[-1])


def json_endings(word: str) -> Iterator[str]:
    yield from (closer + tail for closer in CLOSERS for tail in TAILS)
    for known in WORDS:
        if known.startswith(word.lower()):
            yield from (known[len(word) :] + quote + tail for quote in "\"'" for tail in TAILS)


@cache
def can_become_a_form(before: str, held: str, rest: str) -> bool:
    """Whether some ending, perhaps the one it has, hides exactly what is held back."""
    for ending in itertools.chain([rest], endings(held)):
        for end in ("", "\n"):
            visible, leaks = filter_leaks(before + held + ending + end, TOOLS)
            if leaks and leaks[0].position == len(before):
                return True
            if not leaks and held not in visible:
                return True  # a thought, or a token around an answer
    return False


def check(text: str, lengths: range = ANY_LENGTH) -> None:
    """Feed a text by characters; check what is held at these lengths of it."""
    leaks = LeakFilter(TOOLS)
    for length, char in enumerate(text, start=1):
        leaks.feed(char)
        if leaks.leaks:
            return
        if length in lengths and (held := leaks.held):
            before = text[: length - len(held)]
            assert can_become_a_form(before, held, text[length:]), (before, held)


def check_some_lengths(texts: list[str]) -> None:
    """Check every sixth length of a text, beginning at another one in each of six texts."""
    numbered = [(text, number % 6) for number, text in enumerate(texts)]
    check_each(numbered, lambda one: check(one[0], ANY_LENGTH[one[1] :: 6]))


def test_withheld_text_of_cases_can_complete_a_format() -> None:
    check_some_lengths(KEPT_CASES)


@pytest.mark.long
def test_withheld_text_of_cases_can_complete_a_format_at_any_length() -> None:
    check_each(KEPT_CASES, check)


def test_withheld_text_of_prose_can_complete_a_format() -> None:
    check_some_lengths(MADE_SAMPLES[::5])


@pytest.mark.long
def test_withheld_text_of_all_prose_can_complete_a_format() -> None:
    check_each(MADE_SAMPLES, check)


HELD: list[tuple[str, str]] = [
    ("3 <", "<"),
    ("3 < 5", ""),
    ("a <b", "<b"),
    ("a <b>", ""),
    ("<div ", ""),
    ("music", ""),
    ("x c", "c"),
    ("x commentary", "commentary"),
    ("x commentary ", "commentary "),
    ("x commentary o", ""),
    ("x[", "["),
    ("x[0", ""),
    ('{"na', '{"na'),
    ('{"nb', ""),
    ('{"name": "sea', '{"name": "sea'),
    ('{"name": "seb', ""),
    ("`<tool_call>{", "<tool_call>{"),
    ('`<tool_call>{"name": ', '<tool_call>{"name": '),
    ('`<tool_call>{"name": `', '<tool_call>{"name": `'),  # the mark may be one of two
    ('`<tool_call>{"name": ` ', ""),
    ("x `", ""),
    ("x\n```", ""),
    ("```js", "```js"),  # as the whole answer it may be a call
    ("```js x", ""),
    ("text\n", ""),
    ("text\n  ", ""),
    ("<tool_call>", "<tool_call>"),
    ("<tool_call> t", "<tool_call> t"),  # may be a name
    ("<tool_call> tags x", ""),
    ("使用<tool_call>标签，", ""),
    ("<|channel|>analysis<|message|>hidden <", ""),
]


def test_withheld_text_examples() -> None:
    def check(case: tuple[str, str]) -> None:
        text, held = case
        at_once, in_pieces = LeakFilter(TOOLS), LeakFilter(TOOLS)
        at_once.feed(text)
        for char in text:
            in_pieces.feed(char)
        assert (at_once.held, in_pieces.held) == (held, held)

    check_each(HELD, check)


LONG_FORMS: list[tuple[str, int]] = [
    ("<tool_call" + " " * 9_999, MAX_FORMAT_LENGTH),
    ("{" + "\n" * 9_999, MAX_FORMAT_LENGTH),
    ('{"arguments": "' + "x" * 9_999, MAX_JSON_LENGTH),
    ('{"arguments": ' + "[" * 9_999, MAX_JSON_LENGTH),
    ("`" + '<tool_call>{"' * 999, MAX_SPAN_LENGTH),
    ("<" * 9_999, 1),
    ("x " + "`" * 9_999, 0),
]


def test_format_must_be_recognised_within_the_maximum_length() -> None:
    def check(case: tuple[str, int]) -> None:
        text, most = case
        leaks = LeakFilter(TOOLS)
        for char in text:
            leaks.feed(char)
            assert len(leaks.held) <= most

    check_each(LONG_FORMS, check)
