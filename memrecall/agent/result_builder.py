"""The end of a recall: handoff, evidence and trace become one result, and the trace is stored."""

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

from memrecall.agent.evidence import gather_closest, gather_evidence, resolve_times
from memrecall.agent.loop import Finish, LoopContext, Stop
from memrecall.agent.result import (
    Certainty,
    RecalledMemory,
    RecallHandoff,
    RecallResult,
    StopReason,
)
from memrecall.agent.state import UNKNOWN_USER, RecallState
from memrecall.agent.tools.control import write_handoff_message
from memrecall.agent.tools.models import HandoffInput
from memrecall.agent.trace_events import HandoffEvent, StopEvent
from memrecall.errors import MemrecallError, WorkerFailed, describe_for_log
from memrecall.json_objects import make_storable
from memrecall.messages import strip_markers
from memrecall.scope import Permission
from memrecall.search import SearchRequest
from memrecall.search.request import LONGEST_REQUEST
from memrecall.store import BODY_BYTES, NewTrace, measure_body, withhold_contents
from memrecall.text import analyze
from memrecall.text.keywords import extract_keywords
from memrecall.text_length import single_line
from memrecall.timing.deadlines import RequestDeadline, run_within, seconds_left
from memrecall.types import NAME_LENGTH
from memrecall.workers import in_process, in_thread

_log = logging.getLogger(__name__)

_UNJUDGED_WEIGHT = 0.5  # of a score that no model has judged
_TRACE_SECONDS = 1.0  # at most half of what is left of a deadline
_QUOTE_CHARACTERS = 160
_MAX_STORED_EVENTS = 100
_MAX_STORED_CONTENT = 2_000
_MAX_ANALYZED = 20_000
_MAX_REQUEST_WORDS = 8
_MAX_OTHERS = 5  # hits of other projects
_LIKELY = 0.5  # the lowest probability of a hit that names its project
_UNABLE = frozenset({StopReason.MODEL_FAILED, StopReason.NO_TOOL_SUPPORT})
# Failures of the model, after which the offline policy searches.
CAN_FALL_BACK = _UNABLE | {
    StopReason.OFF_TASK,
    StopReason.REFUSAL,
    StopReason.TRUNCATED_ANSWER,
    StopReason.ITERATIONS,
}
_FAILURES = _UNABLE | {StopReason.STORAGE_FAILED}
# After these, evidence comes from the search results: the store failed, or there is no time left.
_WITHOUT_STORE = frozenset({StopReason.STORAGE_FAILED, StopReason.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How the iterations ended, and the failure after which the offline policy took over."""

    end: Finish | Stop
    fallback: Stop | None = None

    @property
    def reason(self) -> StopReason:
        """The reported stop reason: the first cause."""
        if self.fallback is not None:
            return self.fallback.reason
        if isinstance(self.end, Stop):
            return self.end.reason
        return self.end.forced_by or StopReason.HANDOFF

    @property
    def problem(self) -> str | None:
        """The error message of a failure."""
        stop = self.fallback or self.end
        return (stop.problem or None) if isinstance(stop, Stop) else None


async def build_result(
    context: LoopContext, outcome: RunOutcome, windows: list[int], keep_days: int
) -> RecallResult:
    """Return the result of a recall, and store its trace."""
    state, end = context.state, outcome.end
    if isinstance(end, Stop):
        context.recorder.add(StopEvent(reason=end.reason.value, problem=end.problem))
    arguments = end.handoff if isinstance(end, Finish) else _write_forced_handoff(state, end)
    if state.period and state.nearest and not arguments.relevant_memory_keys:
        day = state.format_local(state.nearest)[:10]
        question = state.say("ask_nearest", period=state.period.text, day=day)
        update = {"needs_more_info": True, "follow_up_question": question}
        arguments = arguments.model_copy(update=update)
    has_store = outcome.reason not in _WITHOUT_STORE
    memories = await gather_evidence(state, arguments, has_store=has_store)
    is_empty = not arguments.relevant_memory_keys
    closest = await gather_closest(state, has_store=has_store) if is_empty else []
    handoff = _make_handoff(state, arguments, outcome)
    usage = context.budget.usage.as_dict()
    context.recorder.add(_handoff_event(state, handoff, outcome.reason, usage))
    request = strip_markers(state.conversation.request.text)
    result = RecallResult(
        handoff=handoff,
        memories=memories,
        closest=closest,
        confidence=handoff.confidence,
        abstained=not handoff.relevant_memory_keys and handoff.needs_more_info,
        judged=isinstance(end, Finish),
        stop_reason=outcome.reason,
        problem=outcome.problem or state.problem or None,
        iterations=state.window.iteration,
        windows=windows or [state.window.size],
        usage=usage,
        model=context.policy.name,
        language=state.language,
        now=state.now,
        times=await resolve_times(state, request, state.now, past=True),
        queries=[*state.earlier_searches, *state.searches],
        missing=await _find_missing(request, memories),
        keys_seen=list(state.earlier_keys | state.seen_keys),
        keys_dropped=list(state.dropped_keys),
        keys_dropped_unlisted=state.dropped_unlisted,
        withheld=state.withheld,
        degraded=list(state.degraded),
        other_projects=await _name_other_projects(state, handoff, outcome),
        fallback=outcome.fallback and outcome.fallback.reason.value,
        trace=context.recorder.finish(),
    )
    await _store_trace(state, result, keep_days)
    return result


async def _name_other_projects(
    state: RecallState, handoff: RecallHandoff, outcome: RunOutcome
) -> list[str]:
    """Return the projects in which something fits, if nothing here surely does."""
    scope = state.scope
    is_sure = Certainty.from_probability(handoff.confidence) is Certainty.SURE
    if scope.read_project is None or is_sure or outcome.reason is not StopReason.HANDOFF:
        return []
    if not state.searches:  # the message refers to nothing
        return []
    text = strip_markers(state.conversation.request.text)[:LONGEST_REQUEST]
    times: dict[str, Any] = {"until": state.end_time, "now": state.now, "period": state.period}
    request = SearchRequest(text, limit=_MAX_OTHERS, **times)
    try:
        page = await state.library.search(replace(scope, all_projects=True), request)
    except MemrecallError:  # A recall has a result all the same.
        return []
    likely = [hit.key for hit in page.results if (hit.probability or 0) >= _LIKELY]
    names = dict.fromkeys(page.records[key].project for key in likely)
    return [name for name in names if name is not None and name != scope.project]


def _handoff_event(
    state: RecallState, handoff: RecallHandoff, reason: StopReason, usage: dict[str, int | float]
) -> HandoffEvent:
    return HandoffEvent(
        stop_reason=reason.value,
        confidence=handoff.confidence,
        keys=handoff.relevant_memory_keys,
        dropped=list(state.dropped_keys),
        summary=handoff.search_summary,
        question=handoff.follow_up_question,
        usage=usage,
    )


async def _find_missing(request: str, memories: list[RecalledMemory]) -> list[str]:
    text = "\n".join(f"{memory.summary}\n{memory.content}" for memory in memories)
    text, request = text[:_MAX_ANALYZED], request[:_MAX_ANALYZED]
    try:
        return await in_process(len(text) + len(request), missing_words, request, text)
    except WorkerFailed:  # A recall has a result all the same.
        return []


def missing_words(request: str, text: str) -> list[str]:
    """Return the main words of a request that a text does not contain."""
    atoms = set(analyze(text).atoms)
    words = extract_keywords(request, _MAX_REQUEST_WORDS)
    return [word.word for word in words if not atoms.issuperset(analyze(word.word).atoms)]


def _write_forced_handoff(state: RecallState, stop: Stop) -> HandoffInput:
    """Return a handoff of the best hits, else a question; a failure is reported as such."""
    hits = state.best_hits()
    cause = state.say_codes(stop.reason.value)
    reason = f"{cause}: {stop.problem}" if stop.problem else cause
    if hits:
        lines = [state.say("end_best", reason=cause)]
        for hit in hits:
            quote = single_line(hit.summary or hit.content, _QUOTE_CHARACTERS)
            lines.append(f"- {state.format_local(hit.ts)} {quote}")
        summary, confidence = "\n".join(lines), round(hits[0].score * _UNJUDGED_WEIGHT, 4)
    else:
        summary, confidence = _explain_stop(state, stop), 0.0
    is_empty = stop.reason is StopReason.NOTHING_STORED
    has_searched = bool(state.searches) and not _has_failed(state, stop)
    asks_user = not hits and (is_empty or has_searched)
    question = state.say("ask_first" if is_empty else "ask_details")
    return HandoffInput(
        reason=state.say("end_reason", reason=reason),
        search_summary=summary,
        relevant_memory_keys=[hit.key for hit in hits],
        confidence=confidence,
        needs_more_info=asks_user,
        follow_up_question=question if asks_user else None,
        iteration_used=state.window.iteration,
        context_window_used=state.window.size,
    )


def _has_failed(state: RecallState, stop: Stop) -> bool:
    """Return True if there are no results because nothing could be searched."""
    return stop.reason in _FAILURES or (bool(state.failures) and not state.has_results)


def _explain_stop(state: RecallState, stop: Stop) -> str:
    if stop.reason is StopReason.NOTHING_STORED:
        return state.say("end_empty")
    cause = state.say_codes(stop.reason.value)
    if not state.searches and not _has_failed(state, stop):
        return state.say("end_unsearched", reason=cause)
    phrase = "end_failed" if _has_failed(state, stop) else "end_nothing"
    return state.say(phrase, reason=stop.problem or cause)


def _make_handoff(
    state: RecallState, arguments: HandoffInput, outcome: RunOutcome
) -> RecallHandoff:
    return RecallHandoff(
        **arguments.model_dump(),
        success=bool(arguments.relevant_memory_keys)
        or _is_true_absence(state, arguments, outcome.end),
        message=write_handoff_message(state, arguments),
    )


def _is_true_absence(state: RecallState, handoff: HandoffInput, end: Finish | Stop) -> bool:
    """Return True if a handoff without keys means that nothing fits."""
    if state.is_unsupported or (state.failures and not state.has_results):
        return False
    if isinstance(end, Stop):
        return handoff.needs_more_info
    # The offline policy needs no search to say that a greeting refers to nothing.
    return bool(state.searches) or (state.is_offline and end.forced_by is None)


async def _store_trace(state: RecallState, result: RecallResult, keep_days: int) -> None:
    """Store the trace with its user; a recall does not fail or wait because that failed."""
    reason = result.stop_reason
    is_shared = state.scope.is_shared
    is_unknown = state.version is UNKNOWN_USER and not is_shared  # and has no traces either
    scope = state.scope.personal()  # what a member asked is theirs, not the space's
    if not keep_days or is_unknown or reason is StopReason.STORAGE_FAILED or scope is None:
        return

    async def store() -> None:
        if is_shared:  # they may have written nothing of their own
            await state.library.store.ensure_user(scope)
        trace = await in_thread(_new_trace, state, result)
        await state.library.store.traces(scope).add(trace, keep_days)

    try:
        seconds = min(_TRACE_SECONDS, seconds_left(math.inf) / 2)
        await run_within(RequestDeadline(seconds), store())
    except MemrecallError as error:
        problem = describe_for_log(error)
        _log.warning("the trace %s was not stored: %s", result.trace.trace_id, problem)


def _new_trace(state: RecallState, result: RecallResult) -> NewTrace:
    return NewTrace(
        trace_id=result.trace.trace_id,
        created_at=result.trace.started_at,
        query=make_storable(state.conversation.request.text[:1_000]),
        stop_reason=result.stop_reason.value,
        confidence=result.confidence,
        abstained=result.abstained,
        iterations=result.iterations,
        model_calls=int(result.usage["model_calls"]),
        tool_calls=int(result.usage["tool_calls"]),
        seconds=float(result.usage["seconds"]),
        model=make_storable(result.model[:NAME_LENGTH]),
        body=_truncate_body(make_storable(_make_body(state, result))),
    )


def _make_body(state: RecallState, result: RecallResult) -> dict[str, Any]:
    """Return the JSON to store, without contents if the scope may see sensitive memories or spaces.

    Others of the same user may read the trace without that permission, and what is erased from a
    space is not erased from the traces of its members.
    """
    body = result.model_dump(mode="json")
    if not state.scope.allows(Permission.SENSITIVE) and not state.scope.is_shared:
        return body
    withheld: dict[str, Any] = withhold_contents(body)
    return withheld


def _truncate_body(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body that can be stored; a very large one loses its tool outputs."""
    if measure_body(body) <= BODY_BYTES:
        return body
    for event in body["trace"]["events"]:
        event.pop("output", None)
    if measure_body(body) > BODY_BYTES:
        for memory in [*body["memories"], *body["closest"]]:
            memory["content"] = memory["content"][:_MAX_STORED_CONTENT]
        body["trace"]["events"] = body["trace"]["events"][-_MAX_STORED_EVENTS:]
    return body
