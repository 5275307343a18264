"""What can be measured of a candidate against a request, and of a whole choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from memrecall.agent.rules.coverage import covered
from memrecall.agent.rules.findings import Candidate, Findings
from memrecall.agent.rules.reading import Reading
from memrecall.agent.rules.searching import named_speakers

_MOST_WORDS = 16
_LEAST_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Measures:
    """What speaks for one candidate. Each is about 1 at most, but for the first two."""

    gap: float  # how far its relevance lies below the best one's, in log odds
    rank: float  # its place in its search, as a logarithm
    telling: float  # the share of the asked words it has; rare ones among the hits count more
    same_day: float  # said on the day of the best hit
    in_time: float  # said within a time that the request names; one half if it names none
    speaker: float  # 1: said by the person asked about; -1: by another; 0: nobody is named
    beside: float  # not found by a search, only shown beside a hit
    answers: float  # said next after a question that was found


def measure_all(reading: Reading, found: Findings) -> dict[str, Measures]:
    """The measures of every candidate, by key."""
    hits = found.hits
    if not hits:
        return {}
    view = _View(reading, found, hits)
    return {key: view.measure(candidate) for key, candidate in found.candidates.items()}


def as_row(measures: object) -> list[float]:
    """The measures as numbers, in the order of their fields."""
    return [getattr(measures, field.name) for field in fields(measures)]  # type: ignore[arg-type]


class _View:
    def __init__(self, reading: Reading, found: Findings, hits: Sequence[Candidate]) -> None:
        self._reading = reading
        self._found = found
        self._best = hits[0]
        self._weights = word_weights(asked_words(reading), hits)
        self._speakers = named_speakers(reading, found)

    def measure(self, candidate: Candidate) -> Measures:
        anchor = self._found.candidates.get(candidate.beside, candidate)
        following = self._found.after.get(anchor.key, ())
        answers = anchor.asks and following[:1] == (candidate.key,)
        return Measures(
            gap=log_odds(self._best.score) - log_odds(anchor.score),
            rank=math.log1p(anchor.rank),
            telling=weighted_share(self._weights, candidate),
            same_day=float(candidate.day == self._best.day),
            in_time=_in_time(self._reading, candidate),
            speaker=_speaker(self._speakers, candidate),
            beside=float(not candidate.times_found),
            answers=float(answers),
        )


def asked_words(reading: Reading) -> tuple[str, ...]:
    """The words that an answer should have: the message's own, else those of the conversation."""
    own = tuple(dict.fromkeys((*reading.words, *reading.exact)))
    return (own or reading.context_words)[:_MOST_WORDS]


def word_weights(words: Sequence[str], hits: Sequence[Candidate]) -> dict[str, float]:
    """How much each word tells: what every hit has tells nothing."""
    said = [spoken(hit) for hit in hits]
    weights: dict[str, float] = {}
    for word in words:
        having = sum(covered([word], text) for text in said)
        weights[word] = max(math.log((len(hits) + 1) / (having + 0.5)), _LEAST_WEIGHT)
    return weights


def weighted_share(weights: dict[str, float], candidate: Candidate) -> float:
    """The share of the words' weight that a candidate has."""
    total = sum(weights.values())
    text = spoken(candidate)
    return sum(w * covered([word], text) for word, w in weights.items()) / total if total else 0.0


def spoken(candidate: Candidate) -> str:
    """A candidate's words, and who said them."""
    return f"{candidate.speaker} {candidate.text}"


def log_odds(share: float) -> float:
    """A score from 0 to 1 as log odds; the tools round scores, so its ends are not infinite."""
    bounded = min(max(share, 0.01), 0.995)
    return math.log(bounded / (1 - bounded))


def _in_time(reading: Reading, candidate: Candidate) -> float:
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


def _speaker(speakers: Sequence[str], candidate: Candidate) -> float:
    if not speakers:
        return 0.0
    return 1.0 if candidate.speaker in speakers else -1.0
