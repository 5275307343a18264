"""`MemoryContext`: recall inside a parent's model context, with no other change to the parent."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage
from pydantic import BaseModel, Field

from memrecall.agent.blocks import BlockRecaller
from memrecall.agent.driver import RecallArguments, Recaller
from memrecall.agent.offline.needs import RecallWhen
from memrecall.agent.prompt_view import BLOCK_CHARACTERS, block_message
from memrecall.agent.result import RecallResult, StopReason
from memrecall.agent.trace import Observer
from memrecall.library.library import Library
from memrecall.messages import USER_SOURCES, parse_messages
from memrecall.scope import Scope


class MemoryContextState(BaseModel):
    """The saved state: the messages, and the block that was recalled for one of them."""

    messages: list[LLMMessage] = Field(default_factory=list)
    blocks: dict[int, str] = Field(default_factory=dict)


class MemoryContext(ChatCompletionContext):
    """The messages of one conversation, with what the last user message refers to.

    `recall` can be called by itself. As a context, `get_messages` recalls at most once for one user
    message and inserts the result before it as one block of data. `when="always"` recalls for every
    text of the user; "auto" leaves out greetings, thanks and acknowledgements.
    `observer` gets each event of a recall as it happens. AutoGen passes a context no
    cancellation token: set that of the parent's run as `cancellation_token`, and cancelling the run
    ends the recall.
    """

    def __init__(
        self,
        library: Library,
        scope: Scope,
        *,
        initial_messages: list[LLMMessage] | None = None,
        user_sources: Iterable[object] = USER_SOURCES,
        block_characters: int = BLOCK_CHARACTERS,
        when: RecallWhen = "auto",
        **arguments: Unpack[RecallArguments],
    ) -> None:
        super().__init__(initial_messages)
        self._recaller = Recaller(library, scope, **arguments)
        self._block_recaller = BlockRecaller(
            self._recaller, user_sources, block_characters, when=when
        )
        self._blocks: dict[int, str] = {}  # by the index of the user message
        self._lock = asyncio.Lock()
        self.last_result: RecallResult | None = None
        self.cancellation_token: CancellationToken | None = None

    async def recall(
        self,
        messages: object,
        *,
        as_of: datetime | None = None,
        observer: Observer | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> RecallResult:
        """Find what the last user message of a conversation refers to."""
        conversation = parse_messages(messages, user_sources=self._block_recaller.user_sources)
        return await self._recaller.recall(
            conversation,
            as_of=as_of,
            observer=observer,
            cancellation_token=cancellation_token or self.cancellation_token,
        )

    def serves(self, recaller: Recaller) -> bool:
        """Return True if the context recalls from the same data for the same scope."""
        own = self._recaller
        return own.library is recaller.library and own.scope == recaller.scope

    async def get_messages(self) -> list[LLMMessage]:
        """Return the messages, with the recalled block before the last user message."""
        messages = list(self._messages)
        index = self._block_recaller.last_request(messages)
        if index is None:
            return messages
        blocks = self._blocks  # `clear` replaces the dict: a late recall is not for what follows
        async with self._lock:  # a second caller waits for the recall of the first
            if (block := blocks.get(index)) is None:
                self.last_result = None
                block, self.last_result = await self._block_recaller.recall_block(
                    messages[: index + 1], self.cancellation_token
                )
                blocks.clear()
                if not _is_cancelled(self.last_result):  # the next run recalls again
                    blocks[index] = block
        if block:
            messages.insert(index, block_message(block))
        return messages

    async def clear(self) -> None:
        """Remove the messages and the recalled block; nothing stored is touched."""
        await super().clear()
        self._blocks = {}
        self.last_result = None

    async def save_state(self) -> Mapping[str, Any]:
        """Return the messages and the recalled block as JSON."""
        state = MemoryContextState(messages=self._messages, blocks=self._blocks)
        return state.model_dump(mode="json")

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the messages and the block of a saved state."""
        loaded = MemoryContextState.model_validate(state)
        self._messages = loaded.messages
        self._blocks = loaded.blocks


def _is_cancelled(result: RecallResult | None) -> bool:
    return result is not None and result.stop_reason is StopReason.CANCELLED
