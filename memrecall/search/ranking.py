"""From evidence to one order: standardised parts, summed with fixed weights.

Each side's scores are standardised over the user's living rows, so that a side that cannot tell
rows apart stays silent, whatever its scale. Beside them stand two absolute measures, how much of
the question a row covers and its cosine: in a small collection standard scores alone say little.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

PARTS = ("lexical", "coverage", "semantic", "cosine", "neighbours", "time")
_LARGEST = 8.0  # one rare word in a hundred thousand rows stands out, but not without bound


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each kind of evidence counts, and where relevance 0.5 lies."""

    lexical: float
    coverage: float
    semantic: float
    cosine: float
    neighbours: float
    time: float
    bias: float


# Chosen by hand on labelled conversations in both languages, and not calibrated: of the evidence
# among the first ten, 0.5 keeps nearly all on long histories, but only about half on MADial's
# short ones.
HYBRID = Weights(
    lexical=0.4, coverage=1.0, semantic=0.4, cosine=1.0, neighbours=0.3, time=2.0, bias=-2.0
)
# A single side is ranked by its own measure alone.
KEYWORD = Weights(
    lexical=0.4, coverage=3.0, semantic=0.0, cosine=0.0, neighbours=0.0, time=0.0, bias=-2.0
)
SEMANTIC = Weights(
    lexical=0.0, coverage=0.0, semantic=0.4, cosine=4.0, neighbours=0.0, time=0.0, bias=-2.5
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for each candidate, one array a kind."""

    lexical: Floats
    coverage: Floats
    semantic: Floats
    cosine: Floats
    neighbours: Floats
    time: Floats


@dataclass(frozen=True, slots=True)
class Standard:
    """The mean and the spread that scores are measured by."""

    mean: float
    spread: float

    @classmethod
    def of(cls, values: Floats, size: int) -> "Standard":
        """Measured on `size` rows, of which those without a value count as 0."""
        if not len(values):
            return cls(0.0, 0.0)
        exact = values.astype(np.float64)
        mean = float(exact.sum()) / size
        return cls(mean, math.sqrt(max(float(np.square(exact).sum()) / size - mean * mean, 0.0)))

    def apply(self, scores: Floats) -> Floats:
        """The scores as standard deviations from the mean; all 0 where there is no spread."""
        if self.spread < 1e-6:
            return np.zeros_like(scores)
        centred = (scores - np.float32(self.mean)) / np.float32(self.spread)
        clipped: Floats = np.clip(centred, -_LARGEST, _LARGEST)
        return clipped


NOTHING = Standard(0.0, 0.0)


def combine(evidence: Evidence, weights: Weights) -> Floats:
    """One score a candidate: larger is better, 0 is a relevance of one half."""
    total = np.full(len(evidence.lexical), weights.bias, dtype=np.float32)
    for name in PARTS:
        weight = getattr(weights, name)
        if weight:
            total += np.float32(weight) * getattr(evidence, name)
    # Steps that rounding errors cannot cross: ties are ties on every machine and database.
    return np.round(total, 4)


def relevance(total: float) -> float:
    """A combined score as a number from 0 to 1."""
    return round(1 / (1 + math.exp(-total)), 4)


def logit(share: float) -> float:
    """The combined score that has this relevance."""
    if share <= 0:
        return -math.inf
    return math.inf if share >= 1 else math.log(share / (1 - share))
