"""Reading one user's memories and messages: in full for recall, by search and in parts for MCP.

Docstrings of the models are part of the JSON schemas of MCP.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from memrecall.agent.prompt import DETAIL_CHARACTERS
from memrecall.agent.result import words_about
from memrecall.agent.state import RecallState
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.knowledge import PART_LENGTH
from memrecall.agent.tools.models import (
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    NearbyMessage,
    StrictInput,
    ToolErrorCode,
    ToolOutput,
    excerpt_length,
)
from memrecall.agent.tools.search import preview_content
from memrecall.errors import NotFound
from memrecall.library.spaces import describe_origin, origin_fields
from memrecall.search import SearchRequest
from memrecall.search.request import Kind
from memrecall.search.results import NO_SCORES, UserRow, make_hit
from memrecall.store import KnowledgeEntry
from memrecall.text.snippets import find_center
from memrecall.text_length import center_start, truncate_around
from memrecall.types import MemoryRecord, Message, format_time
from memrecall.workers import in_process

_NEIGHBORS = 2


async def get_memory_detail(
    state: RecallState, arguments: GetMemoryDetailInput
) -> GetMemoryDetailOutput:
    """Read a memory or a message of the scope."""
    key = arguments.memory_key
    owner, _ = await state.library.resolve_key(state.scope, key)
    version = await state.library.store.feed(owner.user_id).version()
    detail = await state.caches.contents.get(
        (state.scope, owner, version, state.end_time, state.period, state.language, key),
        lambda: _read(state, key),
    )
    detail = detail or await _read_knowledge(state, key)
    if not isinstance(detail, GetMemoryDetailOutput):
        return GetMemoryDetailOutput(
            success=False,
            error=ToolErrorCode.NOT_FOUND,
            message=state.say("missing_memory", key=key),
        )
    detail = await _center(state, detail)
    if not state.conversation.has_message(key, detail.content or ""):
        state.add_seen_keys([key])
    nearby = (*detail.before, *detail.after, *detail.sources)
    state.add_seen_keys(message.memory_key for message in nearby)
    return detail


async def _center(state: RecallState, detail: GetMemoryDetailOutput) -> GetMemoryDetailOutput:
    """Return the detail with the start of the part that is shown of a long content."""
    content = detail.content or ""
    if len(content) <= DETAIL_CHARACTERS:
        return detail
    request = state.conversation.request.text if state.conversation.messages else ""
    words = words_about(detail.memory_key or "", state.searches, request)
    center = await in_process(len(content), find_center, content, words)
    start = center_start(len(content), DETAIL_CHARACTERS, center)
    return detail.model_copy(update={"start": start})


async def find_neighbors(
    state: RecallState, message: Message, count: int
) -> tuple[list[Message], list[Message]]:
    """Return up to `count` messages before and after one in its session, oldest first.

    Messages that the caller has, or that are not visible yet, are left out.
    """
    timeline = state.library.store.timeline(state.scope)
    page = await timeline.neighbors(message.message_id, before=count, after=count)
    ids = [neighbor.message_id for neighbor in page.items]
    position = ids.index(message.message_id)

    def select(neighbors: Sequence[Message]) -> list[Message]:
        return [
            neighbor
            for neighbor in neighbors
            if neighbor.session_id == message.session_id
            and not state.conversation.has_message(neighbor.message_id, neighbor.content)
            and state.is_visible(neighbor.ts)
        ]

    return select(page.items[:position]), select(page.items[position + 1 :])


async def _read(state: RecallState, key: str) -> GetMemoryDetailOutput | None:
    store = state.library.store
    memories = await store.memories(state.scope).get_many([key])
    if memories:
        is_visible = state.is_visible(memories[0].since)
        return await _memory_detail(state, memories[0]) if is_visible else None
    messages = await store.timeline(state.scope).get_many([key])
    if messages and state.is_visible(messages[0].ts):
        return await _message_detail(state, messages[0])
    return None


async def _read_knowledge(state: RecallState, key: str) -> GetMemoryDetailOutput | None:
    """Read an entry of the knowledge base, which changes without a new version of the user."""
    if not await state.has_knowledge():
        return None
    for entry in await state.knowledge.get_many([key]):
        if state.is_visible(entry.updated_at):
            return _detail(state, entry, message=state.say("from_knowledge"))
    return None


async def _memory_detail(state: RecallState, memory: MemoryRecord) -> GetMemoryDetailOutput:
    timeline = state.library.store.timeline(state.scope)
    sources = await timeline.get_many(memory.source_message_ids)
    return _detail(
        state,
        memory,
        valid_to=memory.valid_to and state.format_local(memory.valid_to),
        claimed_by=memory.provenance.claimed_by,
        conflicts_with=list(memory.provenance.conflicts_with),
        message=state.say("stored_cut") if memory.truncated else None,
        sources=[
            _nearby(state, message)
            for message in sorted(sources, key=lambda message: message.ts)
            if not state.conversation.has_message(message.message_id, message.content)
        ],
    )


async def _message_detail(state: RecallState, message: Message) -> GetMemoryDetailOutput:
    before, after = await find_neighbors(state, message, _NEIGHBORS)
    return _detail(
        state,
        message,
        summary=None,
        before=[_nearby(state, neighbor) for neighbor in before],
        after=[_nearby(state, neighbor) for neighbor in after],
    )


def _detail(
    state: RecallState, row: UserRow | KnowledgeEntry, **context: Any
) -> GetMemoryDetailOutput:
    hit = make_hit(row, NO_SCORES)
    names = ("kind", "summary", "content", "memory_type", "metadata", "speaker", "role")
    fields = {name: getattr(hit, name) for name in names}
    time = state.format_local(hit.ts)
    author = state.hits[hit.key].author if hit.key in state.hits else hit.author
    space = hit.space and describe_origin(hit.space, author, hit.ts)
    return GetMemoryDetailOutput(
        success=True, memory_key=hit.key, created_at=time, space=space, **(fields | context)
    )


def _nearby(state: RecallState, message: Message) -> NearbyMessage:
    return NearbyMessage(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        created_at=state.format_local(message.ts),
        content=preview_content(message.content),
    )


class MessageSearchParams(StrictInput):
    """A search of the messages."""

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: str | None = None
    time: str | None = None


class MessageHits(ToolOutput):
    """The best messages, the best first; `nearest` is the closest time if `time` has none."""

    messages: list[dict[str, Any]]
    total_found: int
    next_cursor: str | None
    nearest: datetime | None = None


async def search_messages(context: ToolContext, params: MessageSearchParams) -> MessageHits:
    """Search the messages of earlier conversations."""
    request = SearchRequest(**params.model_dump(), kind="message")
    page = await context.library.search(context.scope, request)
    length = excerpt_length(len(page.results))
    contents = [hit.content for hit in page.results]
    total = sum(map(len, contents))
    excerpts = await in_process(total, cut_excerpts, contents, [params.query], length)
    messages = [
        {
            "message_id": hit.key,
            "role": hit.role or "",
            "speaker": hit.speaker,
            "content": excerpt,
            "characters": len(hit.content),
            "said_at": format_time(hit.ts),
            "session_id": hit.session_id,
            "relevance_score": round(hit.score, 2),
            **origin_fields(hit),
        }
        for hit, excerpt in zip(page.results, excerpts, strict=True)
    ]
    names = ("total_found", "next_cursor", "nearest")
    return MessageHits(messages=messages, **{name: getattr(page, name) for name in names})


def cut_excerpts(contents: Sequence[str], words: Sequence[str], length: int) -> list[str]:
    """Return each content, cut around some words if it is long."""
    return [
        content
        if len(content) <= length
        else truncate_around(content, length, find_center(content, words))
        for content in contents
    ]


class ReadMemoryParams(StrictInput):
    """A key, and the offset to read from."""

    memory_key: str
    offset: Annotated[int, Field(ge=0)] = 0


class MemoryPart(ToolOutput):
    """A memory, message or knowledge entry from an offset on; `next_offset` is null at its end."""

    memory_key: str
    kind: Kind
    summary: str
    content: str
    characters: int
    next_offset: int | None
    speaker: str | None
    said_at: str
    valid_to: str | None
    truncated: bool
    space: str | None = None


async def read_memory(context: ToolContext, params: ReadMemoryParams) -> MemoryPart:
    """Return a part of what recall or a search has found."""
    store, scope, key = context.library.store, context.scope, params.memory_key
    fields: dict[str, Any]
    if memories := await store.memories(scope).get_many([key]):
        memory = memories[0]
        valid_to = memory.valid_to and format_time(memory.valid_to)
        fields = memory.model_dump(include={"summary", "content", "speaker", "truncated"})
        fields |= {"kind": "memory", "said_at": format_time(memory.since), "valid_to": valid_to}
    elif messages := await store.timeline(scope).get_many([key]):
        fields = messages[0].model_dump(include={"content", "speaker"})
        fields |= {"kind": "message", "said_at": format_time(messages[0].ts)}
    elif entries := await context.knowledge.get_many([key]):
        fields = {"content": entries[0].content, "summary": entries[0].summary}
        fields |= {"kind": "knowledge", "said_at": format_time(entries[0].updated_at)}
    else:
        raise NotFound(f"there is no memory or message {key[:100]!r}", hint="Use a key from recall")
    if (space := scope.split_key(key)[0]) and fields["kind"] != "knowledge":
        row: Any = (memories or messages)[0]
        names = await store.spaces.names(row.user_id)
        author = names.get(row.author or "", row.author)
        fields["space"] = describe_origin(space, author, fields["said_at"])
    content, end = fields["content"], params.offset + PART_LENGTH
    fields["content"] = content[params.offset : end]
    defaults = {"summary": "", "speaker": None, "valid_to": None, "truncated": False}
    return MemoryPart(
        memory_key=key,
        characters=len(content),
        next_offset=end if end < len(content) else None,
        **(defaults | fields),
    )
