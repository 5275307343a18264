"""The rule of the recall prompt, which decides one step per turn from the transcript.

It searches, widens the search if nothing fits, reads the best hits with their context, hands off.
A second, narrower search is not worth its turn. With words of the best hits, on their day, within
the named time or in the named person's own words it brings 0 to 8 of 100 pieces of evidence, among
up to five new keys, and moves the F1 of what is handed off by 0.02 at most, as often down as up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from memrecall.agent.offline.handoff import build_empty_handoff, build_handoff, build_window_handoff
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.phrases import say
from memrecall.agent.offline.references import QUESTIONS_ABOUT_USER
from memrecall.agent.offline.request import ParsedRequest, WindowMessage, parse_request
from memrecall.agent.offline.selection import repeats_question, select_evidence
from memrecall.agent.offline.transcript import (
    Candidate,
    Findings,
    Transcript,
    collect_findings,
    read_transcript,
)
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS, matches_any
from memrecall.agent.tools import DETAIL, EXPANSION, HANDOFF, KEYWORDS, SEARCH
from memrecall.agent.tools.models import ToolErrorCode
from memrecall.model.prompts import RuleAnswer, RuleCall, RuleRequest
from memrecall.text.language import STOP_CHARS
from memrecall.text.times import TimeSpan
from memrecall.text.tokens import is_cjk, word_coverage

_MAX_SEARCHES = 5  # in an iteration
_MAX_CONSECUTIVE_SEARCHES = 3  # the tool refuses a fourth
_MAX_DETAILS = 3
_SURE = 0.55  # with this confidence no larger window is needed
_MAX_FAILURES = 2  # of the store
# Searches without a new key, after which others find nothing either. With no candidate at all one
# more is tried: then the loop steers, and it ends the recall if it has to do so twice.
_MAX_FRUITLESS_SEARCHES = 2
_MAX_FRUITLESS_AT_START = 3
_MIN_QUESTION_CHARACTERS = 4
_MIN_CONTEXT_WORDS = 3  # a conversation with fewer has no clear subject yet
_MAX_WEAK_TERMS = 2  # a reference with so few terms may mean many things
_COMPARED_LENGTH = 60  # previews are truncated

# A model should see only good results; the rules score candidates themselves.
_DEFAULT_MIN_SCORE = 0.2
_LOW_MIN_SCORE = 0.02
_KEYWORD_MIN_SCORE = 0.1  # scores of keyword searches mean little in small stores
_LIMIT = 10
_MAX_QUERY_LENGTH = 980
_FIRST_WINDOW = 4  # messages before the request that the first window shows
_MAX_OLDER_WORDS = 10
_MAX_KEYWORDS = 8
# The defaults of the search tool, with which it compares searches.
_TOOL_DEFAULTS = {"search_mode": "hybrid", "limit": 5, "min_relevance_score": 0.5}


@dataclass(frozen=True, slots=True)
class _SearchPlan:
    phrase: str  # which explains the search
    arguments: dict[str, Any]


def decide_recall_turn(request: RuleRequest) -> RuleAnswer:
    """Answer the prompt `recall` with the next tool call."""
    transcript = read_transcript(request.messages)
    tools = (request.forced,) if request.forced else request.tools
    return _RecallTurn(tools, transcript).decide()


class _RecallTurn:
    def __init__(self, tools: tuple[str, ...], transcript: Transcript) -> None:
        briefing = transcript.briefing
        zone = ZoneInfo(briefing.time_zone)
        self._tools = tools
        self._transcript = transcript
        self._request = parse_request(briefing.messages, briefing.now, zone)
        self._findings = collect_findings(transcript)
        self._selection = select_evidence(self._request, self._findings)
        self._window_message = _find_in_window(self._request)
        self._refers_to_nothing = _refers_to_nothing(self._request)

    def decide(self) -> RuleAnswer:
        return (
            self._expand()
            or self._extract_keywords()
            or self._search()
            or self._read_details()
            or self._hand_off()
        )

    def _expand(self) -> RuleAnswer | None:
        request = self._request
        is_unsure = self._selection.confidence < _SURE
        if EXPANSION not in self._tools or not _needs_larger_window(
            request, self._transcript, is_unsure
        ):
            return None
        size = self._transcript.briefing.window
        reference = request.references[0].text if request.references else request.text[:20]
        thought = say(request.language, "expand", reference=reference)
        arguments = {"reason": thought, "current_size": size, "requested_size": 2 * size}
        return _call(EXPANSION, arguments, thought)

    def _extract_keywords(self) -> RuleAnswer | None:
        """Make another call after a refused search: a model may have searched before the rules."""
        steps, refused = self._transcript.steps, self._transcript.refused_searches
        is_refused = (
            bool(steps) and steps[-1].error == ToolErrorCode.TOO_MANY_SEARCHES and refused <= 1
        )
        if not is_refused or KEYWORDS not in self._tools:
            return None
        query = _build_query(self._request)
        return _call(KEYWORDS, {"query": query}, say(self._request.language, "pause"))

    def _search(self) -> RuleAnswer | None:
        transcript, findings = self._transcript, self._findings
        is_start = not findings.candidates and transcript.briefing.iteration == 1
        fruitless_limit = _MAX_FRUITLESS_AT_START if is_start else _MAX_FRUITLESS_SEARCHES
        if (
            SEARCH not in self._tools
            or self._cannot_profit_from_search()
            or len(transcript.searches) >= _MAX_SEARCHES
            or transcript.consecutive_searches >= _MAX_CONSECUTIVE_SEARCHES
            or transcript.fruitless_searches >= fruitless_limit
        ):
            return None
        plan = _plan_next_search(self._request, transcript, findings, self._selection.abstains)
        return None if plan is None else _call(SEARCH, plan.arguments, self._explain(plan))

    def _cannot_profit_from_search(self) -> bool:
        if self._refers_to_nothing or self._transcript.refused_searches > 1:
            return True
        failures = self._findings.failures
        return ToolErrorCode.NO_PERMISSION in failures or len(failures) >= _MAX_FAILURES

    def _explain(self, plan: _SearchPlan) -> str:
        request = self._request
        uses_context = plan.phrase == "first" and request.is_bare and request.earlier
        phrase = "first_context" if uses_context else plan.phrase
        words = request.search_terms or request.context_words
        listed = say(request.language, "and").join(dict.fromkeys(words[:5]))
        return say(request.language, phrase, words=listed or _build_query(request)[:40])

    def _read_details(self) -> RuleAnswer | None:
        if DETAIL not in self._tools or self._transcript.details or self._window_message:
            return None
        # The message after a question may be its answer, above all if the request repeats it.
        asked = [hit for hit in self._findings.hits if repeats_question(self._request, hit)]
        candidates = [] if self._selection.abstains else self._selection.candidates
        if not asked and not candidates:
            return None
        questions = [*asked, *(c for c in candidates[1:] if c.is_question)]
        anchors = list({c.key: c for c in (*candidates[:1], *questions)}.values())
        calls = tuple(RuleCall(DETAIL, {"memory_key": c.key}) for c in anchors[:_MAX_DETAILS])
        return RuleAnswer(calls=calls, thought=say(self._request.language, "read"))

    def _hand_off(self) -> RuleAnswer:
        request, findings = self._request, self._findings
        if HANDOFF not in self._tools:
            return RuleAnswer(text=say(request.language, "finish"))
        if self._window_message is not None:
            stored = _find_stored_copies(self._window_message, findings.hits)
            arguments = build_window_handoff(request, self._window_message, stored)
            phrase = "in_window"
        elif self._refers_to_nothing and not findings.candidates:
            arguments = build_empty_handoff(request)
            phrase = "nothing_asked"
        else:
            arguments = build_handoff(request, self._transcript, findings, self._selection)
            phrase = "finish" if arguments["relevant_memory_keys"] else "give_up"
        return _call(HANDOFF, arguments, say(request.language, phrase))


def _refers_to_nothing(request: ParsedRequest) -> bool:
    if is_greeting(request.text):
        return True
    if not request.is_empty:
        return False
    if matches_any(request.text, QUESTIONS_ABOUT_USER):
        return False
    # The dictionary may not know the characters of a question as words.
    characters = [c for c in request.text if is_cjk(c) and c not in STOP_CHARS]
    is_long_enough = len(characters) >= _MIN_QUESTION_CHARACTERS
    is_question = is_long_enough and matches_any(request.text, QUESTION_MARKERS)
    return not request.context_words and not is_question


def _call(tool: str, arguments: Mapping[str, object], thought: str) -> RuleAnswer:
    values = {name: value for name, value in arguments.items() if value is not None}
    return RuleAnswer(calls=(RuleCall(tool, values),), thought=thought)


def _find_in_window(request: ParsedRequest) -> WindowMessage | None:
    """Return the message of this conversation that the request refers to, if any.

    "Go on" and "this one" mean the last message; "that plan" means an earlier message about a plan.
    References to an earlier conversation never mean this one.
    """
    if request.points_back or not request.references or request.times.spans:
        return None
    messages = [message for message in request.earlier if message.words]
    if request.is_bare:
        return next(iter(messages), None)
    terms = request.search_terms
    longer = (message for message in messages if len(message.words) > len(terms))
    return next((message for message in longer if word_coverage(terms, message.text) >= 1), None)


def _find_stored_copies(message: WindowMessage, hits: Sequence[Candidate]) -> list[Candidate]:
    """Return the hits that are this message: the window came from the store."""
    return [hit for hit in hits if _start(hit.text) == _start(message.text)]


def _start(text: str) -> str:
    return " ".join(text.split())[:_COMPARED_LENGTH]


def _needs_larger_window(request: ParsedRequest, transcript: Transcript, is_unsure: bool) -> bool:
    """Return True if earlier messages are needed; a reference with terms is searched first."""
    briefing = transcript.briefing
    is_last = briefing.iteration >= briefing.max_iterations
    if is_last or transcript.has_refused_expansion or not briefing.older_messages:
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


def _plan_next_search(
    request: ParsedRequest, transcript: Transcript, findings: Findings, abstains: bool
) -> _SearchPlan | None:
    """Return the next untried search, if any; `abstains`: no candidate is good enough yet."""
    tried = [s.arguments for s in transcript.searches if s.error != ToolErrorCode.TOO_MANY_SEARCHES]
    earlier = [_with_defaults(arguments) for arguments in (*tried, *transcript.briefing.tried)]
    plans = _plans(request, transcript, findings, abstains)
    untried = (plan for plan in plans if _with_defaults(plan.arguments) not in earlier)
    return next((plan for plan in untried if plan.arguments["query"]), None)


def _with_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in arguments.items() if value is not None}
    values.pop("total_found", None)
    return _TOOL_DEFAULTS | values


def _plans(
    request: ParsedRequest, transcript: Transcript, findings: Findings, abstains: bool
) -> Iterator[_SearchPlan]:
    base: dict[str, Any] = {
        "query": _build_query(request),
        "search_mode": request.mode,
        "limit": _LIMIT,
        "min_relevance_score": _DEFAULT_MIN_SCORE,
    }
    message = _find_in_window(request)
    if message is not None:
        # Messages that the caller passed are never hits; those from the store can be handed off.
        yield _SearchPlan("is_stored", base | {"query": _clip(" ".join(message.text.split()))})
        return
    is_later = transcript.briefing.iteration > 1 and not request.is_topical
    if is_later and (older_words := _older_words(request)):
        query = _clip(" ".join([base["query"], *older_words]))
        yield _SearchPlan("first_context", base | {"query": query})
    span, role = _span_filter(request.times.message_span), _role_filter(request)
    yield _SearchPlan("first", base | span | role)
    if transcript.searches and transcript.searches[-1].error == ToolErrorCode.EMBEDDER:
        yield _SearchPlan("words_only", base | {"search_mode": "keyword"})
    is_filtered = bool(span or role or request.mode != "hybrid")
    # If only a time describes what is meant, messages of another time are not it.
    has_only_time = request.times.message_span is not None and not request.search_terms
    if (not findings.hits or (abstains and is_filtered)) and not has_only_time:
        yield from _wider_plans(request, base)


def _older_words(request: ParsedRequest) -> tuple[str, ...]:
    words = (word for message in request.earlier[_FIRST_WINDOW:] for word in message.words)
    return tuple(dict.fromkeys(words))[:_MAX_OLDER_WORDS]


def _build_query(request: ParsedRequest) -> str:
    """Return the search query: the question, or the conversation for a topical request.

    A whole question finds more than its keywords: embedders are trained on sentences.
    """
    own = request.question or request.text
    if request.followed_question is not None:
        return _clip(" ".join(f"{request.followed_question.text} {own}".split()))
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


def _wider_plans(request: ParsedRequest, base: dict[str, Any]) -> Iterator[_SearchPlan]:
    """Yield wider searches, the most promising first: the loop allows three without new hits."""
    low = base | {"min_relevance_score": _LOW_MIN_SCORE}
    if request.times.message_span is not None:
        yield _SearchPlan("any_time", low | _role_filter(request))
    elif request.speaker_role:
        yield _SearchPlan("anyone", low)
    elif request.mode != "hybrid":
        yield _SearchPlan("both", low | {"search_mode": "hybrid"})
    else:
        yield _SearchPlan("lower", low)
    if len(request.search_terms) <= 1 and request.earlier and request.points_back:
        words = " ".join((request.question, *request.context_words[:_MAX_KEYWORDS]))
        yield _SearchPlan("context", low | {"query": _clip(words)})
    if request.search_terms:
        terms = dict.fromkeys((*request.exact_terms, *request.words[:_MAX_KEYWORDS]))
        keyword_search = {"search_mode": "keyword", "min_relevance_score": _KEYWORD_MIN_SCORE}
        yield _SearchPlan("keywords", base | keyword_search | {"query": _clip(" ".join(terms))})
    yield _SearchPlan("anyone", low)
    yield _SearchPlan("meaning", low | {"search_mode": "semantic"})
