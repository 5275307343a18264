"""The tables around memories: history, audit log, graph, summaries, feedback, knowledge and others.

Knowledge belongs to an agent. All others are user data: their keys begin with `user_id`.
"""

from sqlalchemy import BigInteger as Big
from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    false,
)

from memrecall.store.database.integrity import RowReference
from memrecall.store.database.tables import (
    ZERO,
    id_type,
    import_label,
    json_type,
    memories,
    messages,
    metadata,
    owned_table,
    time_column,
    vectors,
)
from memrecall.types import LABEL_LENGTH, NAME_LENGTH

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
    Column("before", json_type(), nullable=False),  # the values that an undo restores
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
    Column("source_message_ids", json_type(), nullable=False, server_default="[]"),
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
    Column("source_message_ids", json_type(), nullable=False),
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
    Column("first_sequence_no", Big, nullable=False),
    Column("last_sequence_no", Big, nullable=False),
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
    Column("state", json_type(), nullable=False),
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
    Column("evidence", json_type(), nullable=False),  # the right messages and memories
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
    Column("version", Big, nullable=False),
    Column("epoch", String(32), nullable=False),
)

knowledge = Table(
    "knowledge",
    metadata,
    Column("agent_id", id_type(), ForeignKey("agents.agent_id"), nullable=False),
    Column("knowledge_key", id_type(), nullable=False),
    Column("content", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("metadata", json_type(), nullable=False),
    Column("actor", Text, nullable=False),
    time_column("created_at", nullable=False),
    time_column("updated_at", nullable=False),
    time_column("deleted_at"),
    Column("tags", json_type(), nullable=False, server_default="[]"),
    Column("search_text", Text, nullable=False, server_default=""),
    Column("change_no", Big, nullable=False, server_default=ZERO),
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

# The tables of users' data in this module, in an order in which rows can be inserted: what is named
# comes first, also for an import in parts that ends early.
MEMORY_TABLES: tuple[Table, ...] = (
    *(revisions, entities, aliases, relations),
    *(summaries, checkpoints, feedback, memberships),
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
