"""`AsyncMemory`: add, read, search, change and delete memories."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.memory.base import ScopeBinding
from memrecall.memory.extractions import ExtractionRequest
from memrecall.memory.ingest import Addition
from memrecall.memory.jobs import run_process
from memrecall.memory.kinds import Kinds, covered_kinds
from memrecall.memory.mem0 import choose_limit, parse_expiration, parse_moment, take_scope
from memrecall.memory.records import (
    find_updatable,
    follow_text,
    iterate_users,
    list_kinds,
    list_of_users,
    memory_item,
    mention_messages,
    message_item,
    name_authors,
    parse_update,
    quote_conflicts,
)
from memrecall.memory.removal import RemovalMixin
from memrecall.memory.retention import RetentionMixin
from memrecall.memory.search import MemorySearch, search_memories
from memrecall.memory.spaces import accepts_space_keys
from memrecall.messages import parse_new_messages
from memrecall.progress import Progress, progress_bar
from memrecall.scope import DEFAULT_NAME
from memrecall.store import MemoryQuery, read_filter
from memrecall.store.database.cursors import LARGEST_LIST, require_limit
from memrecall.timing import enforces_deadlines

_LIMIT = 100


# Those that HTTP does not bound either, and those that wait for other work to end.
@enforces_deadlines(
    *("import_", "erase", "erase_project", "reset", "sweep", "delete_space"),
    *("extract_stored", "undo_extraction"),
    *("close", "schedule_sweeps"),
)
class AsyncMemory(RemovalMixin, RetentionMixin):
    """Long-term memory for the users of an agent.

    What is bound here (`user_id`, `agent_id`, `session_id`, `project`, `permissions`) holds for
    every call. In a project, others are read with `all_projects` only. `actor` is the author that
    change histories record. Without `db`, `settings` or a `library` the database of the settings
    is opened at first use. Without an `extractor`, the `llm` (also called `model_client`) extracts
    facts, or the model of the settings; without a model what was said is kept as it was said,
    and found. `embedder`, `graph_db` and `vector_db`
    replace what the settings name; `prompt` is used by every `add` without one.
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
        project: str | None = None,
        sensitive: bool = False,
        expires_at: datetime | str | None = None,
        background: bool = False,
        timestamp: datetime | str | float | None = None,
        expiration_date: date | str | None = None,
    ) -> dict[str, Any]:
        """Store messages and, with a model and `infer`, the facts in them; report what failed.

        `messages` is a text, a dict with role and content, a message object of a supported
        framework, or a list of them. `memory_type` "short" and "long" choose the layer;
        "procedural_memory" stores one summary of the messages instead of facts. `timestamp` is
        when messages without a time were said; `expiration_date` is the last day of the memories.
        With `background` a job, whose id is returned, extracts the facts after this call.
        """
        scope = self._scope(user_id, agent_id, session_id, project, run_id).own
        spaces = (await self._store()).spaces
        new_messages = await spaces.sign(scope, parse_new_messages(messages, metadata))
        if (said_at := parse_moment(timestamp, "timestamp")) is not None:
            new_messages = [
                m if m.ts else m.model_copy(update={"ts": said_at}) for m in new_messages
            ]
        expiry = parse_moment(expires_at, "expires_at")
        if expiration_date is not None:
            expiry = parse_expiration(expiration_date)
        is_layer = memory_type in ("short", "long")
        addition = Addition(
            scope=scope,
            messages=new_messages,
            infer=infer,
            prompt=prompt or self._shared.prompt,
            metadata=dict(metadata or {}),
            layer="short" if memory_type == "short" else "long",
            memory_type=None if is_layer else memory_type,
            sensitive=sensitive,
            expires_at=expiry,
        )
        ingestor = (await self._open()).ingestor
        stored = await ingestor.store(addition)
        problems = await self._add_to_short_term(scope, stored.pairs())
        jobs, store = self._shared.jobs, await self._store()
        work, receipt = ingestor.finish(addition, stored, problems), stored.receipt()
        about = ingestor.describe_work(addition, receipt)
        if background:
            return {**await jobs.start(store, work, scope.user_id, about), **receipt}
        details = {"messages": receipt["messages"]}
        return await jobs.follow(store, work, scope.user_id, details, about)

    @accepts_space_keys
    async def get(
        self, memory_id: str, *, user_id: str | None = None, kinds: Kinds = "all"
    ) -> dict[str, Any] | None:
        """Return a memory or message by its id, or None if it is missing or deleted."""
        covered = covered_kinds(kinds)
        store = (await self._open()).library.store
        try:
            scope = await self._scope_of(store, memory_id, user_id)
        except NotFound:
            return None
        items: list[dict[str, Any]] = []
        if "memory" in covered:
            items += map(memory_item, await store.memories(scope).get_many([memory_id]))
            await quote_conflicts(store, scope, items)
        if "message" in covered and not items:
            items += map(message_item, await store.timeline(scope).get_many([memory_id]))
        await name_authors(store, items)
        return items[0] if items else None

    async def get_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        limit: int = _LIMIT,
        *,
        run_id: str | None = None,
        project: str | None = None,
        top_k: int | None = None,
        cursor: str | None = None,
        as_of: datetime | str | None = None,
        superseded: bool = False,
        deleted: bool = False,
        show_expired: bool = False,
        kinds: Kinds = "memories",
    ) -> dict[str, Any]:
        """Return a page of memories, newest first; `kinds` lists messages, or both in turn.

        If there are no memories, `kept_messages` is the number of messages and `message` says how
        to list them. `superseded` includes memories that no longer hold; `deleted` lists the
        deleted ones. If no user is bound or named, the agent or session of every user is listed in
        turn.
        """
        named = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id}
        ids, rest = take_scope(filters, **named, run_id=run_id, project=project)
        scope, moment = self._scope(*ids), parse_moment(as_of, "as_of")
        query = MemoryQuery(
            read_filter(rest), ids.session_id, moment, superseded, deleted, show_expired
        )
        store = (await self._open()).library.store
        limit = choose_limit(limit, top_k, _LIMIT)
        require_limit("limit", limit, LARGEST_LIST)
        list_page = partial(list_kinds, store, query, covered_kinds(kinds))
        if self._binding.has_user or ids.user_id is not None:
            page = await list_page(scope, limit, cursor)
        else:
            page = await list_of_users(list_page, self._scopes(store, scope, None), limit, cursor)
        return mention_messages(page)

    async def search(
        self,
        query: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        limit: int = _LIMIT,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        *,
        session_id: str | None = None,
        project: str | None = None,
        as_of: datetime | str | None = None,
        kinds: Kinds = "all",
        top_k: int | None = None,
        explain: bool = False,
        reference_date: date | datetime | str | float | None = None,
        show_expired: bool = False,
        time: str | None = None,
    ) -> dict[str, Any]:
        """Return the memories and messages most relevant to a query, with scores from 0 to 1.

        A memory and the message that it comes from (`source`) are one result; `kinds` "memories" or
        "messages" searches one kind. `rerank=False` returns the plain rank fusion of words and
        meaning. `reference_date` is today for words such as "yesterday"; `as_of` searches what was
        known and valid then. `time` is a period such as "last week" or 上周; without
        results in it, `nearest` is the closest time. `explain` adds the parts of each score.
        """
        named = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id}
        ids, rest = take_scope(filters, **named, run_id=run_id, project=project)
        if not self._binding.has_user and ids.user_id is None:
            raise InvalidArgument(
                "a search needs a user_id",
                hint=f"What was added without one belongs to the user {DEFAULT_NAME!r}",
            )
        scope, resources = self._scope(*ids), await self._open()
        moment, today = parse_moment(as_of, "as_of"), parse_moment(reference_date, "reference_date")
        period = await resources.library.find_period(scope, time, today or moment)
        when = (ids.session_id, moment, kinds, explain, today, show_expired, period)
        limit = choose_limit(limit, top_k, _LIMIT)
        search = MemorySearch(query, limit, rest, threshold, rerank, *when)
        results = await search_memories(resources.library, scope, search)
        keys = [item["id"] for item in results["results"] if item["kind"] == "memory"]
        if resources.recall_times.add(scope.user_id, keys):
            await resources.recall_times.flush()
        return results

    @accepts_space_keys
    async def update(
        self,
        /,
        memory_id: str,
        data: object = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        user_id: str | None = None,
        unchanged_since: datetime | str | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Update a memory in place: its text (`data`) or fields such as pinned.

        New metadata is merged into the old. Conflict if it was changed after `unchanged_since`.
        """
        if metadata is not None:
            fields["metadata"] = metadata
        values = parse_update(data, fields)
        library = (await self._open()).library
        scope = await self._scope_of(library.store, memory_id, user_id)
        values = follow_text(values, await find_updatable(library.store, scope, memory_id))
        since = parse_moment(unchanged_since, "unchanged_since")
        changes = library.changes(scope)
        await changes.update(memory_id, values, actor=self._actor, unchanged_since=since)
        record = await library.store.memories(scope).get(memory_id)
        if "content" in values:
            await (await self._open()).ingestor.relate_memory(scope, record)
        if {"content", "summary"}.intersection(values):
            library.vectors.expect({scope.user_id: 1})
        item = memory_item(record)
        await quote_conflicts(library.store, scope, [item])
        return {**item, "event": "UPDATE", "message": "updated"}

    async def extract_stored(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        run_id: str | None = None,
        project: str | None = None,
        since: datetime | str | None = None,
        dry_run: bool = False,
        background: bool = False,
        confirm: Callable[[dict[str, Any]], object] | None = None,
        progress: Progress = False,
    ) -> dict[str, Any]:
        """Let the model read the stored messages that none has read, as after an import.

        With `dry_run` only count what it would read: messages of people, calls of the model and
        about how many tokens are sent. With `background` a job reads, whose id is returned. After
        an interruption, call it again: `run` stays the same. `undo_extraction` takes a run back.
        `confirm` is called with the counts first; what it raises ends the call. `progress` is
        called with the number of messages read. In a space, one's own are read.
        """
        scope = self._scope(user_id, agent_id, session_id, project, run_id).own
        request = ExtractionRequest(
            scope=replace(scope, session_id=None),
            session_id=scope.session_id,
            since=parse_moment(since, "since"),
            prompt=self._shared.prompt,
        )
        extractions = (await self._open()).extractions
        if not dry_run:
            extractions.require_model()
        counts = await extractions.estimate(request)
        report = {"run": None, "dry_run": dry_run, **counts}
        if dry_run or not counts["messages"]:
            return report
        if confirm is not None:
            confirm(counts)
        if background:
            run = await extractions.start(request, counts, lambda step: None)
            return {**report, "run": run, "job_id": run, "state": "running"}
        with progress_bar(progress, "reading", counts["messages"], unit="messages") as advance:
            run = await extractions.start(request, counts, advance)
            running = extractions.find_running(run)
            return {**report, **(await running.task if running else {})}

    async def extractions(self, user_id: str | None = None) -> list[dict[str, Any]]:
        """Return the runs of `extract_stored` that were not undone, the last first."""
        return await (await self._open()).extractions.runs(self._scope(user_id).own)

    async def undo_extraction(self, run: str, *, user_id: str | None = None) -> dict[str, Any]:
        """Take back what a run of `extract_stored` stored or ended; its messages become unread.

        What was changed since because of other messages stays. After an interruption, call it
        again for the rest.
        """
        scope = self._scope(user_id).own
        return await (await self._open()).extractions.undo(scope, run, self._actor)

    async def reset(self) -> None:
        """Erase all users and spaces completely; only a memory that is bound to nothing can."""
        if self._binding != ScopeBinding(permissions=self._binding.permissions):
            raise InvalidArgument(
                "this memory is bound to a scope, but reset erases all users",
                hint="Use erase or delete_all",
            )
        store = (await self._open()).library.store
        async for owner in iterate_users(store, disabled=True, spaces=True):
            await self._erase_owner(owner)

    async def process(
        self,
        name: str,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        limit: int = 100,
        kinds: Kinds = "memories",
    ) -> dict[str, Any]:
        """Run a registered function over the newest memories or messages."""
        process = self._shared.processes.find(name)
        page = await self.get_all(user_id, agent_id, session_id, limit=limit, kinds=kinds)
        return await run_process(process, page["results"])

    write, retrieve = add, search
