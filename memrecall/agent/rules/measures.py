"""What can be measured of a candidate against a request, and of a whole choice."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from memrecall.agent.rules.coverage import Said
from memrecall.agent.rules.findings import Candidate, Findings
from memrecall.agent.rules.reading import Reading
from memrecall.agent.rules.searching import named_speakers
from memrecall.search.calibration import HALF

_MOST_WORDS = 16
_LEAST_WEIGHT = 0.1
# Where little is stored, few rows are found; the others, which have none of the words, count too.
_LEAST_ROWS = 10
_COMPARED = 6  # hits among which one is newer or older


@dataclass(frozen=True, slots=True)
class Measures:
    """What speaks for one candidate."""

    chance: float  # the chance that its search gave it, in log odds
    rank: float  # its place in its search, as a logarithm
    telling: float  # the share of the asked words it has; rare ones among the hits count more
    asks: float  # 1: it is a question itself
    newer: float  # the share of the best hits that were said before it


def as_row(measures: object) -> list[float]:
    """The measures as numbers, in the order of their fields."""
    return [getattr(measures, field.name) for field in fields(measures)]  # type: ignore[arg-type]


class Scene:
    """A request and what was found for it, made ready for measuring."""

    def __init__(self, reading: Reading, found: Findings) -> None:
        self.reading = reading
        self.found = found
        self.hits = found.hits
        self.speakers = named_speakers(reading, found)
        # A candidate's words, and who said them.
        self.said: Mapping[str, Said] = {
            key: Said.of(f"{candidate.speaker} {candidate.text}")
            for key, candidate in found.candidates.items()
        }
        self.weights = self.weigh(asked_words(reading))

    def weigh(self, words: Iterable[str]) -> "Weights":
        """How much each word tells: what every hit has tells nothing."""
        rows = max(len(self.hits), _LEAST_ROWS)
        weights: list[tuple[Said, float]] = []
        for word in map(Said.of, words):
            having = sum(self.said[hit.key].has(word) for hit in self.hits)
            weights.append((word, max(math.log((rows + 1) / (having + 0.5)), _LEAST_WEIGHT)))
        return Weights(weights)

    def measure(self, candidate: Candidate) -> Measures:
        """What speaks for a hit."""
        others = [hit for hit in self.hits[:_COMPARED] if hit.key != candidate.key]
        older = sum(hit.created_at < candidate.created_at for hit in others)
        return Measures(
            chance=log_odds(candidate.score) + log_odds(HALF),
            rank=math.log1p(candidate.rank),
            telling=self.weights.share(self.said[candidate.key]),
            asks=float(candidate.asks),
            newer=older / len(others) if others else 0.5,
        )


class Weights:
    """Words with what each of them tells."""

    def __init__(self, weights: Sequence[tuple[Said, float]]) -> None:
        self._weights = weights
        self.total = sum(weight for _, weight in weights)

    def share(self, said: Said) -> float:
        """The share of the words' weight that a text has."""
        if not self.total:
            return 0.0
        return sum(weight * said.has(word) for word, weight in self._weights) / self.total


def asked_words(reading: Reading) -> tuple[str, ...]:
    """The words that an answer should have: the message's own; a topic has the conversation's."""
    own = (*reading.words, *reading.exact)
    more = reading.context_words if reading.topical or not own else ()
    return tuple(dict.fromkeys((*own, *more)))[:_MOST_WORDS]


def log_odds(share: float) -> float:
    """A score from 0 to 1 as log odds; the tools round scores, so its ends are not infinite."""
    bounded = min(max(share, 0.001), 0.9995)
    return math.log(bounded / (1 - bounded))


def in_time(reading: Reading, candidate: Candidate) -> float:
    """Whether it was said within a time that the request names; one half if nobody can tell."""
    spans = reading.timing.spans
    if not spans or not candidate.created_at:
        return 0.5
    try:
        said = datetime.fromisoformat(candidate.created_at)
        inside = any(
            (span.start is None or said >= span.start) and (span.end is None or said < span.end)
            for span in spans
        )
    except (ValueError, TypeError):
        return 0.5
    return float(inside)
