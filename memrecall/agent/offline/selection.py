"""Selection of the candidates that the user probably refers to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from memrecall.agent.offline.confidence import (
    ABSTAIN_BELOW,
    CandidateFeatures,
    EvidenceContext,
    estimate_confidence,
)
from memrecall.agent.offline.request import ParsedRequest
from memrecall.agent.offline.transcript import Candidate, Findings

_MAX_KEYS = 8
_MAX_KEYS_OF_COUNT = 10  # for questions that ask for all of something

# The probability that a candidate is evidence. Logistic regression on one half of LifeBench and
# MADial and on fixtures/eval, also cut into stretches of 15 to 160 messages, every family of sets
# with the same weight. The first three order a family about as well when fitted without it. The
# last two come from fixtures/eval, in which people ask and change their minds; elsewhere they have
# no effect.
_WEIGHTS = CandidateFeatures(chance=0.9, rank=-0.1, coverage=0.6, is_question=-0.35, newer=0.2)
_BIAS = -0.15
# How much evidence the searches are expected to have missed: the more is stored, the more of it is
# about the same subject. This much for each doubling beyond the size.
_MISSED_PER_DOUBLING, _MAX_MISSED = 1.5, 3.0
_SMALL_STORE = 1_000
_SIMILAR_SHARE = 0.85  # of the best probability
_TYPE_BOOST = 1.2
_EXPIRED_FACTOR = 0.5
_REPLY_FACTOR = 0.9  # of the probability of the message that it replies to


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and the probability that it is meant."""

    candidate: Candidate
    probability: float


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates to hand off, best first, and the confidence in them."""

    scored: tuple[ScoredCandidate, ...]
    confidence: float

    @property
    def abstains(self) -> bool:
        """Whether no candidate is good enough to hand off."""
        return self.confidence < ABSTAIN_BELOW

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates without their probabilities, best first."""
        return [scored.candidate for scored in self.scored]

    @property
    def similar(self) -> tuple[ScoredCandidate, ...]:
        """The best candidate and those that are nearly as probable."""
        best = max((scored.probability for scored in self.scored), default=0.0)
        return tuple(s for s in self.scored if s.probability >= _SIMILAR_SHARE * best)

    def competing_statements(self, request: ParsedRequest) -> tuple[ScoredCandidate, ...]:
        """Return similar statements of the user, if the request asks for a single fact."""
        if request.question_kind == "count" or request.times.spans:
            return ()
        return tuple(
            scored
            for scored in self.similar
            if scored.candidate.role == "user" and not scored.candidate.is_question
        )


def select_evidence(request: ParsedRequest, findings: Findings) -> Selection:
    """Select the candidates to hand off."""
    if not findings.hits:
        return Selection((), 0.0)
    context = EvidenceContext(request, findings)
    probabilities = {hit.key: _probability(context, hit) for hit in context.hits}
    probabilities |= _reply_probabilities(context, probabilities)
    scored = sorted(
        (ScoredCandidate(findings.candidates[key], p) for key, p in probabilities.items()),
        key=lambda s: (-s.probability, s.candidate.rank, s.candidate.key),
    )
    limit = _MAX_KEYS_OF_COUNT if request.question_kind == "count" else _MAX_KEYS
    best_size = _best_size([s.probability for s in scored], findings.stored_count)
    selected = tuple(scored[: min(best_size, limit)])
    confidence = estimate_confidence(context, [(s.candidate, s.probability) for s in selected])
    return _move_latest_first(Selection(selected, round(confidence, 2)), request)


def _move_latest_first(selection: Selection, request: ParsedRequest) -> Selection:
    """Put the user's latest statement first: it overrides earlier ones and the assistant's.

    A question about what the assistant said "last time" asks for its latest message.
    """
    competitors = selection.competing_statements(request)
    times = request.times
    if request.speaker_role == "assistant" and times.recency_days is not None and not times.spans:
        competitors = selection.similar
    if not competitors:
        return selection
    latest = max(competitors, key=lambda scored: scored.candidate.created_at)
    others = tuple(scored for scored in selection.scored if scored is not latest)
    return replace(selection, scored=(latest, *others))


def _best_size(probabilities: Sequence[float], stored_count: int) -> int:
    """Return how many candidates to take for the highest expected F1."""
    doublings = math.log2(max(stored_count / _SMALL_STORE, 1))
    evidence = sum(probabilities) + min(_MISSED_PER_DOUBLING * doublings, _MAX_MISSED)
    f1 = [right / (size + evidence) for size, right in enumerate(accumulate(probabilities), 1)]
    return f1.index(max(f1)) + 1


def _probability(context: EvidenceContext, hit: Candidate) -> float:
    """Return the probability that a hit is meant.

    Memories of the type that the request hints at gain, expired ones lose. Preferences and
    settings are mostly in the user's own words, unless the request names another speaker.
    """
    probability = context.features(hit).probability(_WEIGHTS, _BIAS)
    expected_type = context.request.memory_type
    is_users = hit.role == "user" and not context.named_speakers
    is_own_preference = expected_type == "user_preference" and is_users
    if is_own_preference or (expected_type is not None and hit.memory_type == expected_type):
        probability = min(probability * _TYPE_BOOST, 1.0)
    return probability * _EXPIRED_FACTOR if hit.valid_to else probability


def _reply_probabilities(
    context: EvidenceContext, probabilities: dict[str, float]
) -> dict[str, float]:
    """Return probabilities for replies, which share few terms with a request.

    "What did you suggest for …" finds the user's own question, but means the assistant's reply to
    it. A hit that repeats the request's question is answered by the message after it.
    """
    findings, role = context.findings, context.request.speaker_role
    best = max(probabilities, key=lambda key: probabilities[key], default="")
    replies: dict[str, float] = {}
    for key, next_keys in findings.next_keys.items():
        anchor = findings.candidates.get(key)
        if anchor is None or not next_keys or key not in probabilities:
            continue
        reply = findings.candidates[next_keys[0]]
        is_other_role = role is not None and anchor.role not in ("", role)
        if (is_other_role and role in (reply.role, reply.speaker)) or (
            key == best and anchor.is_question and _may_answer(context, anchor, reply)
        ):
            inherited = _REPLY_FACTOR * probabilities[key]
            replies[reply.key] = max(inherited, probabilities.get(reply.key, 0.0))
    return replies


def _may_answer(context: EvidenceContext, question: Candidate, reply: Candidate) -> bool:
    """Return True if a reply is by another speaker, and by one whom the request names if any."""
    is_expected = not context.named_speakers or reply.speaker in context.named_speakers
    return is_expected and reply.speaker != question.speaker
