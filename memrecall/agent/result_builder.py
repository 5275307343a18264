"""The end of a recall: handoff, evidence and trace become one result, and the trace is stored."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memrecall.agent.loop import Finish, LoopContext, Stop
from memrecall.agent.result import (
    Nearby,
    QueryTried,
    RecalledMemory,
    RecallHandoff,
    RecallResult,
    ResolvedTime,
    StopReason,
)
from memrecall.agent.state import RecallState, SearchRecord
from memrecall.agent.tools.control import write_handoff_message
from memrecall.agent.tools.detail import find_neighbors
from memrecall.agent.tools.models import HandoffInput
from memrecall.agent.tools.search import source_keys
from memrecall.agent.trace_events import EventKind, HandoffEvent, StopEvent
from memrecall.errors import MemrecallError
from memrecall.json_objects import make_storable
from memrecall.scope import Permission
from memrecall.search import Hit
from memrecall.store import BODY_BYTES, NewTrace, measure_body
from memrecall.text import analyze
from memrecall.text.keywords import extract_keywords
from memrecall.text.times import find_times
from memrecall.text_length import single_line
from memrecall.types import MemoryRecord, Message

_log = logging.getLogger(__name__)

_UNJUDGED_WEIGHT = 0.5  # of a score that no model has judged
_QUOTE_CHARACTERS = 160
_NEIGHBORS = 1
_MAX_STORED_EVENTS = 100
_MAX_STORED_CONTENT = 2_000
_MAX_ANALYZED = 20_000
_MAX_REQUEST_WORDS = 8
_UNABLE = frozenset({StopReason.MODEL_FAILED, StopReason.NO_TOOL_SUPPORT})
# Failures of the model, after which the rules continue from the results so far.
_CAN_FALL_BACK = _UNABLE | {
    StopReason.TEXT_ANSWER,
    StopReason.LEAKED_CALL,
    StopReason.SILENCE,
    StopReason.REPEATED_SEARCH,
    StopReason.BAD_CALLS,
    StopReason.REFUSAL,
    StopReason.TRUNCATED_ANSWER,
    StopReason.ITERATIONS,
    StopReason.NO_OLDER_MESSAGES,
}
_FAILURES = _UNABLE | {StopReason.STORAGE_FAILED}
# After these, evidence comes from the search results: the store failed, or there is no time left.
_WITHOUT_STORE = frozenset({StopReason.STORAGE_FAILED, StopReason.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How the iterations ended, and the failure after which the rules took over."""

    end: Finish | Stop
    fallback: Stop | None = None

    @property
    def can_fall_back(self) -> bool:
        """Whether the model failed, so that the rules can continue."""
        return isinstance(self.end, Stop) and self.end.reason in _CAN_FALL_BACK

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
    memories = await _gather_evidence(state, arguments, outcome.reason)
    handoff = _make_handoff(context, arguments, outcome)
    usage = context.budget.usage.as_dict()
    context.recorder.add(_handoff_event(state, handoff, outcome.reason, usage))
    request = state.conversation.request.text
    queries = [_query_tried(each) for each in state.searches]
    result = RecallResult(
        handoff=handoff,
        memories=memories,
        confidence=handoff.confidence,
        abstained=not handoff.relevant_memory_keys and handoff.needs_more_info,
        judged=isinstance(end, Finish),
        stop_reason=outcome.reason,
        problem=outcome.problem or state.problem or None,
        iterations=state.window.iteration,
        windows=windows or [state.window.size],
        usage=usage,
        model=context.model.name,
        language=state.language,
        now=state.now,
        times=_resolve_times(state, request, state.now, past=True),
        queries=queries,
        missing=_missing_words(request, memories),
        keys_seen=list(state.seen_keys),
        keys_dropped=list(state.dropped_keys),
        keys_dropped_unlisted=state.dropped_unlisted,
        withheld=state.withheld,
        degraded=list(state.degraded),
        fallback=outcome.fallback and outcome.fallback.reason.value,
        trace=context.recorder.finish(),
    )
    await _store_trace(state, result, keep_days)
    return result


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


def _missing_words(request: str, memories: list[RecalledMemory]) -> list[str]:
    text = "\n".join(f"{memory.summary}\n{memory.content}" for memory in memories)
    atoms = set(analyze(text[:_MAX_ANALYZED]).atoms)
    words = extract_keywords(request[:_MAX_ANALYZED], _MAX_REQUEST_WORDS)
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


def _query_tried(search: SearchRecord) -> QueryTried:
    return QueryTried(
        arguments=search.arguments,
        total_found=search.total_found,
        returned=len(search.keys),
        new_keys=search.new_keys,
        keys=list(search.keys),
    )


def _make_handoff(
    context: LoopContext, arguments: HandoffInput, outcome: RunOutcome
) -> RecallHandoff:
    state = context.state
    return RecallHandoff(
        **arguments.model_dump(),
        success=bool(arguments.relevant_memory_keys)
        or _is_true_absence(context, arguments, outcome.end),
        message=write_handoff_message(state, arguments),
    )


def _is_true_absence(context: LoopContext, handoff: HandoffInput, end: Finish | Stop) -> bool:
    """Return True if a handoff without keys means that nothing fits."""
    state = context.state
    if state.is_unsupported or (state.failures and not state.has_results):
        return False
    if isinstance(end, Stop):
        return handoff.needs_more_info
    # The rules also recognise messages that refer to nothing, and need no search to say so.
    return bool(state.searches) or (context.model.is_offline and end.forced_by is None)


async def _gather_evidence(
    state: RecallState, handoff: HandoffInput, reason: StopReason
) -> list[RecalledMemory]:
    """Return the memories that were handed off, in order; without the store, from the hits."""
    keys = handoff.relevant_memory_keys
    from_hits = [_from_hit(state, state.hits[key]) for key in keys if key in state.hits]
    if reason in _WITHOUT_STORE or not keys:
        return from_hits
    try:
        return await _read_evidence(state, keys)
    except MemrecallError as error:
        state.degraded[f"evidence without its surroundings: {error.message}"] = None
        return from_hits


async def _read_evidence(state: RecallState, keys: list[str]) -> list[RecalledMemory]:
    store = state.library.store
    memories = {m.memory_key: m for m in await store.memories(state.scope).get_many(keys)}
    others = [key for key in keys if key not in memories]
    messages = {m.message_id: m for m in await store.timeline(state.scope).get_many(others)}
    evidence: list[RecalledMemory] = []
    for key in keys:  # one that was erased in the meantime is left out
        if key in memories:
            evidence.append(await _from_memory(state, memories[key]))
        elif key in messages:
            evidence.append(await _from_message(state, messages[key]))
    return evidence


def _resolve_times(
    state: RecallState, text: str, said_at: datetime, *, past: bool = False
) -> list[ResolvedTime]:
    """Return the times of a text as dates; `past` prefers past dates, as questions mean them."""
    spans = find_times(text[:2_000], said_at, state.zone, past=past)
    return [ResolvedTime(words=span.text, start=span.start, end=span.end) for span in spans]


def _from_hit(state: RecallState, hit: Hit) -> RecalledMemory:
    return RecalledMemory(
        memory_key=hit.key,
        kind=hit.kind,
        memory_type=hit.memory_type,
        summary=hit.summary,
        content=hit.content,
        speaker=hit.speaker,
        role=hit.role,
        ts=hit.ts,
        session_id=hit.session_id,
        relevance_score=hit.score,
        why=hit.why.as_dict(),
        times=_resolve_times(state, hit.content, hit.ts),
        made_from=source_keys(hit.role, hit.metadata),
    )


async def _from_memory(state: RecallState, memory: MemoryRecord) -> RecalledMemory:
    sources = await state.library.store.timeline(state.scope).get_many(memory.source_message_ids)
    hit = state.hits.get(memory.memory_key)
    return RecalledMemory(
        memory_key=memory.memory_key,
        kind="memory",
        memory_type=memory.memory_type,
        summary=memory.summary,
        content=memory.content,
        speaker=None,
        role=None,
        ts=memory.since,
        session_id=memory.session_id,
        relevance_score=hit and hit.score,
        why=hit and hit.why.as_dict(),
        valid_to=memory.valid_to,
        times=_resolve_times(state, memory.content, memory.since),
        sources=[_nearby(message) for message in sorted(sources, key=lambda m: m.ts)],
    )


async def _from_message(state: RecallState, message: Message) -> RecalledMemory:
    before, after = await find_neighbors(state, message, _NEIGHBORS)
    hit = state.hits.get(message.message_id)
    return RecalledMemory(
        memory_key=message.message_id,
        kind="message",
        memory_type="message",
        summary="",
        content=message.content,
        speaker=message.speaker,
        role=message.role.value,
        ts=message.ts,
        session_id=message.session_id,
        relevance_score=hit and hit.score,
        why=hit and hit.why.as_dict(),
        times=_resolve_times(state, message.content, message.ts),
        before=[_nearby(neighbor) for neighbor in before],
        after=[_nearby(neighbor) for neighbor in after],
        made_from=source_keys(message.role.value, message.metadata),
    )


def _nearby(message: Message) -> Nearby:
    return Nearby(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        ts=message.ts,
        content=message.content,
    )


async def _store_trace(state: RecallState, result: RecallResult, keep_days: int) -> None:
    """Store the trace with its user; a recall does not fail because that failed."""
    reason = result.stop_reason
    if not keep_days or reason in (StopReason.STORAGE_FAILED, StopReason.NOTHING_STORED):
        return
    try:
        await state.library.store.traces(state.scope).add(_new_trace(state, result), keep_days)
    except MemrecallError as error:
        _log.warning("the trace %s was not stored: %s", result.trace.trace_id, error)


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
        body=_truncate_body(make_storable(_make_body(state, result))),
    )


def _make_body(state: RecallState, result: RecallResult) -> dict[str, Any]:
    """Return the JSON to store, without contents if the scope may see sensitive memories.

    Others of the same user may read the trace without that permission.
    """
    body = result.model_dump(mode="json")
    if state.scope.allows(Permission.SENSITIVE):
        for event in body["trace"]["events"]:
            for name in ("output", "text", "summary"):
                event.pop(name, None)
            if event["kind"] == EventKind.RESULT:
                event["text"] = ""
        for memory in body["memories"]:
            memory |= {"content": "", "summary": "", "before": [], "after": [], "sources": []}
        body["handoff"] |= {"search_summary": "", "message": "", "reasoning": None}
    return body


def _truncate_body(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body that can be stored; a very large one loses its tool outputs."""
    if measure_body(body) <= BODY_BYTES:
        return body
    for event in body["trace"]["events"]:
        event.pop("output", None)
    if measure_body(body) > BODY_BYTES:
        for memory in body["memories"]:
            memory["content"] = memory["content"][:_MAX_STORED_CONTENT]
        body["trace"]["events"] = body["trace"]["events"][-_MAX_STORED_EVENTS:]
    return body
