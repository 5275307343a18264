"""Selection of the candidates that the user probably refers to, and the confidence in it.

First, whether there is an answer at all; then which candidates it is, if there is one. The
confidence combines both.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from memrecall.agent.offline.findings import Candidate, Findings
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
from memrecall.text.tokens import word_coverage

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
_PREFERENCE = "user_preference"  # the type of memories
_TYPE_BOOST, _EXPIRED_FACTOR = 2.0, 0.5
_SAID_FACTOR, _SAID_SHARE = 0.25, 0.6
_OTHER_SUBJECT_FACTOR = 0.3  # of hits without the words of a follow-up, if others have them
_REPLY_FACTOR = 0.9  # of the probability of the message that it replies to
_REPEATED_FACTOR = 1.2  # of the best probability, for a reply to the same question
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s*(?=\S)")
_ABSTAIN_BELOW = 0.47  # of the probability that there is an answer
_FEW_ROWS, _MANY_ROWS = 100, 15_000
_PERSON_MARGIN = 0.1  # how much more is usually said about the right person than about others
# The best candidate may be wrong though there is an answer. The power was chosen so that the
# confidence is right on average over all sets.
_SELECTION_POWER = 0.7
_MIN_ANSWERABLE = 0.001


class _EvidenceContext:
    """A request and its findings, prepared for computing features."""

    def __init__(self, request: ParsedRequest, findings: Findings) -> None:
        self.request = request
        self.findings = findings
        self.hits = findings.hits
        speakers = [hit.speaker for hit in self.hits if hit.speaker]
        self.named_speakers = find_speakers(request.text, speakers)
        messages = (hit for hit in self.hits if hit.kind == "message")
        self.repetitions = {m.key for m in messages if repeats_request(m.text, request.text)}
        # The relevance of the best hit is nearly the probability that there is an answer.
        counted = (h for h in self.hits if h.key not in self.repetitions or self.has_answer(h))
        self.answerable = max((hit.score for hit in counted), default=0.0)

    def has_answer(self, question: Candidate) -> bool:
        """Return True if the message after a question may answer it."""
        next_keys = self.findings.next_keys.get(question.key)
        if not next_keys:
            return False
        reply = self.findings.candidates[next_keys[0]]
        is_expected = not self.named_speakers or reply.speaker in self.named_speakers
        # Users and assistants mostly have no name.
        return is_expected and (reply.speaker or reply.role) != (question.speaker or question.role)


def _search_probability(candidate: Candidate) -> float:
    """Return the probability that the search gave a candidate; by words alone it gives none."""
    if candidate.probability is not None:
        return candidate.probability
    return candidate.score * _UNCALIBRATED


def _logistic(total: float) -> float:
    return 1 / (1 + math.exp(-total))


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
        if request.asks_for_all or request.times.spans:
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
    """Put the user's latest statement first: it overrides earlier ones and the assistant's."""
    selection = _move_replacements_first(selection)
    if any(candidate.replaces for candidate in selection.candidates):
        return selection
    competitors = selection.competing_statements(request)
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
    is_count = context.request.asks_for_all
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

    Preferences and settings are mostly in the user's own words, unless the request names another
    speaker. Expired memories lose.
    """
    # If there is any evidence. Logistic regression on KdConv, FriendsQA, Molweni, MADial and
    # LifeBench, whole and as small stores, and on fixtures/recall and one half of
    # fixtures/first_hour; each set has the same weight.
    share = _search_probability(hit) / max(context.answerable, _MIN_ANSWERABLE)
    total = 0.1 + 0.8 * _log_odds(share) - 0.35 * math.log1p(hit.rank) - 0.2 * hit.is_question
    probability = _logistic(total)
    is_users = hit.role == "user" and not context.named_speakers
    if context.request.asks_for_preference and (is_users or hit.memory_type == _PREFERENCE):
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


def _answer_probability(context: _EvidenceContext, best: Candidate) -> float:
    """Return the probability that there is an answer, judged by the best candidate.

    Logistic regression on the same sets, as far as they have questions without an answer, half of
    the weight each. Set by hand: the size, since those sets are small stores, and the lead of
    another person, which hardly any question shows.
    """
    request, stored = context.request, context.findings.stored_count
    # The more somebody has stored, the more of the questions about it have an answer.
    size = math.log(min(max(stored, _FEW_ROWS), _MANY_ROWS) / _FEW_ROWS)
    total = 0.25 + 0.65 * _log_odds(context.answerable) + 0.3 * size
    # A conversation shares few terms with its evidence.
    total += 0.7 * request.is_topical
    total -= 0.9 * matches_any(best.text, UNCERTAIN)
    total -= 2.0 * _lacks_value(request.text, best.text)
    return _logistic(total - 7.0 * _other_person_lead(context))


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
