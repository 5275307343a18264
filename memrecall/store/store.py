"""The store: one open database, and the objects that read and write it for a scope."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sqlalchemy import Connection, bindparam, column, func, select, table

from memrecall.errors import SchemaTooNew
from memrecall.scope import Scope, space_of
from memrecall.store.database.cursors import PageLimits
from memrecall.store.database.dialects import ConnectionOptions, Durability
from memrecall.store.database.distribution import SHARD_FACT
from memrecall.store.database.engine import Database
from memrecall.store.database.integrity import (
    find_damage,
    find_missing_parts,
    find_orphans,
    foreign_keys,
)
from memrecall.store.database.locks import lock_scopes, require_enabled
from memrecall.store.database.memberships import read_membership
from memrecall.store.database.migrations import schema_version, upgrade
from memrecall.store.database.statements import select_in_key_order
from memrecall.store.database.tables import (
    REFERENCES,
    agents,
    knowledge,
    memories,
    messages,
    meta,
    metadata,
    sessions,
    traces,
    users,
    vectors,
)
from memrecall.store.feed import USER_VERSION, ChangeFeed, KnowledgeFeed, UserVersion
from memrecall.store.graph import Graph, StoreGraphs
from memrecall.store.keys import Keys
from memrecall.store.knowledge import Knowledge
from memrecall.store.memories.changes import MemoryChanges
from memrecall.store.memories.history import AuditLog
from memrecall.store.memories.records import Memories
from memrecall.store.owners import IS_USER, Owners
from memrecall.store.sessions import SessionList, SessionState
from memrecall.store.spaces import Spaces
from memrecall.store.timeline import Timeline, UnreadMessages
from memrecall.store.traces import FeedbackList, FeedbackWriter, TraceList, Traces
from memrecall.store.transfer import LabelledRows
from memrecall.store.vectors import VectorStore
from memrecall.text import TEXT_VERSION
from memrecall.text.privacy import PrivacyPolicy

_ESTIMATE_FROM = 1_000_000  # rows from which the planner's estimate is good enough
_ESTIMATED = {each.name: each for each in (users, messages, memories, knowledge)}
_classes = table("pg_class", column("relname"), column("reltuples"))
_USER_AND_AGENT = USER_VERSION.add_columns(
    select(agents.c.status)
    .where(agents.c.agent_id == bindparam("of_agent"))
    .scalar_subquery()
    .label("agent_status")
)


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What the database records about itself."""

    database_id: str
    cursor_secret: bytes
    text_version: int
    embedding_model: str | None
    shards: int | None  # of a database that is distributed by user


class Store:
    """An open database with the current schema, as `Store.open` returns it."""

    def __init__(self, database: Database, facts: StoreFacts) -> None:
        self.database = database
        self.location = database.location  # the path or URL, without its password
        self.file = database.file  # of a SQLite database; None for a server
        self.facts = facts
        self.page_limits = PageLimits(facts.cursor_secret)
        self.owners = Owners(database)
        self.keys = Keys(database)
        self.spaces = Spaces(database)
        self.trace_list = TraceList(database, facts.cursor_secret)
        self.feedback_list = FeedbackList(database)

    @classmethod
    async def open(
        cls,
        location: str,
        *,
        create: bool = True,
        durability: Durability = "full",
        lock_timeout: float = 10.0,
        statement_timeout: float = 20.0,
        retry_seconds: float = 10.0,
        read_only: bool = False,
        privacy: str = "redact,tag",
    ) -> "Store":
        """Open a database and upgrade its schema; `read_only` creates and changes nothing.

        The times are in seconds; the last two are for PostgreSQL. `privacy` says what is done with
        secrets and with personal data in all that is written.
        """
        policy = PrivacyPolicy.parse(privacy)
        options = ConnectionOptions(
            durability=durability,
            lock_timeout=lock_timeout,
            statement_timeout=statement_timeout,
            read_only=read_only,
        )
        create = create and not read_only
        database = Database(location, options, create=create, retry_seconds=retry_seconds)
        try:
            database.privacy = policy
            await database.prepare()
            is_changed = await database.retries.run(lambda: upgrade(database))
            await database.save_schema(is_changed=is_changed)
            facts = await _read_facts(database)
            database.is_distributed = facts.shards is not None
        except BaseException:
            await database.close()
            raise
        return cls(database, facts)

    async def close(self) -> None:
        """Close the database."""
        await self.database.close()

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def bytes_on_disk(self) -> int:
        """Return the size of a SQLite database and its log, without the snapshots; else 0."""
        if self.file is None:
            return 0
        parts = (self.file, self.file.with_name(self.file.name + "-wal"))
        return sum(part.stat().st_size for part in parts if part.exists())

    def timeline(self, scope: Scope) -> Timeline:
        """Return the messages of a scope."""
        return Timeline(self.database, scope, self.page_limits)

    def memories(self, scope: Scope) -> Memories:
        """Return the memories of a scope."""
        return Memories(self.database, scope, self.page_limits)

    def unread(
        self, scope: Scope, *, session_id: str | None = None, since: datetime | None = None
    ) -> UnreadMessages:
        """Return the messages of a scope that no model has read for memories."""
        return UnreadMessages(self.database, scope, session_id=session_id, since=since)

    def changes(self, scope: Scope) -> MemoryChanges:
        """Return the memory writer of a scope."""
        return MemoryChanges(self.database, scope)

    def audit(self, scope: Scope) -> AuditLog:
        """Return the audit log of a scope."""
        return AuditLog(self.database, scope)

    def labelled(self, scope: Scope) -> LabelledRows:
        """Return the rows of a scope's user that imports of exports wrote."""
        return LabelledRows(self.database, scope)

    def graph(self, scope: Scope) -> Graph:
        """Return the knowledge graph of a scope, in the tables of this database."""
        return Graph(StoreGraphs(self.database), scope, find_messages=self.timeline(scope).get_many)

    def session_state(self, scope: Scope) -> SessionState:
        """Return the summaries and checkpoints of a scope's session."""
        return SessionState(self.database, scope)

    def session_list(self, scope: Scope) -> SessionList:
        """Return the sessions of a scope's user, by time."""
        return SessionList(self.database, scope, self.facts.cursor_secret)

    def knowledge(self, scope: Scope) -> Knowledge:
        """Return the knowledge of a scope's agent, shared by its users."""
        return Knowledge(self.database, scope)

    def knowledge_feed(self, agent_id: str) -> KnowledgeFeed:
        """Return the changes of an agent's knowledge."""
        return KnowledgeFeed(self.database, agent_id)

    async def find_owners(self, memory_key: str) -> list[tuple[str, str]]:
        """Return user and agent of each memory, else message, with a key, for trusted code."""
        statement = select(memories.c.user_id, memories.c.agent_id)
        rows = await self.database.fetch(statement.where(memories.c.memory_key == memory_key))
        if not rows:  # an index has the ids of messages by user only
            owned = (messages.c.user_id == users.c.user_id) & (messages.c.message_id == memory_key)
            agent_id = select(messages.c.agent_id).where(owned).scalar_subquery()
            statement = select(users.c.user_id, agent_id.label("agent_id"))
            rows = await self.database.fetch(statement.where(agent_id.is_not(None)))
        # A space is reached by its members only.
        return [(row.user_id, row.agent_id) for row in rows if space_of(row.user_id) is None]

    def traces(self, scope: Scope) -> Traces:
        """Return the traces of a scope."""
        return Traces(self.database, scope, self.facts.cursor_secret)

    def feedback(self, scope: Scope) -> FeedbackWriter:
        """Return the feedback writer of a scope."""
        return FeedbackWriter(self.database, scope)

    def feed(self, user_id: str) -> ChangeFeed:
        """Return the changes of a user."""
        return ChangeFeed(self.database, user_id)

    def vectors(self, model: str) -> VectorStore:
        """Return the vectors of a model."""
        return VectorStore(self.database, model)

    async def ensure_user(self, scope: Scope) -> None:
        """Create a scope's user and agent if they are new; refuse them if they are disabled."""

        def work(connection: Connection) -> None:
            locks = lock_scopes(connection, [scope], with_sessions=False)
            locks.save(connection)

        await self.database.transact(work)

    async def find_damage(self, *, deep: bool = False) -> dict[str, list[str]]:
        """Return the problems of the database by kind: its files, its schema, its references.

        `deep` also compares all indexes of SQLite and reads every row.
        """
        tables = metadata.sorted_tables
        references = [*foreign_keys(tables), *REFERENCES]

        def inspect(connection: Connection) -> dict[str, list[str]]:
            problems = {
                "integrity": find_damage(connection, deep=deep),
                "tables": find_missing_parts(connection, tables),
            }
            if any(problems.values()):
                return problems
            if deep:
                for table in tables:  # a row that is damaged raises an error
                    rows = select_in_key_order(self.database.dialect, table)
                    for _ in connection.execution_options(stream_results=True).execute(rows):
                        pass
            return {**problems, "references": find_orphans(connection, references)}

        return await self.database.inspect(inspect)

    async def schema_version(self) -> int:
        """Return the version of the schema."""
        async with self.database.read() as connection:
            return await connection.run_sync(schema_version)

    async def read_version(self, scope: Scope) -> UserVersion | None:
        """Return the version of a scope's user; None for an unknown one.

        Raises Disabled if the user or the scope's agent is disabled.
        """
        if scope.author is not None:  # a member may have left since the space was entered
            read = partial(read_membership, owner=scope.user_id, member=scope.member)
            row = await self.database.read_together(read)
            return UserVersion.of_row(row)
        ids = {"of_owner": scope.user_id, "of_agent": scope.agent_id}
        for row in await self.database.fetch(_USER_AND_AGENT, ids):
            version = UserVersion.of_row(row)
            require_enabled("user", scope.user_id, version.status)
            if scope.agent_id is not None and row.agent_status is not None:
                require_enabled("agent", scope.agent_id, row.agent_status)
            return version
        return None

    async def count(self, user_id: str | None = None) -> dict[str, int]:
        """Return the number of rows of each table, of one user or of all."""
        counts: dict[str, int] = {}
        tables = [sessions, messages, memories, vectors, traces]
        if user_id is None:
            tables = [agents, users, *tables]
        async with self.database.autocommit() as connection:
            for table in tables:
                statement = select(func.count()).select_from(table)
                if user_id is not None:
                    statement = statement.where(table.c.user_id == user_id)
                counts[table.name] = int(await connection.scalar(statement) or 0)
        return counts

    async def estimate_counts(self) -> dict[str, int]:
        """Return how many users, messages, memories and knowledge entries there are.

        The rows of a large table of PostgreSQL are estimated, as its planner knows them.
        """
        counts: dict[str, int] = {}
        if self.file is None:
            columns = (_classes.c.relname.label("name"), _classes.c.reltuples.label("rows"))
            statement = select(*columns).where(_classes.c.relname.in_(list(_ESTIMATED)))
            rows = await self.database.fetch(statement)
            counts = {row.name: int(row.rows) for row in rows if row.rows >= _ESTIMATE_FROM}
        for name, counted in _ESTIMATED.items():
            if name not in counts:
                counting = select(func.count()).select_from(counted)
                if counted is users:  # It has a row of each space, too.
                    counting = counting.where(IS_USER)
                counts[name] = int((await self.database.fetch(counting))[0][0])
        return counts


async def _read_facts(database: Database) -> StoreFacts:
    rows = await database.fetch(select(meta.c.name, meta.c.value))
    values = {row.name: row.value for row in rows}
    text_version = int(values["text_version"])
    if text_version > TEXT_VERSION:
        raise SchemaTooNew(
            f"{database.location} was indexed by a newer memrecall (text version {text_version})"
        )
    return StoreFacts(
        database_id=values["database_id"],
        cursor_secret=bytes.fromhex(values["cursor_secret"]),
        text_version=text_version,
        embedding_model=values.get("embedding_model"),
        shards=int(values[SHARD_FACT]) if SHARD_FACT in values else None,
    )
