"""AutoGen's `Memory` protocol over memrecall."""

import contextlib
import json
from typing import Any

from autogen_core import CancellationToken
from autogen_core.memory import (
    Memory,
    MemoryContent,
    MemoryMimeType,
    MemoryQueryResult,
    UpdateContextResult,
)
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient, UserMessage

from memrecall.agent.autogen.context import BlockRecaller
from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.needs import NeedJudge
from memrecall.agent.prompt_view import BLOCK_CHARACTERS, block_message, is_block_message
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.errors import InvalidArgument, NotFound
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.types import NewMemory, Origin, format_time

_TEXT_TYPES = (
    MemoryMimeType.TEXT.value,
    MemoryMimeType.MARKDOWN.value,
    MemoryMimeType.JSON.value,
)


class RecallMemory(Memory):
    """A memory for a parent agent's `memory=[...]`.

    Each turn adds at most one message of data to the parent's context, before the model is called;
    a message that needs no recall adds none.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        block_characters: int = BLOCK_CHARACTERS,
    ) -> None:
        self._recaller = Recaller(library, scope, model_client, options)
        self._block_recaller = BlockRecaller(self._recaller, NeedJudge(), block_characters)

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        last = messages[-1] if messages else None
        block, result = "", None
        if isinstance(last, UserMessage) and not is_block_message(last):
            block, result = await self._block_recaller.recall_block(messages)
        if block:
            await model_context.add_message(block_message(block))
        memories = MemoryQueryResult(results=[]) if result is None else _query_result(result)
        return UpdateContextResult(memories=memories)

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,
        **kwargs: Any,
    ) -> MemoryQueryResult:
        """Recall what a text refers to."""
        text = query if isinstance(query, str) else _text_of(query)
        result = await self._recaller.recall(text, cancellation_token=cancellation_token)
        return _query_result(result)

    async def add(
        self, content: MemoryContent, cancellation_token: CancellationToken | None = None
    ) -> None:
        """Store a text, a Markdown text or a JSON object as a memory."""
        memory = NewMemory(content=_text_of(content), metadata=dict(content.metadata or {}))
        await self._recaller.library.add_memories(
            self._recaller.scope, [memory], origin=Origin.ASSISTANT, actor="autogen"
        )

    async def clear(self) -> None:
        """Delete the memories of this scope; messages stay."""
        with contextlib.suppress(NotFound):  # the user has no data
            await self._recaller.library.store.changes(self._recaller.scope).delete_all()

    async def close(self) -> None:
        """Do nothing: the library belongs to whoever opened it."""


def _text_of(memory: MemoryContent) -> str:
    mime_type, content = memory.mime_type, memory.content
    kind = mime_type.value if isinstance(mime_type, MemoryMimeType) else mime_type
    if isinstance(content, str) and kind in _TEXT_TYPES:
        return content
    if isinstance(content, dict) and kind == MemoryMimeType.JSON.value:
        return json.dumps(content, ensure_ascii=False)
    raise InvalidArgument(
        f"a memory of type {kind} with a {type(content).__name__} is not text",
        hint="Use text, markdown or JSON",
    )


def _query_result(result: RecallResult) -> MemoryQueryResult:
    return MemoryQueryResult(results=[_content(memory) for memory in result.memories])


def _content(memory: RecalledMemory) -> MemoryContent:
    metadata = {
        "memory_key": memory.memory_key,
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "score": memory.relevance_score,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
    }
    return MemoryContent(content=memory.content, mime_type=MemoryMimeType.TEXT, metadata=metadata)
