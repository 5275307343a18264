"""From a ranking score to a chance: how likely it is that a row is what was asked for.

A score says how a row compares with the user's other rows, so the chance is a share: what the row
has of all that the best rows have together, with a rest for "none of them". Where many rows are
notes or events rather than talk, or a time was named, more than one of them is usually right. The
coefficients were fitted by logistic regression on LifeBench and MADial in both languages and the
conversations of fixtures/eval (`benchmarks/fit_ranking.py`), and checked on LoCoMo.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

RIVALS = 50  # the rows that share the chance
LOOKED_AT = 20  # those that tell what kind of rows these are
NONE_OF_THEM = 0.0  # the score of "none of them"
SHARE, LONE, TIMED, BIAS = 1.0, 0.85, 0.78, 0.98
# A chance of five in a hundred is a relevance of one half: on labelled conversations that
# keeps about nine tenths of the evidence that ranks among the first ten.
HALF = 0.05


def calibrate(
    scores: Floats, open_rows: npt.NDArray[np.bool_], lone: Floats, time: Floats
) -> Floats:
    """The scores as the logit of relevance: 0 is one half. The order stays as it is.

    `open_rows` are the candidates that may be shown; `lone` and `time` are evidence of each.
    """
    shown = np.flatnonzero(open_rows)
    if not len(shown):
        return scores
    if len(shown) > RIVALS:  # among equals at the end of the list it does not matter which
        shown = shown[np.argpartition(-scores[shown], RIVALS)[:RIVALS]]
    best = shown[np.argsort(-scores[shown], kind="stable")]
    rivals = np.append(scores[best].astype(np.float64), NONE_OF_THEM)
    together = float(np.logaddexp.reduce(rivals))
    seen = best[:LOOKED_AT]
    kind = LONE * float(lone[seen].mean()) + TIMED * float(time[seen].mean())
    shift = kind + BIAS - SHARE * together - _logit(HALF)
    return np.round(np.float32(SHARE) * scores + np.float32(shift), 4)


def probability(total: float) -> float:
    """The chance of a calibrated score."""
    return round(1 / (1 + math.exp(-(total + _logit(HALF)))), 4)


def _logit(share: float) -> float:
    return math.log(share / (1 - share))
