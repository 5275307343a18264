"""The text of stored rows: its limit, what is embedded of it and what finds it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select, tuple_, update

from memrecall.store.database.distribution import begin_distributed_changes
from memrecall.store.database.engine import Database
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import (
    knowledge,
    knowledge_bases,
    memories,
    messages,
    meta,
    users,
)
from memrecall.text import TEXT_VERSION, analyze
from memrecall.types import MEMORY_BYTES

_BATCH = 1_000


def truncate(content: str) -> tuple[str, bool]:
    """Return the content within 100 KB, and whether it had to be cut."""
    data = content.encode()
    if len(data) <= MEMORY_BYTES:
        return content, False
    return data[:MEMORY_BYTES].decode(errors="ignore"), True


def knowledge_text(summary: str, content: str, tags: Sequence[str]) -> str:
    """Return the text that a knowledge entry is embedded and found by."""
    return "\n".join((summary, content, *tags)).strip()


def make_search_text(text: str) -> str:
    """Return the words of a text as the search index reads them."""
    return analyze(text).to_search_text()


def memory_search_text(row: Mapping[Any, Any]) -> str:
    """Return the search text of a memory's row: its summary, its content and its keywords."""
    keywords = "\n".join(keyword["keyword"] for keyword in row["keywords"])
    return make_search_text("\n".join((row["summary"], row["content"], keywords)))


# The search text of a row of each table that has one.
SEARCH_TEXT: dict[Table, Callable[[Mapping[Any, Any]], str]] = {
    messages: lambda row: make_search_text(row["content"]),
    memories: memory_search_text,
    knowledge: lambda row: make_search_text(
        knowledge_text(row["summary"], row["content"], row["tags"])
    ),
}


def with_search_text(row: Mapping[Any, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values of a memory, with the search text that they make."""
    return {**values, "search_text": memory_search_text({**row, **values})}


async def rebuild_search_text(database: Database) -> AsyncIterator[int]:
    """Rewrite the search text of every row; yield the number of rows of each transaction."""
    for table, search_text in SEARCH_TEXT.items():
        last: tuple[str, str] | None = ("", "")
        while last is not None:
            work = partial(_rebuild_batch, table=table, search_text=search_text, after=last)
            count, last = await database.transact(work)
            yield count
    await database.transact(partial(_finish, is_distributed=database.is_distributed))


def _rebuild_batch(
    connection: Connection,
    table: Table,
    search_text: Callable[[Any], str],
    after: tuple[str, str],
) -> tuple[int, tuple[str, str] | None]:
    """Rewrite the rows that follow a key; return their number and the last key."""
    owner, key = table.primary_key.columns
    statement = select(table).where(tuple_(owner, key) > after).order_by(owner, key).limit(_BATCH)
    rows = connection.execute(statement).mappings().all()
    if not rows:
        return 0, None
    changed = [
        {"of_owner": row[owner.name], "of_key": row[key.name], "search_text": search_text(row)}
        for row in rows
    ]
    matching = (owner == bindparam("of_owner"), key == bindparam("of_key"))
    connection.execute(update(table).where(*matching), changed)
    return len(rows), (rows[-1][owner.name], rows[-1][key.name])


def _finish(connection: Connection, *, is_distributed: bool) -> None:
    if is_distributed:
        begin_distributed_changes(connection)
    statement = update(meta).where(meta.c.name == "text_version")
    connection.execute(statement.values(value=str(TEXT_VERSION)))
    # A new epoch makes readers drop the indexes that they made from the old text.
    for owners in (users, knowledge_bases):
        connection.execute(update(owners).values(epoch=new_epoch()))
