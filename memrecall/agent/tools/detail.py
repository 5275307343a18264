"""Reading one user's memories and messages: in full for recall, by search and in parts for MCP.

Docstrings of the models are part of the JSON schemas of MCP.
"""

from typing import Any

from memrecall.agent.prompt import DETAIL_CHARACTERS
from memrecall.agent.result import words_about
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    NearbyMessage,
    ToolErrorCode,
)
from memrecall.agent.tools.search import preview_content
from memrecall.search.results import UserRow, describe_origin, make_hit
from memrecall.store import KnowledgeEntry
from memrecall.text.snippets import find_center
from memrecall.text_length import center_start
from memrecall.types import Message
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
        state.seen_keys[key] = None
    nearby = (*detail.before, *detail.after, *detail.sources)
    state.seen_keys.update(dict.fromkeys(message.memory_key for message in nearby))
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


async def _read(state: RecallState, key: str) -> GetMemoryDetailOutput | None:
    store = state.library.store
    memories = await store.memories(state.scope).get_many([key])
    timeline = store.timeline(state.scope)
    if memories:
        memory = memories[0]
        if not state.is_visible(memory.since):
            return None
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
    messages = await timeline.get_many([key])
    if not messages or not state.is_visible(messages[0].ts):
        return None
    before, after = await state.find_neighbors(messages[0], _NEIGHBORS)
    return _detail(
        state,
        messages[0],
        summary=None,
        before=[_nearby(state, neighbor) for neighbor in before],
        after=[_nearby(state, neighbor) for neighbor in after],
    )


async def _read_knowledge(state: RecallState, key: str) -> GetMemoryDetailOutput | None:
    """Read an entry of the knowledge base, which changes without a new version of the user."""
    if not await state.has_knowledge():
        return None
    for entry in await state.knowledge.get_many([key]):
        if state.is_visible(entry.updated_at):
            return _detail(state, entry, message=state.say("from_knowledge"))
    return None


def _detail(
    state: RecallState, row: UserRow | KnowledgeEntry, **context: Any
) -> GetMemoryDetailOutput:
    hit = make_hit(row)
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
