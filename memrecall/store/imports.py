"""Imports of exports: what each newly wrote is labelled, listed and taken back.

The label is the id of the import, its format and its file, as the metadata of messages has it that
were imported from other files.
"""

import time
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select, update

from memrecall.scope import Scope, SpaceRole
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_existing_user
from memrecall.store.database.statements import new_epoch, split
from memrecall.store.database.tables import (
    MEMORY_TABLES,
    aliases,
    entities,
    memberships,
    memories,
    messages,
    relations,
    sessions,
    tombstones,
    users,
)
from memrecall.store.sessions import erase_empty_sessions

ID_PREFIX = "imp_"
_FORMAT = "memrecall"
_NO_FILE = "-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LABELLED = (sessions, tombstones, messages, memories, *MEMORY_TABLES)
# Other rows need what these have: they are removed as far as nothing else uses them.
_NEEDED = {messages, memories, sessions, entities, aliases, memberships}


def new_import_id() -> str:
    """Return the id of an import that begins now; later ones sort after it."""
    return f"{ID_PREFIX}{time.time_ns() // 1000:x}"


def label_import(import_id: str, file: str = _NO_FILE) -> str:
    """Return the label of what an import of an export writes."""
    return f"{import_id} {_FORMAT} {file}"


def id_of_label(label: str) -> str:
    """Return the id of the import that a label names."""
    return label.partition(" ")[0]


def time_of_import(import_id: str) -> datetime:
    """Return when an import began."""
    return _EPOCH + timedelta(microseconds=int(import_id.removeprefix(ID_PREFIX), 16))


class LabelledRows:
    """The rows of a scope's user that imports of exports wrote and that are still stored."""

    def __init__(self, database: Database, scope: Scope) -> None:
        self._database = database
        self._scope = scope

    async def count(self) -> dict[str, Counter[str]]:
        """Return the number of rows of each table by label."""
        counts: dict[str, Counter[str]] = {}
        for table in _LABELLED:
            label = table.c.import_label
            statement = select(label, func.count().label("number")).group_by(label)
            of_user = (table.c.user_id == self._scope.user_id, label.is_not(None))
            for row in await self._database.fetch(statement.where(*of_user)):
                counts.setdefault(row.import_label, Counter())[table.name] = row.number
        return counts

    async def keys(self, label: str) -> tuple[list[str], list[str]]:
        """Return the ids of the messages and the keys of the memories with a label."""
        of_messages = select(messages.c.message_id).where(*self._match(messages, label))
        of_memories = select(memories.c.memory_key).where(*self._match(memories, label))
        message_ids = await self._database.fetch(of_messages)
        memory_keys = await self._database.fetch(of_memories)
        return sorted(row.message_id for row in message_ids), sorted(
            row.memory_key for row in memory_keys
        )

    async def remove_others(self, label: str) -> None:
        """Remove the rows with a label that are no messages or memories.

        Sessions, names and entities stay if something else uses them, and the members of a space
        if it had no admin without them.
        """

        def work(connection: Connection) -> None:
            locks = lock_existing_user(connection, self._scope)
            for table in _LABELLED:
                if table not in _NEEDED:
                    connection.execute(delete(table).where(*self._match(table, label)))
            self._remove_entities(connection, label)
            self._remove_members(connection, label)
            in_sessions = select(sessions.c.session_id).where(*self._match(sessions, label))
            names = set(connection.scalars(in_sessions))
            erase_empty_sessions(connection, self._scope.user_id, names)
            for table in _NEEDED - {messages, memories}:  # what stays is the import's no more
                kept = update(table).where(*self._match(table, label))
                connection.execute(kept.values(import_label=None))
            locks.next_change(self._scope.user_id)
            locks.save(connection, is_activity=False)
            # What was buried by the import can be stored again.
            epoch = update(users).where(users.c.user_id == self._scope.user_id)
            connection.execute(epoch.values(epoch=new_epoch()))

        await self._database.transact(work)

    def _remove_entities(self, connection: Connection, label: str) -> None:
        """Remove entities that no relation names, and names that none was stated with."""
        rows = [
            row
            for side in ("source", "destination")
            for row in connection.execute(
                select(relations.c[f"{side}_id"], relations.c[f"{side}_alias"]).where(
                    relations.c.user_id == self._scope.user_id
                )
            )
        ]
        ends, stated = {row[0] for row in rows}, {row[1] for row in rows}
        imported = select(entities.c.entity_id).where(*self._match(entities, label))
        own = set(connection.scalars(imported))
        self._delete(connection, aliases.c.entity_id, own - ends)
        self._delete(connection, entities.c.entity_id, own - ends)
        names = select(aliases.c.alias, aliases.c.entity_id).where(*self._match(aliases, label))
        unused = {
            row.alias
            for row in connection.execute(names)
            if row.entity_id not in own and row.alias not in stated
        }
        self._delete(connection, aliases.c.alias, unused, *self._match(aliases, label))

    def _remove_members(self, connection: Connection, label: str) -> None:
        admins = select(memberships.c.import_label).where(
            memberships.c.user_id == self._scope.user_id,
            memberships.c.role == SpaceRole.ADMIN.value,
        )
        if set(connection.scalars(admins)) - {label}:
            connection.execute(delete(memberships).where(*self._match(memberships, label)))

    def _delete(
        self,
        connection: Connection,
        key: ColumnElement[str],
        keys: Collection[str],
        *conditions: ColumnElement[bool],
    ) -> None:
        table = key.table
        of_user = (table.c.user_id == self._scope.user_id, *conditions)
        for batch in split(sorted(keys)):
            connection.execute(delete(table).where(*of_user, key.in_(batch)))

    def _match(self, table: Table, label: str) -> tuple[ColumnElement[bool], ...]:
        return table.c.user_id == self._scope.user_id, table.c.import_label == label
