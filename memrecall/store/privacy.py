"""The privacy policy of a database, applied to new rows and by a scan to stored ones."""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Table, and_, delete, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_knowledge, lock_users
from memrecall.store.database.memory_tables import (
    aliases,
    checkpoints,
    entities,
    feedback,
    knowledge,
    knowledge_bases,
    relations,
    revisions,
    summaries,
)
from memrecall.store.database.statements import new_epoch
from memrecall.store.database.tables import agents, memories, messages, traces, users, vectors
from memrecall.store.memories.history import AuditEntry, write_entry
from memrecall.store.texts import SEARCH_TEXT
from memrecall.text.privacy import DetectedKinds, PrivacyPolicy
from memrecall.types import NAME_LENGTH, NewMemory, NewMessage

_BATCH = 200
# The texts of each table that a caller's words can be in.
_TEXTS: Mapping[Table, tuple[str, ...]] = {
    messages: ("content", "speaker", "metadata"),
    memories: (
        *("content", "summary", "keywords", "metadata", "subject", "speaker"),
        "superseded_reason",
    ),
    revisions: ("old_text", "new_text", "reason", "before"),
    summaries: ("text",),
    checkpoints: ("state",),
    feedback: ("query",),
    traces: ("query", "body"),
    entities: ("name",),
    aliases: ("name",),
    relations: ("relationship", "source_alias", "destination_alias"),
    knowledge: ("content", "summary", "tags", "metadata"),
}
_VECTORS = {messages: "message", memories: "memory"}  # the kinds of vectors
_New = TypeVar("_New", NewMessage, NewMemory)


def protect_new(policy: PrivacyPolicy, item: _New) -> _New:
    """Return what is to be stored of a message or a memory; its metadata says what was found."""
    names = _TEXTS[messages if isinstance(item, NewMessage) else memories]
    fields = {name: getattr(item, name) for name in names if name in type(item).model_fields}
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
    texts = {name: row[name] for name in _TEXTS.get(table, ()) if name in row}
    changed = _cut_names(policy.protect(texts, findings))
    if table in SEARCH_TEXT and changed.keys() & {"content", "summary", "keywords", "tags"}:
        changed["search_text"] = SEARCH_TEXT[table]({**row, **changed})
    if "content" in changed and table is memories:
        # What is sent again is compared by the checksum.
        checksum = hashlib.sha256(changed["content"].encode()).hexdigest()
        changed["provenance"] = {**row["provenance"], "sha256": checksum}
    return changed


def _cut_names(values: dict[str, Any]) -> dict[str, Any]:
    names = {"speaker", "subject", "name", "relationship", "source_alias", "destination_alias"}
    return {n: v[:NAME_LENGTH] if n in names and v else v for n, v in values.items()}


@dataclass(slots=True)
class ScanReport:
    """How often each kind of data was found, by user; an agent's knowledge is under its name."""

    rows: int = 0
    changed: int = 0  # or to be changed
    applied: bool = False
    found: dict[str, Counter[str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON, with the sums of all users."""
        kinds = sum(self.found.values(), Counter[str]())
        owners = {owner: dict(counts) for owner, counts in self.found.items()}
        counts = {"rows": self.rows, "changed": self.changed, "applied": self.applied}
        return {**counts, "kinds": dict(kinds), "users": owners}


async def count_scanned(database: Database) -> int:
    """Return how many rows a scan reads."""
    total = 0
    async with database.autocommit() as connection:
        for table in _TEXTS:
            count = await connection.scalar(select(func.count()).select_from(table))
            total += int(count or 0)
    return total


async def scan_rows(
    database: Database, report: ScanReport, *, apply: bool = False
) -> AsyncIterator[tuple[int, str | None]]:
    """Look for secrets and personal data in all rows; with `apply`, do what the policy says.

    Yield the number of rows of each batch, and the user if rows of theirs were changed. A batch is
    complete or not done: a scan that was interrupted can be run again.
    """
    report.applied = apply
    for owner_table in (users, agents):
        owner_name = owner_table.primary_key.columns.values()[0].name
        tables = [table for table in _TEXTS if table.primary_key.columns.keys()[0] == owner_name]
        last = ""
        key = owner_table.c[owner_name]
        while rows := await database.fetch(
            select(key).where(key > last).order_by(key).limit(_BATCH)
        ):
            for (last,) in rows:
                for table in tables:
                    async for batch in _scan_table(database, table, last, report, apply):
                        yield batch
    if apply:
        await database.truncate_log()


async def _scan_table(
    database: Database, table: Table, owner: str, report: ScanReport, apply: bool
) -> AsyncIterator[tuple[int, str | None]]:
    after: tuple[Any, ...] | None = ()
    while after is not None:
        work = partial(_scan_batch, policy=database.privacy, table=table, owner=owner, after=after)
        if apply:
            rows, changes, found = await database.transact(partial(work, apply=True))
        else:
            async with database.read() as connection:
                rows, changes, found = await work(connection, apply=False)
        if found:
            report.found.setdefault(owner, Counter()).update(found)
        report.rows += len(rows)
        report.changed += changes
        is_users = apply and changes and table is not knowledge
        yield len(rows), owner if is_users else None
        after = rows[-1] if len(rows) == _BATCH else None


async def _scan_batch(
    connection: AsyncConnection,
    *,
    policy: PrivacyPolicy,
    table: Table,
    owner: str,
    after: tuple[Any, ...],
    apply: bool,
) -> tuple[list[tuple[Any, ...]], int, Counter[str]]:
    """Read the rows after a key; return their keys, the number that change and what was found."""
    if apply:
        await (lock_knowledge if table is knowledge else _lock_user)(connection, owner)
    owner_column, *key = table.primary_key.columns
    statement = select(table).where(owner_column == owner).order_by(*key).limit(_BATCH)
    if after:
        statement = statement.where(tuple_(*key) > after)
    rows = (await connection.execute(statement)).mappings().all()
    found: Counter[str] = Counter()
    changes = {}
    for row in rows:
        findings = DetectedKinds()
        values = protect_row(policy, table, row, findings)
        found.update(findings.redacted)
        found.update(findings.tagged)
        if values:
            changes[tuple(row[column.name] for column in key)] = values
    if apply and changes:
        await _rewrite(connection, table, owner, changes)
    return [tuple(row[column.name] for column in key) for row in rows], len(changes), found


async def _lock_user(connection: AsyncConnection, user_id: str) -> None:
    await lock_users(connection, [user_id])


async def _rewrite(
    connection: AsyncConnection,
    table: Table,
    owner: str,
    changes: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> None:
    """Write the new texts; what was made from the old ones is dropped, and made again."""
    owner_column, *key = table.primary_key.columns
    for values_of_key, values in changes.items():
        columns = zip(key, values_of_key, strict=True)
        of_row = and_(owner_column == owner, *(column == value for column, value in columns))
        if table is aliases:  # The key of a name is the name.
            await connection.execute(delete(table).where(of_row))
            continue
        is_stale = table is knowledge and "search_text" in values
        more = {"model": None, "vector": None} if is_stale else {}
        await connection.execute(update(table).where(of_row).values({**values, **more}))
    if table in _VECTORS:
        of_kind = and_(vectors.c.user_id == owner, vectors.c.kind == _VECTORS[table])
        stale = [key for (key,), values in changes.items() if "search_text" in values]
        await connection.execute(delete(vectors).where(of_kind, vectors.c.key.in_(stale)))
    # A new epoch makes readers drop the indexes that they made from the old texts.
    owners = knowledge_bases if table is knowledge else users
    of_owner = owners.primary_key.columns.values()[0] == owner
    await connection.execute(update(owners).where(of_owner).values(epoch=new_epoch()))
    if owners is users:
        entry = AuditEntry("scan", "memrecall", count=len(changes))
        await write_entry(connection, Scope(owner), entry, datetime.now(UTC))
