"""Sample rows and readers that the store's tests share."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Table, select

from memrecall.scope import Scope
from memrecall.store import MessageFilter, NewTrace, PendingText, RowKey, Store, Timeline
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import metadata
from memrecall.store.timeline import Order
from memrecall.types import Message, NewMemory, NewMessage, Origin, Role

MORNING = datetime(2026, 1, 26, 10, 0, tzinfo=UTC)
NO_FILTER = MessageFilter()
ANN = Scope("ann")
BEN = Scope("ben")

Rows = dict[str, list[dict[str, Any]]]


def at(minute: float) -> datetime:
    """Return a time some minutes after the morning."""
    return MORNING + timedelta(minutes=minute)


def new_message(message_id: str | None = None, content: str = "hello", **fields: Any) -> NewMessage:
    """Return a message of the user, by default of the morning."""
    fields = {"role": Role.USER, "ts": MORNING, **fields}
    return NewMessage(message_id=message_id, content=content, **fields)


def numbered_messages(prefix: str, count: int) -> list[NewMessage]:
    """Return numbered messages, a minute apart."""
    return [new_message(f"{prefix}{n}", f"{prefix} says {n}", ts=at(n)) for n in range(count)]


async def add_memory(
    store: Store, key: str, content: str = "likes tea", scope: Scope = ANN, **fields: Any
) -> None:
    """Store one memory of the user."""
    memory = NewMemory(memory_key=key, content=content, **fields)
    await store.memories(scope).add([memory], origin=Origin.USER)


def pending(*rows: RowKey, text: str = "likes tea") -> list[PendingText]:
    """Return rows to embed; only the text of a memory is compared with the stored one."""
    return [PendingText(row, text) for row in rows]


def new_trace(trace_id: str | None = None, query: str = "which tea?", **fields: Any) -> NewTrace:
    """Return the trace of a successful recall."""
    outcome = {"stop_reason": "handoff", "confidence": 0.8, "abstained": False}
    cost = {"iterations": 1, "model_calls": 2, "tool_calls": 3, "seconds": 0.25}
    trace: dict[str, Any] = {"trace_id": trace_id, "query": query, "body": {"events": []}}
    return NewTrace.model_validate({**outcome, **cost, **trace, **fields})


async def read_pages(
    timeline: Timeline,
    condition: MessageFilter = NO_FILTER,
    page_size: int = 50,
    order: Order = "desc",
) -> list[Message]:
    """Return all messages of a timeline, read page by page."""
    items: list[Message] = []
    cursor = None
    while True:
        page = await timeline.page(condition, order=order, page_size=page_size, cursor=cursor)
        assert len(page.items) <= page_size
        items.extend(page.items)
        assert len({message.message_id for message in items}) == len(items), "a page repeats"
        cursor = page.next_cursor
        if cursor is None:
            return items


async def ids(timeline: Timeline, condition: MessageFilter = NO_FILTER) -> list[str]:
    """Return the ids of all messages of a timeline, in its order."""
    return [message.message_id for message in await read_pages(timeline, condition)]


async def read_tables(database: Database, *names: str) -> Rows:
    """Return every row of the named tables, or of all, without the store's own readers."""
    async with database.read() as connection:
        tables: Rows = {}
        for table in metadata.sorted_tables:
            if names and table.name not in names:
                continue
            rows = await connection.execute(select(table).order_by(*table.primary_key.columns))
            tables[table.name] = [dict(row) for row in rows.mappings()]
        return tables


def user_rows(tables: Rows, user_id: str) -> Rows:
    """Return the rows of one user, without empty tables."""
    own = {
        name: [row for row in rows if row.get("user_id") == user_id]
        for name, rows in tables.items()
    }
    return {name: rows for name, rows in own.items() if rows}


def user_tables() -> list[Table]:
    """Return the tables that hold users' data."""
    return [table for table in metadata.sorted_tables if "user_id" in table.c]
