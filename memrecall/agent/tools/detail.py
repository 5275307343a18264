"""`get_memory_detail`: one memory or message in full, with what was said around it."""

from memrecall.agent.phrases import say
from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    NearbyMessage,
)
from memrecall.agent.tools.search import preview
from memrecall.types import MemoryRecord, Message


async def look_around(
    desk: RecallState, message: Message, reach: int
) -> tuple[list[Message], list[Message]]:
    """The messages before and after it in its session, at most `reach` each, earliest first."""
    timeline = desk.library.store.timeline(desk.scope)
    page = await timeline.neighbors(message.message_id, before=reach, after=reach)
    place = next(at for at, near in enumerate(page.items) if near.message_id == message.message_id)
    before = [near for near in page.items[:place] if _is_shown(desk, near, message)]
    after = [near for near in page.items[place + 1 :] if _is_shown(desk, near, message)]
    return before, after


def _is_shown(desk: RecallState, near: Message, anchor: Message) -> bool:
    """Of the same session, not too late, and nothing that the caller has already."""
    if near.session_id != anchor.session_id:
        return False
    if desk.conversation.has_message(near.message_id, near.content):
        return False
    return desk.horizon is None or near.ts < desk.horizon


AROUND = 2


async def get_memory_detail(
    desk: RecallState, asked: GetMemoryDetailInput
) -> GetMemoryDetailOutput:
    """Read a memory or a message of the desk's scope."""
    desk.notes.in_a_row = 0
    mark = await desk.library.store.feed(desk.scope.user_id).version()
    found = await desk.caches.contents.get(
        (desk.scope, mark, desk.horizon, asked.memory_key), lambda: _read(desk, asked.memory_key)
    )
    if not isinstance(found, GetMemoryDetailOutput):
        return GetMemoryDetailOutput(
            success=False,
            error="not_found",
            message=say(desk.language, "missing_memory", key=asked.memory_key),
        )
    if not desk.conversation.has_message(asked.memory_key, found.content or ""):
        desk.notes.open(asked.memory_key)
    desk.notes.show(near.memory_key for near in (*found.before, *found.after, *found.sources))
    return found


async def _read(desk: RecallState, key: str) -> GetMemoryDetailOutput | None:
    store = desk.library.store
    memories = await store.memories(desk.scope).get_many([key])
    if memories:
        return await _memory_detail(desk, memories[0])
    messages = await store.timeline(desk.scope).get_many([key])
    if messages and (desk.horizon is None or messages[0].ts < desk.horizon):
        return await _message_detail(desk, messages[0])
    return None


async def _memory_detail(desk: RecallState, memory: MemoryRecord) -> GetMemoryDetailOutput | None:
    if desk.horizon is not None and memory.since >= desk.horizon:
        return None
    timeline = desk.library.store.timeline(desk.scope)
    sources = await timeline.get_many(memory.source_message_ids)
    return GetMemoryDetailOutput(
        success=True,
        kind="memory",
        memory_key=memory.memory_key,
        summary=memory.summary,
        content=memory.content,
        memory_type=memory.memory_type,
        created_at=desk.local(memory.since),
        valid_to=memory.valid_to and desk.local(memory.valid_to),
        metadata=memory.metadata,
        sources=[
            _near(desk, message)
            for message in sorted(sources, key=lambda m: m.ts)
            if not desk.conversation.has_message(message.message_id, message.content)
        ],
    )


async def _message_detail(desk: RecallState, message: Message) -> GetMemoryDetailOutput:
    before, after = await look_around(desk, message, AROUND)
    return GetMemoryDetailOutput(
        success=True,
        kind="message",
        memory_key=message.message_id,
        content=message.content,
        memory_type="message",
        created_at=desk.local(message.ts),
        metadata=message.metadata,
        speaker=message.speaker,
        role=message.role.value,
        before=[_near(desk, near) for near in before],
        after=[_near(desk, near) for near in after],
    )


def _near(desk: RecallState, message: Message) -> NearbyMessage:
    return NearbyMessage(
        memory_key=message.message_id,
        speaker=message.speaker or message.role.value,
        created_at=desk.local(message.ts),
        content=preview(message.content),
    )
