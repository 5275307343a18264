"""Calibration: how likely a row is relevant, and the cosine below which similarity is noise.

The probability of a row is that of two things together: that the store has an answer at all, and
that it is this row. The first depends on the query as a whole: how much of it, by the rarity of its
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
from pathlib import Path
from typing import NamedTuple

import numpy as np

from memrecall.search.index.rows import Floats, Mask
from memrecall.search.ranking.scores import HYBRID, RankingFeatures, to_relevance

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
    odds += ROW.lone_of_many * _mean(features["lone"][first]) * log_rows(support.rows)
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
    many = log_rows(support.rows)
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


def log_rows(rows: int) -> float:
    """Return log(rows), the store-size feature."""
    return math.log(max(rows, 2))


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
        """Return how many deviations a cosine is above that of unrelated texts."""
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
