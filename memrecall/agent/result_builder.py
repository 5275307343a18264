"""The end of a recall: handoff, evidence and trace become one result, and the trace is stored."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from memrecall.agent.blocks import write_handoff_message
from memrecall.agent.loop import Finish, LoopContext, Stop
from memrecall.agent.result import (
    Certainty,
    Nearby,
    RecalledMemory,
    RecallHandoff,
    RecallResult,
    ResolvedTime,
    StopReason,
)
from memrecall.agent.state import UNKNOWN_USER, RecallState
from memrecall.agent.tools.models import HandoffInput
from memrecall.agent.tools.search import source_keys
from memrecall.agent.trace import HandoffEvent, StopEvent
from memrecall.errors import MemrecallError, WorkerFailed, describe_for_log
from memrecall.json_objects import make_storable
from memrecall.messages import strip_markers
from memrecall.scope import Permission
from memrecall.search import EngineRequest, Hit
from memrecall.search.request import LONGEST_REQUEST
from memrecall.search.results import make_hit
from memrecall.store import BODY_BYTES, NewTrace, measure_body, withhold_contents
from memrecall.text import analyze
from memrecall.text.keywords import extract_keywords
from memrecall.text.times import find_times
from memrecall.text_length import single_line
from memrecall.timing import RequestDeadline, run_within, seconds_left
from memrecall.types import NAME_LENGTH, MemoryRecord, Message
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
_NEIGHBORS = 1
_CLOSEST = 3
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_TIME_COST = 10  # Times take this much longer to find than words.


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
    memories = await _gather(state, arguments.relevant_memory_keys, has_store=has_store)
    is_empty = not arguments.relevant_memory_keys
    closest = await _gather_closest(state, has_store=has_store) if is_empty else []
    handoff = RecallHandoff(
        **arguments.model_dump(),
        success=not is_empty or _is_true_absence(state, arguments, end),
        message=write_handoff_message(state, arguments),
    )
    usage = context.budget.usage.as_dict()
    context.recorder.add(
        HandoffEvent(
            stop_reason=outcome.reason.value,
            confidence=handoff.confidence,
            keys=handoff.relevant_memory_keys,
            dropped=list(state.dropped_keys),
            summary=handoff.search_summary,
            question=handoff.follow_up_question,
            usage=usage,
        )
    )
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
    request = EngineRequest(text, limit=_MAX_OTHERS, **times)
    try:
        page = await state.library.search(replace(scope, all_projects=True), request)
    except MemrecallError:  # The recall has a result without it.
        return []
    likely = [hit.key for hit in page.results if (hit.probability or 0) >= _LIKELY]
    names = dict.fromkeys(page.records[key].project for key in likely)
    return [name for name in names if name is not None and name != scope.project]


async def _find_missing(request: str, memories: list[RecalledMemory]) -> list[str]:
    text = "\n".join(f"{memory.summary}\n{memory.content}" for memory in memories)
    text, request = text[:_MAX_ANALYZED], request[:_MAX_ANALYZED]
    try:
        return await in_process(len(text) + len(request), missing_words, request, text)
    except WorkerFailed:  # The recall has a result without it.
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
    body = result.model_dump(mode="json")
    # Others of the same user may read the trace without the permission to see sensitive memories,
    # and what is erased from a space is not erased from the traces of its members.
    if state.scope.allows(Permission.SENSITIVE) or state.scope.is_shared:
        body = withhold_contents(body)
    body = make_storable(body)
    if measure_body(body) > BODY_BYTES:  # very large: tool outputs can be missed most easily
        for event in body["trace"]["events"]:
            event.pop("output", None)
        if measure_body(body) > BODY_BYTES:
            for memory in [*body["memories"], *body["closest"]]:
                memory["content"] = memory["content"][:_MAX_STORED_CONTENT]
            body["trace"]["events"] = body["trace"]["events"][-_MAX_STORED_EVENTS:]
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
        body=body,
    )


async def _gather_closest(state: RecallState, *, has_store: bool) -> list[RecalledMemory]:
    """Return the likeliest hits, to be shown if nothing is handed off."""

    def likelihood(key: str) -> float:
        probability = state.probabilities.get(key)
        return _UNCALIBRATED * state.hits[key].score if probability is None else probability

    keys = sorted(state.hits, key=likelihood, reverse=True)[:_CLOSEST]
    return (await _gather(state, keys, has_store=has_store))[:_CLOSEST]


async def _gather(state: RecallState, keys: list[str], *, has_store: bool) -> list[RecalledMemory]:
    """Return what has these keys, in order; without the store, from the hits."""
    if has_store and keys:
        try:
            return await _read_evidence(state, keys)
        except MemrecallError as error:
            state.degraded[f"evidence without its surroundings: {error.message}"] = None
    return [await _from_hit(state, state.hits[key]) for key in keys if key in state.hits]


async def _read_evidence(state: RecallState, keys: list[str]) -> list[RecalledMemory]:
    """Return what has these keys and is still stored, after what the user said against claims."""
    store = state.library.store
    memories = {m.memory_key: m for m in await store.memories(state.scope).get_many(keys)}
    if conflicts := [key for m in memories.values() for key in m.provenance.conflicts_with]:
        said = await store.memories(state.scope).get_many(conflicts)
        memories |= {m.memory_key: m for m in said if state.is_visible(m.since)}
        keys = _claims_last(keys, memories)
    others = [key for key in keys if key not in memories]
    messages = {m.message_id: m for m in await store.timeline(state.scope).get_many(others)}
    others = [key for key in others if key not in messages]
    found = await state.knowledge.get_many(others) if others else []
    entries = {entry.knowledge_key: entry for entry in found}
    evidence: list[RecalledMemory] = []
    for key in keys:  # one that was erased in the meantime is left out
        if key in memories:
            evidence.append(await _from_memory(state, memories[key]))
        elif key in messages:
            evidence.append(await _from_message(state, messages[key]))
        elif key in entries:
            evidence.append(await _from_hit(state, make_hit(entries[key])))
    if state.scope.space is None:  # else the searches over spaces have named the authors
        return evidence
    names = await store.spaces.names(state.scope.user_id)
    return [
        item.model_copy(update={"author": names.get(item.author or "", item.author)})
        for item in evidence
    ]


def _claims_last(keys: list[str], memories: Mapping[str, MemoryRecord]) -> list[str]:
    """Return the keys with what the user said before each claim that contradicts it."""
    ordered: dict[str, None] = {}
    for key in keys:
        said = memories[key].provenance.conflicts_with if key in memories else ()
        ordered |= dict.fromkeys([*(name for name in said if name in memories), key])
    return list(ordered)


async def resolve_times(
    state: RecallState, text: str, said_at: datetime, *, past: bool = False
) -> list[ResolvedTime]:
    """Return the times of a text as dates; `past` prefers past dates, as questions mean them."""
    text = text[:2_000]
    find = partial(find_times, past=past)
    try:
        spans = await in_process(_TIME_COST * len(text), find, text, said_at, state.zone)
    except WorkerFailed:  # The recall has a result without it.
        return []
    return [ResolvedTime(words=span.text, start=span.start, end=span.end) for span in spans]


async def _from_hit(state: RecallState, hit: Hit, **context: Any) -> RecalledMemory:
    """Return a hit as evidence, with its score in the searches of this recall and more fields."""
    found, probability = state.hits.get(hit.key), state.probabilities.get(hit.key)
    # Nobody said an entry of the knowledge base at its time.
    has_times = hit.kind != "knowledge"
    fields: dict[str, Any] = {
        "memory_key": hit.key,
        "relevance_score": found and found.score,
        "probability": probability,
        "certainty": Certainty.from_probability(probability),
        "why": found and found.why.as_dict(),
        "kind": hit.kind,
        "memory_type": hit.memory_type,
        "summary": hit.summary,
        "content": hit.content,
        "speaker": hit.speaker,
        "role": hit.role,
        "ts": hit.ts,
        "session_id": hit.session_id,
        "times": await resolve_times(state, hit.content, hit.ts) if has_times else [],
        "made_from": source_keys(hit.role, hit.metadata),
        "claimed_by": hit.claimed_by,
        "conflicts_with": list(hit.conflicts_with),
        "truncated": hit.truncated,
        "checked": not hit.doubts,
        "doubts": list(hit.doubts),
        "space": hit.space,
        "author": hit.author,
    }
    if found is not None and hit.space is not None:
        fields |= {"author": found.author, "conflicts_with": list(found.conflicts_with)}
    return RecalledMemory(**(fields | context))


async def _from_memory(state: RecallState, memory: MemoryRecord) -> RecalledMemory:
    sources = await state.library.store.timeline(state.scope).get_many(memory.source_message_ids)
    return await _from_hit(
        state,
        make_hit(memory),
        speaker=memory.speaker,
        valid_to=memory.valid_to,
        sources=[_nearby(message) for message in sorted(sources, key=lambda m: m.ts)],
    )


async def _from_message(state: RecallState, message: Message) -> RecalledMemory:
    before, after = await state.find_neighbors(message, _NEIGHBORS)
    hit, found = make_hit(message), state.hits.get(message.message_id)
    return await _from_hit(
        state,
        hit,
        valid_to=found and found.valid_to,  # of the memory that it states
        before=list(map(_nearby, before)),
        after=list(map(_nearby, after)),
    )


def _nearby(message: Message) -> Nearby:
    return Nearby(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        ts=message.ts,
        content=message.content,
    )
