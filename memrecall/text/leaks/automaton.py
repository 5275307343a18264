"""Many patterns matched at once, a character at a time, with no way back.

The patterns become one nondeterministic automaton; sets of its nodes become states when a text
first reaches them. A state knows all that the filter asks: whether a pattern is complete, whether
any still can be, and whether a text that ends here was cut off inside one.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from memrecall.text.leaks.patterns import Chars, Choice, CutMark, Node, Repeat, Sequence

OTHER = ""  # stands for every character that no pattern names
_END = r"\Z"

T = TypeVar("T")


class AutomatonState(dict[str, "AutomatonState[T]"], Generic[T]):
    """Where a text has got to; indexing it with a character is the next step."""

    __slots__ = ("_automaton", "_nodes", "alive", "cut", "done", "over")

    def __init__(self, automaton: "Automaton[T]", nodes: frozenset[int]) -> None:
        super().__init__()
        self._automaton = automaton
        self._nodes = nodes
        self.done: T | None = automaton.first_of(nodes, automaton.ends)
        """The first pattern that is complete here."""
        self.cut: T | None = automaton.first_of(nodes, automaton.marked)
        """The first pattern that a text ending here was cut off in."""
        self.alive = self.done is not None or bool(nodes)
        """Whether a pattern is complete or can still be."""
        self.over = self.done is not None or not nodes
        """Whether there is no next step: a pattern is complete, or none can be."""

    def __missing__(self, char: str) -> "AutomatonState[T]":
        if char not in self._automaton.alphabet:
            return self[OTHER]
        reached = self._automaton.state(self._automaton.step(self._nodes, char))
        self[char] = reached
        return reached

    @property
    def characters(self) -> set[str]:
        """The characters that patterns name: all others lead where `OTHER` does."""
        return self._automaton.alphabet - {OTHER}


@dataclass(slots=True)
class Automaton(Generic[T]):
    """The patterns, in the order of their precedence."""

    alphabet: set[str] = field(default_factory=lambda: {OTHER})
    ends: dict[int, int] = field(default_factory=dict)  # node -> pattern
    marked: dict[int, int] = field(default_factory=dict)
    _tags: list[T] = field(default_factory=list)
    _moves: list[list[tuple[Chars, int]]] = field(default_factory=list)
    _leaps: list[list[int]] = field(default_factory=list)  # without a character
    _states: dict[frozenset[int], AutomatonState[T]] = field(default_factory=dict)
    _is_marked: bool = False

    def add(self, node: Node, tag: T) -> int:
        """Add a pattern; the node that it starts from."""
        number = len(self._tags)
        self._tags.append(tag)
        self._is_marked = False
        start = self._new_node()
        self.ends[self._build(node, start)] = number
        return start

    def start(self, starts: Iterable[int]) -> AutomatonState[T]:
        """The state of a text of which nothing was read, for some of the patterns."""
        return self.state(self._reach(starts))

    def state(self, nodes: frozenset[int]) -> AutomatonState[T]:
        """The state for a set of nodes: always the same one."""
        if nodes not in self._states:
            self._states[nodes] = AutomatonState(self, nodes)
        return self._states[nodes]

    def step(self, nodes: frozenset[int], char: str) -> frozenset[int]:
        """The nodes that a character leads to."""
        return self._reach(
            target
            for node in nodes
            for chars, target in self._moves[node]
            if (char in chars.members) != chars.negated
        )

    def first_of(self, nodes: frozenset[int], patterns: Mapping[int, int]) -> T | None:
        """The tag of the first pattern in the table that some nodes belong to."""
        found = [patterns[node] for node in nodes if node in patterns]
        return self._tags[min(found)] if found else None

    def _reach(self, nodes: Iterable[int]) -> frozenset[int]:
        reached = set(nodes)
        todo = list(reached)
        while todo:
            for target in self._leaps[todo.pop()]:
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        return frozenset(reached)

    def _new_node(self) -> int:
        self._moves.append([])
        self._leaps.append([])
        node = len(self._moves) - 1
        if self._is_marked:
            self.marked[node] = len(self._tags) - 1
        return node

    def _build(self, node: Node, start: int) -> int:
        """Add a tree from a node on; the node where it ends."""
        match node:
            case Chars():
                end = self._new_node()
                self._moves[start].append((node, end))
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
            case CutMark():
                self._is_marked = True
                return self._join([start])

    def _build_repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.low):
            start = self._build(node.part, start)
        if node.high is None:
            loop = self._join([start])
            self._leaps[self._build(node.part, loop)].append(loop)
            return self._join([loop])
        ends = [start]
        for _ in range(node.high - node.low):
            ends.append(self._build(node.part, ends[-1]))
        return self._join(ends)

    def _join(self, ends: Iterable[int]) -> int:
        joined = self._new_node()
        for end in ends:
            self._leaps[end].append(joined)
        return joined


DEPTH = 3  # characters that `write_search` looks at: enough to pass over nearly all prose


SENTENCE_ENDS = ".!?。！？…:：\n"


def write_search(
    anywhere: AutomatonState[T], word: AutomatonState[T], sentence: AutomatonState[T] | None = None
) -> re.Pattern[str]:
    """An expression that finds the next place where a match can begin.

    It matches the first characters of what may become a match, as many as are there. `word` is the
    state where no word goes on before, `sentence` the one where none has begun; near the beginning
    of a text, of which more may stand before it, it finds both.
    """
    branches = _branches(anywhere, word)
    ends = f"[{SENTENCE_ENDS}]"
    for char, after in _more_branches(word, word if sentence is None else sentence):
        begins = "|".join(rf"(?<={before}{char})" for before in (ends, f"{ends} ", r"\A", r"\A "))
        branches.append(f"{char}(?:{begins}){after}")
    return re.compile("|".join(branches), re.DOTALL)


def write_stops(
    stops: str,
    anywhere: AutomatonState[T],
    word: AutomatonState[T],
    sentence: AutomatonState[T],
    line: AutomatonState[T],
) -> re.Pattern[str]:
    """An expression for the same that finds some stops, too, and is faster in prose.

    What may begin a sentence is found from the end of the one before it on. In the `stops`, which
    are an expression, "OPENINGS" stands for what may begin on a line.
    """
    openings = "|".join(f"{char}{after}" for char, after in _more_branches(word, sentence))
    ends = [re.escape(end) for end in SENTENCE_ENDS if end != "\n"]
    sentences = [rf"{end} ?(?:{openings}|\Z)" for end in ends]
    openings = "|".join(f"{char}{after}" for char, after in _more_branches(None, line))
    stops = stops.replace("OPENINGS", openings)
    return re.compile("|".join([stops, *_branches(anywhere, word), *sentences]), re.DOTALL)


def _branches(anywhere: AutomatonState[T], word: AutomatonState[T]) -> list[str]:
    """An expression for each character that a match can begin with.

    Where all begin with a character, and not with a set of them, `re` leaps over all others.
    """
    if word[OTHER].alive:
        raise ValueError("a pattern that may begin with any character cannot be searched for")
    known: dict[tuple[int, int], str | None] = {}
    branches = []
    for first in sorted(anywhere.characters):
        char = re.escape(first)
        after = _openings(anywhere[first], DEPTH - 1, known)
        after_word = _openings(word[first], DEPTH - 1, known)
        if after is not None:
            branches.append(f"{char}{after}")
        if after_word is not None and after_word != after:
            branches.append(f"{char}(?<![A-Za-z0-9_]{char}){after_word}")
    return branches


def _more_branches(
    less: AutomatonState[T] | None, more: AutomatonState[T]
) -> list[tuple[str, str]]:
    """The characters that matches of one state begin with and those of another do not."""
    known: dict[tuple[int, int], str | None] = {}
    branches = []
    for first in sorted(more.characters):
        after = _openings(more[first], DEPTH - 1, known)
        known_after = None if less is None else _openings(less[first], DEPTH - 1, known)
        if after is not None and after != known_after:
            branches.append((re.escape(first), after))
    return branches


def _openings(
    state: AutomatonState[T], depth: int, known: dict[tuple[int, int], str | None]
) -> str | None:
    """An expression for what may follow, or for the end of the text; `None`: nothing may."""
    if (id(state), depth) not in known:
        known[id(state), depth] = _write_openings(state, depth, known)
    return known[id(state), depth]


def _write_openings(
    state: AutomatonState[T], depth: int, known: dict[tuple[int, int], str | None]
) -> str | None:
    if not state.alive:
        return None
    if state.over or depth == 0 or state[OTHER].alive:
        return ""
    following: dict[str, str] = {}
    for char in sorted(state.characters):
        rest = _openings(state[char], depth - 1, known)
        if rest is not None:
            following[rest] = following.get(rest, "") + char
    options = [f"[{re.escape(chars)}]{rest}" for rest, chars in following.items()]
    return f"(?:{'|'.join([*options, _END])})"
