"""What the tests of the faces (context, agent, tool, memory) have in common."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from autogen_core.models import FunctionExecutionResultMessage, LLMMessage, UserMessage

from memrecall.agent.block import CLOSE, OPEN
from memrecall.memory import Library
from memrecall.model.base import Request
from memrecall.testing import Step, open_library

from .stage import ASKED, fill, hand_off

# What tests cancel would go on for a minute; a busy machine may need seconds to stop it.
STOPPED_WITHIN = 30.0


@asynccontextmanager
async def filled_library() -> AsyncIterator[Library]:
    """A SQLite library with what the users of the stage said."""
    async with open_library(snapshots=False) as library:
        await fill(library)
        yield library


def user(text: str = ASKED, source: str = "user") -> UserMessage:
    """What a user says, as models are told."""
    return UserMessage(content=text, source=source)


def hand_off_found(request: Request) -> Step:
    """Play the recall agent: hand over what the search before has found."""
    (result,) = [m for m in request.messages if isinstance(m, FunctionExecutionResultMessage)]
    found = json.loads(result.content[0].content)["results"]
    return hand_off(*(hit["memory_key"] for hit in found))


def blocks(messages: Sequence[LLMMessage]) -> list[str]:
    """The recalled blocks among messages."""
    texts = [str(message.content) for message in messages]
    return [text for text in texts if text.startswith(OPEN) and text.endswith(CLOSE)]


@asynccontextmanager
async def at_once() -> AsyncIterator[None]:
    """Fail if what is inside waits for what it should have stopped."""
    async with asyncio.timeout(STOPPED_WITHIN):
        yield
