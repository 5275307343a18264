"""An automaton that matches many patterns at once, one character at a time.

The patterns become one nondeterministic automaton; sets of its nodes become states when a text
first reaches them. A state knows whether a pattern matches, whether any still can, and whether a
text that ends here is a truncated match.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from memrecall.text.leaks.patterns import Chars, Choice, Node, Repeat, Sequence, TruncationMark

OTHER = ""  # any character that no pattern names
_END = r"\Z"

T = TypeVar("T")


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
        self[char] = self._automaton.state(self._automaton.step(self._nodes, char))
        return self[char]

    @property
    def characters(self) -> set[str]:
        """The characters that are expected here; all others behave like `OTHER`."""
        return self._automaton.expected_characters(self._nodes)


@dataclass(slots=True)
class Automaton(Generic[T]):
    """Patterns in the order of their precedence."""

    alphabet: set[str] = field(default_factory=lambda: {OTHER})
    final_nodes: dict[int, int] = field(default_factory=dict)  # node -> pattern
    truncation_nodes: dict[int, int] = field(default_factory=dict)
    _tags: list[T] = field(default_factory=list)
    _transitions: list[list[tuple[Chars, int]]] = field(default_factory=list)
    _epsilon_moves: list[list[int]] = field(default_factory=list)  # transitions without a character
    _states: dict[frozenset[int], AutomatonState[T]] = field(default_factory=dict)
    _in_truncation: bool = False

    def add(self, node: Node, tag: T) -> int:
        """Add a pattern and return its start node."""
        number = len(self._tags)
        self._tags.append(tag)
        self._in_truncation = False
        start = self._new_node()
        self.final_nodes[self._build(node, start)] = number
        return start

    def start(self, starts: Iterable[int]) -> AutomatonState[T]:
        """Return the initial state for some start nodes."""
        return self.state(self._epsilon_closure(starts))

    def state(self, nodes: frozenset[int]) -> AutomatonState[T]:
        """Return the one state of a set of nodes."""
        if nodes not in self._states:
            self._states[nodes] = AutomatonState(self, nodes)
        return self._states[nodes]

    def step(self, nodes: frozenset[int], char: str) -> frozenset[int]:
        """Return the nodes that a character leads to."""
        return self._epsilon_closure(
            target
            for node in nodes
            for chars, target in self._transitions[node]
            if (char in chars.members) != chars.negated
        )

    def expected_characters(self, nodes: frozenset[int]) -> set[str]:
        """Return the characters that the transitions of some nodes name."""
        return set().union(
            *(chars.members for node in nodes for chars, _ in self._transitions[node])
        )

    def first_pattern(self, nodes: frozenset[int], patterns: Mapping[int, int]) -> T | None:
        """Return the tag of the first pattern that the nodes belong to, if any."""
        numbers = [patterns[node] for node in nodes if node in patterns]
        return self._tags[min(numbers)] if numbers else None

    def _epsilon_closure(self, nodes: Iterable[int]) -> frozenset[int]:
        reached = set(nodes)
        todo = list(reached)
        while todo:
            for target in self._epsilon_moves[todo.pop()]:
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        return frozenset(reached)

    def _new_node(self) -> int:
        self._transitions.append([])
        self._epsilon_moves.append([])
        node = len(self._transitions) - 1
        if self._in_truncation:
            self.truncation_nodes[node] = len(self._tags) - 1
        return node

    def _build(self, node: Node, start: int) -> int:
        """Add a tree from a start node, and return its end node."""
        match node:
            case Chars():
                end = self._new_node()
                self._transitions[start].append((node, end))
                self.alphabet |= node.members
                return end
            case Sequence(parts):
                for part in parts:
                    start = self._build(part, start)
                return start
            case Choice(options):
                ends = [self._build(option, start) for option in options]
                return self._join(ends)
            case Repeat():
                return self._build_repeat(node, start)
            case TruncationMark():
                self._in_truncation = True
                return self._join([start])

    def _build_repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.low):
            start = self._build(node.part, start)
        if node.high is None:
            loop = self._join([start])
            self._epsilon_moves[self._build(node.part, loop)].append(loop)
            return self._join([loop])
        ends = [start]
        for _ in range(node.high - node.low):
            ends.append(self._build(node.part, ends[-1]))
        return self._join(ends)

    def _join(self, ends: Iterable[int]) -> int:
        joined = self._new_node()
        for end in ends:
            self._epsilon_moves[end].append(joined)
        return joined


_LOOKAHEAD = 3  # characters of a match that a search checks: enough to skip nearly all prose
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
    ends = f"[{SENTENCE_ENDS}]"
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


def compile_openings(sentence: AutomatonState[T], line: AutomatonState[T]) -> re.Pattern[str]:
    """Return an expression for what may begin a match on a line, but not inside one."""
    openings = (f"{char}{after}" for char, after in _extra_branches(sentence, line))
    return re.compile("|".join(openings) or "(?!)", re.DOTALL)


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
        after = _prefixes(anywhere[first], _LOOKAHEAD - 1, cache)
        after_word = _prefixes(word[first], _LOOKAHEAD - 1, cache)
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
        after = _prefixes(more[first], _LOOKAHEAD - 1, cache)
        less_after = None if less is None else _prefixes(less[first], _LOOKAHEAD - 1, cache)
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
    if state.is_settled or depth == 0 or state[OTHER].can_match:
        return ""
    following: dict[str, str] = {}
    for char in sorted(state.characters):
        rest = _prefixes(state[char], depth - 1, cache)
        if rest is not None:
            following[rest] = following.get(rest, "") + char
    options = [f"[{re.escape(chars)}]{rest}" for rest, chars in following.items()]
    return f"(?:{'|'.join([*options, _END])})"


def sentence_start(match: re.Match[str]) -> int:
    """Return the start of a match, after the end of a sentence that it may include."""
    start, text = match.start(), match[0]
    if text[0] not in SENTENCE_ENDS or text == "\n":
        return start
    return start + (2 if text[1:2] == " " else 1)
