"""What a chat without a model lists when it is asked what it knows about the user."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from memrecall.agent.tools.exchanges import compare_texts
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import MemoryQuery, MessageFilter
from memrecall.types import Role, format_time

_MOST_MEMORIES, _MOST_MESSAGES, _READ = 3, 4, 30
_ASKED = ("What do you know about me?", "你知道关于我的什么？")
# Cosine of the local model. Of ten such requests seven are that near; of 16 others, such as "What
# do people think about me?", none is.
_SAME_REQUEST = 0.7


async def find_latest(
    library: Library, scope: Scope, request: str, *, request_id: str, as_of: datetime | None
) -> list[dict[str, Any]]:
    """Return the latest memories and messages as events, if a request asks for all there is."""
    if not (await _ask_for_all(library, [request]))[0]:
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
        if each.message_id not in sources and not is_lone_question(each.content)
    ]
    repeated = await _ask_for_all(library, [each.content for each in told])
    said = [each for each, is_same in zip(told, repeated, strict=True) if not is_same]
    return [
        *({"time": format_time(m.since), "text": m.content, "key": m.memory_key} for m in shown),
        *(
            {"time": format_time(m.ts), "speaker": m.speaker or "user", "text": m.content}
            for m in said[:_MOST_MESSAGES]
        ),
    ]


async def _ask_for_all(library: Library, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether it asks for all that is known; by its words at least."""
    same = [any(compare_texts(text, _ASKED)) for text in texts]
    if not texts or not isinstance(library.embedder, LocalEmbedder):
        return same
    try:
        vectors = await library.engine.embed([*_ASKED, *texts])
    except EmbedderFailed:
        return same
    nearest = (vectors[: len(_ASKED)] @ vectors[len(_ASKED) :].T).max(axis=0)
    return [
        known or float(near) >= _SAME_REQUEST for known, near in zip(same, nearest, strict=True)
    ]


def is_lone_question(text: str) -> bool:
    """Return True if a text is one sentence that ends with a question mark."""
    text = text.rstrip()
    return text.endswith(("?", "？")) and not any(mark in text[:-1] for mark in ".!?。！？\n")
