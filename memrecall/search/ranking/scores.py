"""From features to one order, and from the order to probabilities.

Lexical and semantic scores are standardised over the user's living rows, so that a side that cannot
tell rows apart has no influence, whatever its scale. Two absolute measures complement them, how
much of the query a row covers and its cosine: in a small collection standard scores say little.

A row is the answer if the store has an answer at all, and if it is this row: its probability is the
product of both. The first depends on the query as a whole: how much of it, by the rarity of its
words in the language, any row has; how much nearer the nearest row is than unrelated sentences are;
and among how many rows, because the best of many is good by chance. So a score means the same in a
store of three rows and of a hundred thousand.

Unrelated texts have a cosine of 0 with one embedding model and of 0.7 with another. So it is
measured: the cosines of the query with unrelated sentences show what is noise for this model and
this query.
"""

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from memrecall.search.index import Floats, Mask

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
    group: float = 0.0  # the same, in groups where each speaker says little
    lone: float = 0.0  # not part of a dialogue: a note, a memory, an event
    length: float = 0.0
    asks: float = 0.0  # is a question itself
    bias: float = 0.0


FEATURES = tuple(item.name for item in fields(RankingWeights) if item.name != "bias")
# The features of all candidates, one array each; only a hybrid search has the features of context.
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


RIVALS = 50  # the rows that compete for the probability
TOP_ROWS = 20  # the rows whose features shift the score
NO_ANSWER_SCORE = 0.0  # the score of "none of them is relevant"
# A row with this probability has a relevance of one half. It was set when, of the evidence among
# the first ten of the authors C to K, 98 % had more; of each of them, at least 95 %.
HALF_RELEVANT = 0.012


class AnswerWeights(NamedTuple):
    """The weights of the probability that there is an answer (`benchmarks/fit_ranking.py`)."""

    known: float = 3.3
    significance: float = 0.4
    gap: float = 0.56
    brevity: float = -2.2
    rows: float = -0.78
    coverage_of_many: float = 0.31
    personal: float = 1.4  # 2.0 fitted: only the sets of this project have such questions
    bias: float = -0.6


class RowWeights(NamedTuple):
    """The weights of the probability that a row is the answer, if there is one."""

    share: float = 1.2
    lone_of_many: float = 0.2  # many notes about one thing are many pieces of evidence
    time: float = 0.45
    bias: float = 1.45


ANSWER, ROW = AnswerWeights(), RowWeights()
_GAP_ROWS = 10
_HALF_TRUST_ROWS = 8  # with this many rows, the gap counts half
_MIN_WORDS = 2
_MAX_SIGNIFICANCE = 12.0
_UNKNOWN_SIGNIFICANCE = 5.0  # without vectors only words count


class QuerySupport(NamedTuple):
    """What the store as a whole has of a query."""

    known: float  # the share of its words that any row has, by their rarity in the language
    coverage: float  # the largest share that one row has
    significance: float  # how far the nearest row is from unrelated texts, in deviations
    words: float
    rows: int
    is_personal: bool = False  # whether it speaks of "I" and "my", which memories are about


class Calibrated(NamedTuple):
    """For each candidate, its relevance from 0 to 1 and the probability that it is evidence."""

    relevance: Floats
    probability: Floats


def calibrate(
    scores: Floats, visible: Mask, features: RankingFeatures, support: QuerySupport
) -> Calibrated:
    """Return scores as relevance and probability, in the same order.

    `visible` marks the candidates that may be shown.
    """
    rows = visible.nonzero()[0]
    if not len(rows):
        return Calibrated(np.zeros_like(scores), np.zeros_like(scores))
    if len(rows) > RIVALS:
        rows = rows[np.argpartition(-scores[rows], RIVALS)[:RIVALS]]
    best = rows[np.argsort(-scores[rows], kind="stable")]
    first = best[:TOP_ROWS]
    rivals = np.logaddexp.reduce(scores[best].astype(np.float64), initial=NO_ANSWER_SCORE)
    odds = ROW.share * (scores - np.float32(rivals))
    odds += ROW.lone_of_many * _mean(features["lone"][first]) * math.log(max(support.rows, 2))
    odds += ROW.time * _mean(features["time"][first]) + ROW.bias
    leads = discount_time(
        scores[best], {name: features[name][best] for name in ("time", "nearby")}, support.known
    )
    probability = np.float32(answer_probability(leads, support)) * to_relevance(odds)
    return Calibrated(probability / (probability + np.float32(HALF_RELEVANT)), probability)


def _mean(values: Floats) -> float:
    """Return what `mean` does, which takes three times as long for a few numbers."""
    return float(np.add.reduce(values)) / len(values)


def discount_time(scores: Floats, features: RankingFeatures, known: float) -> Floats:
    """Scale the time feature by the share of query words that the store contains.

    It tells rows of one subject apart. A subject that no row has is not found because something
    else happened at that time.
    """
    time = HYBRID.time * features["time"] + HYBRID.nearby * features["nearby"]
    return (scores - (1 - known) * time).astype(np.float32)


def answer_probability(best: Floats, support: QuerySupport) -> float:
    """Return the probability that the store has an answer.

    `best` are the scores of the best rows, in their order, with the time discounted.
    """
    total = sum(map(operator.mul, ANSWER, answer_features(best, support)))
    return 1 / (1 + math.exp(-total))


def answer_features(best: Floats, support: QuerySupport) -> AnswerWeights:
    """Return what the weights of the same names are multiplied with."""
    rest = best[1:_GAP_ROWS]
    gap = float(best[0]) - _mean(rest) if len(rest) else 0.0
    many = math.log(max(support.rows, 2))
    return AnswerWeights(
        known=support.known,
        significance=min(support.significance, _MAX_SIGNIFICANCE),
        gap=gap * support.rows / (support.rows + _HALF_TRUST_ROWS),
        brevity=1 / math.sqrt(max(support.words, _MIN_WORDS)),
        rows=many,
        coverage_of_many=support.coverage * many,
        personal=float(support.is_personal),
        bias=1.0,
    )


BACKGROUND: tuple[str, ...] = tuple(
    json.loads(Path(__file__).with_name("background.json").read_text("utf-8"))
)
_MIN_ROWS = 8
_MAD_TO_DEVIATION = 1.4826  # converts a median absolute deviation into a standard deviation
_MIN_SPREAD = 0.02


class Noise(NamedTuple):
    """The cosines of a query with unrelated texts: their median and their spread."""

    median: float
    spread: float

    @classmethod
    def of(cls, cosines: Floats) -> "Noise":
        """Measure cosines. Medians keep a query about one of the sentences from counting."""
        median = _median(cosines)
        deviation = _MAD_TO_DEVIATION * _median(np.abs(cosines - median))
        return cls(median, max(deviation, _MIN_SPREAD))

    def significance(self, cosine: float) -> float:
        """Return how many deviations a cosine is above the cosine of unrelated texts."""
        return (cosine - self.median) / self.spread

    def floor(self, rows: int) -> float:
        """Return the lowest cosine that is significant among `rows` rows.

        The closest of many unrelated rows is closer than that of few, so it rises with `rows`.
        """
        return self.median + math.sqrt(2 * math.log(max(rows, _MIN_ROWS))) * self.spread


def _median(values: Floats) -> float:
    """Return what `np.median` does, which takes five times as long for a few numbers."""
    ordered = np.sort(values)
    return _mean(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1])


def significance_of(cosine: float, noise: Noise | None) -> float:
    """Return the significance of the nearest row, or a middling one without vectors."""
    return _UNKNOWN_SIGNIFICANCE if noise is None else noise.significance(cosine)
