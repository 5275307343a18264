"""Libraries on temporary files, for tests that need no fixture."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.types import NewMemory, NewMessage, Origin, Role


@asynccontextmanager
async def open_library(
    *,
    scope: Scope | str = "user",
    messages: Sequence[NewMessage | str] = (),
    memories: Sequence[NewMemory | str] = (),
    **settings: Any,
) -> AsyncIterator[Library]:
    """Open a library on a temporary SQLite file, with messages and memories of one user.

    A plain text is a message by the user, or the content of a memory. `settings` are fields of
    `Settings`; the default embedder is the fast `hash`.
    """
    owner = Scope(scope) if isinstance(scope, str) else scope
    new_messages = [
        NewMessage(role=Role.USER, content=m) if isinstance(m, str) else m for m in messages
    ]
    new_memories = [NewMemory(content=m) if isinstance(m, str) else m for m in memories]
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        values = {"db": str(Path(folder) / "memrecall.db"), "embedder": "hash", **settings}
        async with await Library.open(Settings(**values)) as library:
            if new_messages:
                await library.add_messages(owner, new_messages)
            if new_memories:
                await library.add_memories(owner, new_memories, origin=Origin.USER, actor="test")
            await library.vectors.settle()
            yield library
