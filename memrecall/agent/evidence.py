"""The handed-off keys as evidence: who said it, when, what stood around it, what times it means."""

from dataclasses import asdict
from datetime import datetime

from memrecall.agent.desk import Desk
from memrecall.agent.result import Nearby, RecalledMemory, ResolvedTime
from memrecall.agent.surroundings import look_around
from memrecall.agent.tools.echoes import made_from
from memrecall.search import Hit
from memrecall.text.times import find_times
from memrecall.types import MemoryRecord, Message

_AROUND = 1


async def gather_evidence(desk: Desk, keys: list[str]) -> list[RecalledMemory]:
    """The memories and messages of the keys, in their order. One erased meanwhile is left out."""
    if not keys:
        return []
    store = desk.sources.store
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
    desk: Desk, text: str, said_at: datetime, *, past: bool = False
) -> list[ResolvedTime]:
    """The times that a text speaks of, as dates. Questions look back, statements do not always."""
    spans = find_times(text[:2_000], said_at, desk.zone, past=past)
    return [ResolvedTime(words=span.text, start=span.start, end=span.end) for span in spans]


def from_hit(desk: Desk, hit: Hit) -> RecalledMemory:
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


async def _from_memory(desk: Desk, memory: MemoryRecord) -> RecalledMemory:
    sources = await desk.sources.store.timeline(desk.scope).get_many(memory.source_message_ids)
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


async def _from_message(desk: Desk, message: Message) -> RecalledMemory:
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
