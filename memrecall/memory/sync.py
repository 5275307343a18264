"""`Memory`: `AsyncMemory` for plain code. Every method waits for the one of the same name."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from memrecall.errors import InvalidArgument
from memrecall.memory.jobs import DEFAULT_TIMEOUT, When
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.retention import Policy
from memrecall.memory.search import Kinds
from memrecall.workers import DaemonThreadPool

Result = TypeVar("Result")

_THREADS = 8


class _AtTheEnd:
    """Calls back when the main thread is over, before the interpreter takes anything down.

    `atexit` comes too late: by then the interpreter waits for threads that nobody has told to end,
    such as those behind a database's connections. One thread waits for all.
    """

    def __init__(self) -> None:
        self._calls: list[weakref.finalize[Any, Any]] = []
        self._guard = threading.Lock()
        self._waiting: threading.Thread | None = None
        self._process = 0

    def call(self, finish: "weakref.finalize[Any, Any]") -> None:
        """Have a finalizer called at the end, unless it was called before."""
        with self._guard:
            self._calls = [*(call for call in self._calls if call.alive), finish]
            if self._waiting is None or self._process != os.getpid():  # a fork has no such thread
                self._process = os.getpid()
                self._waiting = threading.Thread(target=self._wait, name="memrecall-end")
                self._waiting.start()

    def _wait(self) -> None:
        threading.main_thread().join()
        for finish in self._calls:
            finish()


at_the_end = _AtTheEnd()


class LoopThread:
    """Runs coroutines one call at a time or many at once, from any thread but its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._workers = DaemonThreadPool(_THREADS, prestart=True)
        self._loop.set_default_executor(self._workers)
        self._thread = threading.Thread(target=self._serve, name="memrecall", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine."""
        if self._loop.is_closed():
            work.close()
            raise InvalidArgument("this memory is closed", hint="Make another one")
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidArgument(
                "Memory is called from its own event loop, which would wait for itself",
                hint="Use AsyncMemory in async code",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """The items of an async iterator, one by one."""

        async def following() -> tuple[bool, Result | None]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.run(following())
            if not more:
                return
            yield item  # type: ignore[misc]  # there was one

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._workers.shutdown()


if TYPE_CHECKING:
    from memrecall.agent import RecallResult


class Memory:
    """Remembers for users of agents, and forgets on request.

    Takes what `AsyncMemory` takes; its work is done in a thread with an event loop of its own, so
    it can be used in a notebook too. `close` gives everything back; so does the interpreter's end.
    """

    def __init__(self, **options: Any) -> None:
        self._inner = AsyncMemory(**options)
        self._thread = LoopThread()
        self._first: Memory | None = None
        # Without a reference to self, or it would live until the end.
        self._finish = weakref.finalize(self, _close, self._inner, self._thread)
        self._finish.atexit = False
        at_the_end.call(self._finish)

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is under way and give everything back."""
        if self._first is None:
            self._finish()

    def bind(self, **scope: Any) -> "Memory":
        """The same memory, opened once, for a narrower scope; it need not be closed."""
        face = object.__new__(type(self))
        face._inner = self._inner.bind(**scope)
        face._thread = self._thread
        face._first = self._first or self  # which must live as long as what shares its thread
        return face

    def add(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Store messages, and with `infer` what they tell; says what was done and what failed."""
        return self._thread.run(
            self._inner.add(
                messages,
                user_id,
                agent_id,
                session_id,
                metadata,
                infer,
                memory_type,
                prompt,
                **options,
            )
        )

    def job(self, job_id: str, *, wait: bool = False) -> dict[str, Any]:
        """The state of a job that `add` began in the background: running, done or failed."""
        return self._thread.run(self._inner.job(job_id, wait=wait))

    def running_jobs(self, user_id: str | None = None) -> int:
        """How many jobs of a user are under way."""
        return self._inner.running_jobs(user_id)

    @property
    def user_id(self) -> str | None:
        """The user that it is bound to."""
        return self._inner.user_id

    @property
    def agent_id(self) -> str | None:
        """The agent that it is bound to."""
        return self._inner.agent_id

    def get(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any] | None:
        """A memory or message by its id; None if there is none, or it is deleted."""
        return self._thread.run(self._inner.get(memory_id, user_id=user_id))

    def get_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = 100,
        **options: Any,
    ) -> dict[str, Any]:
        """Memories from the latest on; with `messages` the last messages instead."""
        scope = (user_id, agent_id, session_id)
        return self._thread.run(self._inner.get_all(*scope, filters, limit, **options))

    def search(
        self,
        query: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        *,
        session_id: str | None = None,
        as_of: datetime | str | None = None,
        kinds: Kinds = "memory",
    ) -> dict[str, Any]:
        """The memories that fit a query best, each with a score from 0 to 1."""
        return self._thread.run(
            self._inner.search(
                query,
                user_id,
                agent_id,
                run_id,
                limit,
                filters,
                threshold,
                rerank,
                session_id=session_id,
                as_of=as_of,
                kinds=kinds,
            )
        )

    def update(
        self, memory_id: str, data: object = None, *, user_id: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Correct a memory in its place: its text (`data`) or fields such as metadata, pinned."""
        return self._thread.run(self._inner.update(memory_id, data, user_id=user_id, **fields))

    def history(self, memory_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What became of a memory, from its adding on; also of a deleted one."""
        return self._thread.run(self._inner.history(memory_id, user_id=user_id))

    def delete(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Hide a memory at once; `undo` brings it back until it is purged."""
        return self._thread.run(self._inner.delete(memory_id, user_id=user_id))

    def undo(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Take back the last change of a memory: a correction, a supersession, a deletion."""
        return self._thread.run(self._inner.undo(memory_id, user_id=user_id))

    def purge(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Remove a memory for ever, with its history and vector."""
        return self._thread.run(self._inner.purge(memory_id, user_id=user_id))

    def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Hide all memories of a scope that pass the filters, and tell how many."""
        scope = (user_id, agent_id, session_id)
        return self._thread.run(self._inner.delete_all(*scope, filters, **options))

    def sweep(self, policy: Policy | None = None, **options: Any) -> dict[str, Any]:
        """Forget by policy. It says what it would remove; with `dry_run` False it removes it."""
        return self._thread.run(self._inner.sweep(policy, **options))

    def schedule_sweeps(
        self, every_seconds: float, policy: Policy | None = None, **options: Any
    ) -> None:
        """Sweep every so many seconds while this memory is open."""
        self._thread.run(self._inner.schedule_sweeps(every_seconds, policy, **options))

    def export(self, user_id: str | None = None) -> Iterator[str]:
        """Everything of a user as JSON lines that `import_` takes back."""
        return self._thread.iterate(self._inner.export(user_id))

    def import_(self, lines: Iterable[str], user_id: str | None = None) -> dict[str, int]:
        """Take what `export` gave into this database, all or nothing; counts by table."""
        return self._thread.run(self._inner.import_(list(lines), user_id))

    def erase(self, user_id: str | None = None) -> dict[str, int]:
        """Leave nothing of a user: no row, vector, snapshot, trace or checkpoint."""
        return self._thread.run(self._inner.erase(user_id))

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._inner.register(name, function, when=when, timeout=timeout)

    def process(self, name: str, user_id: str | None = None, **options: Any) -> dict[str, Any]:
        """Run a registered function over memories, or over the last messages."""
        return self._thread.run(self._inner.process(name, user_id, **options))

    def extract(
        self, messages: object = None, user_id: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Write entities and relations into the graph: of messages given, or the session's last."""
        return self._thread.run(self._inner.extract(messages, user_id, **options))

    def graph(
        self, entity: str | None = None, user_id: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """The relations around an entity; the ways to another; or, of nobody, all entities."""
        return self._thread.run(self._inner.graph(entity, user_id, **options))

    def recall(
        self, messages: object, user_id: str | None = None, **options: Any
    ) -> "RecallResult":
        """What the last user message of a conversation refers to, with the evidence for it."""
        return self._thread.run(self._inner.recall(messages, user_id, **options))

    def merge_entities(
        self, name: str, alias: str, user_id: str | None = None, agent_id: str | None = None
    ) -> None:
        """Two names are of one entity, from now on."""
        self._thread.run(self._inner.merge_entities(name, alias, user_id, agent_id))

    def summarize(self, user_id: str | None = None, **options: Any) -> dict[str, Any]:
        """Summarise what a session has said since the last time, in layers."""
        return self._thread.run(self._inner.summarize(user_id, **options))

    def state(self, max_tokens: int, user_id: str | None = None, **options: Any) -> dict[str, Any]:
        """A session within so many tokens, for a prompt: summaries, then its last words."""
        return self._thread.run(self._inner.state(max_tokens, user_id, **options))

    def checkpoint(self, user_id: str | None = None, **options: Any) -> dict[str, Any]:
        """Save what a session has in mind."""
        return self._thread.run(self._inner.checkpoint(user_id, **options))

    def restore(self, user_id: str | None = None, **options: Any) -> bool:
        """Go on from a session's last checkpoint; False if there is none."""
        return self._thread.run(self._inner.restore(user_id, **options))

    def end_session(self, user_id: str | None = None, **options: Any) -> dict[str, Any]:
        """End a session: what it taught becomes experience, what it had in mind goes."""
        return self._thread.run(self._inner.end_session(user_id, **options))

    write = add
    retrieve = search
    forget = delete


def _close(inner: AsyncMemory, thread: LoopThread) -> None:
    thread.run(inner.close())
    thread.stop()
