"""The store: tables, messages, memories, vectors, traces, keys. SQLAlchemy stays in here."""

from memrecall.store.counters import CounterRow, Counters
from memrecall.store.database.cursors import open_cursor, seal_cursor
from memrecall.store.database.locks import require_enabled
from memrecall.store.feed import ChangeFeed, Changes, UserMark
from memrecall.store.graph.protocol import GRAPH_TABLES, GraphDB, GraphRoom, StoreGraphs
from memrecall.store.graph.relations import (
    NewRelation,
    StoredEntity,
    StoredRelation,
    fold_name,
    fold_text,
)
from memrecall.store.keys import Grant, Key, KeyList, Keys
from memrecall.store.knowledge.entries import KnowledgeEntry, NewKnowledge, knowledge_text
from memrecall.store.knowledge.feed import KnowledgeFeed, KnowledgeVectors, PendingEntry
from memrecall.store.memories.filters import Filter, matches, read_filter
from memrecall.store.memories.history import Revision
from memrecall.store.memories.listing import MemoryPage, Wanted
from memrecall.store.memories.plans import Outcome, Step
from memrecall.store.messages.records import Entry, Written
from memrecall.store.messages.timeline import MessageFilter, MessagePage, Timeline
from memrecall.store.owners import Erased, OwnerList
from memrecall.store.sessions import Checkpoint, StoredSummary
from memrecall.store.store import Store
from memrecall.store.traces import (
    BODY_BYTES,
    NewTrace,
    StoredTrace,
    TracePage,
    Traces,
    TraceSummary,
    measure_body,
)
from memrecall.store.transfer import FORMAT, table_of
from memrecall.store.vectors import STORED_AS, PendingText, RowKey, VectorStore

__all__ = [
    "BODY_BYTES",
    "FORMAT",
    "GRAPH_TABLES",
    "STORED_AS",
    "ChangeFeed",
    "Changes",
    "Checkpoint",
    "CounterRow",
    "Counters",
    "Entry",
    "Erased",
    "Filter",
    "Grant",
    "GraphDB",
    "GraphRoom",
    "Key",
    "KeyList",
    "Keys",
    "KnowledgeEntry",
    "KnowledgeFeed",
    "KnowledgeVectors",
    "MemoryPage",
    "MessageFilter",
    "MessagePage",
    "NewKnowledge",
    "NewRelation",
    "NewTrace",
    "Outcome",
    "OwnerList",
    "PendingEntry",
    "PendingText",
    "Revision",
    "RowKey",
    "Step",
    "Store",
    "StoreGraphs",
    "StoredEntity",
    "StoredRelation",
    "StoredSummary",
    "StoredTrace",
    "Timeline",
    "TracePage",
    "TraceSummary",
    "Traces",
    "UserMark",
    "VectorStore",
    "Wanted",
    "Written",
    "fold_name",
    "fold_text",
    "knowledge_text",
    "matches",
    "measure_body",
    "open_cursor",
    "read_filter",
    "require_enabled",
    "seal_cursor",
    "table_of",
]
