"""The tables. The key of every table of user data begins with the owner, `user_id`.

Agents, keys, knowledge and restores are the only data that no user owns.

Documents are JSON, not JSONB, which turns 1e23 into an integer and so into another number.

No sequence is shared by owners: each change of a user's rows takes the next number (`change_no`)
of that user's own `version`. Readers that derive something from the rows ask for the changes after
the last number that they have read.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    and_,
    bindparam,
    false,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from memrecall.store.database.integrity import META_TABLE, RowReference
from memrecall.types import ID_LENGTH, LABEL_LENGTH, NAME_LENGTH

metadata = MetaData()


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC with microseconds, timezone-aware in Python on both databases."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC: SQLite would store the digits of any other zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def result_processor(
        self, dialect: Dialect, coltype: object
    ) -> Callable[[Any], datetime | None] | None:
        """Return the function that reads a value; every hit of a search has two times."""
        return _read_time


def _read_time(value: datetime | str | None) -> datetime | None:
    # SQLite has text without a zone; times are written in UTC.
    if isinstance(value, str):
        return datetime.fromisoformat(value + "+00:00")
    # The driver of PostgreSQL returns the first and the last moment without a zone.
    return value.replace(tzinfo=UTC) if value is not None and value.tzinfo is None else value


def id_type() -> String:
    """Return the type of an id of at most 64 characters."""
    # In the order of the bytes, so that all databases sort ids alike.
    return String(ID_LENGTH).with_variant(String(ID_LENGTH, collation="C"), "postgresql")


def time_column(name: str, **options: Any) -> Column[datetime]:
    """Return a column of times."""
    return Column(name, UtcTime(), **options)


def _stamps() -> tuple[Column[datetime], Column[datetime]]:
    return (
        time_column("create_time", nullable=False, server_default=func.current_timestamp()),
        time_column("update_time", nullable=False, server_default=func.current_timestamp()),
    )


def _status() -> Column[int]:
    return Column("status", SmallInteger, nullable=False, server_default=text("1"))


def owned_table(name: str, *items: SchemaItem) -> Table:
    """Return a table of rows that users or spaces own."""
    owner = Column("user_id", id_type(), ForeignKey("users.user_id"), nullable=False)
    return Table(name, metadata, owner, *items)


def import_label() -> Column[str]:
    """Return the column with the label of the import that wrote a row: id, format and file.

    Null if the row was written here, or if something written here rests on it too.
    """
    return Column("import_label", Text)


meta = Table(
    META_TABLE,
    metadata,
    Column("name", String(LABEL_LENGTH), primary_key=True),
    Column("value", Text, nullable=False),
)

agents = Table(
    "agents",
    metadata,
    Column("agent_id", id_type(), primary_key=True),
    Column("agent_name", String(NAME_LENGTH), nullable=False),
    Column("agent_type", String(LABEL_LENGTH)),
    Column("description", Text),
    Column("config", JSON()),
    _status(),
    *_stamps(),
    Column("creator", String(ID_LENGTH)),
    Index("ix_agents_status", "status"),
    Index("ix_agents_create_time", "create_time"),
)

users = Table(
    "users",
    metadata,
    Column("user_id", id_type(), primary_key=True),
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("user_name", String(NAME_LENGTH)),
    Column("user_type", String(LABEL_LENGTH)),
    Column("profile", JSON()),
    Column("time_zone", String(ID_LENGTH), nullable=False, server_default="UTC"),
    _status(),
    *_stamps(),
    time_column("last_active_time"),
    # The number of the user's latest change, and a value that differs after any erasure.
    Column("version", BigInteger, nullable=False, server_default=text("0")),
    Column("epoch", String(32), nullable=False),
    Index("ix_users_agent", "agent_id"),
    Index("ix_users_agent_status", "agent_id", "status"),
    Index("ix_users_last_active_time", "last_active_time"),
)

sessions = owned_table(
    "sessions",
    Column("session_id", id_type(), nullable=False),
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("session_name", String(NAME_LENGTH)),
    Column("session_type", String(LABEL_LENGTH)),
    Column("context", JSON()),
    _status(),
    *_stamps(),
    time_column("end_time"),
    # Counted here, so that the numbers of erased messages are never used again.
    Column("last_sequence_no", BigInteger, nullable=False, server_default=text("0")),
    time_column("last_create_time"),
    import_label(),
    PrimaryKeyConstraint("user_id", "session_id"),
    Index("ix_sessions_agent_user", "agent_id", "user_id"),
    Index("ix_sessions_status_create_time", "status", "create_time"),
    Index("ix_sessions_create_time", "create_time"),
)

messages = owned_table(
    "messages",
    Column("message_id", id_type(), nullable=False),
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("session_id", id_type(), nullable=False),
    Column("role", String(20), nullable=False),
    Column("speaker", String(NAME_LENGTH)),
    Column("content", Text, nullable=False),
    Column("content_type", String(LABEL_LENGTH), nullable=False, server_default="text"),
    Column("metadata", JSON()),
    Column("parent_message_id", id_type()),
    time_column("ts", nullable=False),
    time_column("create_time", nullable=False, server_default=func.current_timestamp()),
    Column("sequence_no", BigInteger, nullable=False),
    Column("search_text", Text, nullable=False),
    Column("change_no", BigInteger, nullable=False),
    time_column("deleted_at"),  # hidden, by itself or together with a memory that came from it
    Column("project", String(NAME_LENGTH)),
    Column("author", id_type()),  # the member who wrote it to a space
    time_column("expires_at"),  # hidden from then on, with the first memory from it that expires
    # Set if the message itself was deleted: the keys of the memories that were hidden with it.
    Column("deletion", JSON(none_as_null=True)),
    # What let a model read it for memories: `add`, or the run of an extraction; null: nothing yet.
    Column("extracted_by", id_type()),
    import_label(),
    PrimaryKeyConstraint("user_id", "message_id"),
    ForeignKeyConstraint(["user_id", "session_id"], ["sessions.user_id", "sessions.session_id"]),
    UniqueConstraint(
        "user_id", "agent_id", "session_id", "create_time", name="uk_messages_create_time"
    ),
    UniqueConstraint("user_id", "session_id", "sequence_no", name="uk_messages_sequence"),
    Index("ix_messages_session_create_time", "user_id", "session_id", "create_time"),
    Index("ix_messages_session_ts", "user_id", "session_id", "ts", "sequence_no"),
    Index("ix_messages_user_create_time", "user_id", "create_time"),
    Index("ix_messages_create_time", "create_time"),
    Index("ix_messages_change", "user_id", "change_no"),
    Index("ix_messages_project", "user_id", "project", "ts"),
)
Index("ix_messages_ts", messages.c.user_id, messages.c.ts.desc(), messages.c.message_id)
_IS_DELETED = messages.c.deleted_at.is_not(None)
Index(
    "ix_messages_deleted",
    messages.c.user_id,
    messages.c.message_id,
    sqlite_where=_IS_DELETED,
    postgresql_where=_IS_DELETED,
)

memories = owned_table(
    "memories",
    Column("memory_key", id_type(), nullable=False),
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("session_id", id_type()),
    Column("summary", Text, nullable=False, server_default=""),
    Column("content", Text, nullable=False),
    Column("memory_type", String(LABEL_LENGTH), nullable=False, server_default="general"),
    Column("layer", String(10), nullable=False, server_default="long"),
    Column("keywords", JSON(), nullable=False),
    Column("metadata", JSON(), nullable=False),
    Column("sensitive", Boolean, nullable=False),
    time_column("valid_from"),
    time_column("valid_to"),
    Column("source_message_ids", JSON(), nullable=False),
    Column("provenance", JSON(), nullable=False),
    Column("truncated", Boolean, nullable=False),
    time_column("created_at", nullable=False),
    time_column("updated_at", nullable=False),
    time_column("deleted_at"),
    Column("search_text", Text, nullable=False),
    Column("change_no", BigInteger, nullable=False),
    Column("subject", String(NAME_LENGTH)),
    Column("speaker", String(NAME_LENGTH)),
    Column("field", String(LABEL_LENGTH)),
    Column("pinned", Boolean, nullable=False, server_default=false()),
    time_column("expires_at"),
    Column("supersedes", id_type()),
    Column("superseded_by", id_type()),
    Column("superseded_reason", Text),
    time_column("last_recalled_at"),
    Column("project", String(NAME_LENGTH)),  # none: about the user, or of every project
    Column("author", id_type()),  # the member who wrote it to a space
    import_label(),
    PrimaryKeyConstraint("user_id", "memory_key"),
    ForeignKeyConstraint(["user_id", "session_id"], ["sessions.user_id", "sessions.session_id"]),
    Index("ix_memories_created_at", "user_id", "created_at"),
    Index("ix_memories_change", "user_id", "change_no"),
    Index("ix_memories_field", "user_id", "subject", "field"),
    Index("ix_memories_session", "user_id", "session_id", "created_at"),
    Index("ix_memories_project", "user_id", "project", "created_at"),
    # Trusted code may look up a memory without its user.
    Index("ix_memories_key", "memory_key"),
)
_CAN_EXPIRE = memories.c.expires_at.is_not(None)
Index(
    "ix_memories_expires",
    memories.c.user_id,
    memories.c.expires_at,
    sqlite_where=_CAN_EXPIRE,
    postgresql_where=_CAN_EXPIRE,
)
# The time of execution, in statements that are built once.
NOW: ColumnElement[datetime] = bindparam(
    "clock", callable_=lambda: datetime.now(UTC), type_=UtcTime()
)


def has_expired(table: Table) -> ColumnElement[bool]:
    """Return the condition for expired memories, and for messages that expire with one."""
    return and_(table.c.expires_at.is_not(None), table.c.expires_at <= NOW)


# When the last of a user's memories expired: caches know by it that something is hidden since.
EXPIRED_AT = (
    select(func.max(memories.c.expires_at))
    .where(memories.c.user_id == users.c.user_id, has_expired(memories))
    .correlate(users)
    .scalar_subquery()
    .label("expired_at")
)


def is_hidden(table: Table) -> ColumnElement[bool]:
    """Return the condition for memories or messages that are deleted or have expired."""
    return or_(table.c.deleted_at.is_not(None), has_expired(table))


def is_visible(table: Table) -> ColumnElement[bool]:
    """Return the condition for memories or messages that are not deleted and have not expired."""
    is_current = or_(table.c.expires_at.is_(None), table.c.expires_at > NOW)
    return and_(table.c.deleted_at.is_(None), is_current)


vectors = owned_table(
    "vectors",
    Column("kind", String(20), nullable=False),
    Column("key", id_type(), nullable=False),
    Column("model", String(NAME_LENGTH), nullable=False),
    Column("dimensions", Integer, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("change_no", BigInteger, nullable=False),
    PrimaryKeyConstraint("user_id", "kind", "key"),
    Index("ix_vectors_change", "user_id", "change_no"),
)

# Erased messages and memories, so that readers drop them without reading everything again, and that
# a message which is sent again is not stored again. Summaries leave out the messages of a passage.
PASSAGE = "passage"
tombstones = owned_table(
    "tombstones",
    Column("kind", String(20), nullable=False),
    Column("key", id_type(), nullable=False),
    Column("change_no", BigInteger, nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "kind", "key"),
    Index("ix_tombstones_change", "user_id", "change_no"),
)

traces = owned_table(
    "traces",
    Column("trace_id", id_type(), nullable=False),
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    # A label, not a reference: a recall may run in a session without messages.
    Column("session_id", id_type()),
    time_column("created_at", nullable=False),
    Column("query", Text, nullable=False),
    Column("stop_reason", String(LABEL_LENGTH), nullable=False),
    Column("confidence", Double, nullable=False),
    Column("abstained", Boolean, nullable=False),
    Column("iterations", Integer, nullable=False),
    Column("model_calls", Integer, nullable=False),
    Column("tool_calls", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("body", JSON(), nullable=False),
    Column("model", String(NAME_LENGTH), nullable=False, server_default=""),
    Column("project", String(NAME_LENGTH)),  # that the recall was restricted to
    PrimaryKeyConstraint("user_id", "trace_id"),
    # For lists over all users, which are read in these orders, both ways.
    Index("ix_traces_latest", "created_at", "user_id", "trace_id"),
    Index("ix_traces_confidence", "confidence", "user_id", "trace_id"),
    Index("ix_traces_seconds", "seconds", "user_id", "trace_id"),
)
Index("ix_traces_created_at", traces.c.user_id, traces.c.created_at.desc(), traces.c.trace_id)

# Not user data. A key without rows in `api_key_users` is for all users, or had its users erased.
api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", id_type(), primary_key=True),
    Column("name", String(NAME_LENGTH), nullable=False, server_default=""),
    Column("secret_hash", String(64), nullable=False),
    Column("all_users", Boolean, nullable=False),
    Column("agent_id", id_type()),  # a label: the first write creates the agent
    Column("read_only", Boolean, nullable=False),
    Column("permissions", JSON(), nullable=False),
    time_column("created_at", nullable=False),
    time_column("expires_at"),
    time_column("revoked_at"),
)

api_key_users = Table(
    "api_key_users",
    metadata,
    # No reference: a key may be created before its user's first message.
    Column("user_id", id_type(), nullable=False),
    Column("key_id", id_type(), ForeignKey("api_keys.key_id"), nullable=False),
    PrimaryKeyConstraint("user_id", "key_id"),
    Index("ix_api_key_users_key", "key_id"),
)

# Nothing reads or writes it: version 0.2 stored usage here, and the migrations that create it are
# frozen. It has no users.
counters = Table(
    "counters",
    metadata,
    Column("resolution", Integer, nullable=False),
    time_column("bucket", nullable=False),
    Column("name", String(LABEL_LENGTH), nullable=False),
    Column("label", id_type(), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("total", Double, nullable=False),
    PrimaryKeyConstraint("resolution", "bucket", "name", "label"),
)


# The changes of a memory after it was added; its own row says when that was.
revisions = owned_table(
    "revisions",
    Column("memory_key", id_type(), nullable=False),
    Column("number", Integer, nullable=False),
    Column("event", String(LABEL_LENGTH), nullable=False),
    Column("old_text", Text),
    Column("new_text", Text),
    Column("other_key", id_type()),  # its successor
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    time_column("at", nullable=False),
    Column("before", JSON(), nullable=False),  # the values that an undo restores
    Column("undone", Boolean, nullable=False),
    Column("run", id_type()),  # the extraction of stored messages that made the change
    import_label(),
    PrimaryKeyConstraint("user_id", "memory_key", "number"),
    Index("ix_revisions_other", "user_id", "other_key"),
)

entities = owned_table(
    "entities",
    Column("entity_id", id_type(), nullable=False),
    Column("agent_id", id_type(), nullable=False),
    Column("name", String(NAME_LENGTH), nullable=False),
    Column("type", String(LABEL_LENGTH), nullable=False),
    time_column("created_at", nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "entity_id"),
)

# Every name of an entity, as it is compared (`alias`) and as it was written (`name`); the messages
# say that it means the same as the entity's other names.
aliases = owned_table(
    "aliases",
    Column("agent_id", id_type(), nullable=False),
    Column("alias", String(NAME_LENGTH), nullable=False),
    Column("name", String(NAME_LENGTH), nullable=False),
    Column("entity_id", id_type(), nullable=False),
    Column("session_id", id_type()),
    Column("source_message_ids", JSON(), nullable=False, server_default="[]"),
    Column("hidden", Boolean, nullable=False, server_default=false()),  # with its memories
    import_label(),
    PrimaryKeyConstraint("user_id", "agent_id", "alias"),
    Index("ix_aliases_entity", "user_id", "entity_id"),
    Index("ix_aliases_alias", "user_id", "alias"),
)

relations = owned_table(
    "relations",
    Column("relation_id", id_type(), nullable=False),
    Column("agent_id", id_type(), nullable=False),
    Column("session_id", id_type()),
    Column("source_id", id_type(), nullable=False),
    Column("relationship", String(NAME_LENGTH), nullable=False),
    Column("destination_id", id_type(), nullable=False),
    time_column("valid_from"),
    time_column("valid_to"),
    Column("source_message_ids", JSON(), nullable=False),
    time_column("created_at", nullable=False),
    # The names that it was stated with.
    Column("source_alias", String(NAME_LENGTH)),
    Column("destination_alias", String(NAME_LENGTH)),
    import_label(),
    PrimaryKeyConstraint("user_id", "relation_id"),
    Index("ix_relations_source", "user_id", "source_id"),
    Index("ix_relations_destination", "user_id", "destination_id"),
)

# Who changed what of a user's data in this database, and when; exports leave it out.
audit_log = owned_table(
    "audit_log",
    Column("entry_id", id_type(), nullable=False),
    Column("agent_id", id_type()),  # that the caller was bound to
    time_column("at", nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", String(LABEL_LENGTH), nullable=False),
    Column("target", id_type()),
    Column("count", Integer, nullable=False),
    PrimaryKeyConstraint("user_id", "entry_id"),
)

summaries = owned_table(
    "summaries",
    Column("agent_id", id_type(), nullable=False),
    Column("session_id", id_type(), nullable=False),
    Column("level", SmallInteger, nullable=False),
    Column("number", Integer, nullable=False),
    Column("first_sequence_no", BigInteger, nullable=False),
    Column("last_sequence_no", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
    Column("made_by", String(LABEL_LENGTH), nullable=False),
    time_column("created_at", nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "agent_id", "session_id", "level", "number"),
)

checkpoints = owned_table(
    "checkpoints",
    Column("agent_id", id_type(), nullable=False),
    Column("session_id", id_type(), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", JSON(), nullable=False),
    time_column("created_at", nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "agent_id", "session_id", "number"),
)

# What a person said about a recall: whether it was right, and what would have been. It outlives the
# trace, because a labelled question is made by hand.
feedback = owned_table(
    "feedback",
    Column("trace_id", id_type(), nullable=False),
    Column("agent_id", id_type(), nullable=False),
    Column("query", Text, nullable=False),
    time_column("asked_at", nullable=False),
    Column("is_right", Boolean, nullable=False),
    Column("evidence", JSON(), nullable=False),  # the right messages and memories
    Column("in_evaluation", Boolean, nullable=False),
    Column("actor", Text, nullable=False),
    time_column("updated_at", nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "trace_id"),
)

# Who may use a space. `user_id` is the space's owner id; a member is a user or a key.
memberships = owned_table(
    "memberships",
    Column("member", id_type(), nullable=False),
    Column("role", String(LABEL_LENGTH), nullable=False),
    Column("name", String(NAME_LENGTH)),
    Column("granted_by", id_type()),
    time_column("created_at", nullable=False),
    import_label(),
    PrimaryKeyConstraint("user_id", "member"),
    Index("ix_memberships_member", "member"),
)

# The row is the lock and the counter of an agent's knowledge, as `users` has them for a user.
knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("epoch", String(32), nullable=False),
)

knowledge = Table(
    "knowledge",
    metadata,
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("knowledge_key", id_type(), nullable=False),
    Column("content", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("metadata", JSON(), nullable=False),
    Column("actor", Text, nullable=False),
    time_column("created_at", nullable=False),
    time_column("updated_at", nullable=False),
    time_column("deleted_at"),
    Column("tags", JSON(), nullable=False, server_default="[]"),
    Column("search_text", Text, nullable=False, server_default=""),
    Column("change_no", BigInteger, nullable=False, server_default=text("0")),
    Column("model", String(NAME_LENGTH)),  # of the vector
    Column("vector", LargeBinary),
    PrimaryKeyConstraint("agent_id", "knowledge_key"),
    Index("ix_knowledge_change", "agent_id", "change_no"),
)

# The restores that were decided; their workspaces may not be in place yet.
restores = Table(
    "restores",
    metadata,
    Column("restore_id", id_type(), primary_key=True),
    Column("agent_id", id_type(), nullable=False),
    time_column("decided_at", nullable=False),
)

# What is made of messages and memories, in an order in which rows can be inserted: what is named
# comes first, also for an import in parts that ends early.
MEMORY_TABLES: tuple[Table, ...] = (
    revisions,
    entities,
    aliases,
    relations,
    summaries,
    checkpoints,
    feedback,
    memberships,
)

# What the rows of tables name without a foreign key, for checks of the whole database.
REFERENCES = (
    RowReference(vectors, ("user_id", "key"), messages, ("user_id", "message_id"), "message"),
    RowReference(vectors, ("user_id", "key"), memories, ("user_id", "memory_key"), "memory"),
    RowReference(revisions, ("user_id", "memory_key"), memories, ("user_id", "memory_key")),
    RowReference(aliases, ("user_id", "entity_id"), entities, ("user_id", "entity_id")),
    RowReference(relations, ("user_id", "source_id"), entities, ("user_id", "entity_id")),
    RowReference(relations, ("user_id", "destination_id"), entities, ("user_id", "entity_id")),
)
