"""The privacy policy of a database, applied to new rows and by a scan to stored ones."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, delete, func, select, tuple_, update

from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import forget_mark, lock_knowledge, lock_users
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import (
    MEMORY_TABLES,
    agents,
    aliases,
    knowledge,
    knowledge_bases,
    memories,
    messages,
    traces,
    users,
    vectors,
)
from memrecall.store.memories.history import AuditEntry, write_entry
from memrecall.store.texts import SEARCH_TEXT
from memrecall.text.privacy import DetectedKinds, PrivacyPolicy
from memrecall.types import NAME_LENGTH, NewMemory, NewMessage

_BATCH = 200
_TABLES = (messages, memories, traces, *MEMORY_TABLES, knowledge)
# The columns of all tables that a caller's words can be in; the first are names.
_NAMES = ("speaker", "subject", "name", "relationship", "source_alias", "destination_alias")
_TEXTS = (
    *_NAMES,
    "content",
    "summary",
    "keywords",
    "tags",
    "superseded_reason",
    "text",
    "query",
    "old_text",
    "new_text",
    "reason",
    "before",
    "state",
    "body",
    "metadata",
)
_VECTORS = {messages: "message", memories: "memory"}  # the kinds of vectors
_New = TypeVar("_New", NewMessage, NewMemory)


def protect_new(policy: PrivacyPolicy, item: _New) -> _New:
    """Return what is to be stored of a message or a memory; its metadata says what was found."""
    fields = {name: value for name, value in item if name in _TEXTS}
    changed = protect_values(policy, fields)
    return item.model_copy(update=changed) if changed else item


def protect_values(policy: PrivacyPolicy, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a memory or a message that the policy changes."""
    keywords = values.get("keywords", ())
    words = [keyword.keyword for keyword in keywords]
    changed = policy.protect({**values, "keywords": words})
    if "keywords" in changed:
        pairs = zip(keywords, changed["keywords"], strict=True)
        copies = (old.model_copy(update={"keyword": word[:NAME_LENGTH]}) for old, word in pairs)
        changed["keywords"] = tuple(copies)
    return _cut_names(changed)


def protect_row(
    policy: PrivacyPolicy,
    table: Table,
    row: Mapping[Any, Any],
    findings: DetectedKinds | None = None,
) -> dict[str, Any]:
    """Return the columns of a stored or imported row that change, with what follows from them."""
    texts = {name: row[name] for name in _TEXTS if name in row}
    changed = _cut_names(policy.protect(texts, findings))
    if table in SEARCH_TEXT and changed.keys() & {"content", "summary", "keywords", "tags"}:
        changed["search_text"] = SEARCH_TEXT[table]({**row, **changed})
    if "content" in changed and table is memories:
        # What is sent again is compared by the checksum.
        checksum = hashlib.sha256(changed["content"].encode()).hexdigest()
        changed["provenance"] = {**row["provenance"], "sha256": checksum}
    return changed


def _cut_names(values: dict[str, Any]) -> dict[str, Any]:
    return {n: v[:NAME_LENGTH] if n in _NAMES and v else v for n, v in values.items()}


class Scan:
    """Looks for secrets and personal data in all rows; with `apply`, does what the policy says.

    A batch of rows is complete or not done: a scan that was interrupted can be run again.
    """

    def __init__(self, database: Database, *, apply: bool = False) -> None:
        self._database = database
        self._apply = apply
        self._rows = Counter[str]()  # by table
        self._changed = Counter[str]()
        self._found: dict[str, dict[str, Counter[str]]] = {"users": {}, "agents": {}}

    def report(self) -> dict[str, Any]:
        """Return how often each kind was found, by owner and in sum, and the rows that change."""
        kinds = Counter[str]()
        for by_owner in self._found.values():
            for counts in by_owner.values():
                kinds.update(counts)
        return {
            "rows": self._rows.total(),
            "changed": self._changed.total(),
            "tables": {name: self._changed[name] for name in self._rows if self._changed[name]},
            "applied": self._apply,
            "kinds": dict(kinds),
            "users": {user: dict(counts) for user, counts in self._found["users"].items()},
            "agents": {agent: dict(counts) for agent, counts in self._found["agents"].items()},
        }

    async def count(self) -> int:
        """Return how many rows there are to read."""
        counts = (select(func.count()).select_from(t).scalar_subquery() for t in _TABLES)
        return sum((await self._database.fetch(select(*counts)))[0])

    async def run(self) -> AsyncIterator[tuple[int, str | None]]:
        """Yield the number of rows of each batch, and the user if rows of theirs were changed."""
        for owners in (users, agents):
            (key,) = owners.primary_key.columns
            tables = [t for t in _TABLES if t.primary_key.columns.keys()[0] == key.name]
            page, owner = select(key).order_by(key).limit(_BATCH), ""
            while rows := await self._database.fetch(page.where(key > owner)):
                for (owner,) in rows:
                    for table in tables:
                        async for count, changes in self._scan_table(table, owner):
                            yield count, owner if changes and owners is users else None
        if self._apply:
            await self._database.remove_erased_bytes()

    async def _scan_table(self, table: Table, owner: str) -> AsyncIterator[tuple[int, int]]:
        """Yield the number of rows of each batch, and how many of them were changed."""
        after: tuple[Any, ...] | None = ()
        while after is not None:
            work = partial(self._scan_batch, table=table, owner=owner, after=after)
            if self._apply:
                keys, changes, found = await self._database.transact(work)
            else:
                async with self._database.read() as connection:
                    keys, changes, found = await connection.run_sync(work)
            if found:
                owners = self._found["agents" if table is knowledge else "users"]
                owners.setdefault(owner, Counter()).update(found)
            self._rows[table.name] += len(keys)
            self._changed[table.name] += changes
            yield len(keys), changes if self._apply else 0
            after = keys[-1] if len(keys) == _BATCH else None

    def _scan_batch(
        self, connection: Connection, table: Table, owner: str, after: tuple[Any, ...]
    ) -> tuple[list[tuple[Any, ...]], int, Counter[str]]:
        """Read the rows after a key; return their keys, how many change and what was found."""
        if self._apply and table is knowledge:
            lock_knowledge(connection, owner, if_enabled=False)
        elif self._apply:
            lock_users(connection, [owner])
        owner_column, *key = table.primary_key.columns
        statement = select(table).where(owner_column == owner).order_by(*key).limit(_BATCH)
        if after:
            statement = statement.where(tuple_(*key) > after)
        rows = connection.execute(statement).mappings().all()
        keys = [tuple(row[column.name] for column in key) for row in rows]
        found, changes = Counter[str](), {}
        for row_key, row in zip(keys, rows, strict=True):
            kinds = DetectedKinds()
            if values := protect_row(self._database.privacy, table, row, kinds):
                changes[row_key] = values
            found.update(kinds.redacted)
            found.update(kinds.tagged)
        if self._apply and changes:
            _rewrite(connection, table, owner, changes)
        return keys, len(changes), found


def _rewrite(
    connection: Connection,
    table: Table,
    owner: str,
    changes: Mapping[tuple[Any, ...], dict[str, Any]],
) -> None:
    """Write the new texts, and drop what was derived from the old ones."""
    owner_column, *key = table.primary_key.columns
    stale = [row_key[0] for row_key, values in changes.items() if "search_text" in values]
    for row_key, values in changes.items():
        of_row = (owner_column == owner, *(c == v for c, v in zip(key, row_key, strict=True)))
        if table is knowledge and "search_text" in values:
            values |= {"model": None, "vector": None}
        # The key of a name is the name itself.
        change = delete(table) if table is aliases else update(table).values(values)
        connection.execute(change.where(*of_row))
    if kind := _VECTORS.get(table):
        of_kind = (vectors.c.user_id == owner, vectors.c.kind == kind)
        connection.execute(delete(vectors).where(*of_kind, vectors.c.key.in_(stale)))
    # A new epoch makes readers drop the indexes that they made from the old texts.
    owners = knowledge_bases if table is knowledge else users
    (owner_key,) = owners.primary_key.columns
    connection.execute(update(owners).where(owner_key == owner).values(epoch=new_epoch()))
    if owners is users:
        forget_mark(connection)
        entry = AuditEntry("scan", "memrecall", count=len(changes))
        write_entry(connection, Scope.of_owner(owner), entry, datetime.now(UTC))
