"""Cypher queries on a graph file. Values are always parameters."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memrecall.library.ladybug_file import GraphFile, alias_key, micros, moment_of
from memrecall.store import NewRelation, StoredEntity, StoredRelation
from memrecall.store.database.statements import new_id
from memrecall.store.graph_types import merge_sources, named_entity, require_other_name
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

_FIELDS = (
    *("id", "kind", "since", "until", "sources", "session", "created", "agent"),
    *("source_alias", "destination_alias"),
)
_IS_VISIBLE = "coalesce(a.hidden, false) = false"
_VALID = (
    "MATCH (:Entity {id: $source})-[r:Relates]->(d:Entity)"
    " WHERE r.agent = $agent AND r.until IS NULL"
)


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


def merge(
    file: GraphFile, owner: Owner, name: str, alias: str, source_message_ids: Sequence[str]
) -> None:
    """Move relations and aliases of one entity to another, and delete it."""
    ids = _entity_ids(file, owner, {name: "thing", alias: "thing"}, _now())
    target, merged = ids[entity_key(name)], ids[entity_key(alias)]
    if target != merged:
        _move(file, merged, target)
        file.ask("MATCH (e:Entity {id: $id}) DETACH DELETE e", id=merged)
    key = alias_key(owner.agent, entity_key(alias))
    ((stored,),) = file.ask("MATCH (a:Alias {id: $key}) RETURN a.sources", key=key)
    sources = merge_sources(stored or (), source_message_ids)
    file.ask("MATCH (a:Alias {id: $key}) SET a.sources = $sources", key=key, sources=sources)


def split(file: GraphFile, owner: Owner, name: str) -> None:
    """Give an alias an entity of its own, with the relations that were stated with it."""
    alias = entity_key(name)
    rows = file.ask(
        "MATCH (:Alias {id: $key})-[:Named]->(e:Entity)<-[:Named]-(a:Alias)"
        " RETURN e.id, e.name, e.type, a.alias, a.name ORDER BY a.alias",
        key=alias_key(owner.agent, alias),
    )
    others = [written for *_, other, written in rows if other != alias]
    require_other_name(name, others)
    old, old_name, kind, *_ = rows[0]
    (written,) = (written for *_, other, written in rows if other == alias)
    fields = {"id": new_id("en"), "type": kind, "created": _now()}
    write_entity(file, {**fields, "agent": owner.agent, "name": written})
    _move(file, old, fields["id"], alias)
    if entity_key(old_name) == alias:
        query = "MATCH (e:Entity {id: $id}) SET e.name = $name"
        file.ask(query, id=old, name=others[0])


def _move(file: GraphFile, entity: str, target: str, alias: str | None = None) -> None:
    """Move the names and relations of an entity to another, or only those of one alias."""
    query = "MATCH (a:Alias)-[:Named]->(:Entity {id: $id}) RETURN a.id, a.alias"
    for key, name in file.ask(query, id=entity):
        if alias in (None, name):
            file.ask("MATCH (:Alias {id: $key})-[n:Named]->(:Entity) DELETE n", key=key)
            _name(file, key, target)
    for source, destination, fields in relations_of(file, [entity]):
        start = target if source == entity and alias in (None, fields["source_alias"]) else source
        is_moved = destination == entity and alias in (None, fields["destination_alias"])
        end = target if is_moved else destination
        if (start, end) != (source, destination):
            _delete_relation(file, fields["id"])
            write_relation(file, start, end, fields)


def revise(file: GraphFile, ends: Mapping[str, datetime | None]) -> None:
    """Set when relations end."""
    for key, end in ends.items():
        query = "MATCH (:Entity)-[r:Relates {id: $id}]->(:Entity) SET r.until = $until"
        file.ask(query, id=key, until=None if end is None else micros(end))


def erase(file: GraphFile, relation_ids: Sequence[str]) -> None:
    """Delete relations, and the entities with one name that nothing else connects."""
    ends = ends_of(file, relation_ids)
    for key in relation_ids:
        _delete_relation(file, key)
    erase_unconnected(file, ends)


def ends_of(file: GraphFile, relation_ids: Sequence[str]) -> list[str]:
    """Return the entities that relations connect."""
    query = "UNWIND $ids AS id MATCH (s:Entity)-[r:Relates {id: id}]->(d:Entity) RETURN s.id, d.id"
    return sorted({end for row in file.ask(query, ids=list(relation_ids)) for end in row})


def hide_names(file: GraphFile, names: Mapping[str, Sequence[str]]) -> None:
    """Hide names of entities, and show their other names."""
    for entity, hidden in names.items():
        query = "MATCH (a:Alias)-[:Named]->(:Entity {id: $id}) SET a.hidden = a.alias IN $hidden"
        file.ask(query, id=entity, hidden=[entity_key(name) for name in hidden])


def erase_unconnected(file: GraphFile, entity_ids: Sequence[str]) -> None:
    """Delete the entities that have one name and no relations."""
    for end in entity_ids:
        names = file.ask("MATCH (a:Alias)-[:Named]->(:Entity {id: $id}) RETURN a.id", id=end)
        if len(names) <= 1 and not relations_of(file, [end]):
            file.ask("MATCH (e:Entity {id: $id}) DETACH DELETE e", id=end)
            for (key,) in names:
                file.ask("MATCH (a:Alias {id: $key}) DETACH DELETE a", key=key)


def erase_names(file: GraphFile, names: Mapping[str, Sequence[str]]) -> None:
    """Remove names of entities that have others."""
    query = "MATCH (a:Alias)-[:Named]->(e:Entity {id: $id}) RETURN a.id, a.alias, a.name, e.name"
    for entity, erased in names.items():
        aliases = {entity_key(name) for name in erased}
        for key, alias, name, entity_name in file.ask(query, id=entity):
            if alias in aliases:
                _erase_name(file, key, name, entity, entity_name)


def erase_sources(file: GraphFile, message_ids: Collection[str], stated: Collection[str]) -> None:
    """Remove messages from all evidence, and relations and names without any other."""
    orphans = []
    for _, _, fields in relations_of(file, None):
        kept = [name for name in fields["sources"] or () if name not in message_ids]
        if len(kept) < len(fields["sources"] or ()):
            query = "MATCH (:Entity)-[r:Relates {id: $id}]->(:Entity) SET r.sources = $sources"
            file.ask(query, id=fields["id"], sources=kept)
            orphans += [] if kept or fields["id"] in stated else [fields["id"]]
    query = "MATCH (a:Alias)-[:Named]->(e:Entity) RETURN a.id, a.name, a.sources, e.id, e.name"
    for key, name, sources, entity, entity_name in file.ask(query):
        kept = [source for source in sources or () if source not in message_ids]
        if len(kept) < len(sources or ()):
            file.ask("MATCH (a:Alias {id: $key}) SET a.sources = $sources", key=key, sources=kept)
            if not kept:
                _erase_name(file, key, name, entity, entity_name)
    erase(file, orphans)


def _erase_name(file: GraphFile, key: str, name: str, entity: str, entity_name: str) -> None:
    """Remove a name of an entity that has others; its relations stay with the entity."""
    query = "MATCH (a:Alias)-[:Named]->(:Entity {id: $id}) RETURN a.id, a.name ORDER BY a.alias"
    others = [other for alias, other in file.ask(query, id=entity) if alias != key]
    if others:
        file.ask("MATCH (a:Alias {id: $key}) DETACH DELETE a", key=key)
        if name == entity_name:
            query = "MATCH (e:Entity {id: $id}) SET e.name = $name"
            file.ask(query, id=entity, name=others[0])


def _delete_relation(file: GraphFile, key: str) -> None:
    file.ask("MATCH (:Entity)-[r:Relates {id: $id}]->(:Entity) DELETE r", id=key)


def entities(
    file: GraphFile, only: str | None, folded: Sequence[str], hidden: bool
) -> list[StoredEntity]:
    """Return the entities of some names."""
    agents = [only] if only is not None else [a for (a,) in file.ask("MATCH (a:Agent) RETURN a.id")]
    keys = [alias_key(agent, name) for agent in agents for name in folded]
    rows = file.ask(
        "UNWIND $keys AS key MATCH (a:Alias {id: key})-[:Named]->(e:Entity)"
        + ("" if hidden else f" WHERE {_IS_VISIBLE}")
        + " RETURN DISTINCT e.id, e.name, e.type ORDER BY e.id",
        keys=keys,
    )
    return _with_names(file, rows, hidden=hidden)


def page(
    file: GraphFile, only: str | None, limit: int, after: str | None, hidden: bool
) -> list[StoredEntity]:
    """Return some entities in the order of their ids."""
    condition = "" if only is None else " AND e.agent = $agent"
    condition += "" if hidden else f" AND {_IS_VISIBLE}"
    agent = {} if only is None else {"agent": only}
    rows = file.ask(
        f"MATCH (a:Alias)-[:Named]->(e:Entity) WHERE e.id > $after{condition}"
        " RETURN DISTINCT e.id, e.name, e.type ORDER BY e.id LIMIT $size",
        **{"after": after or "", "size": limit, **agent},
    )
    return _with_names(file, rows, hidden=hidden)


def around(
    file: GraphFile, only: str | None, ids: Sequence[str], limit: int
) -> list[tuple[str, str, StoredRelation]]:
    """Return the latest relations of some entities."""
    return _with_end_names(file, _relations_of_agent(file, only, ids)[-limit:])


def valid_around(
    file: GraphFile, only: str | None, ids: Sequence[str], as_of: datetime | None, limit: int
) -> list[tuple[str, str, StoredRelation]]:
    """Return the latest relations of some entities that are valid, or were at a time."""
    relations = _relations_of_agent(file, only, ids)
    valid = [relation for relation in relations if _is_valid(relation[2], as_of)]
    return _with_end_names(file, valid[-limit:])


def _relations_of_agent(
    file: GraphFile, only: str | None, ids: Sequence[str]
) -> list[tuple[str, str, dict[str, Any]]]:
    return [row for row in relations_of(file, ids) if only in (None, row[2]["agent"])]


def _with_end_names(
    file: GraphFile, relations: Sequence[tuple[str, str, dict[str, Any]]]
) -> list[tuple[str, str, StoredRelation]]:
    ends = {end for source, destination, _ in relations for end in (source, destination)}
    query = "UNWIND $ids AS id MATCH (e:Entity {id: id}) RETURN e.id, e.name, e.type"
    rows = file.ask(query, ids=sorted(ends))
    names = {item.entity_id: item.name for item in _with_names(file, rows, hidden=False)}
    return [
        (source, destination, _to_relation(names[source], names[destination], fields))
        for source, destination, fields in relations
    ]


def _entity_ids(file: GraphFile, owner: Owner, names: dict[str, str], now: int) -> dict[str, str]:
    folded = {entity_key(name): name for name in reversed(list(names))}
    keys = {alias_key(owner.agent, alias): alias for alias in folded}
    query = "UNWIND $keys AS key MATCH (a:Alias {id: key})-[:Named]->(e:Entity) RETURN a.id, e.id"
    ids = {keys[key]: entity for key, entity in file.ask(query, keys=sorted(keys))}
    # Those that were hidden are named again.
    file.ask(
        "UNWIND $keys AS key MATCH (a:Alias {id: key}) SET a.hidden = false", keys=sorted(keys)
    )
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
    key = {"source": source, "destination": destination, "kind": kind, "agent": owner.agent}
    begin = now if new.valid_from is None else micros(new.valid_from)
    said_at = now if new.said_at is None else micros(new.said_at)
    is_same = "d.id = $destination AND r.kind = $kind"
    if new.ended:
        _end(file, is_same, begin, said_at, **key)
        return None
    is_replaced = f"r.kind IN $kinds AND NOT ({is_same})"
    later = _end(file, is_replaced, begin, said_at, kinds=list(new.replaces), **key)
    if stored := file.ask(f"{_VALID} AND {is_same} RETURN r.id, r.sources", **key):
        sources = merge_sources(stored[0][1] or (), new.source_message_ids)
        query = "MATCH (:Entity)-[r:Relates {id: $id}]->(:Entity) SET r.sources = $sources"
        file.ask(query, id=stored[0][0], sources=sources)
        return None
    fields = {
        "id": new_id("re"),
        "kind": kind,
        "since": None if new.valid_from is None else begin,
        "until": min(later, default=None),
        "sources": list(new.source_message_ids),
        "session": owner.session,
        "created": now,
        "agent": owner.agent,
        "source_alias": entity_key(new.source),
        "destination_alias": entity_key(new.destination),
    }
    write_relation(file, source, destination, fields)
    return str(fields["id"])


def _end(file: GraphFile, condition: str, moment: int, said_at: int, **key: Any) -> list[int]:
    """End the valid relations of an entity that meet a condition, but not before they began.

    Those that began after `said_at` stay; return when these began.
    """
    query = f"{_VALID} AND {condition} RETURN r.id, coalesce(r.since, r.created)"
    rows = file.ask(query, **key)
    ends = {key: moment_of(max(began, moment)) for key, began in rows if began <= said_at}
    revise(file, ends)
    return [began for _, began in rows if began > said_at]


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
        " SET a.session = $session, a.sources = $sources, a.hidden = $hidden",
        key=key,
        **{"sources": [], "hidden": False, **fields},
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
        " SET r.session = $session, r.since = $since, r.until = $until, r.sources = $sources,"
        " r.source_alias = $source_alias, r.destination_alias = $destination_alias",
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


def _with_names(
    file: GraphFile, rows: Sequence[Sequence[Any]], *, hidden: bool
) -> list[StoredEntity]:
    names: dict[str, dict[str, tuple[str, ...]]] = {}
    for entity, name, sources, is_visible in file.ask(
        "UNWIND $ids AS id MATCH (a:Alias)-[:Named]->(e:Entity {id: id})"
        f" RETURN e.id, a.name, a.sources, {_IS_VISIBLE} ORDER BY a.alias",
        ids=[row[0] for row in rows],
    ):
        if is_visible or hidden:
            names.setdefault(entity, {})[name] = tuple(sources or ())
    return [named_entity(key, name, kind, names.get(key, {})) for key, name, kind in rows]


def _is_valid(fields: dict[str, Any], as_of: datetime | None) -> bool:
    moment = _now() if as_of is None else micros(as_of)
    if fields["until"] is not None and fields["until"] <= moment:
        return False
    begun = fields["created"] if fields["since"] is None else fields["since"]
    return as_of is None or begun <= moment


def _to_relation(source: str, destination: str, fields: dict[str, Any]) -> StoredRelation:
    validity = (moment_of(fields["since"]), moment_of(fields["until"]))
    sources, agent = tuple(fields["sources"] or ()), fields["agent"]
    triple = (source, fields["kind"], destination)
    return StoredRelation(fields["id"], *triple, *validity, sources, agent)


def _now() -> int:
    return micros(datetime.now(UTC))
