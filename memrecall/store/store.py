"""The store: one opened database and the rooms in it, each bound to a scope."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from memrecall.errors import SchemaTooNew
from memrecall.scope import Scope
from memrecall.store.analysis import analyse_anew
from memrecall.store.claims import require_enabled
from memrecall.store.engine import Database, Durability
from memrecall.store.feed import ChangeFeed, UserMark
from memrecall.store.keys import Keys
from memrecall.store.memories import Memories
from memrecall.store.messages import Entry, Written, write_messages
from memrecall.store.migrations import schema_version, upgrade
from memrecall.store.owners import Owners
from memrecall.store.tables import (
    agents,
    memories,
    messages,
    meta,
    sessions,
    traces,
    users,
    vectors,
)
from memrecall.store.timeline import Timeline
from memrecall.store.traces import Traces
from memrecall.store.vectors import VectorStore
from memrecall.text import TEXT_VERSION


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
    def place(self) -> str:
        """Where the database is, without its password."""
        return self._database.place

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

    def traces(self, scope: Scope) -> Traces:
        """The traces of one scope."""
        return Traces(self._database, scope, self.facts.cursor_secret)

    def feed(self, user_id: str) -> ChangeFeed:
        """The changes of one user."""
        return ChangeFeed(self._database, user_id)

    def vectors(self, model: str) -> VectorStore:
        """The vectors of one model."""
        return VectorStore(self._database, model)

    async def write_messages(self, entries: list[Entry]) -> Written:
        """Store a batch that may be of several scopes, all or nothing: for trusted imports."""
        return await write_messages(self._database, entries)

    def analyse_anew(self) -> AsyncIterator[int]:
        """Make the search text of all rows anew; yields how many rows each batch had."""
        return analyse_anew(self._database)

    async def schema_version(self) -> int:
        """The version of the schema."""
        async with self._database.read() as connection:
            return await schema_version(connection)

    async def require_active(self, mark: UserMark, scope: Scope) -> None:
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
        async with self._database.peek() as connection:
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
            f"{database.place} was indexed by a newer memrecall (text version {text_version})",
            hint="Upgrade memrecall: pip install -U memrecall",
        )
    return StoreFacts(
        database_id=said["database_id"],
        cursor_secret=bytes.fromhex(said["cursor_secret"]),
        text_version=text_version,
        embedding_model=said.get("embedding_model"),
    )
