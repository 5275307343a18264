"""The pattern language of the formats, parsed into a tree.

It is the part of regular expressions whose matching can pause at any character: literals, `[sets]`,
groups, `|`, `?`, `*`, `+`, `{m,n}`. There is no `\\b`, `$` or lookaround, whose result changes when
more text arrives. Escapes: `\\s` white space, `\\n` a line end, a capital letter a macro of the
caller, anything else itself. From `§` on, a text that ends is a truncated match.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SPACES = frozenset(" \t\r\n\f\v\u00a0\u3000ĠĊ")  # Ġ and Ċ: a blank and a line end of byte-level BPE
_ESCAPES = {"s": SPACES, "n": frozenset("\n"), "t": frozenset("\t")}
_COUNTS = {"?": (0, 1), "*": (0, None), "+": (1, None)}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character in a set, or not in it."""

    members: frozenset[str]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts in order."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part `low` to `high` times; None is unlimited."""

    part: "Node"
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class TruncationMark:
    """The point from which the end of the text is a truncated match."""


Node = Chars | Sequence | Choice | Repeat | TruncationMark


def parse(pattern: str, macros: Mapping[str, Node], *, exact: bool = False) -> Node:
    """Return the tree of a pattern; letters match in both cases unless `exact`."""
    parser = _PatternParser(pattern, macros, exact)
    node = parser.read_choice()
    if parser.rest:
        raise ValueError(f"unbalanced ')' in {pattern!r} at {parser.at}")
    return node


def parse_words(words: tuple[str, ...]) -> Node:
    """Return a tree that matches any of some words verbatim."""
    return Choice(tuple(Sequence(tuple(Chars(frozenset(c)) for c in word)) for word in words))


class _PatternParser:
    def __init__(self, pattern: str, macros: Mapping[str, Node], exact: bool) -> None:
        self._pattern = pattern
        self._macros = macros
        self._exact = exact
        self._depth = 0
        self.at = 0

    @property
    def rest(self) -> str:
        return self._pattern[self.at :]

    def read_choice(self) -> Node:
        options = [self._read_sequence()]
        while self.rest.startswith("|"):
            self.at += 1
            options.append(self._read_sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _read_sequence(self) -> Node:
        parts: list[Node] = []
        while self.rest and self.rest[0] not in "|)":
            part = self._read_part()
            counts = self._read_counts()
            parts.append(part if counts is None else Repeat(part, *counts))
        return Sequence(tuple(parts))

    def _read_part(self) -> Node:
        char = self._take()
        if char == "(":
            self._depth += 1
            node = self.read_choice()
            if self._take() != ")":
                raise ValueError(f"unbalanced '(' in {self._pattern!r}")
            self._depth -= 1
            return node
        if char == "[":
            return self._read_set()
        if char == "§":
            if self._depth:
                raise ValueError(f"§ inside a group in {self._pattern!r}")
            return TruncationMark()
        if char == "\\":
            char = self._take()
            return self._macros.get(char) or Chars(_escaped(char))
        return Chars(self._cases(char))

    def _read_set(self) -> Chars:
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
        return Chars(frozenset(members), negated)

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
