"""The pattern language and its automaton, compared with regular expressions."""

import re
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.text import filter_leaks
from memrecall.text.leaks.automaton import (
    OTHER,
    Automaton,
    AutomatonState,
    compile_search,
    parse,
    parse_words,
)
from memrecall.text.leaks.catalog import LeakMode, expand_macros, get_formats
from memrecall.text.leaks.formats import (
    CALLS,
    CODE_CALLS,
    LENIENT_CALLS,
    STRICT_CALLS,
    FormatKind,
    FormatRow,
    StartPosition,
)
from tests.cases import check_each
from tests.text.leak_cases import TOOLS, UNLISTED_CHARACTER, read_cases

pytestmark = pytest.mark.texts

LETTERS = "ab<"
BEFORE = ("前文", "前文 ", "前文】", "前文。 ", "前文\n", "")  # by start position


def make_automaton(*patterns: str) -> tuple[Automaton[str], AutomatonState[str]]:
    automaton: Automaton[str] = Automaton()
    starts = [automaton.add(parse(pattern, {}, exact=True), pattern) for pattern in patterns]
    return automaton, automaton.state_of(starts)


def run(state: AutomatonState[str], text: str) -> AutomatonState[str]:
    for char in text:
        state = state[char]
    return state


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    """Generate a pattern of the syntax common to both languages."""
    if depth == 0:
        return draw(st.sampled_from(["a", "b", "<", "[ab]", "[^a]"]))
    parts = draw(st.lists(patterns(depth=depth - 1), min_size=1, max_size=3))
    counts = draw(st.sampled_from(["", "?", "*", "+", "{1,2}", "{2}"]))
    joint = draw(st.sampled_from(["", "|"]))
    return f"({joint.join(parts)}){counts}"


def first_match(pattern: str, text: str) -> int | None:
    """Return the length of the shortest matching prefix of a text."""
    lengths = (n for n in range(len(text) + 1) if re.fullmatch(pattern, text[:n], re.DOTALL))
    return next(lengths, None)


@given(patterns(), st.text(alphabet=LETTERS, max_size=8))
def test_automaton_stops_at_the_shortest_match(pattern: str, text: str) -> None:
    _, state = make_automaton(pattern)
    length = 0
    while not state.is_settled and length < len(text):
        state = state[text[length]]
        length += 1
    assert (length if state.matched else None) == first_match(pattern, text)


@given(patterns(), st.text(alphabet=LETTERS, max_size=6), st.text(alphabet=LETTERS, max_size=6))
def test_automaton_stays_open_while_a_match_is_possible(
    pattern: str, text: str, continuation: str
) -> None:
    _, state = make_automaton(pattern)
    if first_match(pattern, text) is None and re.fullmatch(pattern, text + continuation):
        assert run(state, text).can_match


@given(patterns(), st.text(alphabet=LETTERS + "x", max_size=12))
def test_search_finds_every_possible_start(pattern: str, text: str) -> None:
    _, state = make_automaton(pattern)
    if state[OTHER].can_match:
        with pytest.raises(ValueError, match="any character"):
            compile_search(state, state)
        return
    search = compile_search(state, state)
    for at in range(len(text)):
        if may_become_a_match(state, text[at:]):
            assert search.match(text, at)


def may_become_a_match(state: AutomatonState[str], text: str) -> bool:
    for char in text:
        state = state[char]
        if state.is_settled:
            break
    return state.can_match


def test_first_matching_pattern_wins() -> None:
    _, state = make_automaton("a(b|c)", "ab")
    assert run(state, "ab").matched == "a(b|c)"


def test_truncation_mark_marks_truncated_matches() -> None:
    _, state = make_automaton("ab§cd")
    assert [run(state, "abcd"[:n]).truncated for n in range(4)] == [None, None, "ab§cd", "ab§cd"]


def test_letters_match_in_both_cases_unless_exact() -> None:
    automaton: Automaton[str] = Automaton()
    state = automaton.state_of([automaton.add(parse("aB", {}), "any")])
    assert run(state, "Ab").matched == "any"
    exact: Automaton[str] = Automaton()
    state = exact.state_of([exact.add(parse("aB", {}, exact=True), "exact")])
    assert run(state, "Ab").matched is None


def test_macros_and_words() -> None:
    automaton: Automaton[str] = Automaton()
    macros = {"T": parse_words(("a|b", "c"))}
    state = automaton.state_of([automaton.add(parse(r"<\T>", macros), "named")])
    assert run(state, "<a|b>").matched == "named"
    assert not run(state, "<a>").can_match


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a", "is incomplete"),
        ("a)", "unbalanced"),
        ("[a", "is incomplete"),
        ("a(b§)", "inside a group"),
        ("a\\", "is incomplete"),
    ],
)
def test_invalid_pattern_raises_value_error(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(pattern, {})


def test_no_format_starts_with_white_space_or_matches_empty_text() -> None:
    watch = get_formats(("search_memory",), "strip").prose()
    for start_position in StartPosition:
        assert not watch.starts[start_position].is_settled
        assert not any(watch.starts[start_position][space].can_match for space in " \t\n\r\u3000")


def shortest_example(row: FormatRow) -> str:
    """Return the shortest text that a row matches, or a truncated match."""
    automaton: Automaton[FormatRow] = Automaton()
    macros = expand_macros(TOOLS)
    start = automaton.state_of([automaton.add(parse(row.pattern, macros, exact=row.exact), row)])
    queue, visited, truncated = deque([(start, "")]), {id(start)}, ""
    while queue:
        state, text = queue.popleft()
        if state.matched is not None:
            return text
        truncated = truncated or (text if state.truncated is not None else "")
        for char in [*sorted(state.characters), OTHER]:
            if state[char].can_match and id(state[char]) not in visited:
                visited.add(id(state[char]))
                queue.append((state[char], text + (char or UNLISTED_CHARACTER)))
    return truncated


def test_every_format_row_hides_its_match() -> None:
    def check(case: tuple[FormatRow, LeakMode]) -> None:
        row, mode = case
        example = shortest_example(row)
        assert example
        if row.kind is FormatKind.JSON:  # the row may end after the first key
            example = example.removesuffix('":') + 'name": "search_memory", "arguments": {}}'
        before = BEFORE[row.start_position]
        visible, leaks = filter_leaks(before + example, TOOLS, mode=mode)
        assert visible == before
        assert leaks[0].position == len(before)

    cases: list[tuple[FormatRow, LeakMode]] = [(row, "lenient") for row in LENIENT_CALLS]
    cases += [(row, "strict") for row in CALLS if row in STRICT_CALLS]
    check_each(cases, check, lambda case: f"{case[1]} {case[0].family} {case[0].pattern}")


def test_every_row_for_code_hides_its_match_in_code() -> None:
    """A fence and the backtick of a span are hidden with the call in them."""

    def check(row: FormatRow) -> None:
        example = shortest_example(row)
        if row.kind is FormatKind.JSON:
            example += 'name": "search_memory", "arguments": {}}'
        places = [("前文\n", "```\n", 3), ("前文：", "`", 3)]
        for before, around, hidden_from in places[
            : 1 if "\n" in example else 2
        ]:  # a span is a line
            text = f"{before}{around}{example}{around}"
            visible, leaks = filter_leaks(text, TOOLS, mode="strict")
            assert (visible, len(leaks) > 0) == (text[:hidden_from], True)
            assert filter_leaks(text, TOOLS) == (text, [])

    check_each(CODE_CALLS, check, lambda row: f"{row.family} {row.pattern}")


def test_every_collected_family_has_a_format_row() -> None:
    families = {case.family for case in read_cases("collected")} - {"negative"}
    assert families <= {row.family for row in CALLS}
