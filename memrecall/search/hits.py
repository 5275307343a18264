"""Rows of the index as hits: the words are fetched from the store, for those few that are shown."""

from memrecall.scope import Scope
from memrecall.search.index.columns import Columns
from memrecall.search.ranking.calibration import probability
from memrecall.search.ranking.features import RankedRows
from memrecall.search.ranking.scores import relevance
from memrecall.search.request import KINDS, Hit, Why
from memrecall.store import KnowledgeEntry, Store
from memrecall.types import MemoryRecord, Message


async def fetch_hits(
    store: Store,
    scope: Scope,
    columns: Columns,
    ranked: RankedRows,
) -> tuple[list[Hit], dict[str, MemoryRecord]]:
    """The hits of the ranked rows, in their order, and the memories among them whole.

    A row erased meanwhile is left out.
    """
    named = [(KINDS[columns.table.kind[row]], columns.table.keys[row]) for row in ranked.rows]
    messages: dict[str, Message] = {}
    memories: dict[str, MemoryRecord] = {}
    said = [key for kind, key in named if kind == "message"]
    if said:
        messages = {m.message_id: m for m in await store.timeline(scope).get_many(said)}
    kept = [key for kind, key in named if kind == "memory"]
    if kept:
        memories = {m.memory_key: m for m in await store.memories(scope).get_many(kept)}
    known: dict[str, KnowledgeEntry] = {}
    shared = [key for kind, key in named if kind == "knowledge"]
    if shared:
        known = {e.knowledge_key: e for e in await store.knowledge(scope).get_many(shared)}
    hits: list[Hit] = []
    for (kind, key), total, why in zip(named, ranked.scores, ranked.why, strict=True):
        chance = probability(total) if ranked.calibrated else None
        if kind == "message" and key in messages:
            hits.append(_message_hit(messages[key], total, why, chance))
        elif kind == "memory" and key in memories:
            hits.append(_memory_hit(memories[key], total, why, chance))
        elif kind == "knowledge" and key in known:
            hits.append(_knowledge_hit(known[key], total, why, chance))
    return hits, memories


def _message_hit(message: Message, total: float, why: Why, chance: float | None) -> Hit:
    return Hit(
        key=message.message_id,
        kind="message",
        score=relevance(total),
        probability=chance,
        ts=message.ts,
        role=message.role.value,
        speaker=message.speaker,
        content=message.content,
        session_id=message.session_id,
        memory_type="message",
        why=why,
        metadata=message.metadata,
    )


def _memory_hit(memory: MemoryRecord, total: float, why: Why, chance: float | None) -> Hit:
    return Hit(
        key=memory.memory_key,
        kind="memory",
        score=relevance(total),
        probability=chance,
        ts=memory.since,
        role=None,
        speaker=None,
        content=memory.content,
        session_id=memory.session_id,
        memory_type=memory.memory_type,
        why=why,
        summary=memory.summary,
        keywords=tuple(keyword.keyword for keyword in memory.keywords),
        metadata=memory.metadata,
        valid_to=memory.valid_to,
    )


def _knowledge_hit(entry: KnowledgeEntry, total: float, why: Why, chance: float | None) -> Hit:
    return Hit(
        key=entry.knowledge_key,
        kind="knowledge",
        score=relevance(total),
        probability=chance,
        ts=entry.updated_at,
        role=None,
        speaker=None,
        content=entry.content,
        session_id=None,
        memory_type="knowledge",
        why=why,
        summary=entry.summary,
        keywords=tuple(entry.tags),
        metadata=entry.metadata,
    )
