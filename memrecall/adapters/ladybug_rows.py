"""A graph file as rows of an export, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

from memrecall.adapters.ladybug_cypher import (
    alias_key,
    micros,
    moment_of,
    relations_of,
    write_alias,
    write_entity,
    write_relation,
)
from memrecall.adapters.ladybug_file import GraphFile
from memrecall.types import format_time, parse_time


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
