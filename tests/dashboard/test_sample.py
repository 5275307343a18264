"""The sample data: what it stores, and that the chats say so."""

import json
from pathlib import Path
from typing import Any

from memrecall.dashboard.sample import load_sample
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import MemoryQuery, StoredRelation
from memrecall.types import MemoryRecord
from tests.server.http_service import open_library

FOLDER = Path(__file__).parents[2] / "memrecall" / "dashboard"
FILE: dict[str, Any] = json.loads((FOLDER / "sample_memories.json").read_text("utf-8"))
OUTDATED = {"林晓一直用 VS Code。", "Maya has been vegetarian since university."}
ENDED = {("林晓", "uses", "VS Code"), ("Maya", "follows_diet", "vegetarian")}


def stated_relations() -> set[tuple[str, ...]]:
    stated = (relation for memory in FILE["memories"] for relation in memory["relations"])
    return {tuple(relation) for relation in stated if len(relation) == 3}


async def test_sample_is_loaded_once_with_sources_and_history(
    location: str, tmp_path: Path
) -> None:
    async with open_library(location, tmp_path) as library:
        for _ in range(2):
            assert await load_sample(library) == {"lin", "maya"}
        store = library.store
        memories: list[MemoryRecord] = []
        relations: list[StoredRelation] = []
        for user in ("lin", "maya"):
            scope = Scope(user)
            memories += (await store.memories(scope).page(MemoryQuery(superseded=True))).items
            relations += await store.graph(scope).latest(100)
            changes = (await store.audit(scope).page(limit=10)).items
            assert [(entry.action, entry.actor) for entry in changes] == [("update", "sample")]
            recalls = (await store.traces(scope).page()).items
            assert {recall.query for recall in recalls} == set(FILE["requests"][user])
        entries = await store.knowledge(Scope("lin", DEFAULT_NAME)).page()
    assert len(memories) == len(FILE["memories"])
    stored = {m.content: (m.source_message_ids, m.memory_type, m.pinned) for m in memories}
    assert stored == {
        m["text"]: (tuple(m["sources"]), m["type"], m.get("pinned", False))
        for m in FILE["memories"]
    }
    assert {m.content for m in memories if m.superseded_by} == OUTDATED
    triples = {(r.source, r.relationship, r.destination) for r in relations}
    assert triples == stated_relations() - ENDED
    assert all(relation.source_message_ids for relation in relations)
    assert {entry.knowledge_key for entry in entries} == {e["key"] for e in FILE["knowledge"]}
