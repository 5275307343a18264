"""Backup of a whole database into one file, and its restore into a database of any kind.

The file is a SQLite database with all tables: it can be searched as it is, opened read-only, and a
backup of PostgreSQL restores into SQLite as well as the reverse.
"""

import asyncio
import hashlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import DDL, JSON, Connection, Table, bindparam, delete, exists, func, insert, select

from memrecall.errors import Conflict, InvalidArgument, MemrecallError, StorageError
from memrecall.progress import Advance
from memrecall.store.backup.folder import (
    BACKUP_FOLDERS,
    make_draft,
    noting_folder,
    publish,
    sweep_drafts,
    sync_to_disk,
)
from memrecall.store.database.dialects import ConnectionOptions
from memrecall.store.database.distribution import SHARD_FACT, USER_TABLES, begin_distributed_changes
from memrecall.store.database.engine import Database
from memrecall.store.database.integrity import find_damage
from memrecall.store.database.memberships import SPACES_FACT
from memrecall.store.database.migrations import LATEST, schema_version
from memrecall.store.database.statements import insert_missing, new_epoch, select_in_key_order
from memrecall.store.database.tables import agents, knowledge_bases, meta, metadata, users
from memrecall.store.owners import Owners
from memrecall.store.store import Store
from memrecall.store.vectors import EMBEDDING_FACTS
from memrecall.store.workspaces import typed_os_errors
from memrecall.types import format_time

_ROWS = 1_000  # of a batch
_MANIFEST = "backup"  # a row of `memrecall_meta`: the digest of each table
_PORTABLE_FACTS = ("text_version", *EMBEDDING_FACTS, SPACES_FACT)  # others name one database
_NOT_COPIED = (_MANIFEST, SHARD_FACT, BACKUP_FOLDERS)

BackupRow = dict[str, Any]


class _Digest:
    """The number of rows of a table, and a checksum of their values."""

    def __init__(self) -> None:
        self.rows = 0
        self._hash = hashlib.sha256()

    def add(self, batch: Sequence[Mapping[str, Any]]) -> None:
        self.rows += len(batch)
        for row in batch:
            self._hash.update(repr(sorted(row.items())).encode())

    def as_list(self) -> list[Any]:
        return [self.rows, self._hash.hexdigest()]


async def count_rows(database: Database) -> int:
    """Return the number of all rows, for a progress bar."""
    counts = [select(func.count()).select_from(t).scalar_subquery() for t in metadata.sorted_tables]
    ((total, *_),) = await database.fetch(select(sum(counts[1:], counts[0])))
    return int(total)


async def verify_backup(file: Path) -> int:
    """Return the number of all rows of a backup; StorageError if it is damaged."""
    async with _open_backup(file) as backup:
        return sum((await asyncio.to_thread(_verify, backup)).values())


async def backup_database(store: Store, file: Path, advance: Advance) -> dict[str, int]:
    """Write all rows, as of one moment, to a new file; return their number in each table.

    In a distributed database each user has a moment of their own.
    The file appears when it is complete and its checksums were read back.
    """
    if await asyncio.to_thread(file.exists):
        raise InvalidArgument(f"{file} exists already", hint="Choose another name, or remove it")
    await asyncio.to_thread(sweep_drafts, file.parent)
    async with noting_folder(store.database, file.parent):
        with make_draft(file) as draft:
            async with await Store.open(str(draft), durability="normal") as target:
                await _fill(store.database, target.database, advance)
            with typed_os_errors(file.parent):
                await asyncio.to_thread(_make_single_file, draft)
                async with _open_backup(draft) as backup:
                    counts = await asyncio.to_thread(_verify, backup)
                try:
                    publish(draft, file)
                except FileExistsError:
                    problem = f"{file} exists already"
                    raise InvalidArgument(problem, hint="Choose another name") from None
                sync_to_disk(file.parent)
            return counts


class _Copy:
    """The rows that were copied into a backup so far, with the digest of each table."""

    def __init__(self, target: Database, advance: Advance) -> None:
        self._target = target
        self._advance = advance
        self.agents: dict[str, BackupRow] = {}
        self._digests = {table.name: _Digest() for table in metadata.sorted_tables}

    async def add(self, table: Table, rows: list[BackupRow]) -> None:
        """Store rows, which come in the order of their keys, except agents."""
        await self._target.transact(partial(_insert, table=table, rows=rows))
        if table is agents:
            self.agents |= {row["agent_id"]: row for row in rows}
        else:
            self._digests[table.name].add(rows)
        self._advance(len(rows))

    def digests(self) -> dict[str, list[Any]]:
        """Return the digest of each table."""
        self._digests[agents.name].add([self.agents[key] for key in sorted(self.agents)])
        return {name: digest.as_list() for name, digest in self._digests.items()}


async def _fill(source: Database, target: Database, advance: Advance) -> None:
    await target.transact(lambda connection: connection.execute(delete(meta)))
    copy = _Copy(target, advance)
    if source.is_distributed:
        await _copy_by_user(source, copy)
    else:
        await _copy_tables(source, metadata.sorted_tables, copy)
    manifest = {"created_at": format_time(datetime.now(UTC)), "tables": copy.digests()}
    row = {"name": _MANIFEST, "value": json.dumps(manifest)}
    await target.transact(lambda connection: insert_missing(connection, meta, [row]))


async def _copy_tables(source: Database, tables: Sequence[Table], copy: _Copy) -> None:
    """Copy all rows of tables as of one moment."""
    async with source.read() as connection:
        for table in tables:
            stream = await connection.stream(select_in_key_order(source.dialect, table))
            async for batch in stream.mappings().partitions(_ROWS):
                await copy.add(table, _without_facts(table, [dict(row) for row in batch]))


def _without_facts(table: Table, rows: list[BackupRow]) -> list[BackupRow]:
    """Return rows without the facts that are about a backup or a cluster."""
    return rows if table is not meta else [r for r in rows if r["name"] not in _NOT_COPIED]


async def _copy_by_user(source: Database, copy: _Copy) -> None:
    """Copy each user as of one moment; the nodes of a cluster share no moment."""
    user_tables = [table for table in metadata.sorted_tables if table in USER_TABLES]
    # Agents as of the moment of their knowledge. Users may refer to newer ones.
    shared = [table for table in metadata.sorted_tables if table not in USER_TABLES]
    await _copy_tables(source, shared, copy)
    async for page in Owners(source).pages(_ROWS):
        for user_id in page:
            rows: dict[Table, list[BackupRow]] = {}
            async with source.read() as connection:
                for table in user_tables:
                    statement = select_in_key_order(source.dialect, table)
                    result = await connection.execute(statement.where(table.c.user_id == user_id))
                    rows[table] = [dict(row) for row in result.mappings()]
            named = {row["agent_id"] for part in rows.values() for row in part if "agent_id" in row}
            if missing := named - copy.agents.keys():  # created after the copy had begun
                new_agents = select(agents).where(agents.c.agent_id.in_(sorted(missing)))
                rows_of_agents = [dict(row._mapping) for row in await source.fetch(new_agents)]
                await copy.add(agents, rows_of_agents)
            for table, part in rows.items():
                await copy.add(table, part)


def _insert(connection: Connection, table: Table, rows: list[BackupRow]) -> None:
    # None is NULL, not JSON's null, which PostgreSQL cannot look into.
    values = {
        column.name: bindparam(column.name, type_=JSON(none_as_null=True))
        for column in table.c
        if isinstance(column.type, JSON)
    }
    if rows:
        connection.execute(insert(table).values(values) if values else insert(table), rows)


def _make_single_file(file: Path) -> None:
    """Merge the log into the file, so that reading it needs no other file, and sync it."""
    connection = sqlite3.connect(file)
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
    finally:
        connection.close()
    sync_to_disk(file)


@asynccontextmanager
async def _open_backup(file: Path) -> AsyncIterator[Database]:
    """Open a backup without changing it; one with an older schema is upgraded as a copy."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        with _typed_damage(file):
            if await _read_version(file) < LATEST:
                copy = Path(folder) / "backup.db"
                with typed_os_errors(file):
                    await asyncio.to_thread(shutil.copyfile, file, copy)
                async with await Store.open(str(copy)) as upgraded:
                    # Its checksums are of the older tables.
                    without_manifest = delete(meta).where(meta.c.name == _MANIFEST)
                    await upgraded.database.transact(lambda c: c.execute(without_manifest))
                file = copy
        database = Database(str(file), ConnectionOptions(read_only=True), create=False)
        try:
            yield database
        finally:
            await database.close()


@contextmanager
def _typed_damage(file: Path | str) -> Iterator[None]:
    """Raise StorageError for an unreadable value of a backup, such as a time or JSON."""
    try:
        yield
    except MemrecallError:  # some are ValueErrors too
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise _damaged(file, f"a value cannot be read ({type(error).__name__})") from error


def _damaged(file: Path | str, problem: str) -> StorageError:
    return StorageError(f"{file} is damaged or was changed: {problem}", hint="Use another backup")


async def _read_version(file: Path) -> int:
    database = Database(str(file), ConnectionOptions(read_only=True), create=False)
    try:
        async with database.read() as connection:
            version = await connection.run_sync(schema_version)
    finally:
        await database.close()
    if not 0 < version <= LATEST:
        raise InvalidArgument(
            f"{file} is not a backup that this memrecall can read (schema {version})",
            hint="Pass a file that `memrecall backup` wrote",
        )
    return version


def _verify(backup: Database) -> dict[str, int]:
    """Raise StorageError unless a backup is as it was written; return the counts of rows."""
    counts: dict[str, int] = {}
    with _typed_damage(backup.location):
        with backup.read_inline() as connection:
            problems = find_damage(connection, deep=True)
        facts = {row["name"]: row["value"] for batch in _read(backup, meta) for row in batch}
        expected = json.loads(facts[_MANIFEST])["tables"] if _MANIFEST in facts else {}
        for table in metadata.sorted_tables:
            digest = _Digest()
            for batch in _read(backup, table):
                digest.add(_without_facts(table, batch))
            counts[table.name] = digest.rows
            if expected.get(table.name, digest.as_list()) != digest.as_list():
                problems.append(f"the rows of {table.name} do not match their checksum")
    if problems:
        raise _damaged(backup.location, problems[0])
    return counts


def _read(backup: Database, table: Table) -> Iterator[list[BackupRow]]:
    with backup.read_inline() as connection:
        statement = select_in_key_order(backup.dialect, table)
        for batch in connection.execute(statement).mappings().partitions(_ROWS):
            yield [dict(row) for row in batch]


async def restore_database(
    store: Store, file: Path, advance: Advance, *, overwrite: bool = False
) -> dict[str, int]:
    """Store all rows of a backup, all or nothing; return their number in each table.

    Conflict if the database has rows, unless they may be overwritten.
    """
    async with _open_backup(file) as backup:
        counts = await asyncio.to_thread(_verify, backup)

        def work(connection: Connection) -> None:
            if store.database.is_distributed:
                begin_distributed_changes(connection)
            if store.file is None:  # others may read only
                names = ", ".join(table.name for table in metadata.sorted_tables)
                lock: Any = DDL(f"LOCK TABLE {names} IN EXCLUSIVE MODE")  # type: ignore[no-untyped-call]
                connection.execute(lock)
            _clear(connection, store.location, overwrite)
            for table in metadata.sorted_tables:
                for batch in _read(backup, table):
                    _insert(connection, table, _localize(table, batch))
                    advance(len(batch))

        await store.database.transact(work, is_long=True)
    return counts


def _clear(connection: Connection, location: str, overwrite: bool) -> None:
    for table in reversed(metadata.sorted_tables):
        if table is meta:
            connection.execute(delete(meta).where(meta.c.name.in_(_PORTABLE_FACTS)))
        elif overwrite:
            connection.execute(delete(table))
        elif connection.scalar(select(exists(select(table)))):
            raise Conflict(
                f"{location} is not empty: it has {table.name}",
                hint="Restore into an empty database, or replace everything with --overwrite",
            )


def _localize(table: Table, rows: list[BackupRow]) -> list[BackupRow]:
    """Return rows adapted to the database that they are restored into."""
    if table is meta:
        return [row for row in rows if row["name"] in _PORTABLE_FACTS]
    if table in (users, knowledge_bases):  # indexes of earlier rows must not be used again
        return [{**row, "epoch": new_epoch()} for row in rows]
    return rows
