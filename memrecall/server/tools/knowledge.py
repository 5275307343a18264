"""The tools of the knowledge base."""

from memrecall.server.tools.desk import ToolService
from memrecall.server.tools.models import (
    AddParams,
    Deleted,
    DeleteParams,
    EntryMatch,
    EntryMatches,
    QueryParams,
    StoredEntry,
)
from memrecall.store import NewKnowledge

ACTOR = "memory tools"


async def add(desk: ToolService, params: AddParams) -> StoredEntry:
    """Store an entry."""
    entry = NewKnowledge(params.content, params.summary, tuple(params.tags), actor=ACTOR)
    return StoredEntry(id=await desk.knowledge.add(entry), summary=params.summary)


async def query(desk: ToolService, params: QueryParams) -> EntryMatches:
    """Find the best entries."""
    found = await desk.knowledge.search(params.query, params.top_k)
    return EntryMatches(
        results=[
            EntryMatch(id=entry.knowledge_key, summary=entry.summary, content=entry.content)
            for entry, _ in found
        ]
    )


async def delete(desk: ToolService, params: DeleteParams) -> Deleted:
    """Remove an entry."""
    await desk.knowledge.delete(params.kb_id)
    return Deleted(id=params.kb_id)
