"""`AsyncMemory`: what an application remembers with."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from memrecall.memory.display import AddResult, HistoryResult, MemoryResult
from memrecall.memory.ingest import Addition, Marks
from memrecall.memory.jobs import DEFAULT_TIMEOUT, When, run_processes
from memrecall.memory.records import (
    ListRequest,
    get_item,
    list_items,
    memory_item,
    read_correction,
    revision_item,
)
from memrecall.memory.retention import RetentionMixin
from memrecall.memory.search import Kinds, Search, search_memories
from memrecall.memory.sessions import SessionsMixin
from memrecall.messages import parse_new_messages, redact_text
from memrecall.store import MemoryQuery, PendingText, RowKey, read_filter
from memrecall.types import parse_time


class AsyncMemory(SessionsMixin, RetentionMixin):
    """Remembers for users of agents, and forgets on request.

    What is bound here (`user_id`, `agent_id`, `session_id`, `permissions`) holds for every call;
    `actor` is who the history says has changed something. Without `db`, `settings` or a `library`
    the database of the settings is used, opened at first use. Without an `extractor`, facts are
    found by the model of the settings or else by rules.
    """

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
        read = parse_new_messages(messages, metadata, self._shared.redact)
        layered = memory_type in ("short", "long")
        marks = Marks(
            metadata=redact_text(dict(metadata or {}), self._shared.redact),
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
            job = self._shared.jobs.start(work, scope.user_id)
            return AddResult(job, messages=list(stored.ids), stored=stored.fresh)
        return await work

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
        wanted = MemoryQuery(
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
        found = await search_memories(parts.library, scope, asked, self._shared.reranker)
        keys = [item["id"] for item in found["results"] if item["kind"] == "memory"]
        if parts.marks.note(scope.user_id, keys):
            await parts.marks.flush()
        return found

    async def update(
        self, memory_id: str, data: object = None, *, user_id: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Correct a memory in its place: its text (`data`) or fields such as metadata, pinned."""
        values = read_correction(data, fields, self._shared.redact)
        parts = await self._parts()
        library = parts.library
        scope = await self._owner(parts, memory_id, user_id)
        await library.store.changes(scope).update(memory_id, values, actor=self._actor)
        record = await library.store.memories(scope).get(memory_id)
        text = f"{record.summary}\n{record.content}".strip()
        if values.keys() & {"content", "summary"}:
            row = RowKey(scope.user_id, "memory", memory_id)
            await library.vectors.submit([PendingText(row, text)])
        return MemoryResult(memory_item(record), event="UPDATE", message="updated")

    async def history(self, memory_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """What became of a memory, from its adding on; also of a deleted one."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        steps = await parts.library.store.history(scope, memory_id)
        return HistoryResult(revision_item(step) for step in steps)

    async def delete(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Hide a memory at once; `undo` brings it back until it is purged."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        store = parts.library.store
        await store.memories(scope).get(memory_id)
        await store.changes(scope).delete([memory_id], actor=self._actor)
        return {"id": memory_id, "event": "DELETE", "message": "deleted"}

    async def undo(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Take back the last change of a memory: a correction, a supersession, a deletion."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        library = parts.library
        await library.store.changes(scope).undo(memory_id, actor=self._actor)
        await library.vectors.top_up(scope.user_id)
        return {"id": memory_id, "event": "UNDO", "message": "undone"}

    async def purge(self, memory_id: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Remove a memory for ever, with its history and vector."""
        parts = await self._parts()
        scope = await self._owner(parts, memory_id, user_id)
        await parts.library.vectors.settle()
        gone = await parts.library.store.changes(scope).purge([memory_id])
        await parts.library.forget_derived(scope.user_id)
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
        """Hide all memories of a scope that pass the filters, and tell how many.

        An agent or a session without a user, in a memory that is bound to none, is meant of all
        users: each one's are hidden in a transaction of its own.
        """
        scope = self._scope(user_id, agent_id, session_id, run_id)
        wanted = MemoryQuery(read_filter(filters), _asked(session_id, run_id), superseded=True)
        store = (await self._parts()).library.store
        found = deleted = users = 0
        async for owner in self._owners(store, scope, user_id):
            keys = await store.memory_list(owner).keys(wanted)
            users += bool(keys)
            found += len(keys)
            if keys and not dry_run:
                changes = store.changes(owner)
                deleted += await changes.delete(keys, actor=self._actor, reason="all")
        told = f"{found} would be deleted" if dry_run else f"{deleted} deleted"
        counts = {"found": found, "deleted": deleted, "users": users}
        return {**counts, "dry_run": dry_run, "message": told}

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Register a function that `process` runs by name, or every `add` (`when="add"`)."""
        self._shared.processes.register(name, function, when=when, timeout=timeout)

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
        process = self._shared.processes.find(name)
        page = await self.get_all(user_id, agent_id, session_id, limit=limit, messages=messages)
        return (await run_processes([process], page["results"]))[0]

    write = add
    retrieve = search
    forget = delete


def _asked(session_id: str | None, run_id: str | None) -> str | None:
    """The session that a call filters by: one that is only bound labels, it does not filter."""
    return run_id if session_id is None else session_id
