"""The formats compiled for a set of tools."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Literal, get_args

from memrecall.errors import InvalidArgument
from memrecall.text.leaks.automaton import (
    Automaton,
    AutomatonState,
    Pattern,
    compile_search,
    compile_stops,
    parse,
    parse_words,
)
from memrecall.text.leaks.calls import NAMESPACE, NamePrefixes
from memrecall.text.leaks.formats import (
    ANSWERS,
    CODE_CALLS,
    LENIENT_CALLS,
    MACROS,
    REASONING_FORMATS,
    STRICT_CALLS,
    TURN_ENDS,
    AnswerChannel,
    FormatKind,
    FormatRow,
    ReasoningFormat,
    StartPosition,
)
from memrecall.text.leaks.markdown import STOPS, LineState

Reasoning = Literal["auto", "strip", "open", "keep"]
"""What happens to reasoning: see `LeakFilter`."""
LeakMode = Literal["strict", "lenient"]
"""Whether calls count in Markdown code, and control tokens without the rest of a call."""


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """A row of the table, and the reasoning or answer that it begins or ends."""

    row: FormatRow
    reasoning: ReasoningFormat | None = None
    answer: AnswerChannel | None = None
    is_stray_end: bool = False  # the end of reasoning that did not begin in the text


_Member = tuple[FormatEntry, int]  # an entry and its start node in the automaton


class FormatSet:
    """Formats that are searched for together."""

    def __init__(self, starts: Sequence[AutomatonState[FormatEntry]]) -> None:
        self.starts = starts  # by start position
        self.in_span = self  # with the formats of code, while a span may still end
        self._stops: dict[LineState, re.Pattern[str]] = {}

    def stop_pattern(self, lines: LineState) -> re.Pattern[str]:
        """Return the expression that finds where prose, in lines of a state, needs processing.

        That is a possible start of a format, a backtick, or the end of a line before such a line.
        """
        if lines not in self._stops:
            # A search from words finds what only marks precede too.
            starts = self.starts[StartPosition.MARK : StartPosition.START]
            self._stops[lines] = compile_stops(f"`|{STOPS[lines]}", self.starts[0], *starts)
        return self._stops[lines]

    @cached_property
    def anywhere_pattern(self) -> re.Pattern[str]:
        """The expression that finds where a format could begin."""
        start, _, word, _, line, _ = self.starts
        return compile_search(start, word, line)


class FormatCatalog:
    """All formats for some tools; sets of them are compiled on first use."""

    def __init__(self, tools: tuple[str, ...], reasoning: Reasoning, mode: LeakMode) -> None:
        self.tools = tools
        is_strict = mode == "strict"
        self.names = NamePrefixes.from_tools(tools, are_keys=is_strict)
        self.reasoning_formats = [
            f for f in REASONING_FORMATS if f.is_always_hidden or reasoning != "keep"
        ]
        self._automaton: Automaton[FormatEntry] = Automaton()
        self._macros = expand_macros(tools)
        self._format_sets: dict[object, FormatSet] = {}
        self._calls = self._add_calls(STRICT_CALLS if is_strict else LENIENT_CALLS)
        self._code_calls = self._add_calls(CODE_CALLS) if is_strict else []
        self._starts = [self._add(entry) for f in self.reasoning_formats for entry in _starts(f)]
        self._ends = {f: self._add(FormatEntry(_end_row(f), f)) for f in self.reasoning_formats}
        self._stray_ends = [
            self._add(FormatEntry(_end_row(f, f.stray_end), f, is_stray_end=True))
            for f in self.reasoning_formats
            if not f.is_always_hidden
        ]
        self._retracts = reasoning == "auto"
        self._answers = {a: [self._add(entry) for entry in _answer_entries(a)] for a in ANSWERS}
        self._turn_ends = self._add_calls(TURN_ENDS)

    @property
    def initial_reasoning(self) -> ReasoningFormat:
        """The reasoning format that a prompt may have opened."""
        return next(f for f in self.reasoning_formats if f.family == "think")

    def prose(self, answer: AnswerChannel | None = None) -> FormatSet:
        """Return the formats to search for in visible text, inside an answer's channel or not."""
        if answer not in self._format_sets:
            members = [*self._calls, *self._starts, *self._stray_ends, *self._turn_ends]
            if answer is None or not answer.is_last:
                members += [entries[0] for a, entries in self._answers.items() if a.is_standalone]
            members += self._answers[answer][1:] if answer else []
            formats = self._format_sets[answer] = self._make_format_set(members)
            if self._code_calls:
                members = [m for m in members if m[0].row.start_position < StartPosition.LINE]
                formats.in_span = self._make_format_set([*members, *self._code_calls])
        return self._format_sets[answer]

    @cached_property
    def code(self) -> FormatSet | None:
        """The formats to search for in Markdown code, None if it is left alone."""
        return self._make_format_set(self._code_calls) if self._code_calls else None

    def in_reasoning(self, reasoning: ReasoningFormat, *, after_call: bool) -> FormatSet:
        """Return the formats to search for in reasoning, before or after a call in it."""
        if (reasoning, after_call) not in self._format_sets:
            members = [self._ends[reasoning]]
            if reasoning.is_ambiguous:
                # The calls of families that share channels with this reasoning.
                families = {
                    f for a in ANSWERS if reasoning.family in a.families for f in a.families
                }
                members += [call for call in self._calls if call[0].row.family in families]
            elif not after_call:
                members += [f for f in self._calls if f[0].row.kind is FormatKind.CALL]
            if reasoning.has_channels:
                members += self._answer_starts(reasoning.family)
            self._format_sets[reasoning, after_call] = self._make_format_set(members)
        return self._format_sets[reasoning, after_call]

    def after_call(self, row: FormatRow) -> FormatSet | None:
        """Return the formats to search for after a call or an end, None if there are none."""
        key = row.family, row.kind is FormatKind.END
        if key not in self._format_sets:
            members = self._answer_starts(row.family)
            members += self._stray_ends if self._retracts and not key[1] else []
            if not members:
                return None
            self._format_sets[key] = self._make_format_set(members)
        return self._format_sets[key]

    def _answer_starts(self, family: str) -> list[_Member]:
        return [entries[0] for a, entries in self._answers.items() if family in a.families]

    def _make_format_set(self, members: Sequence[_Member]) -> FormatSet:
        starts = [
            self._automaton.state_of(
                node for form, node in members if form.row.start_position <= start_position
            )
            for start_position in StartPosition
        ]
        return FormatSet(starts)

    def _add_calls(self, rows: Sequence[FormatRow]) -> list[_Member]:
        """Add the rows, without tools only those that need no tool's name."""
        return [
            self._add(FormatEntry(row))
            for row in rows
            if self.tools or r"\T" not in row.pattern.removesuffix(row.lenient_end)
        ]

    def _add(self, form: FormatEntry) -> _Member:
        node = parse(form.row.pattern, self._macros, exact=form.row.exact)
        return form, self._automaton.add(node, form)


def unique_names(tool_names: Iterable[str]) -> tuple[str, ...]:
    """Return the tools' names in order, each once."""
    if isinstance(tool_names, str):
        raise InvalidArgument(
            f"tool_names must be a list of names, not the string {tool_names!r}; "
            f"pass [{tool_names!r}]"
        )
    return tuple(sorted(set(tool_names) - {""}))


@lru_cache(maxsize=64)
def get_formats(
    tools: tuple[str, ...], reasoning: Reasoning, mode: LeakMode = "lenient"
) -> FormatCatalog:
    """Return the formats for some tools, compiled once and shared by all filters."""
    check_modes(reasoning, mode)
    return FormatCatalog(tools, reasoning, mode)


def check_modes(reasoning: Reasoning, mode: LeakMode) -> None:
    """Raise InvalidArgument if one of them is unknown."""
    for name, value, known in (("reasoning", reasoning, Reasoning), ("mode", mode, LeakMode)):
        if value not in get_args(known):
            raise InvalidArgument(
                f"{name} {value!r} is unknown; use one of {', '.join(get_args(known))}"
            )


def _starts(reasoning: ReasoningFormat) -> list[FormatEntry]:
    family, kind, exact = reasoning.family, FormatKind.REASONING, reasoning.exact
    rows = (FormatRow(family, begin, at, kind, exact) for begin, at in reasoning.starts)
    return [FormatEntry(row, reasoning) for row in rows]


def _end_row(reasoning: ReasoningFormat, after: str = "") -> FormatRow:
    pattern = reasoning.end + after
    return FormatRow(reasoning.family, pattern, kind=FormatKind.TOKEN, exact=reasoning.exact)


def _answer_entries(answer: AnswerChannel) -> list[FormatEntry]:
    family = answer.families[0]
    begin = FormatRow(family, answer.begin, answer.start_position, FormatKind.TOKEN)
    ends = [FormatRow(family, answer.end, kind=FormatKind.TOKEN)] if answer.end else []
    if answer.is_last:  # a second answer ends it too
        ends = [replace(row, family="end", kind=FormatKind.END) for row in (begin, *ends)]
    return [FormatEntry(begin, answer=answer), *map(FormatEntry, ends)]


def expand_macros(tools: tuple[str, ...]) -> dict[str, Pattern]:
    """Return the nodes of the table's macros for some registered tools."""
    name = parse(rf"({NAMESPACE.replace('?:', '')})?\X", {"X": parse_words(tools)}, exact=True)
    return {**_fixed_macros(), "T": name}


@cache
def _fixed_macros() -> dict[str, Pattern]:
    macros: dict[str, Pattern] = {}
    for name, pattern in MACROS.items():
        macros[name] = parse(pattern, macros)
    return macros
