"""The policy that decides a recall's steps by rules, without a model.

It searches for what was asked, reads the best hits with their context and hands off in the order of
the search. A second, narrower search is not worth its turn. With words of the best hits, on their
day, within the named time or in the named person's own words it brings 0 to 8 of 100 pieces of
evidence, among up to five new keys, and moves the F1 of what is handed off by 0.02 at most.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memrecall.agent.offline.findings import Candidate, Situation, collect_findings
from memrecall.agent.offline.handoff import (
    build_empty_handoff,
    build_handoff,
    build_window_handoff,
    explain,
)
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.references import QUESTIONS_ABOUT_USER
from memrecall.agent.offline.request import ParsedRequest, WindowMessage, parse_request
from memrecall.agent.offline.selection import repeats_question, select_evidence
from memrecall.agent.offline.vocabulary import QUESTION_MARKERS, matches_any
from memrecall.agent.policy import RecallStep
from memrecall.agent.state import KeywordModel, RecallState
from memrecall.agent.tools import DETAIL, EXPANSION, HANDOFF, SEARCH
from memrecall.agent.tools.models import SearchMemoriesInput, ToolErrorCode
from memrecall.budget import Budget, Limit
from memrecall.errors import ModelFailed, WorkerFailed
from memrecall.messages import strip_markers
from memrecall.model import protocol
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.text.language import STOP_CHARS
from memrecall.text.times import TimeSpan
from memrecall.text.tokens import is_cjk, word_coverage
from memrecall.workers import in_process

_MAX_DETAILS = 3
_SURE = 0.55  # with this confidence no larger window is needed
_MAX_FAILURES = 2  # of the store
# Without an embedder, or with vectors of another one, words still match. The store is tried twice.
_WORDS_MAY_DO = frozenset({ToolErrorCode.EMBEDDER, ToolErrorCode.REFUSED, ToolErrorCode.STORAGE})
_MIN_QUESTION_CHARACTERS = 4
_MIN_CONTEXT_WORDS = 3  # a conversation with fewer has no clear subject yet
_MAX_WEAK_TERMS = 2  # a reference with so few terms may mean many things
_COMPARED_LENGTH = 60  # previews are truncated

_LIMIT = 10
_MAX_QUERY_LENGTH = 980


@dataclass(frozen=True, slots=True)
class _SearchPlan:
    phrase: str  # which explains the search
    arguments: dict[str, Any]  # of the search tool


class RulesPolicy:
    """Decides a recall's steps by rules. Long texts are read in another process."""

    name = OFFLINE_FAMILY
    keyword_model: KeywordModel | None = None

    def __init__(self, state: RecallState, budget: Budget) -> None:
        self._state = state
        self._budget = budget
        self._earlier_runs = 0

    def begin_iteration(self) -> str:
        """Remember how many tool calls earlier iterations made."""
        self._earlier_runs = len(self._state.runs)
        return ""

    async def decide(self, last: Limit | None) -> RecallStep:
        """Return the next step; raise ModelFailed if the texts take too long to read."""
        started = time.monotonic()
        situation = self._describe_situation(last)
        texts = [situation.request, *(message.text for message in situation.earlier)]
        length = sum(map(len, (*texts, *(run.text for run in situation.runs))))
        try:
            return await in_process(length, decide_step, situation)
        except WorkerFailed as error:
            raise ModelFailed(
                f"the rules failed with {length:,} characters: {error}",
                kind="timeout",
                hint="Pass fewer or shorter messages",
            ) from error
        finally:
            self._budget.spend_step(time.monotonic() - started)

    def can_retry(self, error: ModelFailed) -> bool:
        """Return False: the same texts would take as long again."""
        return False

    def _describe_situation(self, last: Limit | None) -> Situation:
        state = self._state
        size, request = state.characters_per_message, state.conversation.request
        positions = (n for n, message in enumerate(state.shown) if message is request)
        # A request that is older than the window has no messages before it.
        earlier = state.shown[: next(positions, 0)]
        return Situation(
            language=state.language,
            request=request.text[:size],
            earlier=tuple(replace(message, text=message.text[:size]) for message in earlier),
            now=state.now.astimezone(state.zone),
            zone=state.zone,
            window=state.window,
            runs=tuple(state.runs),
            earlier_runs=self._earlier_runs,
            last=last,
        )


def decide_step(situation: Situation) -> RecallStep:
    """Return the next step of a recall."""
    return _StepDecision(situation).decide()


class _StepDecision:
    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._request = parse_request(
            situation.request,
            situation.earlier,
            situation.now,
            situation.zone,
            situation.language,
        )
        self._findings = collect_findings(situation.runs)
        self._selection = select_evidence(self._request, self._findings)
        self._window_message = _find_in_window(self._request)
        self._refers_to_nothing = _refers_to_nothing(self._request)

    def decide(self) -> RecallStep:
        if self._situation.last is not None:
            return self._hand_off()
        return self._expand() or self._search() or self._read_details() or self._hand_off()

    def _expand(self) -> RecallStep | None:
        request = self._request
        is_unsure = self._selection.confidence < _SURE
        if not _needs_larger_window(request, self._situation, is_unsure):
            return None
        size = self._situation.window.shown
        reference = request.references[0].text if request.references else request.text[:20]
        thought = explain(request.language, "expand", reference=reference)
        arguments = {"reason": thought, "current_size": size, "requested_size": 2 * size}
        return _call(EXPANSION, arguments, thought)

    def _search(self) -> RecallStep | None:
        # An iteration has two searches at most, so that the limits on searches never apply.
        if self._cannot_profit_from_search():
            return None
        plan = _plan_next_search(self._request, self._situation)
        return None if plan is None else _call(SEARCH, plan.arguments, self._explain(plan))

    def _cannot_profit_from_search(self) -> bool:
        if self._refers_to_nothing:
            return True
        failures = self._findings.failures
        return ToolErrorCode.NO_PERMISSION in failures or len(failures) >= _MAX_FAILURES

    def _explain(self, plan: _SearchPlan) -> str:
        request = self._request
        uses_context = plan.phrase == "first" and request.is_bare and request.earlier
        phrase = "first_context" if uses_context else plan.phrase
        words = request.search_terms or request.context_words
        listed = explain(request.language, "and").join(dict.fromkeys(words[:5]))
        return explain(request.language, phrase, words=listed or _build_query(request)[:40])

    def _read_details(self) -> RecallStep | None:
        has_read = any(run.tool == DETAIL for run in self._situation.current_runs)
        if has_read or self._window_message:
            return None
        # The message after a question may be its answer, above all if the request repeats it.
        asked = [hit for hit in self._findings.hits if repeats_question(self._request, hit)]
        candidates = [] if self._selection.abstains else self._selection.candidates
        if not asked and not candidates:
            return None
        questions = [*asked, *(c for c in candidates[1:] if c.is_question)]
        anchors = list({c.key: c for c in (*candidates[:1], *questions)}.values())
        calls = [_function_call(DETAIL, {"memory_key": c.key}) for c in anchors[:_MAX_DETAILS]]
        return RecallStep(calls, thought=explain(self._request.language, "read"))

    def _hand_off(self) -> RecallStep:
        request, findings = self._request, self._findings
        if self._window_message is not None:
            stored = _find_stored_copies(self._window_message, findings.hits)
            arguments = build_window_handoff(request, self._window_message, stored)
            phrase = "in_window"
        elif self._refers_to_nothing and not findings.candidates:
            arguments = build_empty_handoff(request)
            phrase = "nothing_asked"
        else:
            arguments = build_handoff(request, self._situation, findings, self._selection)
            phrase = "finish" if arguments["relevant_memory_keys"] else "give_up"
        return _call(HANDOFF, arguments, explain(request.language, phrase))


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


def _call(tool: str, arguments: Mapping[str, object], thought: str) -> RecallStep:
    return RecallStep([_function_call(tool, arguments)], thought=thought)


def _function_call(tool: str, arguments: Mapping[str, object]) -> protocol.FunctionCall:
    """Return a call; the loop gives it an id."""
    values = {name: value for name, value in arguments.items() if value is not None}
    text = json.dumps(values, ensure_ascii=False, sort_keys=True)
    return protocol.FunctionCall(id="", name=tool, arguments=text)


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
    return " ".join(strip_markers(text).split())[:_COMPARED_LENGTH]


def _needs_larger_window(request: ParsedRequest, situation: Situation, is_unsure: bool) -> bool:
    """Return True if earlier messages are needed; a reference with terms is searched first."""
    runs, window = situation.current_runs, situation.window
    # A granted request for a larger window starts a new iteration: this one was refused.
    was_refused = any(run.tool == EXPANSION for run in runs)
    if not window.can_grow or was_refused:
        return False
    if request.is_topical:
        # A search by the conversation finds more with a little more of it.
        return window.iteration == 1 and not runs and not is_greeting(request.text)
    if not request.references:
        return False
    if request.is_bare and len(request.context_words) < _MIN_CONTEXT_WORDS:
        return not runs
    is_weak = len(request.search_terms) <= _MAX_WEAK_TERMS
    return is_weak and is_unsure and bool(situation.current_searches)


def _plan_next_search(request: ParsedRequest, situation: Situation) -> _SearchPlan | None:
    """Return the next untried search, if any."""
    tried = [run.arguments for run in situation.searches]
    for plan in _plans(request, situation):
        if plan.arguments["query"]:
            search = SearchMemoriesInput(**plan.arguments)
            if search.model_dump(mode="json", exclude_none=True) not in tried:
                return plan
    return None


def _plans(request: ParsedRequest, situation: Situation) -> Iterator[_SearchPlan]:
    """Yield searches without filters: the ranking knows times and speakers, and hides nothing."""
    base: dict[str, Any] = {
        "query": _build_query(request),
        "search_mode": "hybrid",
        "limit": _LIMIT,
        "min_relevance_score": 0.0,
    }
    message = _find_in_window(request)
    if message is not None:
        # Messages that the caller passed are never hits; those from the store can be handed off.
        yield _SearchPlan("is_stored", base | {"query": _clip(" ".join(message.text.split()))})
        return
    # If only a time describes what is meant, messages of another time are not it.
    span = None if request.search_terms else request.times.message_span
    yield _SearchPlan("first", base | _span_filter(span))
    searches = situation.current_searches
    if searches and searches[-1].error in _WORDS_MAY_DO:
        yield _SearchPlan("words_only", base | {"search_mode": "keyword"})


def _build_query(request: ParsedRequest) -> str:
    """Return the search query: the request, or the conversation if the request leaves it out.

    A whole question finds more than its keywords: embedders are trained on sentences.
    """
    if not request.is_topical:
        return _clip(" ".join(request.text.split()))
    texts = [" ".join(message.text.split()) for message in reversed(request.earlier)]
    # A bare reference ("as I said before") has no words to search for.
    own = "" if request.is_bare else " ".join(request.text.split())
    return _clip("\n".join([*texts, own]))


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
