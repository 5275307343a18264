"""Lexical search: BM25 over the postings, and the query language over the same arrays.

This is the package's own BM25, for indexes of any size; the tests compare its scores with those of
`rank-bm25` with the same idf. `rank_texts` uses `rank-bm25` itself, which up to a few thousand
texts is faster than building an index.
"""

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.search.index import Floats, Mask, Rows
from memrecall.search.index.columns import Columns
from memrecall.search.index.postings import BREAK_ID, QueryCost, bigram_key
from memrecall.text.language import STOP_CHARS, STOP_TERMS, STOP_WORDS, term_cost
from memrecall.text.query import Phrase, Prefix, Query, QueryAnd, QueryNot, QueryOr, Term
from memrecall.text.tokens import BREAK, Analysis, analyze, is_cjk, is_emoji, last_word, stem

SearchTerm = tuple[str] | tuple[str, str]
Terms = dict[SearchTerm, float]
Spans = Sequence[tuple[int, int]]  # where a term's postings are, one span a segment

# A single character is weak evidence: 型 of 血型 (blood group) is in 模型 (model) too.
CHARACTER_WEIGHT = 0.5
_WORDS_PER_CHINESE_TERM = 0.4
# What the cost of a query counts, in array elements of about the same time.
_ROWS_PER_ELEMENT = 8
_ELEMENTS_PER_TERM = 16
K1 = 1.2
B = 0.6


def all_terms(text: str) -> Terms:
    """Return every term of a text with its number of occurrences, as rows are indexed."""
    analysis = analyze(text)
    single: list[SearchTerm] = [(term,) for term in (*_atoms(analysis), *analysis.extras)]
    return _count([(term, 1.0) for term in (*single, *_pairs(analysis))])


def query_terms(text: str) -> Terms:
    """Return the terms of a plain query, without stop words and emoji unless it has no others."""
    analysis = analyze(text)
    weighted: list[tuple[SearchTerm, float]] = [
        ((atom,), CHARACTER_WEIGHT if is_cjk(atom) else 1.0)
        for atom in _atoms(analysis)
        if atom not in STOP_TERMS and atom not in STOP_CHARS and not is_emoji(atom)
    ]
    weighted += [((extra,), 1.0) for extra in analysis.extras]
    for pair in _pairs(analysis):
        if not STOP_CHARS.issuperset(pair) and "".join(pair) not in STOP_WORDS:
            weighted.append((pair, 1.0))
    return _count(weighted) if weighted else all_terms(text)


def language_cost(term: SearchTerm) -> float:
    """Return how rare a term is in its language, whatever the user has stored."""
    is_character = len(term) == 1 and is_cjk(term[0])
    return term_cost(*term) * (CHARACTER_WEIGHT if is_character else 1.0)


def count_words(terms: Iterable[SearchTerm]) -> float:
    """Return how many words terms are worth: a Chinese word gives two or three terms."""
    return sum(_WORDS_PER_CHINESE_TERM if is_cjk(term[0][0]) else 1.0 for term in terms)


def _atoms(analysis: Analysis) -> list[str]:
    return [atom for atom in analysis.atoms if atom != BREAK]


def _pairs(analysis: Analysis) -> list[tuple[str, str]]:
    return [(a, b) for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b)]


def _count(weighted: list[tuple[SearchTerm, float]]) -> Terms:
    terms: Terms = {}
    for term, weight in weighted:
        terms[term] = terms.get(term, 0.0) + weight
    return terms


@dataclass(frozen=True, slots=True)
class TermWeights:
    """The weight of each query term, in their order, and the average row length."""

    average_length: float
    weights: tuple[float, ...]

    def pack(self) -> str:
        """Return the exact numbers as text, for a cursor."""
        numbers = np.array([self.average_length, *self.weights], dtype="<f8")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def unpack(cls, text: str) -> "TermWeights":
        """Return what `pack` was called on."""
        numbers = np.frombuffer(base64.b64decode(text), dtype="<f8").tolist()
        return cls(numbers[0], tuple(numbers[1:]))


@dataclass(frozen=True)
class LexicalScores:
    """The terms of a query, their weights and postings, and the BM25 scores of living rows."""

    columns: Columns
    alive: Mask
    terms: Terms
    spans: Sequence[Spans]  # where the postings of each term are
    term_weights: TermWeights

    @cached_property
    def weights(self) -> dict[SearchTerm, float]:
        """The weight of each term."""
        return dict(zip(self.terms, self.term_weights.weights, strict=True))

    @cached_property
    def scores(self) -> Floats:
        """The score of each living row; all other rows score 0."""
        scores = score_terms(self.columns, self.spans, self.term_weights)
        if np.count_nonzero(self.alive) < len(self.alive):
            scores[~self.alive] = 0
        return scores

    def coverage(self, rows: Rows) -> Floats:
        """Return the share of the query's weight that each of the rows has, 0 to 1.

        An average row with every term once has all of it.
        """
        full_score = np.float32(sum(self.term_weights.weights) or 1.0)
        share: Floats = np.minimum(self.scores[rows] / full_score, 1)
        return share


def bm25(columns: Columns, terms: Terms, alive: Mask) -> LexicalScores:
    """Weigh terms; the scores of rows are computed when they are read."""
    spans = term_spans(columns, terms)
    return LexicalScores(columns, alive, terms, spans, weigh_terms(columns, terms, spans, alive))


def term_spans(columns: Columns, terms: Terms) -> list[Spans]:
    """Return where the postings of each term are."""
    keys = np.full(len(terms), -1, dtype=np.int64)  # no term has this key
    for at, term in enumerate(terms):
        numbers = [columns.vocabulary.get(part, -1) for part in term]
        if -1 not in numbers:
            keys[at] = numbers[0] if len(numbers) == 1 else bigram_key(*numbers)
    by_segment = [segment.spans(keys) for segment in columns.segments]
    return [[spans[at] for spans in by_segment] for at in range(len(terms))]


def posting_rows(columns: Columns, spans: Sequence[Spans]) -> tuple[Rows, Rows]:
    """Return the rows that have each term, and for each of them the number of the term."""
    parts: list[npt.NDArray[np.signedinteger[Any]]] = [np.zeros(0, dtype=np.int64)]
    sizes: list[int] = []
    for term_span in spans:
        first_row = 0
        for segment, (start, end) in zip(columns.segments, term_span, strict=True):
            docs = segment.docs[start:end]
            parts.append(docs + np.int64(first_row) if first_row else docs)
            first_row += segment.rows
        sizes.append(sum(end - start for start, end in term_span))
    return np.concatenate(parts), np.repeat(np.arange(len(sizes)), sizes)


def _posting_frequencies(columns: Columns, spans: Sequence[Spans]) -> npt.NDArray[np.uint8]:
    """Return how often each of the rows of `posting_rows` has its term."""
    return np.concatenate(
        [
            segment.frequencies[start:end]
            for term_span in spans
            for segment, (start, end) in zip(columns.segments, term_span, strict=True)
        ]
    )


def weigh_terms(
    columns: Columns, terms: Terms, spans: Sequence[Spans], counted: Mask
) -> TermWeights:
    """Return the weights of terms among the counted rows: the rarer, the higher."""
    total = int(np.count_nonzero(counted))
    if not total:
        return TermWeights(1.0, tuple(0.0 for _ in terms))
    mask = None if total == columns.rows else counted
    weights = []
    for weight, term_span in zip(terms.values(), spans, strict=True):
        if mask is None:
            frequency = sum(end - start for start, end in term_span)
        else:
            frequency = _document_frequency(columns, term_span, mask)
        weights.append(weight * math.log(1 + (total - frequency + 0.5) / (frequency + 0.5)))
    lengths = columns.lengths()
    average = _average_length(columns) if mask is None else float(lengths[mask].mean())
    return TermWeights(average, tuple(weights))


def score_terms(columns: Columns, spans: Sequence[Spans], weights: TermWeights) -> Floats:
    """Return the BM25 score of every row with given weights."""
    rows, terms = posting_rows(columns, spans)
    if not len(rows):
        return np.zeros(columns.rows, dtype=np.float32)
    # All terms at once: in a small index, a call costs more than what it computes.
    gains = _posting_frequencies(columns, spans).astype(np.float32)
    norms = _length_norms(columns, weights.average_length)[rows]
    norms += gains
    gains *= np.array(weights.weights, dtype=np.float32)[terms] * np.float32(K1 + 1)
    gains /= norms
    return np.bincount(rows, gains, columns.rows).astype(np.float32)


def _average_length(columns: Columns) -> float:
    return columns.cached("average_length", lambda: float(columns.lengths().mean()))


def _length_norms(columns: Columns, average: float) -> Floats:
    """Return by how much the length of each row lowers its score."""

    def compute() -> Floats:
        norms: Floats = (K1 * (1 - B + B * columns.lengths() / max(average, 1e-9))).astype(
            np.float32
        )
        return norms

    if average == _average_length(columns):  # every row counts, as in most searches
        return columns.cached("length_norms", compute)
    return compute()


def _document_frequency(columns: Columns, spans: Spans, counted: Mask) -> int:
    """Return how many of the counted rows have a term."""
    frequency = first_row = 0
    for segment, (start, end) in zip(columns.segments, spans, strict=True):
        part = counted[first_row : first_row + segment.rows]
        frequency += int(np.count_nonzero(part[segment.docs[start:end]]))
        first_row += segment.rows
    return frequency


def match(columns: Columns, query: Query, cost: QueryCost | None = None) -> Mask:
    """Return the rows for which a query of the query language is true."""
    return _QueryMatcher(columns, cost or QueryCost()).match(query)


def match_words(columns: Columns, text: str) -> Mask:
    """Return the rows that contain these words next to each other, in this order."""
    return _QueryMatcher(columns, QueryCost()).match_words(text)


@dataclass(frozen=True, slots=True)
class _QueryMatcher:
    columns: Columns
    cost: QueryCost

    def match(self, query: Query) -> Mask:
        match query:
            case Term() | Phrase():
                return self.match_words(query.text)
            case Prefix():
                return self._match_prefix(query.text)
            case QueryNot():
                return ~self.match(query.part)
            case QueryAnd():
                return self._combine(np.logical_and, query.parts)
            case QueryOr():
                return self._combine(np.logical_or, query.parts)

    def _combine(self, combine: Callable[[Mask, Mask], Mask], parts: Sequence[Query]) -> Mask:
        masks = map(self.match, dict.fromkeys(parts))  # Words are often repeated.
        return reduce(combine, masks) if parts else self._no_rows()

    def _no_rows(self) -> Mask:
        self.cost.spend(self.columns.rows // _ROWS_PER_ELEMENT)
        return np.zeros(self.columns.rows, dtype=np.bool_)

    def match_words(self, text: str) -> Mask:
        atoms = _atoms(analyze(text))
        numbers = [self.columns.vocabulary.get(atom, -1) for atom in atoms]
        if not numbers or -1 in numbers:
            return self._no_rows()
        if len(numbers) == 1:
            return self._rows_with_any(numbers)
        if len(numbers) == 2 and all(map(is_cjk, atoms)):
            return self._rows_with_any([bigram_key(*numbers)])  # Pairs have their own postings.
        return self._rows_with_phrase([[number] for number in numbers])

    def _match_prefix(self, text: str) -> Mask:
        *before, last = _atoms(analyze(text))
        if is_cjk(last):
            return self.match_words(text)  # Any character can follow in Chinese.
        vocabulary = self.columns.vocabulary
        # Terms are stems: "configuration*" must match what is indexed as "configur".
        prefix = last_word(text) or last
        self.cost.spend(len(vocabulary) * _ELEMENTS_PER_TERM)
        choices = {*vocabulary.starting_with(prefix), vocabulary.get(stem(prefix), -1)}
        choices -= {BREAK_ID, -1}
        fixed = [vocabulary.get(atom, -1) for atom in before]
        if not choices or -1 in fixed:
            return self._no_rows()
        if not fixed:
            return self._rows_with_any(sorted(choices))
        return self._rows_with_phrase([*([number] for number in fixed), sorted(choices)])

    def _rows_with_any(self, numbers: Sequence[int]) -> Mask:
        mask = self._no_rows()
        keys = np.array(numbers, dtype=np.int64)
        first_row = 0
        for segment in self.columns.segments:
            part = mask[first_row : first_row + segment.rows]
            for start, end in segment.spans(keys):
                self.cost.spend(end - start)
                part[segment.docs[start:end]] = True
            first_row += segment.rows
        return mask

    def _rows_with_phrase(self, phrase: Sequence[Sequence[int]]) -> Mask:
        mask = self._no_rows()
        positions = [np.array(choices, dtype=np.int32) for choices in phrase]
        first_row = 0
        for segment in self.columns.segments:
            mask[first_row + segment.rows_with_phrase(positions, self.cost)] = True
            first_row += segment.rows
        return mask


def index_tokens(text: str) -> list[str]:
    """Return all terms that a text is indexed under: atoms, pairs of characters, extras."""
    analysis = analyze(text)
    return [*_atoms(analysis), *map("".join, _pairs(analysis)), *analysis.extras]


def rank_texts(texts: Sequence[str], query: str, limit: int = 10) -> list[int]:
    """Return where the texts are that share words with the query, the best by BM25 first."""
    from rank_bm25 import BM25Plus

    tokens = [index_tokens(text) for text in texts]
    query_tokens = index_tokens(query)
    if not any(tokens) or not query_tokens:
        return []
    scores = BM25Plus(tokens).get_scores(query_tokens).round(6).tolist()
    vocabulary = set(query_tokens)
    matches = [place for place in range(len(texts)) if not vocabulary.isdisjoint(tokens[place])]
    return sorted(matches, key=lambda place: -scores[place])[:limit]
