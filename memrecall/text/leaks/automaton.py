"""Patterns of formats, and an automaton that matches many of them at once by characters.

A pattern is the part of regular expressions whose matching can pause at any character: literals,
`[sets]`, groups, `|`, `?`, `*`, `+`, `{m,n}`. There is no `\\b`, `$` or lookaround, whose result
changes when more text arrives. Escapes: `\\s` white space, `\\n` a line end, a capital letter a
macro of the caller, anything else itself. From `§` on, a text that ends is a truncated match.

The patterns become one nondeterministic automaton; sets of its nodes become states when a text
first reaches them. A state knows whether a pattern matches, whether any still can, and whether a
text that ends here is a truncated match.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

SPACES = frozenset(" \t\r\n\f\v\u00a0\u3000ĠĊ")  # Ġ and Ċ: a blank and a line end of byte-level BPE
_ESCAPES = {"s": SPACES, "n": frozenset("\n"), "t": frozenset("\t")}
_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
OTHER = ""  # any character that no pattern names
_END = r"\Z"

T = TypeVar("T")


Pattern = Callable[["Automaton[Any]", int], int]
"""A part of a pattern: adds itself to an automaton from a start node, and returns its end node."""


def _chars(members: frozenset[str], negated: bool = False) -> Pattern:
    def build(automaton: "Automaton[Any]", start: int) -> int:
        end = automaton.new_node()
        automaton.transitions[start].append((members, negated, end))
        automaton.alphabet |= members
        return end

    return build


def _sequence(parts: Sequence[Pattern]) -> Pattern:
    def build(automaton: "Automaton[Any]", start: int) -> int:
        for part in parts:
            start = part(automaton, start)
        return start

    return build


def _choice(options: Sequence[Pattern]) -> Pattern:
    return lambda automaton, start: automaton.join([option(automaton, start) for option in options])


def _repeat(part: Pattern, low: int, high: int | None) -> Pattern:
    def build(automaton: "Automaton[Any]", start: int) -> int:
        for _ in range(low):
            start = part(automaton, start)
        if high is None:
            loop = automaton.join([start])
            automaton.epsilon_moves[part(automaton, loop)].append(loop)
            return automaton.join([loop])
        ends = [start]
        for _ in range(high - low):
            ends.append(part(automaton, ends[-1]))
        return automaton.join(ends)

    return build


def _truncation_mark(automaton: "Automaton[Any]", start: int) -> int:
    automaton.in_truncation = True
    return automaton.join([start])


def parse(pattern: str, macros: Mapping[str, Pattern], *, exact: bool = False) -> Pattern:
    """Return a pattern by its text; letters match in both cases unless `exact`."""
    parser = _PatternParser(pattern, macros, exact)
    parsed = parser.read_choice()
    if parser.rest:
        raise ValueError(f"unbalanced ')' in {pattern!r} at {parser.at}")
    return parsed


def parse_words(words: tuple[str, ...]) -> Pattern:
    """Return a pattern that matches any of some words verbatim."""
    return _choice([_sequence([_chars(frozenset(c)) for c in word]) for word in words])


class _PatternParser:
    def __init__(self, pattern: str, macros: Mapping[str, Pattern], exact: bool) -> None:
        self._pattern = pattern
        self._macros = macros
        self._exact = exact
        self._depth = 0
        self.at = 0

    @property
    def rest(self) -> str:
        return self._pattern[self.at :]

    def read_choice(self) -> Pattern:
        options = [self._read_sequence()]
        while self.rest.startswith("|"):
            self.at += 1
            options.append(self._read_sequence())
        return options[0] if len(options) == 1 else _choice(options)

    def _read_sequence(self) -> Pattern:
        parts: list[Pattern] = []
        while self.rest and self.rest[0] not in "|)":
            part = self._read_part()
            counts = self._read_counts()
            parts.append(part if counts is None else _repeat(part, *counts))
        return _sequence(parts)

    def _read_part(self) -> Pattern:
        char = self._take()
        if char == "(":
            self._depth += 1
            part = self.read_choice()
            if self._take() != ")":
                raise ValueError(f"unbalanced '(' in {self._pattern!r}")
            self._depth -= 1
            return part
        if char == "[":
            return self._read_set()
        if char == "§":
            if self._depth:
                raise ValueError(f"§ inside a group in {self._pattern!r}")
            return _truncation_mark
        if char == "\\":
            char = self._take()
            return self._macros.get(char) or _chars(_escaped(char))
        return _chars(self._cases(char))

    def _read_set(self) -> Pattern:
        negated = self.rest.startswith("^")
        self.at += negated
        members: set[str] = set()
        while (char := self._take()) != "]":
            if char == "\\":
                members |= _escaped(self._take())
            elif self.rest.startswith("-") and self.rest[1] != "]":
                self.at += 1
                last = self._take()
                for code in range(ord(char), ord(last) + 1):
                    members |= self._cases(chr(code))
            else:
                members |= self._cases(char)
        return _chars(frozenset(members), negated)

    def _read_counts(self) -> tuple[int, int | None] | None:
        if self.rest[:1] in _COUNTS:
            return _COUNTS[self._take()]
        if not self.rest.startswith("{"):
            return None
        end = self._pattern.index("}", self.at)
        low, _, high = self._pattern[self.at + 1 : end].partition(",")
        self.at = end + 1
        return int(low), int(high or low)

    def _take(self) -> str:
        if not self.rest:
            raise ValueError(f"{self._pattern!r} is incomplete")
        self.at += 1
        return self._pattern[self.at - 1]

    def _cases(self, char: str) -> frozenset[str]:
        return frozenset(char) if self._exact else frozenset({char.lower(), char.upper()})


def _escaped(char: str) -> frozenset[str]:
    return _ESCAPES.get(char, frozenset(char))


class AutomatonState(dict[str, "AutomatonState[T]"], Generic[T]):
    """The state after a text; indexing it with a character returns the next state."""

    __slots__ = ("_automaton", "_nodes", "can_match", "is_settled", "matched", "truncated")

    def __init__(self, automaton: "Automaton[T]", nodes: frozenset[int]) -> None:
        super().__init__()
        self._automaton = automaton
        self._nodes = nodes
        # The first pattern that matches here, and the first that is truncated if the text ends.
        self.matched: T | None = automaton.first_pattern(nodes, automaton.final_nodes)
        self.truncated: T | None = automaton.first_pattern(nodes, automaton.truncation_nodes)
        self.can_match = bool(nodes)  # whether a pattern matches or still can
        # Whether no next state matters: a pattern matches, or none can.
        self.is_settled = self.matched is not None or not nodes

    def __missing__(self, char: str) -> "AutomatonState[T]":
        if char not in self._automaton.alphabet:
            return self[OTHER]
        self[char] = self._automaton.step(self._nodes, char)
        return self[char]

    @property
    def characters(self) -> set[str]:
        """The characters that are expected here; all others behave like `OTHER`."""
        named = self._automaton.transitions
        return set().union(*(members for node in self._nodes for members, *_ in named[node]))


@dataclass(slots=True)
class Automaton(Generic[T]):
    """Patterns in the order of their precedence, each with a tag."""

    alphabet: set[str] = field(default_factory=lambda: {OTHER})
    # By node: the characters that lead to another node, or all but these.
    transitions: list[list[tuple[frozenset[str], bool, int]]] = field(default_factory=list)
    epsilon_moves: list[list[int]] = field(default_factory=list)  # transitions without a character
    final_nodes: dict[int, int] = field(default_factory=dict)  # node -> pattern
    truncation_nodes: dict[int, int] = field(default_factory=dict)
    in_truncation: bool = False  # whether new nodes follow the mark of truncation
    _tags: list[T] = field(default_factory=list)
    _states: dict[frozenset[int], AutomatonState[T]] = field(default_factory=dict)

    def add(self, pattern: Pattern, tag: T) -> int:
        """Add a pattern and return its start node."""
        number = len(self._tags)
        self._tags.append(tag)
        self.in_truncation = False
        start = self.new_node()
        self.final_nodes[pattern(self, start)] = number
        return start

    def new_node(self) -> int:
        """Add a node without transitions."""
        self.transitions.append([])
        self.epsilon_moves.append([])
        node = len(self.transitions) - 1
        if self.in_truncation:
            self.truncation_nodes[node] = len(self._tags) - 1
        return node

    def join(self, ends: Iterable[int]) -> int:
        """Add a node that all of these lead to."""
        joined = self.new_node()
        for end in ends:
            self.epsilon_moves[end].append(joined)
        return joined

    def state_of(self, nodes: Iterable[int]) -> AutomatonState[T]:
        """Return the one state of some nodes and of all that they lead to without a character."""
        reached = set(nodes)
        todo = list(reached)
        while todo:
            for target in self.epsilon_moves[todo.pop()]:
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        key = frozenset(reached)
        if key not in self._states:
            self._states[key] = AutomatonState(self, key)
        return self._states[key]

    def step(self, nodes: frozenset[int], char: str) -> AutomatonState[T]:
        """Return the state that a character leads to."""
        targets = (
            target
            for node in nodes
            for members, negated, target in self.transitions[node]
            if (char in members) != negated
        )
        return self.state_of(targets)

    def first_pattern(self, nodes: frozenset[int], patterns: Mapping[int, int]) -> T | None:
        """Return the tag of the first pattern that the nodes belong to, if any."""
        numbers = [patterns[node] for node in nodes if node in patterns]
        return self._tags[min(numbers)] if numbers else None


_LOOKAHEAD = 12  # characters after the first that a search checks
_CHOICE = 6  # characters that a choice of several counts as: to skip prose, few are enough
SENTENCE_ENDS = ".!?。！？…:：\n"
_Cache = dict[tuple[int, int], str | None]  # expressions by the id of a state and their depth
_Branch = tuple[str, str]  # a first character, and an expression for what follows it


def compile_search(
    anywhere: AutomatonState[T], word: AutomatonState[T], sentence: AutomatonState[T] | None = None
) -> re.Pattern[str]:
    """Return an expression that finds the next position where a match can begin.

    It matches the first characters of a possible match, as many as there are. `word` is the state
    at the start of a word, `sentence` the one at the start of a sentence; at the start of a text,
    of which more may precede, it finds both.
    """
    branches = _branches(anywhere, word)
    ends = f"[{SENTENCE_ENDS}`]"
    for char, after in _extra_branches(word, word if sentence is None else sentence):
        starts = "|".join(rf"(?<={before}{char})" for before in (ends, f"{ends} ", r"\A", r"\A "))
        branches.append(f"{char}(?:{starts}){after}")
    return re.compile("|".join(branches), re.DOTALL)


def compile_stops(
    stops: str,
    anywhere: AutomatonState[T],
    word: AutomatonState[T],
    sentence: AutomatonState[T],
    line: AutomatonState[T],
) -> re.Pattern[str]:
    """Return a similar expression that also finds some stops, and is faster in prose.

    A match at the start of a sentence is found from the end of the previous one. In the expression
    `stops`, "OPENINGS" is replaced by what may begin on a line.
    """
    openings = "|".join(f"{char}{after}" for char, after in _extra_branches(word, sentence))
    ends = [re.escape(end) for end in SENTENCE_ENDS if end != "\n"]
    sentences = [rf"{end} ?(?:{openings}|\Z)" for end in ends]
    openings = "|".join(f"{char}{after}" for char, after in _extra_branches(None, line))
    stops = stops.replace("OPENINGS", openings)
    return re.compile("|".join([stops, *_branches(anywhere, word), *sentences]), re.DOTALL)


def _branches(anywhere: AutomatonState[T], word: AutomatonState[T]) -> list[str]:
    """Return an expression for each character that a match can begin with.

    Alternatives that begin with single characters, not sets, let `re` skip all others.
    """
    if word[OTHER].can_match:
        raise ValueError("a pattern may not begin with any character; name its first character")
    cache: _Cache = {}
    branches = []
    for first in sorted(anywhere.characters | word.characters):
        char = re.escape(first)
        after = _prefixes(anywhere[first], _LOOKAHEAD, cache)
        after_word = _prefixes(word[first], _LOOKAHEAD, cache)
        if after is not None:
            branches.append(f"{char}{after}")
        if after_word is not None and after_word != after:
            branches.append(f"{char}(?<![A-Za-z0-9_]{char}){after_word}")
    return branches


def _extra_branches(less: AutomatonState[T] | None, more: AutomatonState[T]) -> list[_Branch]:
    """Return the first characters of matches in `more` that `less` does not have."""
    cache: _Cache = {}
    branches = []
    for first in sorted(more.characters):
        after = _prefixes(more[first], _LOOKAHEAD, cache)
        less_after = None if less is None else _prefixes(less[first], _LOOKAHEAD, cache)
        if after is not None and after != less_after:
            branches.append((re.escape(first), after))
    return branches


def _prefixes(state: AutomatonState[T], depth: int, cache: _Cache) -> str | None:
    """Return an expression for what may follow or the end of the text, None if nothing may."""
    if (id(state), depth) not in cache:
        cache[id(state), depth] = _compile_prefixes(state, depth, cache)
    return cache[id(state), depth]


def _compile_prefixes(state: AutomatonState[T], depth: int, cache: _Cache) -> str | None:
    if not state.can_match:
        return None
    if state.is_settled or depth <= 0 or state[OTHER].can_match:
        return ""
    following: dict[str, str] = {}
    characters = sorted(char for char in state.characters if state[char].can_match)
    depth -= _CHOICE if len(characters) > 1 else 1
    if depth < 0:
        return ""
    for char in characters:
        if (rest := _prefixes(state[char], depth, cache)) is not None:
            following[rest] = following.get(rest, "") + char
    options = [f"[{re.escape(chars)}]{rest}" for rest, chars in following.items()]
    return f"(?:{'|'.join([*options, _END])})"


def sentence_start(match: re.Match[str]) -> int:
    """Return the start of a match, after the end of a sentence that it may include."""
    start, text = match.start(), match[0]
    if text[0] not in SENTENCE_ENDS or text == "\n":
        return start
    return start + (2 if text[1:2] == " " else 1)
