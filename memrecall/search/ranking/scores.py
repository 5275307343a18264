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

PARTS = (
    "lexical",
    "coverage",
    "exact",
    "semantic",
    "cosine",
    "neighbours",
    "day",
    "time",
    "nearby",
    "speaker",
    "voice",
    "lone",
    "length",
    "asks",
)
_FEW = 8  # of so many rows, standard scores tell half
_LARGEST = 8.0  # one rare word in a hundred thousand rows stands out, but not without bound


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """How much each kind of evidence counts, and where relevance 0.5 lies."""

    lexical: float = 0.0  # how much better than other rows it fits the words
    coverage: float = 0.0  # how much of the words it has
    exact: float = 0.0  # the part of that beyond one half: nearly the very words
    semantic: float = 0.0  # how much closer than other rows it is in meaning
    cosine: float = 0.0
    neighbours: float = 0.0  # what was said around it, in a dialogue
    day: float = 0.0  # the best of the other rows of that day
    time: float = 0.0  # said within a time that the question names
    nearby: float = 0.0  # said just before or after it
    speaker: float = 0.0  # said by somebody whom the question names
    voice: float = 0.0  # the same, in a dialogue, where it tells the two apart
    lone: float = 0.0  # not part of a dialogue: a note, a memory, an event
    length: float = 0.0
    asks: float = 0.0  # it is a question itself
    bias: float = 0.0


# Fitted on LifeBench and MADial in both languages (`benchmarks/fit_ranking.py`), rounded, with what
# those sets hardly show (dialogue, named speakers, questions) set by hand; checked on LoCoMo.
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
# A single side is ranked by its own measure alone.
KEYWORD = RankingWeights(lexical=0.4, coverage=1.4, bias=-2.0)
SEMANTIC = RankingWeights(semantic=0.4, cosine=4.0, bias=-2.5)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for each candidate, one array a kind."""

    lexical: Floats
    coverage: Floats
    semantic: Floats
    cosine: Floats
    context: "Context | None" = None  # only a hybrid search looks around

    def part(self, name: str) -> Floats:
        """One kind of evidence by its name."""
        if name == "exact":
            return np.maximum(2 * self.coverage - 1, 0)
        if name in _OWN:
            own: Floats = getattr(self, name)
            return own
        if self.context is None:
            return np.zeros_like(self.lexical)
        around: Floats = getattr(self.context, name)
        return around


@dataclass(frozen=True, slots=True)
class Context:
    """What surrounds each candidate."""

    neighbours: Floats
    day: Floats
    time: Floats
    nearby: Floats
    speaker: Floats
    voice: Floats
    lone: Floats
    length: Floats
    asks: Floats


_OWN = frozenset({"lexical", "coverage", "semantic", "cosine"})


@dataclass(frozen=True, slots=True)
class Standard:
    """The mean and the spread that scores are measured by."""

    mean: float
    spread: float
    trust: float = 1.0  # less where few rows were measured

    @classmethod
    def of(cls, values: Floats, size: int) -> "Standard":
        """Measured on `size` rows, of which those without a value count as 0."""
        if not len(values):
            return cls(0.0, 0.0)
        exact = values.astype(np.float64)
        mean = float(exact.sum()) / size
        spread = math.sqrt(max(float(np.square(exact).sum()) / size - mean * mean, 0.0))
        return cls(mean, spread, size / (size + _FEW))

    def apply(self, scores: Floats) -> Floats:
        """The scores as standard deviations from the mean; all 0 where there is no spread."""
        if self.spread < 1e-6:
            return np.zeros_like(scores)
        centred = (scores - np.float32(self.mean)) / np.float32(self.spread)
        clipped: Floats = np.clip(centred, -_LARGEST, _LARGEST) * np.float32(self.trust)
        return clipped


NOTHING = Standard(0.0, 0.0)


def combine(evidence: Evidence, weights: RankingWeights) -> Floats:
    """One score a candidate: larger is better, 0 is a relevance of one half."""
    total = np.full(len(evidence.lexical), weights.bias, dtype=np.float32)
    for name in PARTS:
        weight = getattr(weights, name)
        if weight:
            total += np.float32(weight) * evidence.part(name)
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
