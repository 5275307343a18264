"""Cypher queries on a graph file. Values are always parameters."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from memrecall.errors import InvalidArgument, StorageBusy, StorageError
from memrecall.store import NewRelation, StoredEntity, StoredRelation
from memrecall.store.database.statements import new_id
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

Result = TypeVar("Result")

_BUFFER = 32 * 1024 * 1024
_LARGEST = 16 * 1024 * 1024 * 1024  # reserved address space, not memory
_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Agent(id STRING PRIMARY KEY)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(id STRING PRIMARY KEY, agent STRING, name STRING,"
    " type STRING, created INT64)",
    "CREATE NODE TABLE IF NOT EXISTS Alias(id STRING PRIMARY KEY, agent STRING, alias STRING,"
    " name STRING, session STRING)",
    "CREATE REL TABLE IF NOT EXISTS Named(FROM Alias TO Entity)",
    "CREATE REL TABLE IF NOT EXISTS Relates(FROM Entity TO Entity, id STRING, agent STRING,"
    " session STRING, kind STRING, since INT64, until INT64, sources STRING[], created INT64)",
)


def _library() -> Any:
    try:
        import ladybug
    except ImportError:
        raise InvalidArgument(
            "a graph in Ladybug needs a package that is not installed",
            hint="pip install 'memrecall[ladybug]'",
        ) from None
    return ladybug


class GraphFile:
    """An open graph file, which runs one transaction at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        library = _library()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _typed_faults(path):
            self._database = library.Database(
                str(path), buffer_pool_size=_BUFFER, max_db_size=_LARGEST, max_num_threads=1
            )
            self._connection = library.Connection(self._database, num_threads=1)
            path.chmod(0o600)
            for statement in _SCHEMA:
                self._connection.execute(statement)

    def read(self, work: Callable[["GraphFile"], Result]) -> Result:
        """Run a query."""
        with self._lock, _typed_faults(self.path):
            return work(self)

    def write(self, work: Callable[["GraphFile"], Result]) -> Result:
        """Run changes in a transaction."""
        with self._lock, _typed_faults(self.path):
            self._connection.execute("BEGIN TRANSACTION")
            try:
                result = work(self)
            except BaseException:
                with suppress(RuntimeError):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            return result

    def ask(self, query: str, **parameters: Any) -> list[Sequence[Any]]:
        """Return the rows of one query."""
        result = self._connection.execute(query, parameters)
        rows: list[Sequence[Any]] = result.get_all()
        result.close()
        return rows

    def close(self) -> None:
        """Write everything and close the file."""
        with self._lock:
            self._connection.close()
            self._database.close()


def remove(path: Path) -> None:
    """Delete a file and its log."""
    for part in (path, *path.parent.glob(f"{path.name}.*")):
        part.unlink(missing_ok=True)


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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIVIDER = "\x1f"  # in no id and no name: both are printable
_FIELDS = ("id", "kind", "since", "until", "sources", "session", "created", "agent")


@dataclass(frozen=True, slots=True)
class Owner:
    """The agent and the session of new rows."""

    agent: str
    session: str | None


def add(
    file: GraphFile, owner: Owner, names: dict[str, str], new: Sequence[NewRelation]
) -> list[str]:
    """Store entities and relations that are new; return the ids of new relations."""
    now = _now()
    ids = _entity_ids(file, owner, names, now)
    relation_ids = [
        _relate(file, owner, r, ids[entity_key(r.source)], ids[entity_key(r.destination)], now)
        for r in new
    ]
    return [relation_id for relation_id in relation_ids if relation_id is not None]


def merge(file: GraphFile, owner: Owner, name: str, alias: str) -> None:
    """Move relations and aliases of one entity to another, and delete it."""
    now = _now()
    ids = _entity_ids(file, owner, {name: "thing", alias: "thing"}, now)
    target, merged = ids[entity_key(name)], ids[entity_key(alias)]
    if target == merged:
        return
    aliases = file.ask("MATCH (a:Alias)-[:Named]->(:Entity {id: $id}) RETURN a.id", id=merged)
    for (key,) in aliases:
        file.ask("MATCH (:Alias {id: $key})-[n:Named]->(:Entity) DELETE n", key=key)
        _name(file, key, target)
    relations = relations_of(file, [merged])
    file.ask("MATCH (e:Entity {id: $id}) DETACH DELETE e", id=merged)
    for source, destination, fields in relations:
        start, end = (target if e == merged else e for e in (source, destination))
        write_relation(file, start, end, fields)


def entities(file: GraphFile, only: str | None, folded: Sequence[str]) -> list[StoredEntity]:
    """Return the entities of some names."""
    agents = [only] if only is not None else [a for (a,) in file.ask("MATCH (a:Agent) RETURN a.id")]
    keys = [alias_key(agent, name) for agent in agents for name in folded]
    rows = file.ask(
        "UNWIND $keys AS key MATCH (:Alias {id: key})-[:Named]->(e:Entity)"
        " RETURN DISTINCT e.id, e.name, e.type ORDER BY e.id",
        keys=keys,
    )
    return _with_names(file, rows)


def page(file: GraphFile, only: str | None, limit: int, after: str | None) -> list[StoredEntity]:
    """Return some entities in the order of their ids."""
    of_agent = "" if only is None else " AND e.agent = $agent"
    agent = {} if only is None else {"agent": only}
    rows = file.ask(
        f"MATCH (e:Entity) WHERE e.id > $after{of_agent}"
        " RETURN e.id, e.name, e.type ORDER BY e.id LIMIT $size",
        **{"after": after or "", "size": limit, **agent},
    )
    return _with_names(file, rows)


def around(
    file: GraphFile, only: str | None, ids: Sequence[str], as_of: datetime | None, limit: int
) -> list[tuple[str, str, StoredRelation]]:
    """Return the latest relations of some entities that are valid, or were at a time."""
    valid = [
        (source, destination, fields)
        for source, destination, fields in relations_of(file, ids)
        if only in (None, fields["agent"]) and _is_valid(fields, as_of)
    ]
    latest = valid[-limit:]
    ends = {end for source, destination, _ in latest for end in (source, destination)}
    query = "UNWIND $ids AS id MATCH (e:Entity {id: id}) RETURN e.id, e.name"
    names = {str(key): str(name) for key, name in file.ask(query, ids=sorted(ends))}
    return [
        (source, destination, _to_relation(names[source], names[destination], fields))
        for source, destination, fields in latest
    ]


def _entity_ids(file: GraphFile, owner: Owner, names: dict[str, str], now: int) -> dict[str, str]:
    folded = {entity_key(name): name for name in reversed(list(names))}
    keys = {alias_key(owner.agent, alias): alias for alias in folded}
    query = "UNWIND $keys AS key MATCH (a:Alias {id: key})-[:Named]->(e:Entity) RETURN a.id, e.id"
    ids = {keys[key]: entity for key, entity in file.ask(query, keys=sorted(keys))}
    for alias, name in folded.items():
        if alias not in ids:
            ids[alias] = new_id("en")
            fields = {"id": ids[alias], "type": names[name], "created": now}
            write_entity(file, {**fields, "agent": owner.agent, "name": name})
            fields = {"agent": owner.agent, "session": owner.session}
            write_alias(file, ids[alias], {**fields, "alias": alias, "name": name})
    return ids


def _relate(
    file: GraphFile, owner: Owner, new: NewRelation, source: str, destination: str, now: int
) -> str | None:
    kind = check_text("relationship", new.relationship)[:NAME_LENGTH]
    same = (
        "MATCH (:Entity {id: $source})-[r:Relates]->(:Entity {id: $destination})"
        " WHERE r.kind = $kind AND r.agent = $agent AND r.until IS NULL"
    )
    key = {"source": source, "destination": destination, "kind": kind, "agent": owner.agent}
    since = None if new.valid_from is None else micros(new.valid_from)
    if new.ended:
        file.ask(f"{same} SET r.until = $until", **key, until=now if since is None else since)
        return None
    if file.ask(f"{same} RETURN r.id", **key):
        return None
    fields = {
        "id": new_id("re"),
        "kind": kind,
        "since": since,
        "until": None,
        "sources": list(new.source_message_ids),
        "session": owner.session,
        "created": now,
        "agent": owner.agent,
    }
    write_relation(file, source, destination, fields)
    return str(fields["id"])


def write_entity(file: GraphFile, fields: dict[str, Any]) -> None:
    """Create an entity, and its agent if it is new."""
    file.ask("MERGE (:Agent {id: $agent})", agent=fields["agent"])
    file.ask(
        "CREATE (:Entity {id: $id, agent: $agent, name: $name, type: $type, created: $created})",
        **fields,
    )


def write_alias(file: GraphFile, entity: str, fields: dict[str, Any]) -> None:
    """Create an alias of an entity."""
    key = alias_key(fields["agent"], fields["alias"])
    file.ask(
        "CREATE (a:Alias {id: $key, agent: $agent, alias: $alias, name: $name})"
        " SET a.session = $session",
        key=key,
        **fields,
    )
    _name(file, key, entity)


def _name(file: GraphFile, key: str, entity: str) -> None:
    query = "MATCH (a:Alias {id: $key}), (e:Entity {id: $entity}) CREATE (a)-[:Named]->(e)"
    file.ask(query, key=key, entity=entity)


def write_relation(file: GraphFile, source: str, destination: str, fields: dict[str, Any]) -> None:
    """Create a relation."""
    file.ask(
        "MATCH (s:Entity {id: $source}), (d:Entity {id: $destination})"
        " CREATE (s)-[r:Relates {id: $id, agent: $agent, kind: $kind, created: $created}]->(d)"
        " SET r.session = $session, r.since = $since, r.until = $until, r.sources = $sources",
        source=source,
        destination=destination,
        **fields,
    )


def relations_of(
    file: GraphFile, ids: Sequence[str] | None
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return relations by id, of some entities or all: source, destination, fields."""
    matches = ["MATCH (s:Entity)-[r:Relates]->(d:Entity)"]
    parameters: dict[str, Any] = {}
    if ids is not None:
        parameters = {"ids": list(ids)}
        matches = [
            "UNWIND $ids AS id MATCH (s:Entity {id: id})-[r:Relates]->(d:Entity)",
            "UNWIND $ids AS id MATCH (s:Entity)-[r:Relates]->(d:Entity {id: id})",
        ]
    columns = ", ".join(["s.id", "d.id", *(f"r.{name}" for name in _FIELDS)])
    relations: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for match in matches:
        for source, destination, *values in file.ask(f"{match} RETURN {columns}", **parameters):
            fields = dict(zip(_FIELDS, values, strict=True))
            relations[fields["id"]] = (source, destination, fields)
    return [relations[key] for key in sorted(relations)]


def _with_names(file: GraphFile, rows: Sequence[Sequence[Any]]) -> list[StoredEntity]:
    names: dict[str, list[str]] = {}
    for entity, name in file.ask(
        "UNWIND $ids AS id MATCH (a:Alias)-[:Named]->(e:Entity {id: id})"
        " RETURN e.id, a.name ORDER BY a.alias",
        ids=[row[0] for row in rows],
    ):
        names.setdefault(entity, []).append(name)
    return [StoredEntity(key, name, kind, tuple(names.get(key, ()))) for key, name, kind in rows]


def _is_valid(fields: dict[str, Any], as_of: datetime | None) -> bool:
    moment = _now() if as_of is None else micros(as_of)
    if fields["until"] is not None and fields["until"] <= moment:
        return False
    begun = fields["created"] if fields["since"] is None else fields["since"]
    return as_of is None or begun <= moment


def _to_relation(source: str, destination: str, fields: dict[str, Any]) -> StoredRelation:
    return StoredRelation(
        fields["id"],
        source,
        fields["kind"],
        destination,
        moment_of(fields["since"]),
        moment_of(fields["until"]),
        tuple(fields["sources"] or ()),
    )


def alias_key(agent: str, alias: str) -> str:
    """Return the key of an alias, which is unique per agent."""
    return f"{agent}{_DIVIDER}{alias}"


def _now() -> int:
    return micros(datetime.now(UTC))


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(micros: int | None) -> datetime | None:
    """Return the time of microseconds since 1970."""
    return None if micros is None else _EPOCH + micros * _MICROSECOND
