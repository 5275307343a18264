"""Scores by words that stay the same from the first page to the last.

What a row scores depends on the row and on figures about all rows: how many say a term, how long
they are. The figures are taken once, for the first page, and go with its cursor. So neither what
is written later nor what is erased can move a row across the place where the next page begins.
"""

import base64
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memrecall.search.columns import Columns, Mask
from memrecall.search.lexical import (
    add_term,
    average_length,
    document_frequency,
    length_norms,
    term_key,
)
from memrecall.search.terms import Terms

Floats = npt.NDArray[np.float32]

_DIGITS = 4  # steps that rounding errors cannot cross


@dataclass(frozen=True, slots=True)
class Weighing:
    """What the terms of a query weigh, in their order, and the length of an average row."""

    average: float
    weights: tuple[float, ...]

    def pack(self) -> str:
        """The exact numbers as text."""
        numbers = np.array([self.average, *self.weights], dtype="<f8")
        return base64.b64encode(numbers.tobytes()).decode()

    @classmethod
    def unpack(cls, text: str) -> "Weighing":
        """The inverse of `pack`."""
        numbers = np.frombuffer(base64.b64decode(text), dtype="<f8").tolist()
        return cls(numbers[0], tuple(numbers[1:]))


def weigh(columns: Columns, terms: Terms, counted: Mask) -> Weighing:
    """What the terms weigh among the counted rows: the rarer, the more."""
    total = int(np.count_nonzero(counted))
    if not total:
        return Weighing(1.0, tuple(0.0 for _ in terms))
    keys = np.array([term_key(columns, term) for term in terms], dtype=np.int64)
    places = [segment.places(keys) for segment in columns.segments]
    everyone = None if total == columns.rows else counted
    weights = []
    for at, asked in enumerate(terms.values()):
        found = document_frequency(columns, [place[at] for place in places], everyone)
        weights.append(asked * math.log(1 + (total - found + 0.5) / (found + 0.5)))
    return Weighing(average_length(columns, everyone), tuple(weights))


def score(columns: Columns, terms: Terms, weighing: Weighing) -> Floats:
    """The BM25 of every row, by the figures given."""
    scores = np.zeros(columns.rows, dtype=np.float32)
    if not terms or not columns.rows:
        return scores
    keys = np.array([term_key(columns, term) for term in terms], dtype=np.int64)
    places = [segment.places(keys) for segment in columns.segments]
    norms = length_norms(columns, weighing.average)
    for at, weight in enumerate(weighing.weights):
        add_term(columns, [place[at] for place in places], weight, norms, scores)
    rounded: Floats = np.round(scores, _DIGITS)
    return rounded
