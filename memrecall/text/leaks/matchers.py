"""The formats made ready to be looked for, once for each set of tools."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, get_args

from memrecall.errors import InvalidArgument
from memrecall.text.leaks.automaton import Automaton, AutomatonState, write_search, write_stops
from memrecall.text.leaks.formats import (
    ANSWERS,
    CALLS,
    MACROS,
    THOUGHTS,
    AnswerChannel,
    Kind,
    Row,
    StartPosition,
    Thought,
)
from memrecall.text.leaks.json_calls import NamePrefixes
from memrecall.text.leaks.markdown import STOPS, LineState
from memrecall.text.leaks.patterns import Node, one_of, parse

Reasoning = Literal["keep", "strip", "open"]
"""What is done about thoughts; `open`: stripped, and the text begins inside one."""


@dataclass(frozen=True, slots=True)
class Form:
    """A row, and the thought or the answer that it begins or ends."""

    row: Row
    thought: Thought | None = None
    answer: AnswerChannel | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """Some of the forms, looked for together."""

    starts: tuple[AutomatonState[Form], ...]  # by place
    hunt: re.Pattern[str]  # finds where one could begin
    search: dict[LineState, re.Pattern[str]]
    """Finds that, a backtick, or the end of a line where the next one needs a look."""


class Formats:
    """All forms for some tools. Watches are made when first asked for."""

    def __init__(self, tools: tuple[str, ...], reasoning: Reasoning) -> None:
        self.tools = tools
        self.names = NamePrefixes.of(tools)
        """What JSON is held against."""
        self.thoughts = [t for t in THOUGHTS if t.always or reasoning != "keep"]
        self._automaton: Automaton[Form] = Automaton()
        self._macros = macros_for(tools)
        self._watches: dict[object, Watch] = {}
        self._calls = [self._added(Form(row)) for row in _usable(CALLS, tools)]
        self._begins = [self._added(form) for t in self.thoughts for form in _begins(t)]
        self._ends = {t: self._added(_end(t)) for t in self.thoughts}
        self._answers = {a: [self._added(form) for form in _tokens(a)] for a in ANSWERS}

    @property
    def opened(self) -> Thought:
        """The thought that a prompt may have begun."""
        return next(thought for thought in self.thoughts if thought.family == "think")

    def prose(self, answer: AnswerChannel | None = None) -> Watch:
        """What is looked for in text that is shown, inside an answer's channel or not."""
        if answer not in self._watches:
            found = [*self._calls, *self._begins]
            found += [tokens[0] for a, tokens in self._answers.items() if a.alone]
            found += [end for thought, end in self._ends.items() if not thought.always]
            found += self._answers[answer][1:] if answer else []
            self._watches[answer] = self._watch(found)
        return self._watches[answer]

    def thought(self, thought: Thought, *, called: bool) -> Watch:
        """What is looked for in a thought; `called`: one that a call was found in."""
        if (thought, called) not in self._watches:
            found = [self._ends[thought]]
            if thought.doubtful:
                found += self._calls_like(thought)
            elif not called:
                found += [f for f in self._calls if f[0].row.kind is Kind.CALL]
            if thought.channels:
                found += self._answers_of(thought.family)
            self._watches[thought, called] = self._watch(found)
        return self._watches[thought, called]

    def called(self, family: str) -> Watch | None:
        """What is looked for after a call: the begin of an answer, if the family has channels."""
        found = self._answers_of(family)
        if not found:
            return None
        if family not in self._watches:
            self._watches[family] = self._watch(found)
        return self._watches[family]

    def _calls_like(self, thought: Thought) -> list[tuple[Form, int]]:
        """The calls in channels where a thought of these may stand, too."""
        families = {f for a in ANSWERS if thought.family in a.families for f in a.families}
        return [call for call in self._calls if call[0].row.family in families]

    def _answers_of(self, family: str) -> list[tuple[Form, int]]:
        return [tokens[0] for a, tokens in self._answers.items() if family in a.families]

    def _watch(self, found: Sequence[tuple[Form, int]]) -> Watch:
        starts = [
            self._automaton.start(node for form, node in found if form.row.place <= place)
            for place in StartPosition
        ]
        anywhere, word, sentence, line, _ = starts
        search = {
            lines: write_stops(f"`|{stop}", anywhere, word, sentence, line)
            for lines, stop in STOPS.items()
        }
        return Watch(tuple(starts), write_search(anywhere, word, sentence), search)

    def _added(self, form: Form) -> tuple[Form, int]:
        node = parse(form.row.pattern, self._macros, exact=form.row.exact)
        return form, self._automaton.add(node, form)


@lru_cache(maxsize=64)
def formats_for(tools: tuple[str, ...], reasoning: Reasoning) -> Formats:
    """The formats for some tools: made once, shared by all filters."""
    if reasoning not in get_args(Reasoning):
        raise InvalidArgument(f"reasoning is one of {get_args(Reasoning)}, not {reasoning!r}")
    return Formats(tools, reasoning)


def _usable(rows: Iterable[Row], tools: tuple[str, ...]) -> list[Row]:
    return [row for row in rows if tools or r"\T" not in row.pattern]


def _begins(thought: Thought) -> list[Form]:
    return [
        Form(Row(thought.family, begin, place, Kind.THOUGHT, thought.exact), thought)
        for begin, place in thought.begins
    ]


def _end(thought: Thought) -> Form:
    row = Row(thought.family, thought.end, kind=Kind.TOKEN, exact=thought.exact)
    return Form(row, thought)


def _tokens(answer: AnswerChannel) -> list[Form]:
    """The begin of an answer, and its end if it has one."""
    family = answer.families[0]
    begin = Row(family, answer.begin, answer.place, Kind.TOKEN)
    ends = [Row(family, answer.end, kind=Kind.TOKEN)] if answer.end else []
    return [Form(begin, answer=answer), *map(Form, ends)]


def macros_for(tools: tuple[str, ...]) -> dict[str, Node]:
    """What the macros of the table stand for, with some tools registered."""
    macros: dict[str, Node] = dict(_fixed_macros())
    macros["T"] = one_of(tools)
    return macros


@cache
def _fixed_macros() -> dict[str, Node]:
    macros: dict[str, Node] = {}
    for name, pattern in MACROS.items():
        macros[name] = parse(pattern, macros)
    return macros
