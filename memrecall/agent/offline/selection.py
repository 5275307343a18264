"""Selection of the candidates that the user probably refers to, and the confidence in it.

First, whether there is an answer at all; then which candidates it is, if there is one. The
confidence combines both.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from itertools import accumulate

from memrecall.agent.offline.findings import Candidate, Findings
from memrecall.agent.offline.references import find_people
from memrecall.agent.offline.request import (
    ParsedRequest,
    extract_content_words,
    repeats_request,
)
from memrecall.agent.offline.vocabulary import (
    ASKED_VALUES,
    UNCERTAIN,
    matches_any,
)
from memrecall.search.ranking.people import find_speakers
from memrecall.search.updates import replacements_first
from memrecall.text.tokens import MatchableText, word_coverage

_MAX_KEYS = 8
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_MAX_KEYS_OF_COUNT = 10  # for questions that ask for all of something
# How much evidence the searches are expected to have missed: the more is stored, the more of it is
# about the same subject. This much for each doubling beyond the size.
_MISSED_PER_DOUBLING, _MAX_MISSED = 1.5, 3.0
_SMALL_STORE = 1_000
# How much recall counts in the measure that the number of candidates is chosen by. In a small store
# a fact is mostly said once, so that precision counts more.
_RECALL_WEIGHT, _RECALL_WEIGHT_OF_FACT, _RECALL_WEIGHT_OF_COUNT = 1.0, 0.5, 2.0
_SIMILAR_SHARE = 0.85  # of the best probability
_TYPE_BOOST, _EXPIRED_FACTOR = 2.0, 0.5
_SAID_FACTOR, _SAID_SHARE = 0.25, 0.6
_OTHER_SUBJECT_FACTOR = 0.3  # of hits without the words of a follow-up, if others have them
_REPLY_FACTOR = 0.9  # of the probability of the message that it replies to
_REPEATED_FACTOR = 1.2  # of the best probability, for a reply to the same question
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s*(?=\S)")
_ABSTAIN_BELOW = 0.47  # of the probability that there is an answer
_FEW_ROWS, _MANY_ROWS = 100, 15_000
_PERSON_MARGIN = 0.1  # how much more is usually said about the right person than about others
# An exact term that occurs verbatim is no coincidence.
_MIN_WITH_EXACT_TERMS = 0.6
# The best candidate may be wrong though there is an answer. The power was chosen so that the
# confidence is right on average over all sets.
_SELECTION_POWER = 0.7
_MIN_ANSWERABLE = 0.001


@dataclass(frozen=True, slots=True)
class _Features:
    """Inputs of a logistic model, or its weights."""

    def probability(self, weights: "_Features", bias: float) -> float:
        names = [field.name for field in fields(self)]
        total = sum(getattr(weights, name) * getattr(self, name) for name in names)
        return 1 / (1 + math.exp(-total - bias))


@dataclass(frozen=True, slots=True)
class _CandidateFeatures(_Features):
    chance: float  # the probability that its search gave it, if there is an answer, in log odds
    rank: float  # the logarithm of its rank in its search
    is_question: float


# The probability that a candidate is evidence, if there is any. Logistic regression on KdConv,
# FriendsQA, Molweni, MADial and LifeBench, whole and as small stores, and on fixtures/recall and
# one half of fixtures/first_hour; each set has the same weight.
_CANDIDATE_WEIGHTS = _CandidateFeatures(chance=0.8, rank=-0.35, is_question=-0.2)
_CANDIDATE_BIAS = 0.1


class _EvidenceContext:
    """A request and its findings, prepared for computing features."""

    def __init__(self, request: ParsedRequest, findings: Findings) -> None:
        self.request = request
        self.findings = findings
        self.hits = findings.hits
        self.named_speakers = _find_named_speakers(request.text, self.hits)
        messages = (hit for hit in self.hits if hit.kind == "message")
        self.repetitions = {m.key for m in messages if repeats_request(m.text, request.text)}
        # The relevance of the best hit is nearly the probability that there is an answer.
        counted = (h for h in self.hits if h.key not in self.repetitions or self.has_answer(h))
        self.answerable = max((hit.score for hit in counted), default=0.0)
        # Speakers count as part of what they said.
        self.texts: Mapping[str, MatchableText] = {
            key: MatchableText.from_text(f"{candidate.speaker} {candidate.text}")
            for key, candidate in findings.candidates.items()
        }

    def has_answer(self, question: Candidate) -> bool:
        """Return True if the message after a question may answer it."""
        next_keys = self.findings.next_keys.get(question.key)
        if not next_keys:
            return False
        reply = self.findings.candidates[next_keys[0]]
        is_expected = not self.named_speakers or reply.speaker in self.named_speakers
        # Users and assistants mostly have no name.
        return is_expected and (reply.speaker or reply.role) != (question.speaker or question.role)

    def features(self, candidate: Candidate) -> _CandidateFeatures:
        share = _search_probability(candidate) / max(self.answerable, _MIN_ANSWERABLE)
        return _CandidateFeatures(
            chance=_log_odds(share),
            rank=math.log1p(candidate.rank),
            is_question=float(candidate.is_question),
        )


def _search_probability(candidate: Candidate) -> float:
    """Return the probability that the search gave a candidate; by words alone it gives none."""
    if candidate.probability is not None:
        return candidate.probability
    return candidate.score * _UNCALIBRATED


def _find_named_speakers(text: str, hits: Sequence[Candidate]) -> list[str]:
    speakers = dict.fromkeys(hit.speaker for hit in hits if hit.speaker)
    return [speaker for speaker in speakers if _name_pattern(speaker).search(text)]


def _name_pattern(name: str) -> re.Pattern[str]:
    boundary = r"\b" if name.isascii() else ""
    return re.compile(rf"{boundary}{re.escape(name)}{boundary}('s|’s|的)?", re.IGNORECASE)


def _log_odds(probability: float) -> float:
    # The tools round scores, so that 0 and 1 occur and must stay finite.
    bounded = min(max(probability, 0.001), 0.9995)
    return math.log(bounded / (1 - bounded))


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and the probability that it is meant."""

    candidate: Candidate
    probability: float


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates to hand off, best first, and the confidence in them."""

    scored: tuple[ScoredCandidate, ...] = ()
    confidence: float = 0.0
    abstains: bool = True  # whether there is probably no answer

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
    """Select the candidates to hand off; a question is no evidence for its own answer."""
    context = _EvidenceContext(request, findings)
    probabilities = {hit.key: _probability(context, hit) for hit in context.hits}
    probabilities |= _reply_probabilities(context, probabilities)
    scored = sorted(
        (
            ScoredCandidate(findings.candidates[key], probability)
            for key, probability in probabilities.items()
            if key not in context.repetitions
        ),
        key=lambda s: (-s.probability, s.candidate.rank, s.candidate.key),
    )
    if not scored:
        return Selection()
    selected = tuple(scored[: _best_size(context, [s.probability for s in scored])])
    answerable = _answer_probability(context, selected[0].candidate)
    any_right = 1 - math.prod(1 - scored.probability for scored in selected)
    confidence = round(answerable * any_right**_SELECTION_POWER, 2)
    abstains = answerable < _ABSTAIN_BELOW
    return _move_latest_first(Selection(selected, confidence, abstains), request)


def _move_latest_first(selection: Selection, request: ParsedRequest) -> Selection:
    """Put the user's latest statement first: it overrides earlier ones and the assistant's.

    A question about what the assistant said "last time" asks for its latest message.
    """
    selection = _move_replacements_first(selection)
    if any(candidate.replaces for candidate in selection.candidates):
        return selection
    competitors = selection.competing_statements(request)
    times = request.times
    if request.speaker_role == "assistant" and times.recency_days is not None and not times.spans:
        competitors = selection.similar
    if not competitors:
        return selection
    latest = max(competitors, key=lambda scored: scored.candidate.created_at)
    others = tuple(scored for scored in selection.scored if scored is not latest)
    return replace(selection, scored=(latest, *others))


def _move_replacements_first(selection: Selection) -> Selection:
    scored = replacements_first(
        selection.scored, lambda s: s.candidate.key, lambda s: s.candidate.replaces
    )
    return replace(selection, scored=tuple(scored))


def _best_size(context: _EvidenceContext, probabilities: Sequence[float]) -> int:
    """Return how many candidates to take for the highest expected F-measure."""
    stored = context.findings.stored_count
    is_count = context.request.question_kind == "count"
    is_single = stored < _SMALL_STORE and not context.request.is_topical
    weight = _RECALL_WEIGHT_OF_FACT if is_single else _RECALL_WEIGHT
    weight = _RECALL_WEIGHT_OF_COUNT if is_count else weight
    doublings = math.log2(max(stored / _SMALL_STORE, 1))
    evidence = sum(probabilities) + min(_MISSED_PER_DOUBLING * doublings, _MAX_MISSED)
    totals = enumerate(accumulate(probabilities), 1)
    measures = [right / (size + weight * evidence) for size, right in totals]
    return min(measures.index(max(measures)) + 1, _MAX_KEYS_OF_COUNT if is_count else _MAX_KEYS)


def _probability(context: _EvidenceContext, hit: Candidate) -> float:
    """Return the probability that a hit is meant.

    Memories of the type that the request hints at gain, expired ones lose. Preferences and
    settings are mostly in the user's own words, unless the request names another speaker.
    """
    probability = context.features(hit).probability(_CANDIDATE_WEIGHTS, _CANDIDATE_BIAS)
    expected_type = context.request.memory_type
    is_users = hit.role == "user" and not context.named_speakers
    is_own_preference = expected_type == "user_preference" and is_users
    if is_own_preference or (expected_type is not None and hit.memory_type == expected_type):
        probability = min(probability * _TYPE_BOOST, 1.0)
    if context.request.followed_question is not None:
        probability *= _follow_up_factor(context, hit)
    return probability * _EXPIRED_FACTOR if hit.valid_to else probability


def _follow_up_factor(context: _EvidenceContext, hit: Candidate) -> float:
    """Return less than 1 for what the conversation has just said: "and the dog?" asks more."""
    words = context.request.words
    covering = [h for h in context.hits if word_coverage(words, f"{h.speaker} {h.text}") > 0]
    if hit in covering:
        return 1.0
    factor = _OTHER_SUBJECT_FACTOR if covering else 1.0
    answers = [m.words for m in context.request.earlier if m.role == "assistant"]
    is_said = any(word_coverage(answer, hit.text) >= _SAID_SHARE for answer in answers)
    return factor * _SAID_FACTOR if is_said else factor


def _reply_probabilities(
    context: _EvidenceContext, probabilities: dict[str, float]
) -> dict[str, float]:
    """Return probabilities for replies, which share few terms with a request.

    "What did you suggest for …" finds the user's own question, but means the assistant's reply to
    it. The best hit, if it is a question, is answered by the message after it. The reply to a
    question that the request repeats is likelier than all that only shares its words.
    """
    findings, role = context.findings, context.request.speaker_role
    best = max(probabilities, key=lambda key: probabilities[key], default="")
    replies: dict[str, float] = {}
    for key, next_keys in findings.next_keys.items():
        anchor = findings.candidates.get(key)
        if anchor is None or not next_keys or key not in probabilities:
            continue
        reply, may_answer = findings.candidates[next_keys[0]], context.has_answer(anchor)
        if may_answer and repeats_question(context.request, anchor):
            replies[reply.key] = min(_REPEATED_FACTOR * probabilities[best], 1.0)
            continue
        is_other_role = role is not None and anchor.role not in ("", role)
        if (is_other_role and role in (reply.role, reply.speaker)) or (
            may_answer and key == best and anchor.is_question
        ):
            inherited = _REPLY_FACTOR * probabilities[key]
            replies[reply.key] = max(inherited, probabilities.get(reply.key, 0.0))
    return replies


def repeats_question(request: ParsedRequest, hit: Candidate) -> bool:
    """Return True if a hit ends in a question all of whose words the request has."""
    if not hit.is_question:
        return False
    words = extract_content_words(_SENTENCES.split(hit.text.strip())[-1])
    return bool(words) and word_coverage(words, request.text) >= 1


def _time_match(request: ParsedRequest, candidate: Candidate) -> float:
    """Return 1 if a candidate is from a time that the request names, 0 if from another.

    0.5 if that is unknown, and if only the time is what it shares with the request.
    """
    spans = request.times.spans
    text = f"{candidate.speaker} {candidate.text}"
    if not spans or not candidate.created_at or not word_coverage(request.words, text):
        return 0.5
    try:
        created = datetime.fromisoformat(candidate.created_at)
        is_inside = any(
            (span.start is None or created >= span.start)
            and (span.end is None or created < span.end)
            for span in spans
        )
    except (ValueError, TypeError):
        return 0.5
    return float(is_inside)


@dataclass(frozen=True, slots=True)
class _AnswerFeatures(_Features):
    answerable: float  # the probability that the search found an answer, in log odds
    size: float  # the more somebody has stored, the more of the questions about it have an answer
    time_match: float  # whether the best is from a time that the request names
    is_topical: float  # 1: searched by a conversation, which shares few terms with its evidence
    lacks_person: float  # 1: the best does not mention a person that the request names
    is_uncertain: float  # 1: the best says that something is unknown or undecided
    lacks_value: float  # 1: the request asks for a number or the like, which the best lacks
    other_person: float  # how much more of the request was said about another person


# Logistic regression on the same sets, as far as they have questions without an answer, half of
# the weight each. Set by hand: `size`, since those sets are small stores, `time_match`, which
# LifeBench alone would make thrice as high, and the last one, which hardly any question shows.
_ANSWER_WEIGHTS = _AnswerFeatures(
    answerable=0.65,
    size=0.3,
    time_match=0.5,
    is_topical=0.7,
    lacks_person=-0.2,
    is_uncertain=-0.9,
    lacks_value=-2.0,
    other_person=-7.0,
)
_ANSWER_BIAS = 0.0


def _answer_probability(context: _EvidenceContext, best: Candidate) -> float:
    """Return the probability that there is an answer, judged by the best candidate."""
    request, stored = context.request, context.findings.stored_count
    features = _AnswerFeatures(
        answerable=_log_odds(context.answerable),
        size=math.log(min(max(stored, _FEW_ROWS), _MANY_ROWS) / _FEW_ROWS),
        time_match=_time_match(request, best),
        is_topical=float(request.is_topical),
        lacks_person=float(_lacks_person(request.text, f"{best.speaker} {best.text}")),
        is_uncertain=float(matches_any(best.text, UNCERTAIN)),
        lacks_value=float(_lacks_value(request.text, best.text)),
        other_person=_other_person_lead(context),
    )
    probability = features.probability(_ANSWER_WEIGHTS, _ANSWER_BIAS)
    exact_terms = [MatchableText.from_text(term) for term in request.exact_terms]
    if exact_terms and all(context.texts[best.key].match(term) >= 1 for term in exact_terms):
        probability = max(probability, _MIN_WITH_EXACT_TERMS)
    return probability


def _lacks_person(request_text: str, text: str) -> bool:
    """Return True if a text lacks a person that the request names."""
    folded = text.casefold()
    return any(person.casefold() not in folded for person in find_people(request_text))


def _lacks_value(question: str, text: str) -> bool:
    """Return True if a question asks for a kind of value that a text has none of."""
    values = (value for asked, value in ASKED_VALUES if matches_any(question, asked))
    value = next(values, None)
    return value is not None and value.search(text) is None


def _other_person_lead(context: _EvidenceContext) -> float:
    """Return how much more of the request was said about someone else, 0 if unknown."""
    shares = context.findings.coverage_by_person
    people = find_speakers(context.request.text, list(shares))
    if len(people) != 1 or len(shares) < 2:
        return 0.0
    others = max((share for person, share in shares.items() if person not in people), default=0.0)
    # Of many people, one has more of the words by chance.
    return max(others + _PERSON_MARGIN - shares[next(iter(people))], 0.0) / (len(shares) - 1)
