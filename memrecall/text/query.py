"""The query language of lexical search: words, "phrases", AND, OR, NOT, -word, (…), prefix*.

Operators are upper-case. NOT binds tightest, then AND, then OR; neighbours without an operator
mean AND. The syntax characters also work in full width, as Chinese keyboards produce them. Signs
between words are ignored. An invalid query raises `QuerySyntaxError` with the position of the
mistake.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from memrecall.errors import QuerySyntaxError
from memrecall.text.tokens import EMOJI, analyze, normalize

MAX_QUERY_LENGTH = 10_000
MAX_NESTING = 50


@dataclass(frozen=True, slots=True)
class Term:
    """A word; as in all parts of a query, comparisons ignore its position."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Adjacent words; `position` is where the opening quote is."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The start of a word, without the star."""

    text: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class QueryAnd:
    """Two or more parts that must all match; none of them is a `QueryAnd`."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class QueryOr:
    """Two or more parts of which one must match; none of them is a `QueryOr`."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class QueryNot:
    """A part that must not match."""

    part: "Query"


Leaf: TypeAlias = Term | Phrase | Prefix
Query: TypeAlias = Leaf | QueryAnd | QueryOr | QueryNot
NOTHING = QueryOr(())
"""A query of signs alone, which no text matches."""


@dataclass(frozen=True, slots=True)
class _Sign:
    symbol: str
    position: int


_OPERATORS = frozenset({"AND", "OR", "NOT"})
_END = ""  # the symbol after the last token
_STARS = "*＊"
# Input methods mix these up, so that each of them closes any other.
_QUOTES = '"＂“”'
_LEXER = re.compile(
    rf"(?P<space>\s+)"
    rf"|(?P<minus>[-－])(?=[\w{_QUOTES}「(（]|{EMOJI})"
    rf"|(?P<open>[(（])"
    rf"|(?P<close>[)）])"
    rf"|[{_QUOTES}](?P<quoted>[^{_QUOTES}]*)[{_QUOTES}]"
    rf"|「(?P<cornered>[^」]*)」"
    rf"|(?P<stray>[{_QUOTES}「」])"
    rf"|(?P<word>[^\s()（）{_QUOTES}「」]+)"
)


def parse_query(text: str) -> Query:
    """Parse a query, or raise `QuerySyntaxError`."""
    if len(text) > MAX_QUERY_LENGTH:
        raise QuerySyntaxError(
            f"the query has {len(text)} characters; at most {MAX_QUERY_LENGTH} are allowed",
            MAX_QUERY_LENGTH,
        )
    tokens = list(_read_tokens(text))
    if not tokens:
        raise QuerySyntaxError("the query is empty", 0)
    return _Parser([*tokens, _Sign(_END, len(text))]).parse()


def positive_words(query: Query) -> list[str]:
    """Return the words, phrases and prefixes (with star) outside any NOT, in order."""
    match query:
        case Term(text) | Phrase(text):
            return [text]
        case Prefix(text):
            return [f"{text}*"]
        case QueryNot():
            return []
        case QueryAnd(parts) | QueryOr(parts):
            return [word for part in parts for word in positive_words(part)]
        case _:
            assert_never(query)


def _read_tokens(text: str) -> Iterator[Query | _Sign]:
    for match in _LEXER.finditer(text):
        value, position = match.group(match.lastgroup or 0), match.start()
        match match.lastgroup:
            case "open":
                yield _Sign("(", position)
            case "close":
                yield _Sign(")", position)
            case "quoted" | "cornered":
                if not value.strip():
                    raise QuerySyntaxError("the phrase is empty", position)
                yield Phrase(value, position) if is_searchable(value) else NOTHING
            case "minus":
                yield _Sign("NOT", position)
            case "word":
                yield _read_word(value, position)
            case "stray":
                raise QuerySyntaxError(f"the quotation mark {value} is unmatched", position)


def _read_word(word: str, position: int) -> Query | _Sign:
    operator = normalize(word)
    if operator in _OPERATORS:
        return _Sign(operator, position)
    text = word.rstrip(_STARS)
    if not is_searchable(text):
        return NOTHING
    return Term(text, position) if text == word else Prefix(text, position)


def is_searchable(text: str) -> bool:
    """Return True if a text has words or emoji, not only signs."""
    return bool(analyze(text).atoms)


class _Parser:
    """A recursive descent parser with a method per precedence level."""

    def __init__(self, tokens: Sequence[Query | _Sign]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def parse(self) -> Query:
        query = self._read_or()
        rest = self._tokens[self._at]
        if isinstance(rest, _Sign) and rest.symbol != _END:
            raise QuerySyntaxError("the parenthesis ) was never opened", rest.position)
        return query

    def _read_or(self) -> Query:
        parts = [self._read_and()]
        while self._take("OR"):
            parts.append(self._read_and())
        return _join(QueryOr, parts)

    def _read_and(self) -> Query:
        parts = [self._read_operand()]
        while self._take("AND") or self._is_at_operand():
            parts.append(self._read_operand())
        return _join(QueryAnd, parts)

    def _read_operand(self) -> Query:
        token = self._tokens[self._at]
        if not isinstance(token, _Sign):
            self._at += 1
            return token
        if token.symbol not in ("(", "NOT"):
            raise self._missing_operand(token)
        return self._read_nested(token)

    def _read_nested(self, sign: _Sign) -> Query:
        if self._depth == MAX_NESTING:
            raise QuerySyntaxError(f"nested deeper than {MAX_NESTING} levels", sign.position)
        self._depth += 1
        self._at += 1
        if sign.symbol == "NOT":
            part = self._read_operand()
            query: Query = NOTHING if part == NOTHING else QueryNot(part)
        else:
            query = self._read_or()
            if not self._take(")"):
                raise _unclosed(sign)
        self._depth -= 1
        return query

    def _take(self, symbol: str) -> bool:
        token = self._tokens[self._at]
        matches = isinstance(token, _Sign) and token.symbol == symbol
        self._at += matches
        return matches

    def _is_at_operand(self) -> bool:
        token = self._tokens[self._at]
        return not isinstance(token, _Sign) or token.symbol in ("(", "NOT")

    def _missing_operand(self, token: _Sign) -> QuerySyntaxError:
        before = self._tokens[self._at - 1] if self._at else None
        if isinstance(before, _Sign) and before.symbol in _OPERATORS:
            return QuerySyntaxError(f"{before.symbol} has nothing after it", before.position)
        if token.symbol in _OPERATORS:
            return QuerySyntaxError(f"{token.symbol} has nothing before it", token.position)
        if isinstance(before, _Sign) and token.symbol == _END:
            return _unclosed(before)
        return QuerySyntaxError("the parenthesis ) has nothing before it", token.position)


def _unclosed(opening: _Sign) -> QuerySyntaxError:
    return QuerySyntaxError("the parenthesis ( is never closed", opening.position)


def _join(kind: type[QueryAnd] | type[QueryOr], parts: list[Query]) -> Query:
    parts = [part for part in parts if part != NOTHING] or [NOTHING]
    if len(parts) == 1:
        return parts[0]
    layers = (part.parts if isinstance(part, kind) else (part,) for part in parts)
    return kind(tuple(part for layer in layers for part in layer))
