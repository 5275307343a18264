"""The evidence of a recall: the memories, messages and entries that were handed off."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from memrecall.agent.result import Certainty, Nearby, RecalledMemory, ResolvedTime
from memrecall.agent.state import RecallState
from memrecall.agent.tools.detail import find_neighbors
from memrecall.agent.tools.models import HandoffInput
from memrecall.agent.tools.search import source_keys
from memrecall.errors import MemrecallError, WorkerFailed
from memrecall.search import Hit
from memrecall.search.results import NO_SCORES, make_hit
from memrecall.text.times import find_times
from memrecall.types import MemoryRecord, Message
from memrecall.workers import in_process

_NEIGHBORS = 1
_CLOSEST = 3
_UNCALIBRATED = 0.5  # what a relevance is worth as a probability
_TIME_COST = 10  # Times take this much longer to find than words.


async def gather_evidence(
    state: RecallState, handoff: HandoffInput, *, has_store: bool
) -> list[RecalledMemory]:
    """Return what was handed off, in order."""
    return await _gather(state, handoff.relevant_memory_keys, has_store=has_store)


async def gather_closest(state: RecallState, *, has_store: bool) -> list[RecalledMemory]:
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
            return await _name_authors(state, await _read_evidence(state, keys))
        except MemrecallError as error:
            state.degraded[f"evidence without its surroundings: {error.message}"] = None
    return [await _from_hit(state, state.hits[key]) for key in keys if key in state.hits]


async def _name_authors(state: RecallState, items: list[RecalledMemory]) -> list[RecalledMemory]:
    """Return the evidence of a recall in a space with the names of its authors."""
    if state.scope.space is None:  # else the searches over spaces have named them
        return items
    names = await state.library.store.spaces.names(state.scope.user_id)
    return [
        item.model_copy(update={"author": names.get(item.author or "", item.author)})
        for item in items
    ]


async def _read_evidence(state: RecallState, keys: list[str]) -> list[RecalledMemory]:
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
            evidence.append(await _from_hit(state, make_hit(entries[key], NO_SCORES)))
    return evidence


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
    except WorkerFailed:  # A recall has a result all the same.
        return []
    return [ResolvedTime(words=span.text, start=span.start, end=span.end) for span in spans]


async def _from_hit(state: RecallState, hit: Hit, **context: Any) -> RecalledMemory:
    """Return a hit as evidence, with what is known of it beside the hit."""
    # Nobody said an entry of the knowledge base at its time.
    has_times = hit.kind != "knowledge"
    fields: dict[str, Any] = {
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
    if (found := state.hits.get(hit.key)) is not None and hit.space is not None:
        fields |= {"author": found.author, "conflicts_with": list(found.conflicts_with)}
    return _recalled(state, hit.key, **(fields | context))


async def _from_memory(state: RecallState, memory: MemoryRecord) -> RecalledMemory:
    sources = await state.library.store.timeline(state.scope).get_many(memory.source_message_ids)
    return await _from_hit(
        state,
        make_hit(memory, NO_SCORES),
        speaker=memory.speaker,
        valid_to=memory.valid_to,
        sources=[_nearby(message) for message in sorted(sources, key=lambda m: m.ts)],
    )


async def _from_message(state: RecallState, message: Message) -> RecalledMemory:
    before, after = await find_neighbors(state, message, _NEIGHBORS)
    hit, found = make_hit(message, NO_SCORES), state.hits.get(message.message_id)
    return await _from_hit(
        state,
        hit,
        valid_to=found and found.valid_to,  # of the memory that it states
        before=list(map(_nearby, before)),
        after=list(map(_nearby, after)),
    )


def _recalled(state: RecallState, key: str, **fields: Any) -> RecalledMemory:
    """Return a piece of evidence with the score and probability of the searches that found it."""
    hit, probability = state.hits.get(key), state.probabilities.get(key)
    found = {
        "relevance_score": hit and hit.score,
        "probability": probability,
        "certainty": Certainty.from_probability(probability),
        "why": hit and hit.why.as_dict(),
    }
    return RecalledMemory(memory_key=key, **(found | fields))


def _nearby(message: Message) -> Nearby:
    return Nearby(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        ts=message.ts,
        content=message.content,
    )
