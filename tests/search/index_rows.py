"""Rows of the change feed, and an index of them without a database."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from memrecall.search.index.columns import Columns
from memrecall.store import RowChanges
from memrecall.text import analyze

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def message(at: int, **changes: Any) -> SimpleNamespace:
    """Return an hourly message, by Ann in session "s" unless `changes` says otherwise."""
    fields = {
        "key": f"m{at}",
        "change_no": at + 1,
        "ts": START + timedelta(hours=at),
        "role": "user",
        "speaker": "Ann",
        "agent_id": "a",
        "project": None,
        "session_id": "s",
        "sequence_no": at,
        "valid_to": None,  # the expiry of a memory from it
        "deleted_at": None,
        "asks": False,
        "search_text": analyze(changes.pop("content", "tea")).to_search_text(),
    }
    return SimpleNamespace(**(fields | changes))


def memory(change_no: int, **changes: Any) -> SimpleNamespace:
    """Return a memory that belongs to no session unless `changes` says otherwise."""
    fields = {
        "key": "k1",
        "change_no": change_no,
        "ts": START,
        "agent_id": "a",
        "project": None,
        "session_id": None,
        "memory_type": "fact",
        "deleted_at": None,
        "sensitive": False,
        "valid_from": None,
        "valid_to": None,
        "conflicts": (),
        "search_text": analyze(changes.pop("content", "tea")).to_search_text(),
    }
    return SimpleNamespace(**(fields | changes))


def make_columns(*messages: Any, memories: Sequence[Any] = ()) -> Columns:
    """Return an index of these rows, built at once."""
    columns = Columns("epoch")
    version = max((row.change_no for row in (*messages, *memories)), default=0)
    columns.apply(RowChanges(version, list(messages), list(memories), []))
    return columns
