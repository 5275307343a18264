"""Search text made anew after the rules of analysis changed."""

import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.engine import Database
from memrecall.store.knowledge import knowledge_text
from memrecall.store.memories import memory_search_text
from memrecall.store.memory_tables import knowledge, knowledge_bases
from memrecall.store.tables import memories, messages, meta, users
from memrecall.text import TEXT_VERSION, analyze
from memrecall.types import Keyword

_BATCH = 1_000


async def analyse_anew(database: Database) -> AsyncIterator[int]:
    """Rewrite every row's search text, a batch a transaction; yields how many rows each had."""
    for table, key in ((messages, messages.c.message_id), (memories, memories.c.memory_key)):
        rows = [("", "")]
        while rows:
            rows = await database.transact(partial(_batch, table=table, key=key, after=rows[-1]))
            yield len(rows)
    entries = [("", "")]
    while entries:
        entries = await database.transact(partial(_knowledge_batch, after=entries[-1]))
        yield len(entries)
    await database.transact(_finish)


async def _batch(
    connection: AsyncConnection, table: Any, key: Any, after: tuple[str, str]
) -> list[tuple[str, str]]:
    place = tuple_(table.c.user_id, key)
    wanted = select(table).where(place > after).order_by(table.c.user_id, key).limit(_BATCH)
    rows = (await connection.execute(wanted)).mappings().all()
    if rows:
        changed = update(table).where(
            table.c.user_id == bindparam("of_user"), key == bindparam("of_key")
        )
        await connection.execute(
            changed,
            [
                {"of_user": r["user_id"], "of_key": r[key.name], "search_text": _search_text(r)}
                for r in rows
            ],
        )
    return [(row["user_id"], row[key.name]) for row in rows]


def _search_text(row: Any) -> str:
    if "memory_key" not in row:
        return analyze(row["content"]).to_search_text()
    keywords = [Keyword(**keyword) for keyword in row["keywords"]]
    return memory_search_text(row["summary"], row["content"], keywords)


async def _knowledge_batch(
    connection: AsyncConnection, after: tuple[str, str]
) -> list[tuple[str, str]]:
    place = (knowledge.c.agent_id, knowledge.c.knowledge_key)
    wanted = select(knowledge).where(tuple_(*place) > after).order_by(*place).limit(_BATCH)
    rows = (await connection.execute(wanted)).all()
    for row in rows:
        said = knowledge_text(row.summary, row.content, row.tags)
        same = (place[0] == row.agent_id, place[1] == row.knowledge_key)
        changed = update(knowledge).where(*same)
        await connection.execute(changed.values(search_text=analyze(said).to_search_text()))
    return [(row.agent_id, row.knowledge_key) for row in rows]


async def _finish(connection: AsyncConnection) -> None:
    await connection.execute(
        update(meta).where(meta.c.name == "text_version").values(value=str(TEXT_VERSION))
    )
    # Indexes made from the old text are of another time now.
    for owners in (users, knowledge_bases):
        await connection.execute(update(owners).values(epoch=secrets.token_hex(8)))
