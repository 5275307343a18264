"""Knowledge graphs in Ladybug: implements `GraphDB` with one file per user."""

import asyncio
import hashlib
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from memrecall.library import ladybug_queries as cypher
from memrecall.library.ladybug_file import GraphFile, alias_key, micros, moment_of, remove
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.store import NewRelation, StoredEntity, StoredRelation
from memrecall.store.graph_types import MAX_RELATIONS, check_name, collect_names
from memrecall.text.normalize import entity_key
from memrecall.types import format_time, parse_stored_time
from memrecall.workers import run_to_completion

_MAX_OPEN_FILES = 32
_SUFFIX = ".lbug"
# The names of the columns of an export in the graph.
_ENTITY = {
    "entity_id": "id",
    "agent_id": "agent",
    "name": "name",
    "type": "type",
    "created_at": "created",
}
_ALIAS = {
    "agent_id": "agent",
    "alias": "alias",
    "name": "name",
    "session_id": "session",
    "source_message_ids": "sources",
    "hidden": "hidden",
}
_RELATION = {
    "relation_id": "id",
    "agent_id": "agent",
    "session_id": "session",
    "relationship": "kind",
    "valid_from": "since",
    "valid_to": "until",
    "source_message_ids": "sources",
    "created_at": "created",
    "source_alias": "source_alias",
    "destination_alias": "destination_alias",
}
_TIMES = ("created_at", "valid_from", "valid_to")


def all_rows(file: GraphFile, user_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the whole graph as rows of an export."""
    columns = ", ".join(f"e.{name}" for name in _ENTITY.values())
    entities = file.ask(f"MATCH (e:Entity) RETURN {columns} ORDER BY e.id")
    rows = [("entities", _to_json(_ENTITY, values)) for values in entities]
    columns = ", ".join(f"a.{name}" for name in _ALIAS.values())
    match = "MATCH (a:Alias)-[:Named]->(e:Entity)"
    for key, *values in file.ask(f"{match} RETURN e.id, {columns} ORDER BY a.id"):
        rows.append(("aliases", {"entity_id": key, **_to_json(_ALIAS, values)}))
    for source, destination, fields in cypher.relations_of(file, None):
        row = _to_json(_RELATION, [fields[name] for name in _RELATION.values()])
        rows.append(("relations", {**row, "source_id": source, "destination_id": destination}))
    return [(table, {"user_id": user_id, **row}) for table, row in rows]


def add_rows(file: GraphFile, rows: Iterable[tuple[str, Any]]) -> None:
    """Add rows of an export, in the order of their tables because of references."""
    add = {"entities": _add_entity, "aliases": _add_alias, "relations": _add_relation}
    order = list(add)
    for table, row in sorted(rows, key=lambda item: order.index(item[0])):
        add[table](file, row)


def without_session(
    rows: Sequence[tuple[str, Any]], session_id: str
) -> list[tuple[str, dict[str, Any]]]:
    """Return rows without a session's relations and aliases, and without unnamed entities."""
    relations = [(t, r) for t, r in rows if t == "relations" and r["session_id"] != session_id]
    related = {r[end] for _, r in relations for end in ("source_id", "destination_id")}
    aliases = [
        (t, r)
        for t, r in rows
        if t == "aliases" and (r["session_id"] != session_id or r["entity_id"] in related)
    ]
    entity_ids = {r["entity_id"] for _, r in aliases}
    entities = [(t, r) for t, r in rows if t == "entities" and r["entity_id"] in entity_ids]
    return entities + aliases + relations


def _add_entity(file: GraphFile, row: Any) -> None:
    if not file.ask("MATCH (e:Entity {id: $key}) RETURN e.id", key=row["entity_id"]):
        cypher.write_entity(file, _from_json(_ENTITY, row))


def _add_alias(file: GraphFile, row: Any) -> None:
    key = alias_key(row["agent_id"], row["alias"])
    if not file.ask("MATCH (a:Alias {id: $key}) RETURN a.id", key=key):
        cypher.write_alias(file, row["entity_id"], _from_json(_ALIAS, row))


def _add_relation(file: GraphFile, row: Any) -> None:
    ends = {"source": row["source_id"], "destination": row["destination_id"]}
    same = "MATCH (:Entity {id: $source})-[r:Relates {id: $id}]->(:Entity {id: $destination})"
    if not file.ask(f"{same} RETURN r.id", id=row["relation_id"], **ends):
        fields = _from_json(_RELATION, row)
        cypher.write_relation(file, row["source_id"], row["destination_id"], fields)


def _to_json(names: Mapping[str, str], values: Iterable[Any]) -> dict[str, Any]:
    """Return values of the graph as columns of an export, times as text."""
    row = dict(zip(names, values, strict=True))
    moments = {name: moment_of(row[name]) for name in _TIMES if name in row}
    row |= {name: at and format_time(at) for name, at in moments.items()}
    sources = "source_message_ids"
    return {**row, sources: list(row[sources] or ())} if sources in row else row


def _from_json(names: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of an export by their names in the graph."""
    times = {name: micros(parse_stored_time(row[name])) for name in _TIMES if row.get(name)}
    fields = {name: times.get(column, row.get(column)) for column, name in names.items()}
    return {**fields, "sources": fields["sources"] or []} if "sources" in fields else fields


class LadybugGraphs:
    """The graphs of all users of one database, one file each.

    Only one process at a time can open a file.
    """

    is_in_store = False

    def __init__(self, folder: Path, database_id: str) -> None:
        self._folder = folder / database_id
        self._files: OrderedDict[str, GraphFile] = OrderedDict()
        self._lock = asyncio.Lock()

    def for_scope(self, scope: Scope) -> "LadybugScopedGraph":
        """Return the graph of one scope."""
        return LadybugScopedGraph(self, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield a user's graph as rows of an export."""
        if not self._path(user_id).exists():
            return
        for row in await self.read(user_id, lambda file: all_rows(file, user_id)):
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Any]]) -> None:
        """Add such rows; existing keys stay unchanged."""
        new_rows = list(rows)
        if new_rows:
            await self.write(user_id, lambda file: add_rows(file, new_rows))

    async def erase_user(self, user_id: str) -> None:
        """Delete a user's file."""
        async with self._lock:
            file = self._files.pop(user_id, None)
            if file is not None:
                await asyncio.to_thread(file.close)
            await asyncio.to_thread(remove, self._path(user_id))

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Rewrite a user's file without the relations and aliases of a session."""
        rows = without_session([row async for row in self.rows(user_id)], session_id)
        await self.erase_user(user_id)
        await self.add_rows(user_id, rows)

    async def close(self) -> None:
        """Close all files."""
        async with self._lock:
            for file in self._files.values():
                await asyncio.to_thread(file.close)
            self._files.clear()

    async def read(self, user_id: str, work: Any) -> Any:
        """Run a query on a user's graph."""
        return await self._run(user_id, GraphFile.read, work)

    async def write(self, user_id: str, work: Any) -> Any:
        """Change a user's graph in a transaction, which a cancelled caller does not interrupt."""
        return await run_to_completion(self._run(user_id, GraphFile.write, work))

    async def _run(self, user_id: str, run: Callable[..., Any], work: Any) -> Any:
        async with self._lock:
            return await asyncio.to_thread(run, await self._file(user_id), work)

    def has(self, user_id: str) -> bool:
        """Return True if a user has a graph."""
        return user_id in self._files or self._path(user_id).exists()

    async def _file(self, user_id: str) -> GraphFile:
        if user_id not in self._files:
            while len(self._files) >= _MAX_OPEN_FILES:
                await asyncio.to_thread(self._files.popitem(last=False)[1].close)
            self._files[user_id] = await asyncio.to_thread(GraphFile, self._path(user_id))
        self._files.move_to_end(user_id)
        return self._files[user_id]

    def _path(self, user_id: str) -> Path:
        """Return the path of a user's file, which does not contain the id."""
        return self._folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + _SUFFIX)


class LadybugScopedGraph:
    """The graph of one scope."""

    def __init__(self, graphs: LadybugGraphs, scope: Scope) -> None:
        self._graphs = graphs
        self._user = scope.user_id
        self._only = scope.agent_id
        self._owner = cypher.Owner(scope.agent_id or DEFAULT_NAME, scope.session_id)

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name and type) and relations; return the ids of new relations."""
        names = collect_names(types, new)
        if not names:
            return []
        ids: list[str] = await self._graphs.write(
            self._user, lambda file: cypher.add(file, self._owner, names, new)
        )
        return ids

    async def merge(self, name: str, alias: str, source_message_ids: Sequence[str] = ()) -> None:
        """Merge two entities: relations and aliases of `alias` move to `name`."""
        check_name(name)
        check_name(alias)
        await self._graphs.write(
            self._user,
            lambda file: cypher.merge(file, self._owner, name, alias, source_message_ids),
        )

    async def split(self, alias: str) -> None:
        """Give a name an entity of its own, with the relations that were stated with it."""
        check_name(alias)
        await self._graphs.write(self._user, lambda file: cypher.split(file, self._owner, alias))

    async def find(self, relation_ids: Sequence[str]) -> list[StoredRelation]:
        """Return relations by their ids, ended ones included."""
        ends = await self._read(lambda file: cypher.ends_of(file, relation_ids))
        edges = await self.all_around(ends, sys.maxsize)
        return [relation for _, _, relation in edges if relation.relation_id in relation_ids]

    async def revise(self, ends: Mapping[str, datetime | None]) -> None:
        """Set when relations end, by their ids; None for those that hold."""
        await self._graphs.write(self._user, lambda file: cypher.revise(file, ends))

    async def erase(self, relation_ids: Sequence[str]) -> None:
        """Remove relations, and the entities that nothing else connects."""
        await self._graphs.write(self._user, lambda file: cypher.erase(file, relation_ids))

    async def erase_unconnected(self, entity_ids: Sequence[str]) -> None:
        """Remove the entities that have one name and no relations."""
        await self._graphs.write(
            self._user, lambda file: cypher.erase_unconnected(file, entity_ids)
        )

    async def hide_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Hide names of entities from pages, by the entity's id, and show its other names."""
        await self._graphs.write(self._user, lambda file: cypher.hide_names(file, names))

    async def erase_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Remove names of entities that have others, by the entity's id."""
        await self._graphs.write(self._user, lambda file: cypher.erase_names(file, names))

    async def erase_sources(self, message_ids: Sequence[str], stated: Collection[str]) -> None:
        """Remove messages from all evidence, and relations and names without any other."""
        await self._graphs.write(
            self._user, lambda file: cypher.erase_sources(file, message_ids, stated)
        )

    async def entities(self, names: Iterable[str], *, hidden: bool = False) -> list[StoredEntity]:
        """Return entities by any of their names."""
        folded = sorted({entity_key(name) for name in names} - {""})
        return await self._read(lambda file: cypher.entities(file, self._only, folded, hidden))

    async def page(
        self, *, limit: int, after: str | None = None, hidden: bool = False
    ) -> list[StoredEntity]:
        """Return a page of entities, oldest first, after the one with that id."""
        return await self._read(lambda file: cypher.page(file, self._only, limit, after, hidden))

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities: source id, destination id, relation."""
        ids = list(entity_ids)
        return await self._read(
            lambda file: cypher.valid_around(file, self._only, ids, as_of, limit)
        )

    async def all_around(
        self, entity_ids: Sequence[str], limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest relations of entities like `around`, ended ones included."""
        ids = list(entity_ids)
        return await self._read(lambda file: cypher.around(file, self._only, ids, limit))

    async def _read(self, work: Any) -> list[Any]:
        if not self._graphs.has(self._user):
            return []
        rows: list[Any] = await self._graphs.read(self._user, work)
        return rows
