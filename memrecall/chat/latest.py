"""What a chat without a model lists when it is asked what it knows about the user."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from memrecall.agent.tools.search import compare_texts
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, MessageFilter
from memrecall.types import Role, format_time

_MOST_MEMORIES, _MOST_MESSAGES, _READ = 3, 4, 30
_ASKED = ("What do you know about me?", "你知道关于我的什么？")


async def find_latest(
    library: Library, scope: Scope, request: str, *, request_id: str, as_of: datetime | None
) -> list[dict[str, Any]]:
    """Return the latest memories and messages as events, if a request asks for all there is."""
    if not _asks_for_all(request):
        return []
    query = MemoryQuery(as_of=as_of)
    memories = (await library.store.memories(scope).page(query, limit=_READ)).items
    may_see = scope.allows(Permission.SENSITIVE)
    shown = [each for each in memories if may_see or not each.sensitive][:_MOST_MEMORIES]
    page = await library.store.timeline(scope).page(
        MessageFilter(role=Role.USER, until=as_of), page_size=_READ
    )
    sources = {key for memory in memories for key in memory.source_message_ids} | {request_id}
    told = [
        each
        for each in page.items
        if each.message_id not in sources
        and not is_lone_question(each.content)
        and not _asks_for_all(each.content)
    ]
    return [
        *({"time": format_time(m.since), "text": m.content, "key": m.memory_key} for m in shown),
        *(
            {"time": format_time(m.ts), "speaker": m.speaker or "user", "text": m.content}
            for m in told[:_MOST_MESSAGES]
        ),
    ]


def _asks_for_all(text: str) -> bool:
    """Return True if a text has the words of a request for all that is known."""
    return any(is_same for asked in _ASKED for is_same in compare_texts(asked, [text]))


def is_lone_question(text: str) -> bool:
    """Return True if a text is one sentence that ends with a question mark."""
    text = text.rstrip()
    return text.endswith(("?", "？")) and not any(mark in text[:-1] for mark in ".!?。！？\n")
