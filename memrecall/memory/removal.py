"""Deletion, undo and purge of memories and messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from memrecall.errors import InvalidArgument, NotFound
from memrecall.library.library import Library
from memrecall.memory.kinds import Kinds, covered_kinds
from memrecall.memory.mem0 import parse_moment, take_scope
from memrecall.memory.sessions import SessionsMixin
from memrecall.memory.spaces import accepts_space_keys
from memrecall.scope import Scope
from memrecall.store import MemoryQuery, Removal, read_filter

_OF_MESSAGE = "its message was deleted"  # the reason in the history of a memory


@dataclass(frozen=True, slots=True)
class _Targets:
    """The memories and messages that a `delete_all` covers, and the messages hidden with them."""

    memories: tuple[str, ...]
    messages: tuple[str, ...]
    sources: frozenset[str]

    @property
    def all_messages(self) -> int:
        """The number of messages that are hidden."""
        return len(self.sources.union(self.messages))


class RemovalMixin(SessionsMixin):
    """Deletion of memories and messages: hidden until an undo, or erased by a purge."""

    @accepts_space_keys
    async def delete(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        sources: bool = True,
        kinds: Kinds = "all",
    ) -> dict[str, Any]:
        """Hide a memory and the messages that it comes from, or a message; `undo` restores all.

        With `sources=False` the messages stay. What other memories took from a message stays in
        them; the memories that were derived from a deleted message alone are hidden with it.
        `memories` and `messages` are the ids of what was hidden with it.
        """
        covered = covered_kinds(kinds)
        library = (await self._open()).library
        scope = await self._scope_of(library.store, memory_id, user_id)
        changes = library.changes(scope)
        if "message" in covered and await library.store.timeline(scope).get_many([memory_id]):
            removal = await changes.delete(
                [], message_ids=[memory_id], actor=self._actor, reason=_OF_MESSAGE
            )
        elif "memory" in covered:
            await library.store.memories(scope).get(memory_id)
            removal = await changes.delete([memory_id], actor=self._actor, sources=sources)
        else:
            raise NotFound(f"there is no message {memory_id!r}", hint="Check the id and the user")
        await self._update_short_term(scope.user_id)
        return {"id": memory_id, "event": "DELETE", "message": "deleted"} | _others(
            removal, memory_id
        )

    forget = delete

    async def delete_message(
        self, message_id: str, *, user_id: str | None = None
    ) -> dict[str, Any]:
        """Hide a message, and the memories that were derived from it alone.

        Nothing happens if it is hidden or was erased before; NotFound if the user never had it.
        """
        if not self._binding.has_user and user_id is None:
            raise InvalidArgument("a message needs a user_id", hint="Users may have equal ids")
        library, scope = (await self._open()).library, self._scope(user_id)
        removal = Removal()
        if await library.store.timeline(scope).get_many([message_id]):
            removal = await library.changes(scope).delete(
                [], message_ids=[message_id], actor=self._actor, reason=_OF_MESSAGE
            )
            await self._update_short_term(scope.user_id)
        else:
            await _require_known(library, scope, message_id)
        counts = {"deleted": len(removal.messages), "memories": list(removal.memories)}
        return {"id": message_id, "event": "DELETE", **counts}

    @accepts_space_keys
    async def undo(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        unchanged_since: datetime | str | None = None,
    ) -> dict[str, Any]:
        """Revert the last change of a memory (update, supersession, deletion, expiry).

        Restores what a deletion hid with it. Of a message, takes back its deletion. Repeated, it
        walks back one change of a memory at a time to the first memory of the fact. Conflict at
        the start, or if it was changed after `unchanged_since`.
        """
        since = parse_moment(unchanged_since, "unchanged_since")
        library = (await self._open()).library
        scope = await self._scope_of(library.store, memory_id, user_id)
        changes = library.changes(scope)
        state = await library.store.timeline(scope).find_state(memory_id)
        if state in ("visible", "hidden"):
            changed = await changes.undo_message(memory_id, actor=self._actor)
        else:
            changed = await changes.undo(memory_id, actor=self._actor, unchanged_since=since)
        library.vectors.expect({scope.user_id: 1 + len(changed)})
        await self._update_short_term(scope.user_id)
        return {"id": memory_id, "event": "UNDO", "message": "undone"}

    @accepts_space_keys
    async def purge(
        self, memory_id: str, *, user_id: str | None = None, sources: bool = True
    ) -> dict[str, Any]:
        """Erase a memory and the messages that it comes from permanently, or a message.

        Its history, vectors and all that quotes it are erased too, and the memories that were
        derived from an erased message alone. With `sources=False` the messages of a memory stay.
        Nothing happens if a message was erased before.
        """
        library = (await self._open()).library
        scope = await self._scope_of(library.store, memory_id, user_id)
        is_message = await library.store.timeline(scope).find_state(memory_id) is not None
        async with library.store.database.erasing():
            if is_message:
                removal = await library.purge_message(scope, memory_id, actor=self._actor)
            else:
                removal = await library.purge(
                    scope, [memory_id], sources=sources, actor=self._actor
                )
            await self._update_short_term(scope.user_id, removal.messages)
        purged = len(removal.messages if is_message else removal.memories)
        return {"id": memory_id, "purged": purged} | _others(removal, memory_id)

    async def delete_all(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        filters: Mapping[str, Any] | None = None,
        *,
        run_id: str | None = None,
        dry_run: bool = False,
        sources: bool = True,
        kinds: Kinds = "all",
    ) -> dict[str, Any]:
        """Hide all memories and messages of a scope that match the filters; return their numbers.

        The messages that the memories come from are hidden too, unless `sources=False`. If no
        user is bound or named, those of every user are, each user's in one transaction.
        """
        named = {"user_id": user_id, "agent_id": agent_id, "session_id": session_id}
        ids, rest = take_scope(filters, **named, run_id=run_id)
        scope, covered = self._scope(*ids), covered_kinds(kinds)
        if scope.read_project is not None:  # what belongs to none is read here, not deleted
            rest = {"AND": [rest, {"project": scope.read_project}]}
        query = MemoryQuery(read_filter(rest), ids.session_id, superseded=True)
        library = (await self._open()).library
        memories = messages = users = 0
        async for owner in self._scopes(library.store, scope, ids.user_id):
            targets = await _find_targets(library, owner, query, covered, sources=sources)
            count = len(targets.memories), targets.all_messages
            if any(count) and not dry_run:
                count = await self._delete_targets(library, owner, targets, sources=sources)
            users += any(count)
            memories, messages = memories + count[0], messages + count[1]
        message = f"{_noun(memories, 'memory')} and {_noun(messages, 'message')}"
        counts = {"found": memories + messages, "deleted": 0 if dry_run else memories + messages}
        return {
            **counts,
            "memories": memories,
            "messages": messages,
            "users": users,
            "dry_run": dry_run,
            "message": f"{message} {'would be deleted' if dry_run else 'deleted'}",
        }

    async def _delete_targets(
        self, library: Library, owner: Scope, targets: _Targets, *, sources: bool
    ) -> tuple[int, int]:
        """Hide what a `delete_all` covers; return the numbers of memories and messages."""
        removal = await library.changes(owner).delete(
            targets.memories,
            message_ids=targets.messages,
            actor=self._actor,
            reason="all",
            sources=sources,
        )
        await self._update_short_term(owner.user_id)
        return len(removal.memories), len(removal.messages)


async def _find_targets(
    library: Library, owner: Scope, query: MemoryQuery, covered: frozenset[str], *, sources: bool
) -> _Targets:
    store = library.store
    keys = await store.memories(owner).keys(query) if "memory" in covered else []
    timeline = store.timeline(replace(owner, session_id=None))
    messages: Sequence[str] = ()
    if "message" in covered:
        withheld = await store.memories(owner).withheld_sources()  # they stay with their memories
        found = await timeline.keys(query.filter, session_id=query.session_id)
        messages = [key for key in found if key not in withheld]
    of_memories: frozenset[str] = frozenset()
    if sources:
        records = await store.memories(owner).get_many(keys)
        ids = sorted({name for record in records for name in record.source_message_ids})
        of_memories = frozenset(message.message_id for message in await timeline.get_many(ids))
    return _Targets(tuple(keys), tuple(messages), of_memories)


async def _require_known(library: Library, scope: Scope, message_id: str) -> None:
    """Raise NotFound unless the scope has a message of that id, hidden or erased ones too."""
    if await library.store.timeline(scope).find_state(message_id) is None:
        raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")


def _others(removal: Removal, memory_id: str) -> dict[str, list[str]]:
    """Return the ids of what was removed with a memory or message."""
    named = {"memories": removal.memories, "messages": removal.messages}
    return {name: [key for key in keys if key != memory_id] for name, keys in named.items()}


def _noun(count: int, noun: str) -> str:
    plural = {"memory": "memories", "message": "messages"}[noun]
    return f"{count} {noun if count == 1 else plural}"
