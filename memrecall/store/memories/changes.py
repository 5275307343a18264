"""What can be done to memories after they are stored. Nothing is lost before it is purged."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import Locks, claim_known
from memrecall.store.database.memory_tables import revisions
from memrecall.store.database.statements import chunks, select_by_keys
from memrecall.store.database.tables import memories, vectors
from memrecall.store.memories.edits import (
    Edit,
    only_visible,
    read_before,
    read_keywords,
    write_edits,
)
from memrecall.store.memories.records import Memories, memory_search_text, named, truncate
from memrecall.types import NewMemory, Origin, check_text

UPDATABLE = frozenset(
    {
        "content",
        "summary",
        "memory_type",
        "layer",
        "keywords",
        "metadata",
        "sensitive",
        "valid_from",
        "valid_to",
        "subject",
        "speaker",
        "field",
        "pinned",
        "expires_at",
    }
)


class MemoryChanges:
    """Corrects, supersedes, hides, brings back and purges the memories of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def update(
        self, memory_key: str, values: Mapping[str, Any], *, actor: str, reason: str = ""
    ) -> None:
        """Correct a memory in its place; what it said before stays in its history."""
        unknown = sorted(set(values) - UPDATABLE)
        if unknown:
            raise InvalidArgument(f"{unknown[0]!r} of a memory cannot be changed")
        check_text("actor", actor)
        await self._database.transact(
            lambda c: self.update_in(c, memory_key, dict(values), actor, reason)
        )

    async def supersede(
        self, memory_key: str, new: NewMemory, *, origin: Origin, actor: str, reason: str = ""
    ) -> str:
        """Store a memory in the place of another, which ends then; the new one's key."""
        return await self._database.transact(
            lambda c: self.supersede_in(c, memory_key, new, origin, actor, reason)
        )

    async def end(self, memory_key: str, *, actor: str, reason: str = "") -> None:
        """A memory holds no longer: found as of earlier times only."""
        await self._database.transact(lambda c: self.end_in(c, memory_key, actor, reason))

    async def delete(self, keys: Sequence[str], *, actor: str, reason: str = "") -> int:
        """Hide memories at once; how many. Unknown and hidden ones are passed over."""
        return await self._database.transact(lambda c: self.delete_in(c, keys, actor, reason))

    async def undo(self, memory_key: str, *, actor: str) -> None:
        """Take back the last change of a memory that has not been taken back."""
        await self._database.transact(lambda c: self._undo(c, memory_key, actor))

    async def purge(self, keys: Sequence[str]) -> int:
        """Remove memories for ever, with history and vectors; how many."""
        gone = await self._database.transact(lambda c: self._purge(c, keys))
        await self._database.truncate_log()
        return gone

    async def update_in(
        self,
        connection: AsyncConnection,
        key: str,
        values: dict[str, Any],
        actor: str,
        reason: str,
    ) -> None:
        """The same inside a transaction."""
        claims = await self._claim(connection)
        row = await self._living(connection, key)
        edit = Edit(row, _with_search_text(row, _fitted(values)), "UPDATE", reason)
        await write_edits(connection, claims, [edit], actor)
        await claims.release(connection)

    async def supersede_in(
        self,
        connection: AsyncConnection,
        key: str,
        new: NewMemory,
        origin: Origin,
        actor: str,
        reason: str,
    ) -> str:
        """The same inside a transaction."""
        row = await self._living(connection, key)
        if row["superseded_by"] is not None:
            raise Conflict(
                f"memory {key!r} was superseded by {row['superseded_by']!r}",
                hint="Supersede that one",
            )
        fresh = named(new)
        await Memories(self._database, self._scope).add_in(
            connection, [fresh], origin, actor, supersedes=key
        )
        claims = await self._claim(connection)
        # It ends when the new one begins, but not before it began itself.
        began = row["valid_from"] or row["created_at"]
        ends = max(min(new.valid_from or claims.now, claims.now), began)
        values = {
            "valid_to": ends,
            "superseded_by": fresh.memory_key,
            "superseded_reason": reason,
        }
        edit = Edit(row, values, "UPDATE", reason, other_key=fresh.memory_key)
        await write_edits(connection, claims, [edit], actor)
        await claims.release(connection)
        return str(fresh.memory_key)

    async def end_in(self, connection: AsyncConnection, key: str, actor: str, reason: str) -> None:
        """The same inside a transaction."""
        claims = await self._claim(connection)
        row = await self._living(connection, key)
        values = {"valid_to": claims.now, "superseded_reason": reason}
        await write_edits(connection, claims, [Edit(row, values, "DELETE", reason)], actor)
        await claims.release(connection)

    async def delete_in(
        self, connection: AsyncConnection, keys: Sequence[str], actor: str, reason: str
    ) -> int:
        """The same inside a transaction."""
        claims = await self._claim(connection)
        wanted = only_visible(select(memories), self._scope).where(memories.c.deleted_at.is_(None))
        rows = await select_by_keys(connection, wanted, [memories.c.memory_key], sorted(set(keys)))
        hidden = [Edit(dict(row), {"deleted_at": claims.now}, "DELETE", reason) for row in rows]
        await write_edits(connection, claims, hidden, actor)
        await claims.release(connection)
        return len(rows)

    async def _claim(self, connection: AsyncConnection) -> Locks:
        return await claim_known(connection, self._scope, datetime.now(UTC))

    async def _living(self, connection: AsyncConnection, key: str) -> Mapping[str, Any]:
        row = await self._find(connection, key)
        if row["deleted_at"] is not None:
            raise NotFound(f"memory {key!r} is deleted", hint="Undo that first")
        return row

    async def _find(self, connection: AsyncConnection, key: str) -> Mapping[str, Any]:
        # Locked before it is read: what it says must still hold when it is changed.
        await self._claim(connection)
        wanted = only_visible(select(memories), self._scope).where(memories.c.memory_key == key)
        row = (await connection.execute(wanted)).mappings().one_or_none()
        if row is None:
            raise NotFound(f"there is no memory {key!r}", hint="Check the key and the user")
        return dict(row)

    async def _undo(self, connection: AsyncConnection, key: str, actor: str) -> None:
        row = await self._find(connection, key)
        last = await self._last_revision(connection, key)
        if last is None and row["supersedes"] is not None and row["deleted_at"] is None:
            # To take back what took another's place is to bring that one back.
            await self._undo(connection, row["supersedes"], actor)
            return
        if last is None:
            raise Conflict(f"nothing was done to memory {key!r} that could be taken back")
        edits = [
            Edit(row, _with_search_text(row, read_before(last["before"])), "UNDO", last["event"])
        ]
        claims = await self._claim(connection)
        if last["other_key"] is not None:
            other = await self._find(connection, last["other_key"])
            if other["superseded_by"] is not None:
                raise Conflict(
                    f"memory {last['other_key']!r}, which took its place, was superseded itself",
                    hint="Undo that first",
                )
            if other["deleted_at"] is None:
                edits.append(Edit(other, {"deleted_at": claims.now}, "DELETE", f"undo of {key}"))
        await write_edits(connection, claims, edits, actor)
        await connection.execute(
            update(revisions)
            .where(
                revisions.c.user_id == self._scope.user_id,
                revisions.c.memory_key == key,
                revisions.c.number == last["number"],
            )
            .values(undone=True)
        )
        await claims.release(connection)

    async def _last_revision(
        self, connection: AsyncConnection, key: str
    ) -> Mapping[str, Any] | None:
        wanted = select(revisions).where(
            revisions.c.user_id == self._scope.user_id,
            revisions.c.memory_key == key,
            revisions.c.undone.is_(False),
            revisions.c.event != "UNDO",
        )
        latest = wanted.order_by(revisions.c.number.desc()).limit(1)
        row = (await connection.execute(latest)).mappings().one_or_none()
        return None if row is None else dict(row)

    async def _purge(self, connection: AsyncConnection, keys: Sequence[str]) -> int:
        claims = await self._claim(connection)
        wanted = only_visible(select(memories.c.memory_key), self._scope)
        rows = await select_by_keys(connection, wanted, [memories.c.memory_key], sorted(set(keys)))
        found = [row["memory_key"] for row in rows]
        if found:
            await erase_memories(connection, self._scope.user_id, found)
            await claims.renew(connection)
        return len(found)


async def erase_memories(connection: AsyncConnection, user_id: str, keys: Sequence[str]) -> None:
    """Remove rows, vectors and every revision that tells of them."""
    for part in chunks(list(keys)):
        some = list(part)
        told = or_(revisions.c.memory_key.in_(some), revisions.c.other_key.in_(some))
        await connection.execute(delete(revisions).where(revisions.c.user_id == user_id, told))
        of_memory = (vectors.c.user_id == user_id, vectors.c.kind == "memory")
        await connection.execute(delete(vectors).where(*of_memory, vectors.c.key.in_(some)))
        # Why something was superseded may be said in the words of what took its place.
        silenced = update(memories).where(
            memories.c.user_id == user_id, memories.c.superseded_by.in_(some)
        )
        await connection.execute(silenced.values(superseded_reason=None, superseded_by=None))
        of_user = memories.c.user_id == user_id
        await connection.execute(delete(memories).where(of_user, memories.c.memory_key.in_(some)))


def _fitted(values: dict[str, Any]) -> dict[str, Any]:
    """The values as the table takes them."""
    fitted = dict(values)
    if "content" in fitted:
        fitted["content"], fitted["truncated"] = truncate(fitted["content"])
    if "keywords" in fitted:
        fitted["keywords"] = [keyword.model_dump() for keyword in fitted["keywords"]]
    return fitted


def _with_search_text(row: Mapping[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    now = {**row, **values}
    words = memory_search_text(now["summary"], now["content"], read_keywords(now["keywords"]))
    return {**values, "search_text": words}
