"""Model clients and helpers for the tests of the AutoGen classes."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from autogen_core.models import (
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from memrecall.agent.blocks import BLOCK_END, BLOCK_START
from memrecall.model.client import Request
from memrecall.testing import ScriptedClient, Step

from ..waiting import LIMIT
from .recall_helpers import REQUEST, hand_off


class BlockingClient(ScriptedClient):
    """A scripted client that holds every answer after the first `free` ones until released."""

    def __init__(self, *steps: Any, free: int = 0) -> None:
        super().__init__(steps)
        self.called = asyncio.Event()  # set when an answer is held
        self.released = asyncio.Event()
        self.stopped = False
        self._free = free

    async def _answer(self, request: Request) -> CreateResult:
        result = await super()._answer(request)
        if len(self.requests) > self._free:
            self.called.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.stopped = True
                raise
        return result


def user_message(text: str = REQUEST, source: str = "user") -> UserMessage:
    """Return a user message."""
    return UserMessage(content=text, source=source)


def hand_off_search_results(request: Request) -> Step:
    """Return a handoff with the keys of the previous search."""
    (result,) = [m for m in request.messages if isinstance(m, FunctionExecutionResultMessage)]
    results = json.loads(result.content[0].content)["results"]
    return hand_off(*(hit["memory_key"] for hit in results))


def recalled_blocks(messages: Sequence[LLMMessage]) -> list[str]:
    """Return the recalled blocks among messages."""
    texts = [str(message.content) for message in messages]
    return [text for text in texts if text.startswith(BLOCK_START) and text.endswith(BLOCK_END)]


@asynccontextmanager
async def fail_if_blocked() -> AsyncIterator[None]:
    """Fail if the block does not end in time."""
    async with asyncio.timeout(LIMIT):
        yield
