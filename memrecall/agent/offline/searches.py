"""Search plans: the first search, and wider ones if it found nothing suitable.

A second, narrower search is not worth its turn. With words of the best hits, on their day, within
the named time or in the named person's own words it brings 0 to 8 of 100 pieces of evidence, among
up to five new keys, and moves the F1 of what is handed off by 0.02 at most, as often down as up.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.request import ParsedRequest, WindowMessage
from memrecall.agent.offline.transcript import TOO_MANY_SEARCHES, Candidate, Findings, Transcript
from memrecall.text.times import TimeSpan
from memrecall.text.tokens import word_coverage

_MIN_CONTEXT_WORDS = 3  # a conversation with fewer has no clear subject yet
_MAX_WEAK_TERMS = 2  # a reference with so few terms may mean many things
_COMPARED_LENGTH = 60  # previews are truncated

# A model should see only good results; the rules score candidates themselves.
_DEFAULT_MIN_SCORE = 0.3
_LOW_MIN_SCORE = 0.15
_KEYWORD_MIN_SCORE = 0.1  # scores of keyword searches mean little in small stores
_LIMIT = 10
_MAX_QUERY_LENGTH = 980
_FIRST_WINDOW = 4  # messages before the request that the first window shows
_MAX_OLDER_WORDS = 10
_MAX_KEYWORDS = 8
# The defaults of the search tool, with which it compares searches.
_TOOL_DEFAULTS = {"search_mode": "hybrid", "limit": 5, "min_relevance_score": 0.5}


def find_in_window(request: ParsedRequest) -> WindowMessage | None:
    """Return the message of this conversation that the request refers to, if any.

    "Go on" and "this one" mean the last message; "that plan" means an earlier message about a plan.
    References to an earlier conversation never mean this one.
    """
    if request.points_back or not request.references or request.times.spans:
        return None
    messages = [message for message in request.earlier if message.words]
    if request.is_bare:
        return messages[0] if messages else None
    terms = request.search_terms
    for message in messages:
        if len(message.words) > len(terms) and word_coverage(terms, message.text) >= 1:
            return message
    return None


def find_stored_copies(message: WindowMessage, hits: Iterable[Candidate]) -> list[Candidate]:
    """Return the hits that are this message: the window came from the store."""
    start = " ".join(message.text.split())[:_COMPARED_LENGTH]
    return [hit for hit in hits if " ".join(hit.text.split())[:_COMPARED_LENGTH] == start]


def needs_larger_window(request: ParsedRequest, transcript: Transcript, is_unsure: bool) -> bool:
    """Return True if earlier messages are needed to understand the request.

    A reference with a few terms is searched first.
    """
    briefing = transcript.briefing
    if transcript.has_refused_expansion or not briefing.older_messages:
        return False
    if briefing.iteration >= briefing.max_iterations:
        return False
    if request.is_topical:
        # A search by the conversation finds more with a little more of it.
        is_start = briefing.iteration == 1 and not transcript.steps
        return is_start and not is_greeting(request.text)
    if not request.references:
        return False
    if request.is_bare and len(request.context_words) < _MIN_CONTEXT_WORDS:
        return not transcript.steps
    is_weak = len(request.search_terms) <= _MAX_WEAK_TERMS
    return is_weak and is_unsure and bool(transcript.searches)


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The arguments of a search, and the phrase that explains it."""

    phrase: str
    arguments: dict[str, Any]


def plan_next_search(
    request: ParsedRequest, transcript: Transcript, findings: Findings, abstains: bool
) -> SearchPlan | None:
    """Return the next untried search, None if no other is promising.

    `abstains` says that no candidate so far is good enough.
    """
    tried = [s.arguments for s in transcript.searches if s.error != TOO_MANY_SEARCHES]
    seen = [_with_defaults(arguments) for arguments in (*tried, *transcript.briefing.tried)]
    for plan in _plans(request, transcript, findings, abstains):
        if plan.arguments["query"] and _with_defaults(plan.arguments) not in seen:
            return plan
    return None


def _with_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in arguments.items() if value is not None}
    values.pop("total_found", None)
    return _TOOL_DEFAULTS | values


def _plans(
    request: ParsedRequest, transcript: Transcript, findings: Findings, abstains: bool
) -> Iterator[SearchPlan]:
    base: dict[str, Any] = {
        "query": build_query(request),
        "search_mode": request.mode,
        "limit": _LIMIT,
        "min_relevance_score": _DEFAULT_MIN_SCORE,
    }
    message = find_in_window(request)
    if message is not None:
        # Messages that the caller passed are never hits; those from the store can be handed off.
        yield SearchPlan("is_stored", base | {"query": _clip(" ".join(message.text.split()))})
        return
    if transcript.briefing.iteration > 1 and not request.is_topical:
        older_words = _older_words(request)
        if older_words:
            query = _clip(" ".join([base["query"], *older_words]))
            yield SearchPlan("first_context", base | {"query": query})
    span, role = _span_filter(request.times.message_span), _role_filter(request)
    yield SearchPlan("first", base | span | role)
    if transcript.searches and transcript.searches[-1].error == "embedder":
        yield SearchPlan("words_only", base | {"search_mode": "keyword"})
    is_filtered = bool(span or role or request.mode != "hybrid")
    # If only a time describes what is meant, messages of another time are not it.
    has_only_time = request.times.message_span is not None and not request.search_terms
    if (not findings.hits or (abstains and is_filtered)) and not has_only_time:
        yield from _wider_plans(request, base)


def _older_words(request: ParsedRequest) -> tuple[str, ...]:
    """Return the content words of messages that only a larger window shows."""
    words = (word for message in request.earlier[_FIRST_WINDOW:] for word in message.words)
    return tuple(dict.fromkeys(words))[:_MAX_OLDER_WORDS]


def build_query(request: ParsedRequest) -> str:
    """Return the search query: the question, or the conversation for a topical request.

    A whole question finds more than its keywords: embedders are trained on sentences.
    """
    own = request.question or request.text
    if request.is_topical:
        texts = [message.text for message in reversed(request.earlier) if message.words]
        return _clip("\n".join([*texts, "" if request.is_bare else own]))
    return _clip(" ".join(own.split()))


def _clip(text: str) -> str:
    """Return the end of a long text, whose latest words matter most.

    Line breaks are kept: the search treats several lines as a conversation.
    """
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines))[-_MAX_QUERY_LENGTH:]


def _span_filter(span: TimeSpan | None) -> dict[str, Any]:
    if span is None:
        return {}
    bounds = {"since": span.start, "until": span.end}
    return {name: bound.isoformat() for name, bound in bounds.items() if bound is not None}


def _role_filter(request: ParsedRequest) -> dict[str, Any]:
    return {"role": request.speaker_role} if request.speaker_role else {}


def _wider_plans(request: ParsedRequest, base: dict[str, Any]) -> Iterator[SearchPlan]:
    """Yield wider searches, the most promising first.

    The order matters: the loop allows three searches that return nothing new.
    """
    low = base | {"min_relevance_score": _LOW_MIN_SCORE}
    if request.times.message_span is not None:
        yield SearchPlan("any_time", low | _role_filter(request))
    elif request.speaker_role:
        yield SearchPlan("anyone", low)
    elif request.mode != "hybrid":
        yield SearchPlan("both", low | {"search_mode": "hybrid"})
    else:
        yield SearchPlan("lower", low)
    if len(request.search_terms) <= 1 and request.earlier and request.points_back:
        words = " ".join((request.question, *request.context_words[:_MAX_KEYWORDS]))
        yield SearchPlan("context", low | {"query": _clip(words)})
    if request.search_terms:
        terms = dict.fromkeys((*request.exact_terms, *request.words[:_MAX_KEYWORDS]))
        keyword_search = {"search_mode": "keyword", "min_relevance_score": _KEYWORD_MIN_SCORE}
        yield SearchPlan("keywords", base | keyword_search | {"query": _clip(" ".join(terms))})
    yield SearchPlan("anyone", low)
    yield SearchPlan("meaning", low | {"search_mode": "semantic"})
