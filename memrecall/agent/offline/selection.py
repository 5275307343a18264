"""Selection of what to hand off: the first hits in the search's order, and how sure they are.

The search ranks; this only puts aside what is no evidence. A stored question does not answer the
same question, a reply to it does. What is no longer valid comes after what replaced it.
"""

import re
from dataclasses import dataclass

from memrecall.agent.offline.findings import Candidate, Findings
from memrecall.agent.offline.request import ParsedRequest, extract_content_words, repeats_request
from memrecall.agent.offline.vocabulary import ASKING, matches_any
from memrecall.search.ranking.people import find_speakers
from memrecall.text.tokens import word_coverage

_ITEMS, _ITEMS_OF_ALL = 3, 8  # a request may ask for all of something
_SURE = 0.7  # from this probability on, the first hit may be enough
# Of a hit that is handed off beyond the first ones, and beside a sure one.
_MORE_PROBABILITY, _BESIDE_SURE = 0.04, 0.08
_LEAST = 0.1  # probability of the best hit: with less, the store has nothing on the subject
_REPLY_SHARE = 0.5  # of the probability of the question that it follows
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s*(?=\S)")


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates to hand off, best first, and the confidence in them."""

    candidates: tuple[Candidate, ...] = ()
    confidence: float = 0.0
    abstains: bool = True  # whether there is probably no answer


def select_evidence(request: ParsedRequest, findings: Findings) -> Selection:
    """Select the candidates to hand off; a question is no evidence for its own answer."""
    chances = {hit.key: _probability(hit) for hit in findings.hits}
    replies = _reply_chances(request, findings, chances)
    chances |= replies
    ordered = sorted(
        (findings.candidates[key] for key in chances if not _repeats(request, findings, key)),
        key=lambda hit: (_is_last(request, hit), -chances[hit.key], hit.rank, hit.key),
    )
    if not ordered:
        return Selection()
    confidence = round(max(chances[hit.key] for hit in ordered[:_ITEMS]), 2)
    # A bare reference ("as I said before") names nothing that a hit could be sure to be.
    is_sure = confidence >= _SURE and not request.is_bare
    count, least = (1, _BESIDE_SURE) if is_sure else (_ITEMS, _MORE_PROBABILITY)
    limit = _ITEMS_OF_ALL if request.asks_for_all else _ITEMS + 1
    more = [hit for hit in ordered[count:limit] if chances[hit.key] >= least]
    is_likely = confidence >= _LEAST
    return Selection((*ordered[:count], *more), confidence, abstains=not (replies or is_likely))


def _is_last(request: ParsedRequest, hit: Candidate) -> bool:
    """Return True for what no longer holds, and for a question instead of its answer."""
    asks_same = not matches_any(request.text, ASKING) and repeats_question(request, hit)
    return bool(hit.valid_to) or asks_same


def _repeats(request: ParsedRequest, findings: Findings, key: str) -> bool:
    candidate = findings.candidates[key]
    return candidate.kind == "message" and repeats_request(candidate.text, request.text)


def _probability(hit: Candidate) -> float:
    """Return the probability that the search gave a hit; by words alone it gives none."""
    return hit.score * _UNCALIBRATED if hit.probability is None else hit.probability


def _reply_chances(
    request: ParsedRequest, findings: Findings, chances: dict[str, float]
) -> dict[str, float]:
    """Return probabilities for replies to questions that the request repeats."""
    replies: dict[str, float] = {}
    for key, next_keys in findings.next_keys.items():
        anchor = findings.candidates.get(key)
        if anchor is None or not next_keys or not repeats_question(request, anchor):
            continue
        reply = findings.candidates[next_keys[0]]
        if _may_answer(request, anchor, reply):
            asked = chances.get(key, 0.0)
            replies[reply.key] = max(_REPLY_SHARE * asked, chances.get(reply.key, 0.0))
    return replies


def _may_answer(request: ParsedRequest, question: Candidate, reply: Candidate) -> bool:
    """Return True if a message after a question may answer it."""
    people = [person for person in (question.speaker, reply.speaker) if person]
    named = find_speakers(request.text, people)
    # Users and assistants mostly have no name.
    is_other = (reply.speaker or reply.role) != (question.speaker or question.role)
    return is_other and (not named or reply.speaker in named) and not reply.is_question


def repeats_question(request: ParsedRequest, hit: Candidate) -> bool:
    """Return True if a hit ends in a question all of whose words the request has."""
    if not hit.is_question:
        return False
    words = extract_content_words(_SENTENCES.split(hit.text.strip())[-1])
    return bool(words) and word_coverage(words, request.text) >= 1
