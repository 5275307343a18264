"""Hiding and erasing messages, and what quotes them, in a transaction that has locked the user."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.database.locks import Locks
from memrecall.store.database.memory_tables import checkpoints, feedback
from memrecall.store.database.statements import mentions, select_by_keys, split, upsert
from memrecall.store.database.tables import memories, messages, tombstones, traces, vectors
from memrecall.store.sessions import erase_items, is_job_of, withdraw_summaries

_KEYS_PER_CONDITION = 50  # of conditions that no index helps
_SHORTEST_QUOTE = 12  # characters; shorter texts occur in questions by chance
_LONGEST_QUOTE = 500
_MESSAGE_KEY = (
    messages.c.user_id == bindparam("of_user"),
    messages.c.message_id == bindparam("of_key"),
)
_VECTOR_KEY = (
    vectors.c.user_id == bindparam("of_user"),
    vectors.c.kind == "message",
    vectors.c.key == bindparam("of_key"),
)


class MessageRemover:
    """Hides, shows and erases messages of one user."""

    def __init__(self, connection: AsyncConnection, locks: Locks, user_id: str) -> None:
        self._connection = connection
        self._locks = locks
        self._user_id = user_id

    async def hide(self, message_ids: Collection[str]) -> list[str]:
        """Hide messages; return those that were visible."""
        rows = await self._find(message_ids)
        keys = [row["message_id"] for row in rows if row["deleted_at"] is None]
        await self._set_deleted_at(keys, self._locks.now)
        return keys

    async def show(self, message_ids: Collection[str]) -> None:
        """Show hidden messages again, to search indexes too."""
        rows = await self._find(message_ids)
        keys = [row["message_id"] for row in rows if row["deleted_at"] is not None]
        await self._set_deleted_at(keys, None)
        if keys:
            await self._connection.execute(update(vectors).where(*_VECTOR_KEY), self._number(keys))

    async def erase(self, message_ids: Collection[str]) -> list[Mapping[Any, Any]]:
        """Erase messages and return their rows; memories and checkpoints lose them too."""
        rows = await self._find(message_ids)
        keys = [row["message_id"] for row in rows]
        for session, ids in _by_session(rows, "message_id").items():
            await erase_items(self._connection, self._user_id, session, ids)
        for batch in split(keys):
            for table, column in ((vectors, vectors.c.key), (messages, messages.c.message_id)):
                erased = delete(table).where(table.c.user_id == self._user_id, column.in_(batch))
                if table is vectors:
                    erased = erased.where(vectors.c.kind == "message")
                await self._connection.execute(erased)
        await self._drop_sources(frozenset(keys))
        await self.bury("message", keys)
        return rows

    async def bury(self, kind: str, keys: Sequence[str]) -> None:
        """Leave tombstones, from which readers learn that rows were erased."""
        if keys:
            rows = [
                {"user_id": self._user_id, "kind": kind, "key": number["of_key"]}
                | {"change_no": number["change_no"]}
                for number in self._number(keys)
            ]
            await self._connection.execute(
                upsert(self._connection, tombstones, ["change_no"]), rows
            )

    async def withdraw_summaries(self, message_ids: Collection[str]) -> None:
        """Empty the summaries that messages are part of; they are made again without them."""
        rows = await self._find(message_ids)
        for session, numbers in _by_session(rows, "sequence_no").items():
            await withdraw_summaries(self._connection, self._user_id, session, numbers)

    async def erase_traces(self, keys: Collection[str], texts: Collection[str]) -> int:
        """Erase the traces that name any of the keys, or whose question quotes a text.

        Feedback on recalls and results of jobs are erased too, but not counted.
        """
        for batch in split(sorted(keys), _KEYS_PER_CONDITION):
            is_job = is_job_of(self._user_id)
            jobs = select(checkpoints.c.session_id).where(
                is_job, mentions(checkpoints.c.state, batch)
            )
            statement = delete(checkpoints).where(is_job, checkpoints.c.session_id.in_(jobs))
            await self._connection.execute(statement)
        await self._erase_recalls(feedback, feedback.c.evidence, keys, texts)
        return await self._erase_recalls(traces, traces.c.body, keys, texts)

    async def _erase_recalls(
        self,
        table: Table,
        names: ColumnElement[Any],
        keys: Collection[str],
        texts: Collection[str],
    ) -> int:
        quotes = [text.strip()[:_LONGEST_QUOTE] for text in texts]
        long = [text for text in quotes if len(text) >= _SHORTEST_QUOTE]
        query, count = table.c.query, 0
        for condition in (
            *(mentions(names, batch) for batch in split(sorted(keys), _KEYS_PER_CONDITION)),
            *(func.trim(query).in_(batch) for batch in split(quotes)),
            *(
                or_(*(query.contains(text, autoescape=True) for text in batch))
                for batch in split(long, _KEYS_PER_CONDITION)
            ),
        ):
            statement = delete(table).where(table.c.user_id == self._user_id, condition)
            count += (await self._connection.execute(statement)).rowcount
        return count

    async def _drop_sources(self, message_ids: frozenset[str]) -> None:
        """Remove messages from the sources of memories."""
        of_key = and_(memories.c.user_id == self._user_id, memories.c.memory_key == bindparam("k"))
        for batch in split(sorted(message_ids), _KEYS_PER_CONDITION):
            statement = self._select(memories, memories.c.memory_key, memories.c.source_message_ids)
            is_source = mentions(memories.c.source_message_ids, batch)
            rows = (await self._connection.execute(statement.where(is_source))).all()
            values = [
                {"k": key, "source_message_ids": [s for s in sources if s not in message_ids]}
                for key, sources in rows
            ]
            if values:
                await self._connection.execute(update(memories).where(of_key), values)

    async def _find(self, message_ids: Collection[str]) -> list[Mapping[Any, Any]]:
        columns = ("message_id", "agent_id", "session_id", "sequence_no", "content", "deleted_at")
        statement = self._select(messages, *(messages.c[name] for name in columns))
        keys = sorted(message_ids)
        return list(
            await select_by_keys(self._connection, statement, [messages.c.message_id], keys)
        )

    def _select(self, table: Table, *columns: Any) -> Select[Any]:
        return select(*columns).where(table.c.user_id == self._user_id)

    async def _set_deleted_at(self, keys: Sequence[str], moment: Any) -> None:
        if keys:
            statement = update(messages).where(*_MESSAGE_KEY).values(deleted_at=moment)
            await self._connection.execute(statement, self._number(keys))

    def _number(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return a change number for each key, as statements take it."""
        return [
            {
                "of_user": self._user_id,
                "of_key": key,
                "change_no": self._locks.next_change(self._user_id),
            }
            for key in keys
        ]


def _by_session(rows: Sequence[Mapping[Any, Any]], column: str) -> dict[str, set[Any]]:
    values: dict[str, set[Any]] = {}
    for row in rows:
        values.setdefault(row["session_id"], set()).add(row[column])
    return values
