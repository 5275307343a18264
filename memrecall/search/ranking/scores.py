"""From features to one order: standardised features, summed with fixed weights.

Lexical and semantic scores are standardised over the user's living rows, so that a side that cannot
tell rows apart has no influence, whatever its scale. Two absolute measures complement them, how
much of the query a row covers and its cosine: in a small collection standard scores say little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from memrecall.search.index.rows import Floats

_HALF_TRUST_ROWS = 8  # with this many rows, standard scores count half
_MAX_DEVIATION = 8.0  # bounds one rare word among a hundred thousand rows


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weight of each feature; `bias` sets the score of relevance 0.5."""

    lexical: float = 0.0  # how much better than other rows it matches the words
    coverage: float = 0.0  # the share of the query's words that it has
    exact: float = 0.0  # the part of coverage beyond one half: nearly the same words
    semantic: float = 0.0  # how much closer in meaning than other rows it is
    cosine: float = 0.0
    neighbours: float = 0.0  # scores of the surrounding messages, in a dialogue
    day: float = 0.0  # the best score of the other rows of that day
    time: float = 0.0  # within a time that the query names
    nearby: float = 0.0  # shortly before or after that time
    speaker: float = 0.0  # said by someone whom the query names
    voice: float = 0.0  # the same in a dialogue, where it distinguishes two speakers
    lone: float = 0.0  # not part of a dialogue: a note, a memory, an event
    length: float = 0.0
    asks: float = 0.0  # is a question itself
    bias: float = 0.0


FEATURES = tuple(item.name for item in fields(RankingWeights) if item.name != "bias")
# The features of all candidates, one array each; only a hybrid search has those of the context.
RankingFeatures = Mapping[str, Floats]

# Fitted on LifeBench and MADial in both languages (`benchmarks/fit_ranking.py`) and rounded; what
# those sets rarely contain (dialogue, named speakers, questions) is set by hand. Checked on LoCoMo.
HYBRID = RankingWeights(
    lexical=0.32,
    coverage=0.4,
    exact=1.5,
    semantic=0.74,
    neighbours=0.75,
    day=0.35,
    time=3.2,
    nearby=2.2,
    speaker=0.5,
    voice=1.5,
    lone=0.8,
    length=-0.33,
    asks=-0.8,
    bias=-4.0,
)
# The other modes rank by one side alone.
KEYWORD = RankingWeights(lexical=0.4, coverage=1.4, bias=-2.0)
SEMANTIC = RankingWeights(semantic=0.4, cosine=4.0, bias=-2.5)


@dataclass(frozen=True, slots=True)
class Standardizer:
    """The mean and the spread that scores are standardised with."""

    mean: float
    spread: float
    trust: float = 1.0  # lower where few rows were measured

    @classmethod
    def fit(cls, values: Floats, size: int) -> "Standardizer":
        """Measure `size` rows, of which those without a value count as 0."""
        if not len(values):
            return cls(0.0, 0.0)
        exact = values.astype(np.float64)
        mean = float(exact.sum()) / size
        spread = math.sqrt(max(float(np.square(exact).sum()) / size - mean * mean, 0.0))
        return cls(mean, spread, size / (size + _HALF_TRUST_ROWS))

    def apply(self, scores: Floats) -> Floats:
        """Return scores as standard deviations from the mean; all 0 if there is no spread."""
        if self.spread < 1e-6:
            return np.zeros_like(scores)
        centred = (scores - np.float32(self.mean)) / np.float32(self.spread)
        bounded: Floats = np.clip(centred, -_MAX_DEVIATION, _MAX_DEVIATION)
        return bounded * np.float32(self.trust)


def combine(features: RankingFeatures, weights: RankingWeights) -> Floats:
    """Return one score for each candidate: higher is better, 0 is a relevance of one half."""
    total = np.full(len(features["lexical"]), weights.bias, dtype=np.float32)
    for name in FEATURES:
        weight = getattr(weights, name)
        if weight:
            total += np.float32(weight) * features[name]
    # Steps larger than rounding errors: ties are ties on every machine and database.
    return np.round(total, 4)


def relevance(score: float) -> float:
    """Return a combined score as a number from 0 to 1."""
    return round(1 / (1 + math.exp(-score)), 4)


def logit(relevance: float) -> float:
    """Return the combined score of a relevance."""
    if relevance <= 0:
        return -math.inf
    return math.inf if relevance >= 1 else math.log(relevance / (1 - relevance))
