"""Graphs in Ladybug: the promise of `GraphDB`, kept in a folder of files."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from memrecall.library import ladybug_queries as cypher
from memrecall.library.ladybug_queries import (
    GraphFile,
    alias_key,
    micros,
    moment_of,
    relations_of,
    remove,
    write_alias,
    write_entity,
    write_relation,
)
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import NewRelation, StoredEntity, StoredRelation, fold_name
from memrecall.store.graph.relations import MAX_RELATIONS, check_name
from memrecall.types import format_time, parse_time
from memrecall.workers import run_to_completion


def all_rows(file: GraphFile, user_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Everything as rows of an export."""
    rows: list[tuple[str, dict[str, Any]]] = []
    for key, agent, name, kind, created in file.ask(
        "MATCH (e:Entity) RETURN e.id, e.agent, e.name, e.type, e.created ORDER BY e.id"
    ):
        made = {"name": name, "type": kind, "created_at": _time(created)}
        rows.append(("entities", {"entity_id": key, "agent_id": agent, **made}))
    for agent, alias, name, session, key in file.ask(
        "MATCH (a:Alias)-[:Named]->(e:Entity)"
        " RETURN a.agent, a.alias, a.name, a.session, e.id ORDER BY a.id"
    ):
        said = {"alias": alias, "name": name, "session_id": session}
        rows.append(("aliases", {"agent_id": agent, "entity_id": key, **said}))
    for source, destination, fields in relations_of(file, None):
        rows.append(("relations", _relation_row(source, destination, fields)))
    return [(table, {"user_id": user_id, **row}) for table, row in rows]


def add_rows(file: GraphFile, rows: Iterable[tuple[str, Any]]) -> None:
    """Take rows of an export; in the order of their tables, because rows refer to others."""
    order = {"entities": 0, "aliases": 1, "relations": 2}
    for table, row in sorted(rows, key=lambda item: order[item[0]]):
        if table == "entities":
            _add_entity(file, row)
        elif table == "aliases":
            _add_alias(file, row)
        else:
            _add_relation(file, row)


def without_session(
    rows: Sequence[tuple[str, Any]], session_id: str
) -> list[tuple[str, dict[str, Any]]]:
    """Rows without the relations and first names of a session, and entities without a name."""
    told = [(t, r) for t, r in rows if t == "relations" and r["session_id"] != session_id]
    related = {r[end] for _, r in told for end in ("source_id", "destination_id")}
    called = [
        (t, r)
        for t, r in rows
        if t == "aliases" and (r["session_id"] != session_id or r["entity_id"] in related)
    ]
    known = {r["entity_id"] for _, r in called}
    return [(t, r) for t, r in rows if t == "entities" and r["entity_id"] in known] + called + told


def _relation_row(source: str, destination: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "relation_id": fields["id"],
        "agent_id": fields["agent"],
        "session_id": fields["session"],
        "source_id": source,
        "relationship": fields["kind"],
        "destination_id": destination,
        "valid_from": _time(fields["since"]),
        "valid_to": _time(fields["until"]),
        "source_message_ids": list(fields["sources"] or ()),
        "created_at": _time(fields["created"]),
    }


def _add_entity(file: GraphFile, row: Any) -> None:
    if not file.ask("MATCH (e:Entity {id: $key}) RETURN e.id", key=row["entity_id"]):
        created = micros(parse_time(row["created_at"]))
        given = (row["agent_id"], row["name"], row["type"], created)
        write_entity(file, row["entity_id"], *given)


def _add_alias(file: GraphFile, row: Any) -> None:
    key = alias_key(row["agent_id"], row["alias"])
    if not file.ask("MATCH (a:Alias {id: $key}) RETURN a.id", key=key):
        given = (row["alias"], row["name"], row.get("session_id"), row["entity_id"])
        write_alias(file, row["agent_id"], *given)


def _add_relation(file: GraphFile, row: Any) -> None:
    ends = {"source": row["source_id"], "destination": row["destination_id"]}
    same = "MATCH (:Entity {id: $source})-[r:Relates {id: $id}]->(:Entity {id: $destination})"
    if file.ask(f"{same} RETURN r.id", id=row["relation_id"], **ends):
        return
    fields = {
        "id": row["relation_id"],
        "kind": row["relationship"],
        "since": _read_time(row.get("valid_from")),
        "until": _read_time(row.get("valid_to")),
        "sources": list(row["source_message_ids"]),
        "session": row.get("session_id"),
        "created": _read_time(row["created_at"]),
        "agent": row["agent_id"],
    }
    write_relation(file, row["source_id"], row["destination_id"], fields)


def _time(micros: int | None) -> str | None:
    moment = moment_of(micros)
    return None if moment is None else format_time(moment)


def _read_time(given: str | None) -> int | None:
    return None if given is None else micros(parse_time(given))


_OPEN_AT_ONCE = 32
_SUFFIX = ".lbug"


class LadybugGraphs:
    """Graphs of all users of one database, each in a file of its own.

    A file belongs to one process at a time: for an application or a service of one process.
    """

    is_in_store = False

    def __init__(self, folder: Path, database_id: str) -> None:
        self._folder = folder / database_id
        self._files: OrderedDict[str, GraphFile] = OrderedDict()
        self._lock = asyncio.Lock()

    def for_scope(self, scope: Scope) -> "LadybugScopedGraph":
        """The graph of one scope."""
        return LadybugScopedGraph(self, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Everything of a user as rows of an export."""
        if not self._path(user_id).exists():
            return
        for row in await self.read(user_id, lambda file: all_rows(file, user_id)):
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Any]]) -> None:
        """Take such rows; what is there under the same key stays."""
        given = list(rows)
        if given:
            await self.write(user_id, lambda file: add_rows(file, given))

    async def erase_user(self, user_id: str) -> None:
        """Remove a user's file."""
        async with self._lock:
            await self._remove(user_id)

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Write a user's file anew, without what was said in a session."""
        kept = without_session([row async for row in self.rows(user_id)], session_id)
        await self.erase_user(user_id)
        await self.add_rows(user_id, kept)

    async def close(self) -> None:
        """Give all files back."""
        async with self._lock:
            for file in self._files.values():
                await asyncio.to_thread(file.close)
            self._files.clear()

    async def read(self, user_id: str, work: Any) -> Any:
        """Ask a user's graph something."""
        async with self._lock:
            return await asyncio.to_thread((await self._file(user_id)).read, work)

    async def write(self, user_id: str, work: Any) -> Any:
        """Change a user's graph, all or nothing; begun work ends although the caller goes away."""
        return await run_to_completion(self._write(user_id, work))

    async def _write(self, user_id: str, work: Any) -> Any:
        async with self._lock:
            return await asyncio.to_thread((await self._file(user_id)).write, work)

    def has(self, user_id: str) -> bool:
        """Whether anything was ever written of a user."""
        return user_id in self._files or self._path(user_id).exists()

    async def _file(self, user_id: str) -> GraphFile:
        if user_id not in self._files:
            while len(self._files) >= _OPEN_AT_ONCE:
                await asyncio.to_thread(self._files.popitem(last=False)[1].close)
            self._files[user_id] = await asyncio.to_thread(GraphFile, self._path(user_id))
        self._files.move_to_end(user_id)
        return self._files[user_id]

    async def _remove(self, user_id: str) -> None:
        opened = self._files.pop(user_id, None)
        if opened is not None:
            await asyncio.to_thread(opened.close)
        await asyncio.to_thread(remove, self._path(user_id))

    def _path(self, user_id: str) -> Path:
        """Where a user's file lies; the id itself never becomes a file name."""
        return self._folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + _SUFFIX)


class LadybugScopedGraph:
    """The graph of one scope."""

    def __init__(self, graphs: LadybugGraphs, scope: Scope) -> None:
        self._graphs = graphs
        self._user = scope.user_id
        self._only = scope.agent_id
        self._owner = cypher.Owner(scope.agent_id or DEFAULT_NAME, scope.session_id)

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name and type) and relations; the ids of the relations that are new."""
        names = {name: kind for name, kind in types.items() if fold_name(name)}
        for relation in new:
            names.setdefault(relation.source, "thing")
            names.setdefault(relation.destination, "thing")
        for name in names:
            check_name(name)
        if not names:
            return []
        made: list[str] = await self._graphs.write(
            self._user, lambda file: cypher.add(file, self._owner, names, new)
        )
        return made

    async def merge(self, name: str, alias: str) -> None:
        """Two names are of one entity: what was said of `alias` is said of `name` from now on."""
        for one in (name, alias):
            check_name(one)
        await self._graphs.write(
            self._user, lambda file: cypher.merge(file, self._owner, name, alias)
        )

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Entities by any of their names; it costs the names, not the size of the graph."""
        folded = sorted({fold_name(name) for name in names} - {""})
        return await self._read(lambda file: cypher.entities(file, self._only, folded))

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """So many entities, the earliest first, beginning after the one of that id."""
        return await self._read(lambda file: cypher.page(file, self._only, limit, after))

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """The latest relations that hold and touch an entity: source id, destination id, it."""
        ids = list(entity_ids)
        return await self._read(lambda file: cypher.around(file, self._only, ids, as_of, limit))

    async def _read(self, work: Any) -> list[Any]:
        if not self._graphs.has(self._user):
            return []
        found: list[Any] = await self._graphs.read(self._user, work)
        return found
