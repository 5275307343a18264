"""AutoGen's `Memory` protocol over memrecall."""

import contextlib
import json
import logging
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

from memrecall.agent.driver import Recaller, RecallOptions
from memrecall.agent.needs import NeedJudge
from memrecall.agent.prompt_view import (
    BLOCK_CHARACTERS,
    as_message,
    is_block,
    write_block,
    write_failure,
)
from memrecall.agent.result import RecalledMemory, RecallResult
from memrecall.errors import InvalidArgument, MemrecallError, NotFound
from memrecall.library.library import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.text.language import language_of
from memrecall.types import NewMemory, Origin, format_time

_log = logging.getLogger(__name__)

_TEXTS = (MemoryMimeType.TEXT.value, MemoryMimeType.MARKDOWN.value)


class RecallMemory(Memory):
    """What a parent agent takes as `memory=[...]`.

    Each turn it adds at most one message to the parent's context, as data before the model is
    asked; a message that needs no recall adds none.
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
        self._judge = NeedJudge()
        self._block_characters = block_characters

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Recall for the last user message, and add the result to the context as one message."""
        messages = await model_context.get_messages()
        said = [message for message in messages if not is_block(message)]
        nothing = UpdateContextResult(memories=MemoryQueryResult(results=[]))
        if not said or said[-1] is not messages[-1] or not isinstance(said[-1], UserMessage):
            return nothing
        try:
            (asked,) = parse_messages(said[-1:])
        except InvalidArgument:  # no words at all: a picture, say
            return nothing
        texts = [each.text for each in parse_messages(said)]
        language = language_of(asked.text)
        if not await self._judge.needs_recall(texts, language):
            return nothing
        try:
            result = await self._recaller.recall(said)
        except MemrecallError as error:  # a parent goes on, and knows
            _log.warning("no recall: %s", error)
            await model_context.add_message(as_message(write_failure(error.message, language)))
            return nothing
        await model_context.add_message(as_message(write_block(result, self._block_characters)))
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
        await self._recaller.library.add_memories(
            self._recaller.scope, [memory], origin=Origin.ASSISTANT, actor="autogen"
        )

    async def clear(self) -> None:
        """Forget the memories of this scope; the messages that were said stay."""
        with contextlib.suppress(NotFound):  # a user of whom nothing was ever stored
            await self._recaller.library.store.memories(self._recaller.scope).delete_all()

    async def close(self) -> None:
        """Nothing is held: the library belongs to whoever opened it."""


def _text_of(content: MemoryContent) -> str:
    mime_type, said = content.mime_type, content.content
    kind = mime_type.value if isinstance(mime_type, MemoryMimeType) else mime_type
    if isinstance(said, str) and kind in (*_TEXTS, MemoryMimeType.JSON.value):
        return said
    if isinstance(said, dict) and kind == MemoryMimeType.JSON.value:
        return json.dumps(said, ensure_ascii=False)
    raise InvalidArgument(
        f"a memory of type {kind} with a {type(said).__name__} is not text",
        hint="Use text, markdown or JSON",
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
