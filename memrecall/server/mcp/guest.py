"""Who is served over MCP: what they may do, and (perhaps) whose memories they see.

Trusted code makes a guest from a key or from the command line. No tool names a user.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from memrecall.agent import Recaller, RecallOptions, RecallResult
from memrecall.agent.caches import Caches
from memrecall.agent.outcome import StopReason
from memrecall.errors import Disabled, StorageError
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.tools import ToolDesk

Gate = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller, for one request or one connection."""

    desk: ToolDesk
    scope: Scope | None  # None: no user is bound, so no user's tools
    model_client: Any = None
    caches: Caches | None = None
    gate: Gate = nullcontext
    trusted: bool = False  # hears of the world's faults in full

    @property
    def library(self) -> Library:
        """The library that is asked."""
        return self.desk.library

    def user(self) -> Scope:
        """The bound user's data."""
        if self.scope is None:
            raise Disabled("no user is bound", hint="Use a key of one user, or name it in a header")
        return self.scope

    def require_writing(self) -> None:
        """Refuse who may only read."""
        if not self.desk.may_write:
            raise Disabled("this key may only read")

    async def recall(self, question: str) -> RecallResult:
        """What a question refers to; counted and limited like every recall."""
        options = RecallOptions(keep_traces_days=self.library.settings.trace_days)
        recaller = Recaller(
            self.library, self.user(), self.model_client, options, caches=self.caches
        )
        async with self.gate():
            result = await recaller.recall(question)
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result
