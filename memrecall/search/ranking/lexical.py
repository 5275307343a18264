"""Finding by words: BM25 over the postings, and the query language over the same arrays."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from memrecall.search.index.columns import Columns, Mask
from memrecall.search.index.postings import BREAK_ID, bigram_key
from memrecall.text.language import STOP_CHARS, STOP_TERMS, STOP_WORDS
from memrecall.text.query import Phrase, Prefix, Query, QueryAnd, QueryNot, QueryOr, Term
from memrecall.text.tokens import BREAK, Analysis, analyze, is_cjk, last_word, stem

SearchTerm = tuple[str] | tuple[str, str]
Terms = dict[SearchTerm, float]

# One character is a weak word: 型 of 血型 (blood group) is in 模型 (model) too.
CHARACTER = 0.5


def all_terms(text: str) -> Terms:
    """Every term of a text, each as often as it is said: what rows are filed under."""
    analysis = analyze(text)
    single: list[SearchTerm] = [(term,) for term in (*_atoms(analysis), *analysis.extras)]
    return _count([(term, 1.0) for term in (*single, *_pairs(analysis))])


def question_terms(text: str) -> Terms:
    """The terms of a plain question that tell something; all of them if none does."""
    analysis = analyze(text)
    telling: list[tuple[SearchTerm, float]] = [
        ((atom,), CHARACTER if is_cjk(atom) else 1.0)
        for atom in _atoms(analysis)
        if atom not in STOP_TERMS and atom not in STOP_CHARS
    ]
    telling += [((extra,), 1.0) for extra in analysis.extras]
    telling += [(pair, 1.0) for pair in _pairs(analysis) if _tells(pair)]
    return _count(telling) if telling else all_terms(text)


def _tells(pair: tuple[str, str]) -> bool:
    grammar = pair[0] in STOP_CHARS and pair[1] in STOP_CHARS
    return not grammar and "".join(pair) not in STOP_WORDS


def _atoms(analysis: Analysis) -> list[str]:
    return [atom for atom in analysis.atoms if atom != BREAK]


def _pairs(analysis: Analysis) -> list[tuple[str, str]]:
    return [(a, b) for a, b in pairwise(analysis.atoms) if is_cjk(a) and is_cjk(b)]


def _count(weighted: list[tuple[SearchTerm, float]]) -> Terms:
    terms: Terms = {}
    for term, weight in weighted:
        terms[term] = terms.get(term, 0.0) + weight
    return terms


Floats = npt.NDArray[np.float32]

K1 = 1.2
B = 0.6


@dataclass(frozen=True, slots=True)
class LexicalScores:
    """BM25 of each row, and what a row of average length that has every term once would score."""

    scores: Floats
    full: float
    weights: Mapping[SearchTerm, float] = field(default_factory=dict)  # what each term tells

    def coverage(self, rows: npt.NDArray[np.int64]) -> Floats:
        """How much of the query's weight each of the rows has, 0 to 1."""
        share: Floats = np.minimum(self.scores[rows] / np.float32(self.full or 1.0), 1)
        return share


def bm25(columns: Columns, terms: Terms, alive: Mask) -> LexicalScores:
    """Score every row against weighted terms. Dead rows count for nothing."""
    scores = np.zeros(columns.rows, dtype=np.float32)
    total = int(np.count_nonzero(alive))
    if not terms or not total:
        return LexicalScores(scores, 0.0)
    keys = np.array([term_key(columns, term) for term in terms], dtype=np.int64)
    places = [segment.places(keys) for segment in columns.segments]
    everyone = total == columns.rows
    norms = (
        columns.derive("norms", lambda: length_norms(columns, average_length(columns, None)))
        if everyone
        else length_norms(columns, average_length(columns, alive))
    )
    weights: dict[SearchTerm, float] = {}
    for at, (term, asked) in enumerate(terms.items()):
        spans = [place[at] for place in places]
        found = document_frequency(columns, spans, None if everyone else alive)
        weight = asked * math.log(1 + (total - found + 0.5) / (found + 0.5))
        weights[term] = weight
        if found:
            add_term(columns, spans, weight, norms, scores)
    return LexicalScores(scores, sum(weights.values()), weights)


def term_key(columns: Columns, term: SearchTerm) -> int:
    """The key of a term's postings; -1, which none has, if the user never said it."""
    numbers = [columns.vocabulary.get(part, -1) for part in term]
    if -1 in numbers:
        return -1
    return numbers[0] if len(numbers) == 1 else bigram_key(*numbers)


def average_length(columns: Columns, alive: Mask | None) -> float:
    """How many terms a living row is filed under; without a mask, all are alive."""
    lengths = columns.lengths()
    return float((lengths if alive is None else lengths[alive]).mean())


def length_norms(columns: Columns, average: float) -> Floats:
    """How much each row's length dampens what it says."""
    lengths = columns.lengths()
    norms: Floats = (K1 * (1 - B + B * lengths / max(average, 1e-9))).astype(np.float32)
    return norms


def document_frequency(
    columns: Columns, spans: Sequence[tuple[int, int]], alive: Mask | None
) -> int:
    """How many living rows have a term, whose postings `spans` are in each segment."""
    if alive is None:
        return sum(end - start for start, end in spans)
    found = first_row = 0
    for segment, (start, end) in zip(columns.segments, spans, strict=True):
        living = alive[first_row : first_row + segment.rows]
        found += int(np.count_nonzero(living[segment.docs[start:end]]))
        first_row += segment.rows
    return found


def add_term(
    columns: Columns,
    spans: Sequence[tuple[int, int]],
    weight: float,
    norms: Floats,
    scores: Floats,
) -> None:
    """Add what one term says for each row."""
    first_row = 0
    for segment, (start, end) in zip(columns.segments, spans, strict=True):
        if start != end:
            docs = segment.docs[start:end]
            said = segment.frequencies[start:end].astype(np.float32)
            norm = norms[first_row : first_row + segment.rows][docs]
            norm += said
            said *= np.float32(weight * (K1 + 1))
            said /= norm
            scores[first_row : first_row + segment.rows][docs] += said
        first_row += segment.rows


def match(columns: Columns, query: Query) -> Mask:
    """The rows for which a query of the query language is true."""
    match query:
        case Term() | Phrase():
            return match_words(columns, query.text)
        case Prefix():
            return _match_prefix(columns, query.text)
        case QueryNot():
            return ~match(columns, query.part)
        case QueryAnd():
            return reduce(np.logical_and, (match(columns, part) for part in query.parts))
        case QueryOr():
            return reduce(np.logical_or, (match(columns, part) for part in query.parts))


def match_words(columns: Columns, text: str) -> Mask:
    """The rows where these words stand, in this order and next to each other."""
    atoms = [atom for atom in analyze(text).atoms if atom != BREAK]
    numbers = [columns.vocabulary.get(atom, -1) for atom in atoms]
    if not numbers or -1 in numbers:
        return np.zeros(columns.rows, dtype=np.bool_)
    if len(numbers) == 1:
        return _rows_with_any(columns, numbers)
    if len(numbers) == 2 and all(map(is_cjk, atoms)):
        return _rows_with_any(columns, [bigram_key(*numbers)])  # filed under just that
    return _rows_with_phrase(columns, [[number] for number in numbers])


def _match_prefix(columns: Columns, text: str) -> Mask:
    atoms = [atom for atom in analyze(text).atoms if atom != BREAK]
    *before, last = atoms
    if is_cjk(last):
        return match_words(columns, text)  # Chinese goes on after any character
    # Terms are stems: "configuration*" must find what is filed under "configur".
    written = last_word(text)
    ending = columns.vocabulary.starting_with(written)
    filed = columns.vocabulary.get(stem(written))
    choices = sorted({*ending, *([] if filed is None else [filed])} - {BREAK_ID})
    fixed = [columns.vocabulary.get(atom, -1) for atom in before]
    if not choices or -1 in fixed:
        return np.zeros(columns.rows, dtype=np.bool_)
    if not fixed:
        return _rows_with_any(columns, choices)
    return _rows_with_phrase(columns, [*([number] for number in fixed), choices])


def _rows_with_any(columns: Columns, numbers: Sequence[int]) -> Mask:
    found = np.zeros(columns.rows, dtype=np.bool_)
    keys = np.array(numbers, dtype=np.int64)
    first_row = 0
    for segment in columns.segments:
        part = found[first_row : first_row + segment.rows]
        for start, end in segment.places(keys):
            part[segment.docs[start:end]] = True
        first_row += segment.rows
    return found


def _rows_with_phrase(columns: Columns, phrase: Sequence[Sequence[int]]) -> Mask:
    found = np.zeros(columns.rows, dtype=np.bool_)
    places = [np.array(choices, dtype=np.int32) for choices in phrase]
    first_row = 0
    for segment in columns.segments:
        found[first_row + segment.rows_with_phrase(places)] = True
        first_row += segment.rows
    return found
