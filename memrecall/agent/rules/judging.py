"""Which of the found keys are meant, and how sure that is."""

import math
from dataclasses import dataclass

from memrecall.agent.rules.findings import Candidate, Findings
from memrecall.agent.rules.measures import Measures, as_row, measure_all
from memrecall.agent.rules.reading import Reading

MOST_KEYS = 6
MOST_KEYS_OF_ALL = 10  # where all of something is asked for
ABSTAIN_BELOW = 0.2

_FIT = Measures(
    gap=-0.3, rank=-0.6, telling=2.0, same_day=0.5, in_time=0.65, speaker=0.6, beside=-1.0, answers=0.5
)
_FIT_BIAS = -0.9


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate and the chance that it is meant."""

    candidate: Candidate
    fit: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """The keys to hand off, best first, and the chance that one of them is right."""

    chosen: tuple[Judged, ...]
    confidence: float

    @property
    def abstains(self) -> bool:
        """Whether nothing fits well enough."""
        return not self.chosen or self.confidence < ABSTAIN_BELOW


def judge(reading: Reading, found: Findings) -> Judgement:
    """Choose among what was found."""
    judged = sorted(
        (
            Judged(found.candidates[key], _chance(measures))
            for key, measures in measure_all(reading, found).items()
        ),
        key=lambda j: (-j.fit, j.candidate.rank, j.candidate.key),
    )
    most = MOST_KEYS_OF_ALL if reading.asks == "count" else MOST_KEYS
    best = judged[0].fit if judged else 0.0
    chosen = [j for j in judged if j.fit >= 0.5 * best][:most]
    return Judgement(tuple(chosen), round(best, 2))


def _chance(measures: Measures) -> float:
    total = sum(w * m for w, m in zip(as_row(_FIT), as_row(measures), strict=True))
    return 1 / (1 + math.exp(-total - _FIT_BIAS))
