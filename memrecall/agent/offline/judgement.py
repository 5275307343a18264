"""Which of the found keys are meant, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from memrecall.agent.offline.confidence import (
    ABSTAIN_BELOW,
    EvidenceContext,
    Measures,
    as_row,
    confidence_of,
)
from memrecall.agent.offline.findings import Candidate, Findings
from memrecall.agent.offline.request import ParsedRequest

MOST_KEYS = 8
MOST_KEYS_OF_ALL = 10  # where all of something is asked for

# Is this candidate evidence? Logistic regression on one half of LifeBench and MADial and on
# fixtures/eval, also cut into stretches of 15 to 160 messages, every family of sets with the same
# weight. The first three order a family about as well when they are fitted without it. The last two
# come from fixtures/eval, in which people ask and change their minds; elsewhere they give nothing.
_WEIGHTS = Measures(chance=0.9, rank=-0.1, telling=0.6, asks=-0.35, newer=0.2)
_BIAS = -0.15
# How many pieces of evidence are expected to be missing from what was found: the more is stored,
# the more of it is about the same thing. So many for each doubling beyond this size.
_UNSEEN, _MOST_UNSEEN = 1.5, 3.0
_LITTLE = 1_000
_ABOUT_EQUAL = 0.85
_LEANING = 1.2
_ENDED = 0.5  # no longer valid
_REPLY = 0.9  # of the chance of the message that it replies to


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate and the chance that it is meant."""

    candidate: Candidate
    chance: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """The keys to hand off, best first, and the chance that one of them is right."""

    chosen: tuple[Judged, ...]
    confidence: float

    @property
    def abstains(self) -> bool:
        """Whether nothing fits well enough."""
        return self.confidence < ABSTAIN_BELOW

    def rival_statements(self, reading: ParsedRequest) -> tuple[Judged, ...]:
        """What the user stated that fits about equally well, where one thing is asked for."""
        if reading.asks == "count" or reading.timing.spans:
            return ()
        return tuple(
            judged
            for judged in self.about_equal
            if judged.candidate.role == "user" and not judged.candidate.asks
        )

    @property
    def about_equal(self) -> tuple[Judged, ...]:
        """The best one, and those that fit nearly as well."""
        least = _ABOUT_EQUAL * max((judged.chance for judged in self.chosen), default=0.0)
        return tuple(judged for judged in self.chosen if judged.chance >= least)


def judge(reading: ParsedRequest, found: Findings) -> Judgement:
    """Choose among what was found."""
    if not found.hits:
        return Judgement((), 0.0)
    scene = EvidenceContext(reading, found)
    chances = {hit.key: _lean(scene, hit, _chance(scene.measure(hit))) for hit in scene.hits}
    chances |= _chances_of_replies(scene, chances)
    judged = sorted(
        (Judged(found.candidates[key], chance) for key, chance in chances.items()),
        key=lambda j: (-j.chance, j.candidate.rank, j.candidate.key),
    )
    most = MOST_KEYS_OF_ALL if reading.asks == "count" else MOST_KEYS
    chosen = tuple(judged[: min(_best_cut([j.chance for j in judged], found.stored), most)])
    sure = confidence_of(scene, [(j.candidate, j.chance) for j in chosen])
    return _latest_first(Judgement(chosen, round(sure, 2)), reading)


def _latest_first(judgement: Judgement, reading: ParsedRequest) -> Judgement:
    """The user's later words on a thing beat the earlier ones and what the assistant made of it.

    What the assistant said "last time" is the latest of it.
    """
    rivals = judgement.rival_statements(reading)
    theirs = reading.whose == "assistant"
    if theirs and reading.timing.recency is not None and not reading.timing.spans:
        rivals = judgement.about_equal
    if not rivals:
        return judgement
    latest = max(rivals, key=lambda judged: judged.candidate.created_at)
    rest = tuple(judged for judged in judgement.chosen if judged is not latest)
    return Judgement((latest, *rest), judgement.confidence)


def _best_cut(chances: Sequence[float], stored: int) -> int:
    """How many of the candidates to take, best first: as many as make the expected F1 largest."""
    evidence = sum(chances) + min(_UNSEEN * math.log2(max(stored / _LITTLE, 1)), _MOST_UNSEEN)
    worth = [right / (size + evidence) for size, right in enumerate(accumulate(chances), 1)]
    return worth.index(max(worth)) + 1


def _lean(scene: EvidenceContext, candidate: Candidate, chance: float) -> float:
    """What the request leans to is likelier meant, a memory that ended less.

    Preferences and settings are the user's own words before anybody else's, unless somebody is
    asked about by name.
    """
    reading = scene.reading
    users = candidate.role == "user" and not scene.speakers
    own = reading.leaning == "user_preference" and users
    if own or (reading.leaning is not None and candidate.memory_type == reading.leaning):
        chance = min(chance * _LEANING, 1.0)
    return chance * _ENDED if candidate.valid_to else chance


def _chance(measures: Measures) -> float:
    total = sum(w * m for w, m in zip(as_row(_WEIGHTS), as_row(measures), strict=True))
    return 1 / (1 + math.exp(-total - _BIAS))


def _chances_of_replies(scene: EvidenceContext, chances: dict[str, float]) -> dict[str, float]:
    """Replies share few words with a request, but stand beside messages that share many.

    "What did you suggest for …" finds the user's own question: what the assistant said next is
    meant. A found question that repeats the request is answered by what was said next.
    """
    reading, found = scene.reading, scene.found
    best = max(chances, key=lambda key: chances[key], default="")
    raised: dict[str, float] = {}
    for key, following in found.after.items():
        anchor = found.candidates.get(key)
        if anchor is None or not following or key not in chances:
            continue
        reply = found.candidates[following[0]]
        wanted = reading.whose is not None and anchor.role not in ("", reading.whose)
        if (wanted and reading.whose in (reply.role, reply.speaker)) or (
            key == best and anchor.asks and _answers(scene, anchor, reply)
        ):
            raised[reply.key] = max(_REPLY * chances[key], chances.get(reply.key, 0.0))
    return raised


def _answers(scene: EvidenceContext, question: Candidate, reply: Candidate) -> bool:
    """Whether a reply may answer a question: by another, and by whom the request asks about."""
    asked_about = not scene.speakers or reply.speaker in scene.speakers
    return asked_about and reply.speaker != question.speaker
