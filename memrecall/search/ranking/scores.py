"""From features to one order: standardised features, summed with fixed weights.

Lexical and semantic scores are standardised over the user's living rows, so that a side that cannot
tell rows apart has no influence, whatever its scale. Two absolute measures complement them, how
much of the query a row covers and its cosine: in a small collection standard scores say little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from memrecall.search.index.rows import Floats

_ASSUMED_ROWS = 8
_MAX_DEVIATION = 8.0  # bounds one rare word among a hundred thousand rows


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weight of each feature; `bias` sets the score of relevance 0.5."""

    lexical: float = 0.0  # how much better than other rows it matches the words
    coverage: float = 0.0  # the share of the query's words that it has
    exact: float = 0.0  # the part of coverage beyond one half: nearly the same words
    semantic: float = 0.0  # how much closer in meaning than other rows it is
    wordless: float = 0.0  # the same, the more the less of the query any row has in words
    cosine: float = 0.0
    thread: float = 0.0  # the query's words in the lines before it
    reply: float = 0.0  # closeness of the question that it follows, in a dialogue
    day: float = 0.0  # the best score of the other rows of that day
    time: float = 0.0  # within a time that the query names
    nearby: float = 0.0  # shortly before or after that time
    speaker: float = 0.0  # said by someone whom the query names
    voice: float = 0.0  # the same in a dialogue, where it distinguishes two speakers
    group: float = 0.0  # the same among many speakers, of whom each says little
    lone: float = 0.0  # not part of a dialogue: a note, a memory, an event
    length: float = 0.0
    asks: float = 0.0  # is a question itself
    bias: float = 0.0


FEATURES = tuple(item.name for item in fields(RankingWeights) if item.name != "bias")
# The features of all candidates, one array each; only a hybrid search has those of the context.
RankingFeatures = Mapping[str, Floats]

# Fitted on KdConv, FriendsQA, Molweni, MADial and LifeBench (`benchmarks/fit_ranking.py`), rounded.
HYBRID = RankingWeights(
    lexical=0.25,
    exact=2.8,
    semantic=0.3,
    wordless=0.9,
    thread=0.3,
    reply=0.3,
    day=0.4,
    time=2.85,
    nearby=1.2,
    speaker=0.4,
    voice=0.8,
    group=1.4,
    length=-0.38,
    asks=-0.35,
    bias=-4.0,
)
# The other modes rank by one side alone. Of the evidence among the first ten of ten authors, 97 %
# or more has a relevance of at least one half.
KEYWORD = RankingWeights(lexical=0.4, coverage=1.4, bias=-0.2)
SEMANTIC = RankingWeights(semantic=0.4, cosine=4.0, bias=-0.8)


@dataclass(frozen=True, slots=True)
class Standardizer:
    """The mean and the spread that scores are standardised with."""

    mean: float
    spread: float

    @classmethod
    def fit(
        cls, values: Floats, size: int, unrelated: tuple[float, float] = (0.0, 0.0)
    ) -> "Standardizer":
        """Measure `size` rows, of which those without a value count as 0.

        A few rows say little about what is usual, so that some more are assumed, with the mean and
        the spread of unrelated ones.
        """
        exact = values.astype(np.float64)
        mean, spread = unrelated
        total = size + _ASSUMED_ROWS
        average = (float(np.add.reduce(exact)) + _ASSUMED_ROWS * mean) / total
        exact *= exact
        squares = float(np.add.reduce(exact)) + _ASSUMED_ROWS * (spread**2 + mean**2)
        return cls(average, math.sqrt(max(squares / total - average**2, 0.0)))

    def scale(self, scores: Floats) -> Floats:
        """Return scores in standard deviations, from zero instead of from the mean."""
        return Standardizer(0.0, self.spread).apply(scores)

    def apply(self, scores: Floats) -> Floats:
        """Return scores as standard deviations from the mean; all 0 if there is no spread."""
        if self.spread < 1e-6:
            return np.zeros_like(scores)
        centred: Floats = scores - np.float32(self.mean)
        centred /= np.float32(self.spread)
        np.maximum(centred, -_MAX_DEVIATION, out=centred)
        return np.minimum(centred, _MAX_DEVIATION, out=centred)


def combine(features: RankingFeatures, weights: RankingWeights) -> Floats:
    """Return one score for each candidate: higher is better, 0 is a relevance of one half."""
    names, factors = _weighted_features(weights)
    # One call each for all features: a search has few candidates, and a call costs more than they.
    parts = np.array([features[name] for name in names])
    parts *= factors
    total: Floats = np.add.reduce(parts, axis=0, initial=np.float32(weights.bias))
    # Steps larger than rounding errors: ties are ties on every machine and database.
    return total.round(4, out=total)


@lru_cache(8)
def _weighted_features(weights: RankingWeights) -> tuple[list[str], Floats]:
    """Return the features with a weight, and their weights as a column."""
    names = [name for name in FEATURES if getattr(weights, name)]
    factors = np.array([[getattr(weights, name)] for name in names], dtype=np.float32)
    return names, factors


def to_relevance(scores: Floats) -> Floats:
    """Return combined scores, or log odds, as numbers from 0 to 1."""
    odds = np.minimum(np.maximum(scores, -30), 30)
    np.negative(odds, out=odds)
    np.exp(odds, out=odds)
    odds += 1
    relevance: Floats = np.reciprocal(odds, out=odds).astype(np.float32, copy=False)
    return relevance
