"""The store: tables, messages, memories, vectors, traces, keys. SQLAlchemy stays in here."""

from memrecall.store.cursors import open_cursor, seal_cursor
from memrecall.store.feed import ChangeFeed, Changes, UserMark
from memrecall.store.keys import Grant, Key, KeyList, Keys
from memrecall.store.messages import Entry, Written
from memrecall.store.owners import Erased, OwnerList
from memrecall.store.store import Store
from memrecall.store.timeline import MessageFilter, MessagePage, Timeline
from memrecall.store.traces import (
    BODY_BYTES,
    NewTrace,
    StoredTrace,
    TracePage,
    Traces,
    TraceSummary,
    measure_body,
)
from memrecall.store.vectors import STORED_AS, PendingText, RowKey, VectorStore

__all__ = [
    "BODY_BYTES",
    "STORED_AS",
    "ChangeFeed",
    "Changes",
    "Entry",
    "Erased",
    "Grant",
    "Key",
    "KeyList",
    "Keys",
    "MessageFilter",
    "MessagePage",
    "NewTrace",
    "OwnerList",
    "PendingText",
    "RowKey",
    "Store",
    "StoredTrace",
    "Timeline",
    "TracePage",
    "TraceSummary",
    "Traces",
    "UserMark",
    "VectorStore",
    "Written",
    "measure_body",
    "open_cursor",
    "seal_cursor",
]
