"""The store: one opened database and the rooms in it, each bound to a scope."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import SchemaTooNew
from memrecall.scope import Scope
from memrecall.store.counters import Counters
from memrecall.store.database.engine import Database, Durability
from memrecall.store.database.locks import claim, require_enabled
from memrecall.store.database.memory_tables import knowledge, knowledge_bases
from memrecall.store.database.migrations import schema_version, upgrade
from memrecall.store.database.tables import (
    agents,
    memories,
    messages,
    meta,
    sessions,
    traces,
    users,
    vectors,
)
from memrecall.store.feed import ChangeFeed, UserVersion
from memrecall.store.graph.relations import Graph
from memrecall.store.keys import Keys
from memrecall.store.knowledge.entries import Knowledge, knowledge_text
from memrecall.store.knowledge.feed import KnowledgeFeed, KnowledgeVectors
from memrecall.store.memories.changes import MemoryChanges
from memrecall.store.memories.history import Revision, read_history
from memrecall.store.memories.listing import MemoryList
from memrecall.store.memories.plans import PlanOutcome, PlanStep, apply_plan, write_turn
from memrecall.store.memories.records import Memories, memory_search_text
from memrecall.store.messages.records import ScopedMessage, WriteResult, write_messages
from memrecall.store.messages.timeline import Timeline
from memrecall.store.owners import Owners
from memrecall.store.pgvector import PgVectors
from memrecall.store.sessions import SessionState
from memrecall.store.traces import Traces
from memrecall.store.transfer import export_user, import_user
from memrecall.store.vectors import VectorStore
from memrecall.text import TEXT_VERSION, analyze
from memrecall.types import Keyword, NewMemory, Origin

_BATCH = 1_000


async def rebuild_search_text(database: Database) -> AsyncIterator[int]:
    """Rewrite every row's search text, a batch a transaction; yields how many rows each had."""
    for table, key in ((messages, messages.c.message_id), (memories, memories.c.memory_key)):
        rows = [("", "")]
        while rows:
            rows = await database.transact(partial(_batch, table=table, key=key, after=rows[-1]))
            yield len(rows)
    entries = [("", "")]
    while entries:
        entries = await database.transact(partial(_knowledge_batch, after=entries[-1]))
        yield len(entries)
    await database.transact(_finish)


async def _batch(
    connection: AsyncConnection, table: Any, key: Any, after: tuple[str, str]
) -> list[tuple[str, str]]:
    place = tuple_(table.c.user_id, key)
    wanted = select(table).where(place > after).order_by(table.c.user_id, key).limit(_BATCH)
    rows = (await connection.execute(wanted)).mappings().all()
    if rows:
        changed = update(table).where(
            table.c.user_id == bindparam("of_user"), key == bindparam("of_key")
        )
        await connection.execute(
            changed,
            [
                {"of_user": r["user_id"], "of_key": r[key.name], "search_text": _search_text(r)}
                for r in rows
            ],
        )
    return [(row["user_id"], row[key.name]) for row in rows]


def _search_text(row: Any) -> str:
    if "memory_key" not in row:
        return analyze(row["content"]).to_search_text()
    keywords = [Keyword(**keyword) for keyword in row["keywords"]]
    return memory_search_text(row["summary"], row["content"], keywords)


async def _knowledge_batch(
    connection: AsyncConnection, after: tuple[str, str]
) -> list[tuple[str, str]]:
    place = (knowledge.c.agent_id, knowledge.c.knowledge_key)
    wanted = select(knowledge).where(tuple_(*place) > after).order_by(*place).limit(_BATCH)
    rows = (await connection.execute(wanted)).all()
    for row in rows:
        said = knowledge_text(row.summary, row.content, row.tags)
        same = (place[0] == row.agent_id, place[1] == row.knowledge_key)
        changed = update(knowledge).where(*same)
        await connection.execute(changed.values(search_text=analyze(said).to_search_text()))
    return [(row.agent_id, row.knowledge_key) for row in rows]


async def _finish(connection: AsyncConnection) -> None:
    await connection.execute(
        update(meta).where(meta.c.name == "text_version").values(value=str(TEXT_VERSION))
    )
    # Indexes made from the old text are of another time now.
    for owners in (users, knowledge_bases):
        await connection.execute(update(owners).values(epoch=secrets.token_hex(8)))


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the database says about itself."""

    database_id: str
    cursor_secret: bytes
    text_version: int
    embedding_model: str | None


class Store:
    """An open database whose schema is current. Get one from `Store.open`."""

    def __init__(self, database: Database, facts: StoreFacts) -> None:
        self._database = database
        self.facts = facts
        self.owners = Owners(database)
        self.keys = Keys(database)
        self.counters = Counters(database)

    @classmethod
    async def open(
        cls,
        location: str,
        *,
        create: bool = True,
        durability: Durability = "full",
        lock_timeout: float = 10.0,
    ) -> "Store":
        """Open a database and bring its schema up to date."""
        database = Database.connect(
            location, create=create, durability=durability, lock_timeout=lock_timeout
        )
        try:
            await database.prepare(lock_timeout)
            await upgrade(database)
            facts = await _read_facts(database)
        except BaseException:
            await database.close()
            raise
        return cls(database, facts)

    async def close(self) -> None:
        """Give the database back."""
        await self._database.close()

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def location(self) -> str:
        """Where the database is, without its password."""
        return self._database.location

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database."""
        return self._database.file

    @property
    def database(self) -> Database:
        """The database itself, for the rooms of the store."""
        return self._database

    def timeline(self, scope: Scope) -> Timeline:
        """The messages of one scope."""
        return Timeline(self._database, scope, self.facts.cursor_secret)

    def memories(self, scope: Scope) -> Memories:
        """The memories of one scope."""
        return Memories(self._database, scope)

    def changes(self, scope: Scope) -> MemoryChanges:
        """What can be done to the memories of one scope."""
        return MemoryChanges(self._database, scope)

    async def apply_plan(
        self, scope: Scope, steps: Sequence[PlanStep], *, actor: str
    ) -> list[PlanOutcome]:
        """Carry out what extraction decided, all or nothing."""
        return await apply_plan(self._database, scope, steps, actor)

    async def write_turn(
        self,
        entries: Sequence[ScopedMessage],
        kept: Sequence[tuple[NewMemory, Origin] | None],
        *,
        actor: str,
    ) -> tuple[WriteResult, list[str | None]]:
        """Store messages of one scope and the memories that they are, all or nothing."""
        return await write_turn(self._database, entries, kept, actor)

    def memory_list(self, scope: Scope) -> MemoryList:
        """The memories of one scope, listed."""
        return MemoryList(self._database, scope, self.facts.cursor_secret)

    async def history(self, scope: Scope, memory_key: str) -> list[Revision]:
        """What became of a memory, from its adding on."""
        return await read_history(self._database, scope, memory_key)

    def graph(self, scope: Scope) -> Graph:
        """The knowledge graph of one scope."""
        return Graph(self._database, scope)

    def session_state(self, scope: Scope) -> SessionState:
        """Summaries and checkpoints of a scope's session."""
        return SessionState(self._database, scope)

    def knowledge(self, scope: Scope) -> Knowledge:
        """What a scope's agent knows, shared by its users."""
        return Knowledge(self._database, scope)

    def knowledge_feed(self, agent_id: str) -> KnowledgeFeed:
        """The changes of what an agent knows."""
        return KnowledgeFeed(self._database, agent_id)

    def knowledge_vectors(self, model: str) -> KnowledgeVectors:
        """The vectors of knowledge that one model made."""
        return KnowledgeVectors(self._database, model)

    async def find_owners(self, memory_key: str) -> list[tuple[str, str]]:
        """User and agent of the memories of that key: for trusted code that names no user."""
        wanted = select(memories.c.user_id, memories.c.agent_id)
        rows = await self._database.fetch(wanted.where(memories.c.memory_key == memory_key))
        return [(row.user_id, row.agent_id) for row in rows]

    def export_user(self, user_id: str) -> AsyncGenerator[dict[str, Any], None]:
        """Everything of a user as JSON objects that `import_user` takes back."""
        return export_user(self._database, user_id)

    async def import_user(
        self, user_id: str, records: Iterable[Mapping[str, Any]]
    ) -> dict[str, int]:
        """Store what `export_user` gave, all or nothing."""
        return await import_user(self._database, user_id, records)

    def traces(self, scope: Scope) -> Traces:
        """The traces of one scope."""
        return Traces(self._database, scope, self.facts.cursor_secret)

    def feed(self, user_id: str) -> ChangeFeed:
        """The changes of one user."""
        return ChangeFeed(self._database, user_id)

    def vectors(self, model: str) -> VectorStore:
        """The vectors of one model."""
        return VectorStore(self._database, model)

    def pgvector(self) -> PgVectors:
        """Vectors in pgvector, beside the rows: for PostgreSQL."""
        return PgVectors(self._database)

    async def ensure_user(self, scope: Scope) -> None:
        """Make a scope's user and agent if they are new; refuse them if they are disabled."""

        async def work(connection: AsyncConnection) -> None:
            now = datetime.now(UTC)
            claims = await claim(connection, [scope], now, with_sessions=False)
            await claims.release(connection)

        await self._database.transact(work)

    async def write_messages(self, entries: list[ScopedMessage]) -> WriteResult:
        """Store a batch that may be of several scopes, all or nothing: for trusted imports."""
        return await write_messages(self._database, entries)

    def rebuild_search_text(self) -> AsyncIterator[int]:
        """Make the search text of all rows anew; yields how many rows each batch had."""
        return rebuild_search_text(self._database)

    async def schema_version(self) -> int:
        """The version of the schema."""
        async with self._database.read() as connection:
            return await schema_version(connection)

    async def require_active(self, mark: UserVersion, scope: Scope) -> None:
        """Refuse to answer for a disabled user or through a disabled agent."""
        require_enabled("user", scope.user_id, mark.status)
        if scope.agent_id is None:
            return
        wanted = select(agents.c.status).where(agents.c.agent_id == scope.agent_id)
        for row in await self._database.fetch(wanted):
            require_enabled("agent", scope.agent_id, row.status)

    async def count(self, user_id: str | None = None) -> dict[str, int]:
        """How many rows there are, of one user or of all."""
        counts: dict[str, int] = {}
        tables = [sessions, messages, memories, vectors, traces]
        if user_id is None:
            tables = [agents, users, *tables]
        async with self._database.autocommit() as connection:
            for table in tables:
                wanted = select(func.count()).select_from(table)
                if user_id is not None:
                    wanted = wanted.where(table.c.user_id == user_id)
                counts[table.name] = int(await connection.scalar(wanted) or 0)
        return counts


async def _read_facts(database: Database) -> StoreFacts:
    rows = await database.fetch(select(meta.c.name, meta.c.value))
    said = {row.name: row.value for row in rows}
    text_version = int(said["text_version"])
    if text_version > TEXT_VERSION:
        raise SchemaTooNew(
            f"{database.location} was indexed by a newer memrecall (text version {text_version})",
            hint="Upgrade memrecall: pip install -U memrecall",
        )
    return StoreFacts(
        database_id=said["database_id"],
        cursor_secret=bytes.fromhex(said["cursor_secret"]),
        text_version=text_version,
        embedding_model=said.get("embedding_model"),
    )
