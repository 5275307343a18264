"""The store: the only package that uses SQLAlchemy."""

from memrecall.store.database.cursors import StoredPage, open_cursor, seal_cursor
from memrecall.store.database.engine import WriteProblem
from memrecall.store.database.locks import require_enabled
from memrecall.store.database.statements import Reads
from memrecall.store.feed import ChangeFeed, KnowledgeFeed, RowChanges, UserVersion
from memrecall.store.graph import (
    GRAPH_TABLES,
    Graph,
    GraphDB,
    NewRelation,
    StoredEntity,
    StoredRelation,
    StoreGraphs,
)
from memrecall.store.keys import Grant, Key, Keys
from memrecall.store.knowledge import KnowledgeEntry, NewKnowledge
from memrecall.store.memories.changes import GONE, NOT_ENDED, PlanOutcome, PlanStep
from memrecall.store.memories.filters import check_filter_size, read_filter
from memrecall.store.memories.history import EDITABLE_FIELDS, AuditEntry, Revision
from memrecall.store.memories.records import MemoryQuery
from memrecall.store.memories.removal import Removal
from memrecall.store.messages import ScopedMessage, WriteResult, WriteStatus
from memrecall.store.owners import ErasureReport
from memrecall.store.sessions import (
    JOB_PREFIX,
    Checkpoint,
    SessionState,
    StoredSession,
    StoredSummary,
)
from memrecall.store.store import Store
from memrecall.store.timeline import MessageFilter, Reading, Timeline, UnreadMessages
from memrecall.store.traces import (
    BODY_BYTES,
    Feedback,
    ListedTrace,
    NewTrace,
    StoredTrace,
    TraceOutcome,
    TraceQuery,
    TraceSummary,
    measure_body,
    withhold_contents,
)
from memrecall.store.transfer import parse_record
from memrecall.store.vectors import VECTOR_DTYPE, PendingText, RowKey

__all__ = [
    "BODY_BYTES",
    "EDITABLE_FIELDS",
    "GONE",
    "GRAPH_TABLES",
    "JOB_PREFIX",
    "NOT_ENDED",
    "VECTOR_DTYPE",
    "AuditEntry",
    "ChangeFeed",
    "Checkpoint",
    "ErasureReport",
    "Feedback",
    "Grant",
    "Graph",
    "GraphDB",
    "Key",
    "Keys",
    "KnowledgeEntry",
    "KnowledgeFeed",
    "ListedTrace",
    "MemoryQuery",
    "MessageFilter",
    "NewKnowledge",
    "NewRelation",
    "NewTrace",
    "PendingText",
    "PlanOutcome",
    "PlanStep",
    "Reading",
    "Reads",
    "Removal",
    "Revision",
    "RowChanges",
    "RowKey",
    "ScopedMessage",
    "SessionState",
    "Store",
    "StoreGraphs",
    "StoredEntity",
    "StoredPage",
    "StoredRelation",
    "StoredSession",
    "StoredSummary",
    "StoredTrace",
    "Timeline",
    "TraceOutcome",
    "TraceQuery",
    "TraceSummary",
    "UnreadMessages",
    "UserVersion",
    "WriteProblem",
    "WriteResult",
    "WriteStatus",
    "check_filter_size",
    "measure_body",
    "open_cursor",
    "parse_record",
    "read_filter",
    "require_enabled",
    "seal_cursor",
    "withhold_contents",
]
