"""Calls that wait at the same time, and share their work."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from memrecall.timing.deadlines import RequestDeadline, bounded_by, current_request, latest

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Call(Generic[_Item, _Result]):
    """An item that waits, the future of its result, and the deadline of its caller."""

    item: _Item
    future: "asyncio.Future[_Result]"
    limit: RequestDeadline | None

    def count(self, changes: int) -> None:
        """Add to the changes that its caller's request makes."""
        if self.limit is not None:
            self.limit.count(changes)

    def end(self, outcome: _Result | BaseException) -> None:
        """Give the caller the result, or raise the error there, unless it was cancelled."""
        if self.future.done():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class _Queue(Generic[_Item, _Result]):
    """The calls that wait in one event loop, and the tasks that do their work."""

    def __init__(self) -> None:
        self.waiting: list[_Call[_Item, _Result]] = []
        self.tasks: set[asyncio.Task[None]] = set()


class CallBatcher(Generic[_Item, _Result]):
    """Does the work of all calls that wait at once, while later ones gather.

    The work returns a result or an error for each item, in their order. It goes on if a caller is
    cancelled, because others may wait for the same work; an item that still waits is left out. The
    latest deadline of the callers holds for it.
    """

    def __init__(
        self,
        work: Callable[[list[_Item]], Awaitable[Sequence[_Result | BaseException]]],
        most: int,
        groups: int = 1,
        *,
        changes: bool = False,
    ) -> None:
        """Do up to `groups` groups at the same time, each of at most `most` items.

        Work that `changes` something counts for the deadline of each caller.
        """
        self._work = work
        self._most = most
        self._groups = groups
        self._changes = changes
        # By event loop: a future can be awaited in its own alone, and tasks end with it.
        self._queues: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, _Queue[_Item, _Result]
        ] = weakref.WeakKeyDictionary()

    async def __call__(self, item: _Item) -> _Result:
        """Return the result for an item."""
        loop = asyncio.get_running_loop()
        queue = self._queues.setdefault(loop, _Queue())
        future: asyncio.Future[_Result] = loop.create_future()
        queue.waiting.append(_Call(item, future, current_request()))
        queue.tasks = {task for task in queue.tasks if not task.done()}
        if len(queue.tasks) < self._groups:
            queue.tasks.add(loop.create_task(self._run(queue)))
        return await future

    async def _run(self, queue: _Queue[_Item, _Result]) -> None:
        while queue.waiting:
            calls, queue.waiting = queue.waiting[: self._most], queue.waiting[self._most :]
            calls = [call for call in calls if not call.future.done()]  # else it was cancelled
            limit = latest(call.limit for call in calls)
            # The work counts for the latest deadline; after an earlier one it may still go on.
            others = [call for call in calls if call.limit is not limit]
            for call in others:
                call.count(self._changes)
            try:
                with bounded_by(limit):
                    outcomes = await self._work([call.item for call in calls]) if calls else []
            except Exception as error:  # raised again by every caller
                outcomes = [error] * len(calls)
            for call, outcome in zip(calls, outcomes, strict=True):
                if call in others and (outcome is None or isinstance(outcome, BaseException)):
                    call.count(-self._changes)
                call.end(outcome)
