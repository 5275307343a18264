"""Knowledge: what belongs to an agent and is shared by all its users.

Who may write it is decided here, by the permission that trusted code put into the scope.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Disabled, InvalidArgument, NotFound
from memrecall.scope import Permission, Scope
from memrecall.store.claims import agent_of, claim_agents
from memrecall.store.engine import Database
from memrecall.store.memories import truncate
from memrecall.store.memory_tables import knowledge
from memrecall.store.statements import new_id
from memrecall.types import check_id, check_json, check_text


@dataclass(frozen=True, slots=True)
class KnowledgeEntry:
    """Something that an agent knows."""

    knowledge_key: str
    agent_id: str
    content: str
    summary: str
    metadata: dict[str, Any]
    actor: str
    created_at: datetime
    updated_at: datetime


_COLUMNS = [knowledge.c[name] for name in KnowledgeEntry.__slots__]


class Knowledge:
    """The knowledge of a scope's agent."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope
        self._agent_id = agent_of(scope)

    async def add(
        self,
        content: str,
        *,
        summary: str = "",
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        actor: str = "memrecall",
    ) -> str:
        """Store an entry, or write it anew under its key; needs the permission `knowledge`."""
        self._require_permission()
        if not content.strip():
            raise InvalidArgument("the content is empty", hint="Say what is known")
        now = datetime.now(UTC)
        row = {
            "agent_id": self._agent_id,
            "knowledge_key": new_id("kn") if key is None else check_id("key", key),
            "content": truncate(check_text("content", content))[0],
            "summary": check_text("summary", summary),
            "metadata": check_json("metadata", dict(metadata or {})),
            "actor": check_text("actor", actor),
            "updated_at": now,
            "deleted_at": None,
        }
        await self._database.transact(lambda c: self._write(c, row, now))
        return str(row["knowledge_key"])

    async def get(self, key: str) -> KnowledgeEntry:
        """The entry of that key; NotFound if the agent has none."""
        wanted = self._select().where(knowledge.c.knowledge_key == key)
        rows = await self._database.fetch(wanted)
        if not rows:
            raise NotFound(f"agent {self._agent_id!r} knows nothing under {key!r}")
        return KnowledgeEntry(**rows[0]._mapping)

    async def list(self) -> list[KnowledgeEntry]:
        """All entries of the agent by their keys."""
        rows = await self._database.fetch(self._select().order_by(knowledge.c.knowledge_key))
        return [KnowledgeEntry(**row._mapping) for row in rows]

    async def delete(self, key: str) -> None:
        """Hide an entry; needs the permission `knowledge`."""
        self._require_permission()
        await self.get(key)
        hidden = update(knowledge).where(
            knowledge.c.agent_id == self._agent_id, knowledge.c.knowledge_key == key
        )
        stamped = hidden.values(deleted_at=datetime.now(UTC))
        await self._database.transact(lambda c: c.execute(stamped))

    def _select(self) -> Any:
        return select(*_COLUMNS).where(
            knowledge.c.agent_id == self._agent_id, knowledge.c.deleted_at.is_(None)
        )

    def _require_permission(self) -> None:
        if not self._scope.allows(Permission.KNOWLEDGE):
            raise Disabled(
                f"knowledge of agent {self._agent_id!r} is shared: this scope may not change it",
                hint="Bind the permission `knowledge`",
            )

    async def _write(self, connection: AsyncConnection, row: dict[str, Any], now: datetime) -> None:
        await claim_agents(connection, [self._agent_id], now)
        same = (
            knowledge.c.agent_id == row["agent_id"],
            knowledge.c.knowledge_key == row["knowledge_key"],
        )
        changed = await connection.execute(update(knowledge).where(*same).values(**row))
        if not changed.rowcount:
            await connection.execute(insert(knowledge), {**row, "created_at": now})
