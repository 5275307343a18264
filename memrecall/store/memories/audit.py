"""The audit log of a user's data: who changed what, and when. It has no contents."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.scope import Scope
from memrecall.store.database.cursors import KeyedPage
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_users
from memrecall.store.database.memory_tables import audit_log
from memrecall.store.database.statements import filter_scope, new_id


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that a caller made; `target` is the key of what was changed, if it was one thing."""

    action: str
    actor: str
    target: str | None = None
    count: int = 1
    at: datetime | None = None
    entry_id: str = ""


async def write_entry(
    connection: AsyncConnection, scope: Scope, entry: AuditEntry, now: datetime
) -> None:
    """Add an entry in the transaction of its change."""
    row = {
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "entry_id": new_id("au"),
        "at": now,
    }
    fields = {name: getattr(entry, name) for name in ("action", "actor", "target", "count")}
    await connection.execute(insert(audit_log), {**row, **fields})


class AuditLog:
    """The audit log of one scope."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def add(self, entry: AuditEntry) -> None:
        """Add the entry of a change that the tables of memories do not contain."""

        async def work(connection: AsyncConnection) -> None:
            # Lock the user so it cannot be erased concurrently; unknown users have nothing to log.
            if await lock_users(connection, [self._scope.user_id]):
                await write_entry(connection, self._scope, entry, datetime.now(UTC))

        await self._database.transact(work)

    async def page(self, *, limit: int, after: str | None = None) -> KeyedPage[AuditEntry]:
        """Return a page of entries, latest first; `after` is the last id of the page before."""
        statement = filter_scope(select(audit_log), audit_log, self._scope)
        if after is not None:
            statement = statement.where(audit_log.c.entry_id < after)
        # Ids begin with the time of their creation.
        latest_first = statement.order_by(audit_log.c.entry_id.desc())
        rows = await self._database.fetch(latest_first.limit(limit + 1))
        items = tuple(_to_entry(row) for row in rows[:limit])
        return KeyedPage(items, items[-1].entry_id if len(rows) > limit else None)


def _to_entry(row: Any) -> AuditEntry:
    return AuditEntry(row.action, row.actor, row.target, row.count, row.at, row.entry_id)
