"""Short words for what the store's tests say often."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Table, select

from memrecall.scope import Scope
from memrecall.store import MessageFilter, NewTrace, PendingText, RowKey, Store, Timeline
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import metadata
from memrecall.types import Message, NewMemory, NewMessage, Origin, Role

MORNING = datetime(2026, 1, 26, 10, 0, tzinfo=UTC)
EVERYTHING = MessageFilter()
ANN = Scope("ann")
BEN = Scope("ben")

Rows = dict[str, list[dict[str, Any]]]


def at(minute: float) -> datetime:
    """So many minutes into the morning."""
    return MORNING + timedelta(minutes=minute)


def new_message(message_id: str | None = None, content: str = "hello", **fields: Any) -> NewMessage:
    """A message of the user's, said in the morning unless told otherwise."""
    fields = {"role": Role.USER, "ts": MORNING, **fields}
    return NewMessage(message_id=message_id, content=content, **fields)


def numbered(prefix: str, count: int) -> list[NewMessage]:
    """So many messages, a minute apart."""
    return [new_message(f"{prefix}{n}", f"{prefix} says {n}", ts=at(n)) for n in range(count)]


async def add_memory(
    store: Store, key: str, content: str = "likes tea", scope: Scope = ANN, **fields: Any
) -> None:
    """Store one memory that the user told of."""
    memory = NewMemory(memory_key=key, content=content, **fields)
    await store.memories(scope).add([memory], origin=Origin.USER)


def pending(*rows: RowKey, text: str = "likes tea") -> list[PendingText]:
    """Rows to embed; only a memory's text is compared with what is stored."""
    return [PendingText(row, text) for row in rows]


def new_trace(trace_id: str | None = None, query: str = "which tea?", **fields: Any) -> NewTrace:
    """A recall that found something."""
    outcome = {"stop_reason": "handoff", "confidence": 0.8, "abstained": False}
    spent = {"iterations": 1, "model_calls": 2, "tool_calls": 3, "seconds": 0.25}
    given: dict[str, Any] = {"trace_id": trace_id, "query": query, "body": {"events": []}}
    return NewTrace.model_validate({**outcome, **spent, **given, **fields})


async def walk(
    timeline: Timeline, wanted: MessageFilter = EVERYTHING, page_size: int = 50
) -> list[Message]:
    """All messages of a timeline, page by page."""
    items: list[Message] = []
    cursor = None
    while True:
        page = await timeline.page(wanted, page_size=page_size, cursor=cursor)
        assert len(page.items) <= page_size
        items.extend(page.items)
        assert len({message.message_id for message in items}) == len(items), "a page repeats"
        cursor = page.next_cursor
        if cursor is None:
            return items


async def ids(timeline: Timeline, wanted: MessageFilter = EVERYTHING) -> list[str]:
    """The ids of all messages of a timeline, in its order."""
    return [message.message_id for message in await walk(timeline, wanted)]


async def read_tables(database: Database) -> Rows:
    """Every row of every table, past the store's own ways of reading."""
    async with database.read() as connection:
        rows: Rows = {}
        for table in metadata.sorted_tables:
            found = await connection.execute(select(table).order_by(*table.primary_key.columns))
            rows[table.name] = [dict(row) for row in found.mappings()]
        return rows


def rows_of(rows: Rows, user_id: str) -> Rows:
    """Those of the rows that belong to one user; tables without any are left out."""
    own = {
        name: [row for row in table if row.get("user_id") == user_id]
        for name, table in rows.items()
    }
    return {name: table for name, table in own.items() if table}


def user_tables() -> list[Table]:
    """The tables that hold users' data."""
    return [table for table in metadata.sorted_tables if "user_id" in table.c]
