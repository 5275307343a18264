"""The tools of the knowledge base."""

from memrecall.server.tools.desk import ToolDesk
from memrecall.server.tools.models import (
    Added,
    AddParams,
    Deleted,
    DeleteParams,
    Match,
    Matches,
    QueryParams,
)
from memrecall.store import NewKnowledge

ACTOR = "memory tools"


async def add(desk: ToolDesk, params: AddParams) -> Added:
    """Store an entry."""
    entry = NewKnowledge(params.content, params.summary, tuple(params.tags), actor=ACTOR)
    return Added(id=await desk.knowledge.add(entry), summary=params.summary)


async def query(desk: ToolDesk, params: QueryParams) -> Matches:
    """Find the best entries."""
    found = await desk.knowledge.search(params.query, params.top_k)
    return Matches(
        results=[
            Match(id=entry.knowledge_key, summary=entry.summary, content=entry.content)
            for entry, _ in found
        ]
    )


async def delete(desk: ToolDesk, params: DeleteParams) -> Deleted:
    """Remove an entry."""
    await desk.knowledge.delete(params.kb_id)
    return Deleted(id=params.kb_id)
