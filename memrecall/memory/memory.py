"""`AsyncMemory`: what an application remembers with."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.memory.adding import Addition
from memrecall.memory.binding import Binding
from memrecall.memory.conversations import Redact, read_messages, scrub
from memrecall.memory.correcting import read_correction
from memrecall.memory.display import Added, History, MemoryItem
from memrecall.memory.extraction.protocol import Extractor
from memrecall.memory.forgetting import Policy, sweep, sweep_time
from memrecall.memory.jobs import Jobs
from memrecall.memory.learning import Marks
from memrecall.memory.library import Library
from memrecall.memory.opening import Parts
from memrecall.memory.processing import DEFAULT_TIMEOUT, Processes, When, run_processes
from memrecall.memory.reading import ListRequest, find_owner, get_item, list_items
from memrecall.memory.reranking import Reranker
from memrecall.memory.searching import Kinds, Search, search_memories
from memrecall.memory.sessions import SessionFace
from memrecall.memory.shapes import memory_item, revision_item
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings, load_settings
from memrecall.store import RowKey, Wanted, read_filter
from memrecall.types import parse_time


class AsyncMemory(SessionFace):
    """Remembers for users of agents, and forgets on request.

    What is bound here (`user_id`, `agent_id`, `session_id`, `permissions`) holds for every call.
    Without `db`, `settings` or a `library` the database of the settings is used, opened at first
    use. Without an `extractor`, facts are found by the model of the settings or else by rules.
    """

    def __init__(
        self,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        db: str | None = None,
        settings: Settings | None = None,
        library: Library | None = None,
        permissions: Iterable[Permission] = (),
        extractor: Extractor | None = None,
        model_client: Any = None,
        reranker: Reranker | None = None,
        redact: Redact | None = None,
    ) -> None:
        if library is not None and (db is not None or settings is not None):
            raise InvalidArgument("a library has its database already", hint="Leave out db")
        self._binding = Binding.of(user_id, agent_id, session_id, permissions)
        self._settings = settings or load_settings({"db": db}).settings
        self._given = library
        self._extractor = extractor
        self._client = model_client
        self._reranker = reranker
        self._redact = redact
        self._processes = Processes()
        self._jobs = Jobs()
        self._opened: Parts | None = None
        self._opening = asyncio.Lock()
        super().__init__()

    async def __aenter__(self) -> "AsyncMemory":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what is under way and give everything back."""
        if self._opened is None:
            return
        await self._jobs.settle()
        await self._opened.marks.flush()
        if self._given is None:
            await self._opened.library.close()
        self._opened = None

    async def _parts(self) -> Parts:
        async with self._opening:
            if self._opened is None:
                library = self._given or await Library.open(self._settings)
                self._opened = Parts.make(library, self._extractor, self._client, self._processes)
            return self._opened

    def _scope(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
    ) -> Scope:
        return self._binding.scope(user_id, agent_id, session_id, run_id)

    async def _owner(self, parts: Parts, memory_id: str, user_id: str | None) -> Scope:
        return await find_owner(parts.library.store, self._binding, memory_id, user_id)

    async def add(
        self,
        messages: object,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        *,
        run_id: str | None = None,
        sensitive: bool = False,
        expires_at: datetime | str | None = None,
        background: bool = False,
    ) -> dict[str, Any]:
        """Store messages, and with `infer` what they tell; says what was done and what failed.

        `messages` is a text, a dict of OpenAI's form or a list of them. `memory_type` "short" and
        "long" choose the layer. With `background` the messages are stored now and the rest is
        done later: the answer names a job.
        """
        scope = self._scope(user_id, agent_id, session_id, run_id)
        read = read_messages(messages, metadata, self._redact)
        layered = memory_type in ("short", "long")
        marks = Marks(
            metadata=scrub(dict(metadata or {}), self._redact),
            layer="short" if memory_type == "short" else "long",
            memory_type=None if layered else memory_type,
            sensitive=sensitive,
            expires_at=None if expires_at is None else parse_time(expires_at, "expires_at"),
        )
        parts = await self._parts()
        addition = Addition(scope, read, marks, infer, prompt)
        stored = await parts.adder.store(addition)
        missed = await self._keep_in_mind(scope, read, stored.ids)
        work = parts.adder.finish(addition, stored, missed)
        if background:
            return Added(self._jobs.start(work), messages=list(stored.ids))
        return await work

    async def job(self, job_id: str, *, wait: bool = False) -> dict[str, Any]:
        """The state of a job that `add` began in the background: running, done or failed."""
        return await self._jobs.wait(job_id) if wait else self._jobs.state(job_id)

    async def get(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any] | None:
        """A memory or message by its id; None if there is none, or it is deleted."""
        parts = await self._parts()
        return await get_item(parts.library.store, self._binding, memory_id, user_id)

    async def get_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = 100,
        *,
        run_id: str | None = None,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
        superseded: bool = False,
        deleted: bool = False,
        messages: bool = False,
    ) -> dict[str, Any]:
        """Memories from the latest on; with `messages` the last messages instead.

        `superseded` also lists those that hold no longer, `deleted` those that are hidden.
        """
        scope = self._scope(user_id, agent_id, session_id, run_id)
        wanted = Wanted(
            read_filter(filters),
            _asked(session_id, run_id),
            None if as_of is None else parse_time(as_of, "as_of"),
            superseded,
            deleted,
        )
        parts = await self._parts()
        request = ListRequest(wanted, limit, cursor, messages, filtered=bool(filters))
        return await list_items(parts.library.store, scope, request)

    async def search(
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
        """The memories that fit a query best, each with a score from 0 to 1.

        `rerank` False gives the plain order of words and meaning. `kinds` may add messages.
        """
        scope = self._scope(user_id, agent_id, session_id, run_id)
        moment = None if as_of is None else parse_time(as_of, "as_of")
        session = _asked(session_id, run_id)
        asked = Search(query, limit, filters, threshold, rerank, session, moment, kinds)
        parts = await self._parts()
        found = await search_memories(parts.library, scope, asked, self._reranker)
        keys = [item["id"] for item in found["results"] if item["kind"] == "memory"]
        if parts.marks.note(scope.user_id, keys):
            await parts.marks.flush()
        return found

    async def update(
        self, memory_id: str, data: object = None, *, user_id: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Correct a memory in its place: its text (`data`) or fields such as metadata, pinned."""
        values = read_correction(data, fields, self._redact)
        parts = await self._parts()
        library = parts.library
        scope = await self._owner(parts, memory_id, user_id)
        await library.store.changes(scope).update(memory_id, values, actor="application")
        record = await library.store.memories(scope).get(memory_id)
        text = f"{record.summary}\n{record.content}".strip()
        if values.keys() & {"content", "summary"}:
            await library.vectors.submit([(RowKey(scope.user_id, "memory", memory_id), text)])
        return MemoryItem(memory_item(record), event="UPDATE", message="updated")

    async def history(self, memory_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What became of a memory, from its adding on; also of a deleted one."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        steps = await parts.library.store.history(scope, memory_id)
        return History(revision_item(step) for step in steps)

    async def delete(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Hide a memory at once; `undo` brings it back until it is purged."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        store = parts.library.store
        await store.memories(scope).get(memory_id)
        await store.changes(scope).delete([memory_id], actor="application")
        return {"id": memory_id, "event": "DELETE", "message": "deleted"}

    async def undo(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Take back the last change of a memory: a correction, a supersession, a deletion."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        library = parts.library
        await library.store.changes(scope).undo(memory_id, actor="application")
        await library.vectors.top_up(scope.user_id)
        return {"id": memory_id, "event": "UNDO", "message": "undone"}

    async def purge(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Remove a memory for ever, with its history and vector."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        await parts.library.vectors.settle()
        gone = await parts.library.store.changes(scope).purge([memory_id])
        parts.library.cache.forget(scope.user_id)
        return {"id": memory_id, "purged": gone}

    async def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Hide all memories of a scope that pass the filters, and tell how many."""
        scope = self._scope(user_id, agent_id, session_id, run_id)
        wanted = Wanted(read_filter(filters), _asked(session_id, run_id), superseded=True)
        store = (await self._parts()).library.store
        keys = await store.memory_list(scope).keys(wanted)
        deleted = 0
        if keys and not dry_run:
            deleted = await store.changes(scope).delete(keys, actor="application", reason="all")
        told = f"{len(keys)} would be deleted" if dry_run else f"{deleted} deleted"
        return {"found": len(keys), "deleted": deleted, "dry_run": dry_run, "message": told}

    async def sweep(
        self,
        policy: Policy | None = None,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        dry_run: bool = True,
        purge: bool = False,
        now: datetime | None = None,
    ) -> dict[str, Any]:
        """Forget by policy. It says what it would remove; with `dry_run` False it removes it."""
        scope = self._scope(user_id, agent_id)
        parts = await self._parts()
        await parts.marks.flush()
        moment = sweep_time(now)
        store = parts.library.store
        told = await sweep(
            store, scope, policy or Policy(), dry_run=dry_run, purge=purge, now=moment
        )
        if purge and not dry_run:
            parts.library.cache.forget(scope.user_id)
        return told

    async def export(self, user_id: str | None = None) -> AsyncIterator[str]:
        """Everything of a user as JSON lines that `import_` takes back."""
        scope = self._scope(user_id)
        parts = await self._parts()
        await parts.marks.flush()
        async for record in parts.library.store.export_user(scope.user_id):
            yield json.dumps(record, ensure_ascii=False)

    async def import_(self, lines: Iterable[str], user_id: str | None = None) -> dict[str, int]:
        """Take what `export` gave into this database, all or nothing; counts by table."""
        scope = self._scope(user_id)
        parts = await self._parts()
        records = [_read_line(number, line) for number, line in enumerate(lines, 1)]
        await parts.library.vectors.prepare()
        counts = await parts.library.store.import_user(scope.user_id, records)
        await parts.library.vectors.embed_left_over([scope.user_id])
        return counts

    async def erase(self, user_id: str | None = None) -> dict[str, int]:
        """Leave nothing of a user: no row, vector, snapshot, trace or checkpoint."""
        scope = self._scope(user_id)
        parts = await self._parts()
        await self._jobs.settle()
        parts.marks.forget(scope.user_id)
        self._forget_sessions(scope.user_id)
        return (await parts.library.erase_user(scope.user_id)).as_dict()

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._processes.register(name, function, when=when, timeout=timeout)

    async def process(
        self,
        name: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        limit: int = 100,
        messages: bool = False,
    ) -> dict[str, Any]:
        """Run a registered function over memories, or over the last messages."""
        process = self._processes.find(name)
        page = await self.get_all(user_id, agent_id, session_id, limit=limit, messages=messages)
        return (await run_processes([process], page["results"]))[0]

    write = add
    retrieve = search
    forget = delete


def _asked(session_id: str | None, run_id: str | None) -> str | None:
    """The session that a call filters by: one that is only bound labels, it does not filter."""
    return run_id if session_id is None else session_id


def _read_line(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidArgument(f"line {number} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidArgument(f"line {number} is not an object")
    return record
