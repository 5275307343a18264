"""Knowledge graphs in Ladybug: implements `GraphDB` with one file for each user."""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import StorageBusy, StorageError, requires_extra
from memrecall.scope import Scope
from memrecall.store.graph_rows import GRAPH_TABLES, Conditions, GraphRow, GraphTransaction
from memrecall.workers import run_to_completion

Result = TypeVar("Result")

_MAX_OPEN_FILES = 16
# The most that a file's pages take in memory. With 64 MB, a graph of 150 relations could not be
# read after half of them had changed.
_BUFFER = 256 * 1024 * 1024
_LARGEST = 16 * 1024 * 1024 * 1024  # reserved address space, not memory
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIVIDER = "\x1f"  # in no id and no name: both are printable
_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, agent STRING, name STRING,"
    " type STRING, created INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Alias(id STRING PRIMARY KEY, agent STRING, alias STRING,"
    " name STRING, session STRING)",
    "CREATE REL TABLE IF NOT EXISTS Named(FROM Alias TO Entity)",
    "CREATE REL TABLE IF NOT EXISTS Relates(FROM Entity TO Entity, id STRING, agent STRING,"
    " session STRING, kind STRING, since INT64, until INT64, sources STRING[], created INT64)",
    "ALTER TABLE Alias ADD IF NOT EXISTS sources STRING[]",
    "ALTER TABLE Alias ADD IF NOT EXISTS hidden BOOLEAN",
    "ALTER TABLE Relates ADD IF NOT EXISTS source_alias STRING",
    "ALTER TABLE Relates ADD IF NOT EXISTS destination_alias STRING",
)
_MATCH = {
    "entities": "MATCH (e:Entity)",
    "aliases": "MATCH (a:Alias)-[:Named]->(e:Entity)",
    "relations": "MATCH (s:Entity)-[r:Relates]->(d:Entity)",
}
_MATCH_ONE = {
    "entities": "MATCH (e:Entity {id: $key})",
    "aliases": "MATCH (a:Alias {id: $key})-[:Named]->(:Entity {id: $source})",
    "relations": ("MATCH (:Entity {id: $source})-[r:Relates {id: $key}]->(:Entity {id: $target})"),
}
_CREATE = {
    "entities": "CREATE (e:Entity {id: $key})",
    "aliases": "MATCH (e:Entity {id: $source}) CREATE (a:Alias {id: $key})-[:Named]->(e)",
    "relations": (
        "MATCH (s:Entity {id: $source}), (d:Entity {id: $target})"
        " CREATE (s)-[r:Relates {id: $key}]->(d)"
    ),
}
_DELETE = {"entities": "DETACH DELETE e", "aliases": "DETACH DELETE a", "relations": "DELETE r"}
_KEYS = {
    "entities": {"entity_id": "e.id"},
    "aliases": {"entity_id": "e.id"},
    "relations": {"relation_id": "r.id", "source_id": "s.id", "destination_id": "d.id"},
}
# The columns of a row and what they are called in a file: ids of nodes and edges, and properties.
_PROPERTIES = {
    "entities": {
        "agent_id": "e.agent",
        "name": "e.name",
        "type": "e.type",
        "created_at": "e.created",
    },
    "aliases": {
        "alias": "a.alias",
        "agent_id": "a.agent",
        "name": "a.name",
        "session_id": "a.session",
        "source_message_ids": "a.sources",
        "hidden": "a.hidden",
    },
    "relations": {
        "agent_id": "r.agent",
        "session_id": "r.session",
        "relationship": "r.kind",
        "valid_from": "r.since",
        "valid_to": "r.until",
        "source_message_ids": "r.sources",
        "created_at": "r.created",
        "source_alias": "r.source_alias",
        "destination_alias": "r.destination_alias",
    },
}
_ORDER = {"entities": "e.id", "aliases": "a.alias", "relations": "r.id"}
_TIMES = ("created_at", "valid_from", "valid_to")
_DEFAULTS = {"source_message_ids": [], "hidden": False}  # in files of older versions


class GraphFile:
    """One user's graph in an open file: rows in Cypher, whose values are always parameters."""

    def __init__(self, path: Path) -> None:
        with requires_extra("a graph in Ladybug", "ladybug", "ladybug"):
            import ladybug
        self._path = path
        self.has_deleted = False
        self._lock = threading.Lock()  # A cancelled caller leaves its statement running.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _typed_faults(path):
            self._database = ladybug.Database(
                str(path), buffer_pool_size=_BUFFER, max_db_size=_LARGEST, max_num_threads=1
            )
            self._connection = ladybug.Connection(self._database, num_threads=1)
            path.chmod(0o600)
        for statement in _SCHEMA:
            self._execute(statement, {})

    async def read(
        self,
        table: str,
        where: Conditions,
        *,
        after: str = "",
        limit: int | None = None,
        newest: bool = False,
    ) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys."""
        columns, order = _columns(table), _ORDER[table]
        values = {name: list(items) for name, items in where.items() if items is not None}
        conditions = [
            f"{columns[name]} IN ${name}" if name in values else f"{columns[name]} IS NULL"
            for name in where
        ]
        condition = " AND ".join([f"{order} > $after", *conditions])
        ending = f"ORDER BY {order} {'DESC' if newest else ''}"
        ending += "" if limit is None else f" LIMIT {limit:d}"
        rows = await self._select(table, condition, ending, after=after, **values)
        return rows[::-1] if newest else rows

    async def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""
        condition = f"list_has_any({_PROPERTIES[table]['source_message_ids']}, $ids)"
        return await self._select(table, condition, ids=list(message_ids))

    async def _select(
        self, table: str, condition: str, ending: str = "", **parameters: Any
    ) -> list[GraphRow]:
        columns = _columns(table)
        names = ", ".join(columns.values())
        query = f"{_MATCH[table]} WHERE {condition} RETURN {names} {ending}"
        rows = await self.run(query, **parameters)
        return [_to_row(dict(zip(columns, row, strict=True))) for row in rows]

    async def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""
        for row in rows:
            await self._set(_CREATE[table], table, row, row)

    async def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row; an edge to another node is a new edge."""
        if _KEYS[table].keys().isdisjoint(changes):
            await self._set(_MATCH_ONE[table], table, row, changes)
        else:
            await self.delete(table, [row])
            await self.insert(table, [{**row, **changes}])

    async def _set(self, match: str, table: str, row: GraphRow, values: GraphRow) -> None:
        columns = {name: col for name, col in _PROPERTIES[table].items() if name in values}
        changes = ", ".join(f"{column} = ${name}" for name, column in columns.items())
        parameters = {name: _to_property(values[name]) for name in columns}
        await self.run(f"{match} SET {changes}", **_key(table, row), **parameters)

    async def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows."""
        self.has_deleted = self.has_deleted or bool(rows)
        for row in rows:
            await self.run(f"{_MATCH_ONE[table]} {_DELETE[table]}", **_key(table, row))

    async def run(self, query: str, **parameters: Any) -> list[Sequence[Any]]:
        """Return the rows of one query."""
        return await asyncio.to_thread(self._execute, query, parameters)

    def _execute(self, query: str, parameters: GraphRow) -> list[Sequence[Any]]:
        with self._lock, _typed_faults(self._path):
            result: Any = self._connection.execute(query, parameters)
            rows: list[Sequence[Any]] = result.get_all()
            result.close()
            return rows

    def close(self) -> None:
        """Write everything and close the file."""
        with self._lock:
            self._connection.close()
            self._database.close()


class LadybugGraphs:
    """The graphs of all users of one database, one file each.

    Only one process at a time can open a file.
    """

    is_in_store = False

    def __init__(self, folder: Path, database_id: str) -> None:
        self._folder = folder / database_id
        self._files: OrderedDict[str, GraphFile] = OrderedDict()
        self._lock = asyncio.Lock()

    def reader(self, user_id: str) -> "LadybugReader":
        """Return read access to a user's graph."""
        return LadybugReader(self, user_id)

    async def run(
        self, user_id: str, work: Callable[[GraphFile], Awaitable[list[GraphRow]]]
    ) -> list[GraphRow]:
        """Return the rows of a query on a user's graph, none if there is no file."""
        async with self._lock:
            if user_id not in self._files and not self._path(user_id).exists():
                return []
            return await work(await self._open(user_id))

    async def transact(
        self, scope: Scope, work: Callable[[GraphTransaction], Awaitable[Result]]
    ) -> Result:
        """Call `work` in a transaction, which a cancelled caller does not interrupt."""
        return await run_to_completion(self._transact(scope.user_id, work))

    async def _transact(
        self, user_id: str, work: Callable[[GraphTransaction], Awaitable[Result]]
    ) -> Result:
        async with self._lock:
            file = await self._open(user_id)
            await file.run("BEGIN TRANSACTION")
            try:
                result = await work(file)
            except BaseException:
                with suppress(StorageError):
                    await file.run("ROLLBACK")
                raise
            await file.run("COMMIT")
            return result

    async def compact(self, user_id: str) -> None:
        """Copy a user's rows to a new file, because deleted ones stay in the old file."""
        async with self._lock:
            old = self._files.get(user_id)
            if old is None or not old.has_deleted:
                return
            path = self._path(user_id)
            copy = path.with_suffix(".new")
            copy.unlink(missing_ok=True)  # if a process was killed here
            new = await asyncio.to_thread(GraphFile, copy)
            await new.run("BEGIN TRANSACTION")
            for table in GRAPH_TABLES:
                await new.insert(table, await old.read(table, {}))
            await new.run("COMMIT")
            await asyncio.to_thread(new.close)
            await self._close(user_id)
            copy.replace(path)

    async def erase_user(self, user_id: str) -> None:
        """Delete a user's file and its log."""
        async with self._lock:
            await self._close(user_id)
            for part in self._folder.glob(f"{self._path(user_id).stem}.*"):
                part.unlink(missing_ok=True)

    async def close(self) -> None:
        """Close all files."""
        async with self._lock:
            for user_id in list(self._files):
                await self._close(user_id)

    async def _close(self, user_id: str) -> None:
        if file := self._files.pop(user_id, None):
            await asyncio.to_thread(file.close)

    async def _open(self, user_id: str) -> GraphFile:
        if user_id not in self._files:
            while len(self._files) >= _MAX_OPEN_FILES:
                await self._close(next(iter(self._files)))
            self._files[user_id] = await asyncio.to_thread(GraphFile, self._path(user_id))
        self._files.move_to_end(user_id)
        return self._files[user_id]

    def _path(self, user_id: str) -> Path:
        """Return the path of a user's file, which does not contain the id."""
        return self._folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + ".lbug")


class LadybugReader:
    """Read access to one user's graph, whose file may be opened and closed in between."""

    def __init__(self, graphs: LadybugGraphs, user_id: str) -> None:
        self._graphs = graphs
        self._user_id = user_id

    async def read(self, table: str, where: Conditions, **options: Any) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys."""
        return await self._graphs.run(
            self._user_id, lambda file: file.read(table, where, **options)
        )


@contextmanager
def _typed_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # The library raises no other type, and no codes.
        if "lock" in str(error).lower():
            raise StorageBusy(
                f"the graph {path} is used by another process",
                hint="Only one process can open it at a time",
            ) from error
        raise StorageError(f"the graph {path} failed: {error}") from error


def _columns(table: str) -> dict[str, str]:
    return {**_KEYS[table], **_PROPERTIES[table]}


def _key(table: str, row: GraphRow) -> dict[str, str]:
    """Return the parameters that match or create the node or edge of a row."""
    if table == "entities":
        return {"key": row["entity_id"]}
    if table == "aliases":
        return {"key": row["agent_id"] + _DIVIDER + row["alias"], "source": row["entity_id"]}
    return {"key": row["relation_id"], "source": row["source_id"], "target": row["destination_id"]}


def _to_property(value: Any) -> Any:
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def _to_row(properties: GraphRow) -> GraphRow:
    row: GraphRow = {
        name: _DEFAULTS.get(name) if v is None else v for name, v in properties.items()
    }
    times = [name for name in _TIMES if row.get(name) is not None]
    return row | {name: _EPOCH + row[name] * _MICROSECOND for name in times}
