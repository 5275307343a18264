"""The end of a recall: the handoff, its evidence and the trace, put into one result and stored."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from memrecall.agent.loop import LoopContext
from memrecall.agent.outcome import Finish, Stop, StopReason
from memrecall.agent.phrases import say
from memrecall.agent.result import (
    Nearby,
    QueryTried,
    RecalledMemory,
    RecallHandoff,
    RecallResult,
    ResolvedTime,
)
from memrecall.agent.state import RecallState, SearchNote
from memrecall.agent.tools.detail import look_around
from memrecall.agent.tools.handoff import write_message
from memrecall.agent.tools.models import HandoffInput
from memrecall.agent.tools.search import made_from
from memrecall.agent.trace import EventKind, HandoffEvent, StopEvent, Trace
from memrecall.errors import MemrecallError
from memrecall.scope import Permission
from memrecall.search import Hit
from memrecall.store import BODY_BYTES, NewTrace, measure_body
from memrecall.text import analyze
from memrecall.text.keywords import extract_keywords
from memrecall.text.times import find_times
from memrecall.text_length import single_line
from memrecall.types import MemoryRecord, Message

_UNJUDGED = 0.5  # a score that nobody has judged is worth half
_QUOTED = 160
_FAILURES = frozenset(
    {StopReason.MODEL_FAILED, StopReason.STORAGE_FAILED, StopReason.NO_TOOL_SUPPORT}
)


def write_ending(desk: RecallState, stop: Stop) -> HandoffInput:
    """A handoff from the notes: the good hits, else a question; a failure is told as a failure."""
    best = desk.notes.best()
    reason = f"{stop.reason.value}: {stop.problem}" if stop.problem else stop.reason.value
    if best:
        summary = "\n".join(
            [say(desk.language, "end_best", reason=stop.reason.value)]
            + [
                f"- {desk.local(hit.ts)} {single_line(hit.summary or hit.content, _QUOTED)}"
                for hit in best
            ]
        )
        confidence = round(best[0].score * _UNJUDGED, 4)
    else:
        summary, confidence = _explain(desk, stop), 0.0
    empty = stop.reason is StopReason.NOTHING_STORED
    asks = not best and (empty or (bool(desk.notes.searches) and not _failed(desk, stop)))
    question = say(desk.language, "ask_first" if empty else "ask_details")
    return HandoffInput(
        reason=say(desk.language, "end_reason", reason=reason),
        search_summary=summary,
        relevant_memory_keys=[hit.key for hit in best],
        confidence=confidence,
        needs_more_info=asks,
        follow_up_question=question if asks else None,
        iteration_used=desk.window.iteration,
        context_window_used=desk.window.size,
    )


def _failed(desk: RecallState, stop: Stop) -> bool:
    """Whether nothing was found because nothing could be searched."""
    searched = any(note.returned for note in desk.notes.searches)
    return stop.reason in _FAILURES or (bool(desk.notes.failures) and not searched)


def _explain(desk: RecallState, stop: Stop) -> str:
    if stop.reason is StopReason.NOTHING_STORED:
        return say(desk.language, "end_empty")
    if not desk.notes.searches and not _failed(desk, stop):
        return say(desk.language, "end_unsearched", reason=stop.reason.value)
    phrase = "end_failed" if _failed(desk, stop) else "end_nothing"
    return say(desk.language, phrase, reason=stop.problem or stop.reason.value)


_AROUND = 1


async def gather_evidence(desk: RecallState, keys: list[str]) -> list[RecalledMemory]:
    """The memories and messages of the keys, in their order. One erased meanwhile is left out."""
    if not keys:
        return []
    store = desk.library.store
    memories = {m.memory_key: m for m in await store.memories(desk.scope).get_many(keys)}
    said = [key for key in keys if key not in memories]
    messages = {m.message_id: m for m in await store.timeline(desk.scope).get_many(said)}
    found: list[RecalledMemory] = []
    for key in keys:
        if key in memories:
            found.append(await _from_memory(desk, memories[key]))
        elif key in messages:
            found.append(await _from_message(desk, messages[key]))
    return found


def resolve_times(
    desk: RecallState, text: str, said_at: datetime, *, past: bool = False
) -> list[ResolvedTime]:
    """The times that a text speaks of, as dates. Questions look back, statements do not always."""
    spans = find_times(text[:2_000], said_at, desk.zone, past=past)
    return [ResolvedTime(words=span.text, start=span.start, end=span.end) for span in spans]


def from_hit(desk: RecallState, hit: Hit) -> RecalledMemory:
    """A hit as evidence, from what the search told alone."""
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
        why=asdict(hit.why),
        times=resolve_times(desk, hit.content, hit.ts),
        made_from=made_from(hit.role, hit.metadata),
    )


async def _from_memory(desk: RecallState, memory: MemoryRecord) -> RecalledMemory:
    sources = await desk.library.store.timeline(desk.scope).get_many(memory.source_message_ids)
    hit = desk.notes.hits.get(memory.memory_key)
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
        why=hit and asdict(hit.why),
        valid_to=memory.valid_to,
        times=resolve_times(desk, memory.content, memory.since),
        sources=[_nearby(message) for message in sorted(sources, key=lambda m: m.ts)],
    )


async def _from_message(desk: RecallState, message: Message) -> RecalledMemory:
    before, after = await look_around(desk, message, _AROUND)
    hit = desk.notes.hits.get(message.message_id)
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
        why=hit and asdict(hit.why),
        times=resolve_times(desk, message.content, message.ts),
        before=[_nearby(near) for near in before],
        after=[_nearby(near) for near in after],
        made_from=made_from(message.role.value, message.metadata),
    )


def _nearby(message: Message) -> Nearby:
    return Nearby(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        ts=message.ts,
        content=message.content,
    )


_log = logging.getLogger(__name__)

_REPLACEABLE = frozenset({StopReason.MODEL_FAILED, StopReason.NO_TOOL_SUPPORT})
_EVENTS_KEPT = 100
_CONTENT_KEPT = 2_000
_READ_FOR_MISSING = 20_000
_WORDS_ASKED = 8
_UNREADABLE = frozenset({StopReason.STORAGE_FAILED, StopReason.CANCELLED})


@dataclass(frozen=True, slots=True)
class Ended:
    """How the iterations ended, and what the rules had to stand in for."""

    outcome: Finish | Stop
    fallback: Stop | None = None

    @property
    def is_replaceable(self) -> bool:
        """Whether the model could not play at all, so that the rules can go on in its place."""
        stopped = self.outcome
        return isinstance(stopped, Stop) and (
            stopped.never_called or stopped.reason in _REPLACEABLE
        )

    @property
    def reason(self) -> StopReason:
        """The stop reason that is told: the first cause."""
        if self.fallback is not None:
            return self.fallback.reason
        if isinstance(self.outcome, Stop):
            return self.outcome.reason
        return self.outcome.forced_by or StopReason.HANDOFF

    @property
    def problem(self) -> str | None:
        """What went wrong, in words, if anything did."""
        if self.fallback is not None:
            return self.fallback.problem or None
        return (self.outcome.problem or None) if isinstance(self.outcome, Stop) else None


async def report(
    run: LoopContext, ended: Ended, windows: list[int], keep_days: int
) -> RecallResult:
    """The one result of a recall."""
    desk, outcome = run.desk, ended.outcome
    if isinstance(outcome, Stop):
        run.recorder.add(StopEvent(reason=outcome.reason.value, problem=outcome.problem))
    handed = outcome.handoff if isinstance(outcome, Finish) else write_ending(desk, outcome)
    memories = await _evidence(desk, handed, ended.reason)
    handoff = _handoff(desk, handed, ended)
    usage = run.budget.usage.as_dict()
    run.recorder.add(
        HandoffEvent(
            stop_reason=ended.reason.value,
            confidence=handoff.confidence,
            keys=handoff.relevant_memory_keys,
            dropped=list(desk.notes.dropped),
            summary=handoff.search_summary,
            question=handoff.follow_up_question,
            usage=usage,
        )
    )
    result = RecallResult(
        handoff=handoff,
        memories=memories,
        confidence=handoff.confidence,
        abstained=not handoff.relevant_memory_keys and handoff.needs_more_info,
        judged=isinstance(outcome, Finish),
        stop_reason=ended.reason,
        problem=ended.problem,
        windows=windows or [desk.window.size],
        usage=usage,
        model=run.name,
        missing=_missing(desk.conversation.request.text, memories),
        fallback=ended.fallback and ended.fallback.reason.value,
        trace=run.recorder.finish(),
        **_learned(desk),
    )
    await _store_trace(desk, result, keep_days)
    return result


def _learned(desk: RecallState) -> dict[str, Any]:
    """What the desk knows at the end."""
    notes = desk.notes
    return {
        "iterations": desk.window.iteration,
        "language": desk.language,
        "now": desk.now,
        "times": resolve_times(desk, desk.conversation.request.text, desk.now, past=True),
        "queries": [_tried(note) for note in notes.searches],
        "keys_seen": list(notes.shown),
        "keys_dropped": list(notes.dropped),
        "withheld": notes.withheld,
        "degraded": list(notes.degraded),
    }


def _tried(note: SearchNote) -> QueryTried:
    return QueryTried(
        arguments=note.arguments,
        total_found=note.total_found,
        returned=note.returned,
        new_keys=note.new_keys,
        keys=list(note.keys),
    )


async def _evidence(
    desk: RecallState, handed: HandoffInput, reason: StopReason
) -> list[RecalledMemory]:
    """From the store; from the notes where the store is gone or there is no time left."""
    keys = handed.relevant_memory_keys
    noted = [from_hit(desk, desk.notes.hits[key]) for key in keys if key in desk.notes.hits]
    if reason in _UNREADABLE:
        return noted
    try:
        return await gather_evidence(desk, keys)
    except MemrecallError as error:
        desk.notes.degraded[f"evidence without its surroundings: {error.message}"] = None
        return noted


def _missing(asked: str, memories: list[RecalledMemory]) -> list[str]:
    """The telling words of the request that are in none of the memories."""
    told = "\n".join(f"{memory.summary}\n{memory.content}" for memory in memories)
    known = set(analyze(told[:_READ_FOR_MISSING]).atoms)
    words = extract_keywords(asked[:_READ_FOR_MISSING], _WORDS_ASKED)
    return [word.word for word in words if not known.issuperset(analyze(word.word).atoms)]


def _handoff(desk: RecallState, handed: HandoffInput, ended: Ended) -> RecallHandoff:
    searched = any(note.returned for note in desk.notes.searches)
    stopped = isinstance(ended.outcome, Stop) and not handed.needs_more_info
    failed = stopped or (bool(desk.notes.failures) and not searched) or _cut_short(desk, ended)
    return RecallHandoff(
        **handed.model_dump(),
        success=bool(handed.relevant_memory_keys) or not failed,
        message=write_message(desk, handed),
    )


def _cut_short(desk: RecallState, ended: Ended) -> bool:
    """Whether a limit forced a handoff that knows nothing, because nothing had been searched."""
    outcome = ended.outcome
    if not isinstance(outcome, Finish) or outcome.forced_by is None:
        return False
    return not desk.notes.searches and not outcome.handoff.confidence


async def _store_trace(desk: RecallState, result: RecallResult, keep_days: int) -> None:
    """Keep the trace with its user; a recall does not fail because that failed."""
    reason = result.stop_reason
    if not keep_days or reason in (StopReason.STORAGE_FAILED, StopReason.NOTHING_STORED):
        return
    try:
        await desk.library.store.traces(desk.scope).add(_new_trace(desk, result), keep_days)
    except MemrecallError as error:
        _log.warning("the trace %s was not stored: %s", result.trace.trace_id, error)


def _new_trace(desk: RecallState, result: RecallResult) -> NewTrace:
    trace: Trace = result.trace
    return NewTrace(
        trace_id=trace.trace_id,
        created_at=trace.started_at,
        query=_storable(desk.conversation.request.text[:1_000]),
        stop_reason=result.stop_reason.value,
        confidence=result.confidence,
        abstained=result.abstained,
        iterations=result.iterations,
        model_calls=int(result.usage["model_calls"]),
        tool_calls=int(result.usage["tool_calls"]),
        seconds=float(result.usage["seconds"]),
        body=_fit(_storable(_body(desk, result))),
    )


def _body(desk: RecallState, result: RecallResult) -> dict[str, Any]:
    """What is stored. Who may read sensitive memories leaves no copy for those who may not."""
    body = result.model_dump(mode="json")
    if desk.scope.allows(Permission.SENSITIVE):
        for event in body["trace"]["events"]:
            for name in ("output", "text", "summary"):
                event.pop(name, None)
            if event["kind"] == EventKind.RESULT:
                event["text"] = ""
        for memory in body["memories"]:
            memory |= {"content": "", "summary": "", "before": [], "after": [], "sources": []}
        body["handoff"] |= {"search_summary": "", "message": "", "reasoning": None}
    return body


def _storable(value: Any) -> Any:
    """The same without what no database keeps: NUL, half of a surrogate pair."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_storable(name): _storable(item) for name, item in value.items()}
    return [_storable(item) for item in value] if isinstance(value, list) else value


def _fit(body: dict[str, Any]) -> dict[str, Any]:
    """The result as it can be stored: very large ones without what the tools returned in full."""
    if measure_body(body) <= BODY_BYTES:
        return body
    for event in body["trace"]["events"]:
        event.pop("output", None)
    if measure_body(body) > BODY_BYTES:
        for memory in body["memories"]:
            memory["content"] = memory["content"][:_CONTENT_KEPT]
        body["trace"]["events"] = body["trace"]["events"][-_EVENTS_KEPT:]
    return body
