"""The store: tables, migrations, messages, memories, vectors. SQLAlchemy stays in here."""

from memrecall.store.cursors import open_cursor, seal_cursor
from memrecall.store.feed import ChangeFeed, Changes, UserMark
from memrecall.store.messages import Entry, Written
from memrecall.store.owners import Erased, OwnerList
from memrecall.store.store import Store
from memrecall.store.timeline import MessageFilter, MessagePage, Timeline
from memrecall.store.vectors import STORED_AS, PendingText, RowKey, VectorStore

__all__ = [
    "STORED_AS",
    "ChangeFeed",
    "Changes",
    "Entry",
    "Erased",
    "MessageFilter",
    "MessagePage",
    "OwnerList",
    "PendingText",
    "RowKey",
    "Store",
    "Timeline",
    "UserMark",
    "VectorStore",
    "Written",
    "open_cursor",
    "seal_cursor",
]
