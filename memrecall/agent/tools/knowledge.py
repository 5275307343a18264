"""Tools on the knowledge base of an agent: add, update, query, read and delete entries.

Docstrings of the models are part of the JSON schemas that clients read.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import StrictInput, ToolOutput, excerpt_length
from memrecall.errors import InvalidArgument
from memrecall.store import KnowledgeEntry, NewKnowledge
from memrecall.text.snippets import snippets

KNOWLEDGE_ACTOR = "memory tools"
MAX_RESULTS = 100
PART_LENGTH = 8_000


class AddParams(StrictInput):
    """An entry of the knowledge base."""

    content: str
    summary: str
    tags: list[str] = Field(default_factory=list)


class UpdateParams(StrictInput):
    """An entry by its id, and the fields to change."""

    kb_id: str
    content: str | None = None
    summary: str | None = None
    tags: list[str] | None = None


class StoredEntry(ToolOutput):
    """The stored entry."""

    id: str
    summary: str
    redacted: list[str] = Field(default_factory=list)  # the kinds of data that are not stored


class QueryParams(StrictInput):
    """A question to the knowledge base."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 3
    tags: list[str] = Field(default_factory=list)


class EntryMatch(ToolOutput):
    """An entry that was found."""

    id: str
    summary: str
    content: str
    tags: list[str]
    score: float


class EntryMatches(ToolOutput):
    """The best entries, the best first; empty if nothing is relevant."""

    results: list[EntryMatch]
    query: str = Field(default="", exclude=True)


class EntrySnippets(ToolOutput):
    """The best entries, the best first; empty if nothing is relevant."""

    results: list[dict[str, Any]]

    @classmethod
    def from_result(cls, result: EntryMatches) -> Self:
        """Return the entries with passages instead of contents."""
        length = excerpt_length(len(result.results))
        return cls(results=[_shorten(match, result.query, length) for match in result.results])


def _shorten(match: EntryMatch, query: str, length: int) -> dict[str, Any]:
    """Return an entry with the passage that matches; `read_knowledge` returns the rest."""
    is_long = len(match.content) > length
    passages = snippets(match.content, [query], length=length, limit=1, before="", after="")
    return {
        **match.model_dump(exclude={"content"}),
        "snippet": passages[0] if is_long and passages else match.content,
        "truncated": is_long,
    }


class ReadParams(StrictInput):
    """An entry by its id, and where to begin."""

    kb_id: str
    offset: Annotated[int, Field(ge=0)] = 0


class EntryPart(ToolOutput):
    """An entry from an offset on; `next_offset` is null at its end."""

    id: str
    summary: str
    tags: list[str]
    content: str
    characters: int
    next_offset: int | None


class DeleteParams(StrictInput):
    """An entry by its id."""

    kb_id: str


class Deleted(ToolOutput):
    """The deleted entry."""

    status: Literal["success"] = "success"
    id: str


async def add_knowledge(context: ToolContext, params: AddParams) -> StoredEntry:
    """Store an entry in the knowledge base."""
    entry = NewKnowledge(params.content, params.summary, tuple(params.tags), actor=KNOWLEDGE_ACTOR)
    redacted = context.redacted_kinds(params.content, params.summary, *params.tags)
    key = await context.knowledge.add(entry)
    return StoredEntry(id=key, summary=params.summary, redacted=redacted)


async def update_knowledge(context: ToolContext, params: UpdateParams) -> StoredEntry:
    """Change an entry of the knowledge base."""
    changes = params.model_dump(exclude={"kb_id"}, exclude_none=True)
    if not changes:
        raise InvalidArgument(
            "the update has no fields", hint="Pass at least one of content, summary or tags"
        )
    entry = await context.knowledge.update(params.kb_id, actor=KNOWLEDGE_ACTOR, **changes)
    texts = (params.content, params.summary, *(params.tags or ()))
    redacted = context.redacted_kinds(*filter(None, texts))
    return StoredEntry(id=entry.knowledge_key, summary=entry.summary, redacted=redacted)


async def query_knowledge(context: ToolContext, params: QueryParams) -> EntryMatches:
    """Return the entries that best match a question."""
    matches = await context.knowledge.search(params.query, params.top_k, params.tags)
    return EntryMatches(
        results=[_match(entry, score) for entry, score in matches], query=params.query
    )


def _match(entry: KnowledgeEntry, score: float) -> EntryMatch:
    return EntryMatch(
        id=entry.knowledge_key,
        summary=entry.summary,
        content=entry.content,
        tags=entry.tags,
        score=score,
    )


async def read_knowledge(context: ToolContext, params: ReadParams) -> EntryPart:
    """Return a part of an entry."""
    entry = await context.knowledge.get(params.kb_id)
    end = params.offset + PART_LENGTH
    return EntryPart(
        id=entry.knowledge_key,
        summary=entry.summary,
        tags=entry.tags,
        content=entry.content[params.offset : end],
        characters=len(entry.content),
        next_offset=end if end < len(entry.content) else None,
    )


async def delete_knowledge(context: ToolContext, params: DeleteParams) -> Deleted:
    """Delete an entry of the knowledge base."""
    await context.knowledge.delete(params.kb_id)
    return Deleted(id=params.kb_id)
