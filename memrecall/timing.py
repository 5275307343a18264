"""The deadline of a request, which bounds every wait below it, and calls that share their work.

A deadline is set where a request enters, and part of the context of all that the request does:
locks, statements, pools, attempts, embedders and worker processes wait for what is left of it.
Without one, as in background work, each wait has a limit of its own.
"""

import asyncio
import contextvars
import inspect
import math
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from memrecall.errors import DeadlineExceeded, InvalidArgument, RunError

_Class = TypeVar("_Class", bound=type)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_STOP_SECONDS, _STOP_STEPS = 0.1, 10  # in which work that was cancelled may still end
_MARGIN = 0.02  # seconds


class RequestDeadline:
    """Some seconds from now, and how many changes were made or may still be made before."""

    __slots__ = (
        *("_end", "_outer", "changes", "details", "lost_patience"),
        *("is_answered", "is_default", "is_enforced", "seconds"),
    )

    def __init__(self, seconds: float, *, is_default: bool = False) -> None:
        """Bound a request, or with infinite seconds only count its changes."""
        self.seconds = seconds
        self.is_default = is_default  # The caller asked for none.
        self.changes = 0
        self.details: dict[str, Any] = {}  # of its error: where to find what goes on
        self.lost_patience = False  # with an embedder: what is left of the time is for words
        self.is_answered = False  # The client decides how long it takes to read.
        self.is_enforced = False  # by `run_within`; else it only bounds waits
        self._outer = _current.get()
        self.restart()

    def count(self, changes: int) -> None:
        """Count changes, for the deadline around this one too."""
        self.changes += changes
        if self._outer is not None:
            self._outer.count(changes)

    def restart(self) -> None:
        """Count from now on."""
        self._end = time.monotonic() + self.seconds

    def for_call(self) -> "RequestDeadline":
        """Return a deadline with the same end for one call, which counts its own changes."""
        limit = RequestDeadline(self.seconds)
        limit._end = self._end
        return limit

    def exceeded(self) -> DeadlineExceeded:
        """Return the error of a request that took longer."""
        return DeadlineExceeded(self.seconds, continues=self.changes > 0, **self.details)

    @property
    def is_over(self) -> bool:
        """Whether the caller knows, or may know, that the time is over."""
        is_over = self.is_enforced and not self.is_answered and not self.left
        return is_over or (self._outer is not None and self._outer.is_over)

    @property
    def left(self) -> float:
        """The seconds that are left; 0 when it is over."""
        return max(0.0, self._end - time.monotonic())


_current: contextvars.ContextVar[RequestDeadline | None] = contextvars.ContextVar(
    "deadline", default=None
)


@contextmanager
def deadline(seconds: float) -> Iterator[RequestDeadline]:
    """Bound every wait and every call of a memory in the block; the earlier of two deadlines holds.

    A call that takes longer raises DeadlineExceeded, except for erasures, imports and exports.
    """
    if not seconds >= 0:
        raise InvalidArgument(f"a deadline of {seconds:g} seconds", hint="Use 0 or more")
    outer = _current.get()
    is_earlier = outer is None or seconds < outer.left
    chosen = RequestDeadline(seconds) if is_earlier else cast(RequestDeadline, outer)
    with bounded_by(chosen):
        yield chosen


@contextmanager
def bounded_by(limit: RequestDeadline | None) -> Iterator[None]:
    """Let a deadline hold in the block; with None, each wait has its own limit."""
    token = _current.set(limit)
    try:
        yield
    finally:
        _current.reset(token)


def current_request() -> RequestDeadline | None:
    """Return what counts the changes of the request that this is done for."""
    return _current.get()


def current_deadline() -> RequestDeadline | None:
    """Return the deadline of the request that this is done for."""
    limit = _current.get()
    return None if limit is None or math.isinf(limit.seconds) else limit


def allow_seconds(seconds: float) -> None:
    """Give a request the seconds of its own budget from now on, unless its caller set others."""
    limit = _current.get()
    if limit is not None and limit.is_default:
        limit.seconds = seconds
        limit.restart()


def seconds_left(otherwise: float) -> float:
    """Return how long a wait may take: what is left, or without a deadline the given seconds."""
    limit = current_deadline()
    return otherwise if limit is None else limit.left


def latest(limits: Iterable[RequestDeadline | None]) -> RequestDeadline | None:
    """Return the deadline of work that is done for several requests."""
    chosen: RequestDeadline | None = None
    for limit in limits:
        if limit is None or math.isinf(limit.seconds):
            return None
        chosen = limit if chosen is None or limit.left > chosen.left else chosen
    return chosen


@contextmanager
def changing() -> Iterator[None]:
    """Count a change that the block makes, unless it fails; one that is cancelled may go on.

    Raise DeadlineExceeded after the deadline: its error may have said that nothing is changed.
    """
    limit = _current.get()
    if limit is None:
        yield
        return
    if limit.is_over:
        raise limit.exceeded()
    limit.count(1)
    try:
        yield
    except Exception:
        limit.count(-1)
        raise


def in_background(work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
    """Start work that goes on after the request, without its deadline."""
    with bounded_by(None):
        return asyncio.create_task(work)


async def run_within(limit: RequestDeadline, work: Awaitable[_Result]) -> _Result:
    """Return the result of some work; DeadlineExceeded if it waits for longer, whatever for.

    What cannot be stopped, such as a commit, goes on: the error says so.
    """
    limit.is_enforced = True
    with bounded_by(limit):
        task = asyncio.ensure_future(work)
    try:
        while not task.done() and (limit.left or limit.is_answered):
            await asyncio.wait([task], timeout=None if limit.is_answered else limit.left)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    if not task.done():
        task.cancel()
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        for _ in range(_STOP_STEPS):  # What it shares with others may give up now, too.
            await asyncio.wait([task], timeout=_STOP_SECONDS / _STOP_STEPS)
            if task.done() and not limit.changes:
                break
            await asyncio.sleep(_STOP_SECONDS / _STOP_STEPS)
        raise limit.exceeded()
    try:
        return task.result()
    except RunError as error:
        if limit.left > _MARGIN:
            raise
        # What it waited for gave up because of the deadline, a moment earlier.
        raise limit.exceeded() from error


def enforces_deadlines(*unbounded: str) -> Callable[[_Class], _Class]:
    """Let the public coroutine methods of a class end at the deadline of their callers.

    `unbounded` are the methods whose work grows with the data: only their waits are bounded.
    """

    def decorate(cls: _Class) -> _Class:
        wrapped: dict[Any, Any] = {}  # by method: its other names stay the same method
        for name in dir(cls):
            method = getattr(cls, name)
            if inspect.iscoroutinefunction(method) and name[0] != "_" and name not in unbounded:
                setattr(cls, name, wrapped.setdefault(method, _in_time(method)))
        return cls

    return decorate


def _in_time(method: Callable[..., Coroutine[Any, Any, Any]]) -> Any:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        limit, work = current_deadline(), method(*args, **kwargs)
        is_bounded = limit is not None and not limit.is_enforced
        return await (run_within(limit.for_call(), work) if limit and is_bounded else work)

    return call


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


@dataclass(slots=True)
class _Queue(Generic[_Item, _Result]):
    """The calls that wait in one event loop, and the tasks that do their work."""

    waiting: list[_Call[_Item, _Result]] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


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
