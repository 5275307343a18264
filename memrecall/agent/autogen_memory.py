"""AutoGen's `Memory` protocol over memrecall."""

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

from memrecall.agent.block import BLOCK_CHARACTERS, write_block
from memrecall.agent.conversation import language_of, read_conversation
from memrecall.agent.desk import Sources
from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.loop import SOURCE
from memrecall.agent.needs import NeedJudge
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.types import NewMemory, Origin, format_time

_TEXTS = (MemoryMimeType.TEXT, MemoryMimeType.MARKDOWN)


class RecallMemory(Memory):
    """What a parent agent takes as `memory=[...]`.

    Each turn it adds at most one message to the parent's context, as data before the model is
    asked; a message that needs no recall adds none.
    """

    def __init__(
        self,
        sources: Sources,
        scope: Scope,
        *,
        model_client: ChatCompletionClient | None = None,
        options: RecallOptions = RecallOptions(),  # noqa: B008 -- frozen
        block_characters: int = BLOCK_CHARACTERS,
    ) -> None:
        self._recaller = Recaller(sources, scope, model_client, options)
        self._judge = NeedJudge()
        self._block_characters = block_characters

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        nothing = UpdateContextResult(memories=MemoryQueryResult(results=[]))
        if not messages or not isinstance(messages[-1], UserMessage):
            return nothing
        try:
            said = read_conversation(messages)
        except InvalidArgument:  # no words at all: a picture, say
            return nothing
        texts = [each.text for each in said]
        if not await self._judge.needs_recall(texts, language_of(texts[-1])):
            return nothing
        result = await self._recaller.recall(said)
        block = write_block(result, self._block_characters)
        await model_context.add_message(UserMessage(content=block, source=SOURCE))
        return UpdateContextResult(memories=_query_result(result))

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
        """Remember a text, a markdown or a JSON object."""
        memory = NewMemory(content=_text_of(content), metadata=dict(content.metadata or {}))
        await self._recaller.sources.add_memories(
            self._recaller.scope, [memory], origin=Origin.ASSISTANT, actor="autogen"
        )

    async def clear(self) -> None:
        """Forget the memories of this scope; the messages that were said stay."""
        await self._recaller.sources.store.memories(self._recaller.scope).delete_all()

    async def close(self) -> None:
        """Nothing is held: the library belongs to whoever opened it."""


def _text_of(content: MemoryContent) -> str:
    if content.mime_type in _TEXTS and isinstance(content.content, str):
        return content.content
    if content.mime_type == MemoryMimeType.JSON:
        return json.dumps(content.content, ensure_ascii=False)
    raise InvalidArgument(
        f"a memory of type {content.mime_type} is not text", hint="Use text, markdown or JSON"
    )


def _query_result(result: RecallResult) -> MemoryQueryResult:
    return MemoryQueryResult(results=[_content(memory) for memory in result.memories])


def _content(memory: RecalledMemory) -> MemoryContent:
    about = {
        "memory_key": memory.memory_key,
        "kind": memory.kind,
        "memory_type": memory.memory_type,
        "score": memory.relevance_score,
        "speaker": memory.speaker or memory.role,
        "said_at": format_time(memory.ts),
    }
    return MemoryContent(content=memory.content, mime_type=MemoryMimeType.TEXT, metadata=about)
