"""Changes of a graph's rows inside a transaction, the same in every graph database."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter

from memrecall.store.graph_types import (
    GRAPH_TABLES,
    GraphRow,
    GraphTransaction,
    NewRelation,
    merge_sources,
)

# The ends of a relation, and the names that it was stated with.
ENDS = (("source_id", "source_alias"), ("destination_id", "destination_alias"))


async def erase_session_rows(rows: GraphTransaction, session_id: str) -> int:
    """Remove a session's relations, then its names without relations; return how many rows."""
    of_session = {"session_id": [session_id]}
    relations = await rows.read("relations", of_session)
    await rows.delete("relations", relations)
    names = await rows.read("aliases", of_session)
    connected = [row for row in names if await _is_connected(rows, row["entity_id"])]
    names = [row for row in names if row not in connected]
    await rows.delete("aliases", names)
    ids = {row["entity_id"] for row in names}
    ids -= {row["entity_id"] for row in await read_names(rows, sorted(ids))}
    entities = await rows.read("entities", {"entity_id": sorted(ids)})
    await rows.delete("entities", entities)
    return len(relations) + len(names) + len(entities)


async def import_rows(rows: GraphTransaction, imported: Mapping[str, Sequence[GraphRow]]) -> None:
    """Store exported rows by their tables; rows whose key exists stay as they are."""
    for table, key in GRAPH_TABLES.items():
        key_of = itemgetter(*key)
        stored = {key_of(row) for row in await rows.read(table, {})}
        await rows.insert(table, [r for r in imported.get(table, ()) if key_of(r) not in stored])


async def end_relations(
    rows: GraphTransaction, ended: Sequence[GraphRow], new: NewRelation, now: datetime
) -> list[datetime]:
    """End relations when a new one begins, but not before they began.

    Those that began after it was said stay; return when these began.
    """
    later = []
    for row in ended:
        began = row["valid_from"] or row["created_at"]
        if began > (new.said_at or now):
            later.append(began)
        else:
            end = max(began, new.valid_from or now)
            await rows.update("relations", row, {"valid_to": end})
    return later


async def move(
    rows: GraphTransaction, entity_id: str, target: str, alias: str | None = None
) -> None:
    """Move the names and relations of an entity to another, or only one alias and its own."""
    for table, column, name in (
        ("aliases", "entity_id", "alias"),
        *(("relations", end, end_alias) for end, end_alias in ENDS),
    ):
        for row in await rows.read(table, {column: [entity_id]}):
            if alias in (None, row[name]):
                await rows.update(table, row, {column: target})


async def add_sources(
    rows: GraphTransaction, table: str, row: GraphRow, message_ids: Sequence[str]
) -> None:
    """Add messages to the evidence of a relation or an alias."""
    sources = merge_sources(row["source_message_ids"], message_ids)
    if sources != row["source_message_ids"]:
        await rows.update(table, row, {"source_message_ids": sources})


async def drop_sources(
    rows: GraphTransaction, table: str, message_ids: Sequence[str]
) -> list[GraphRow]:
    """Remove messages from all evidence; return the rows that have no other."""
    unsupported = []
    for row in await rows.citing(table, message_ids):
        sources = [name for name in row["source_message_ids"] if name not in message_ids]
        await rows.update(table, row, {"source_message_ids": sources})
        if not sources:
            unsupported.append(row)
    return unsupported


async def read_names(rows: GraphTransaction, entity_ids: Sequence[str]) -> list[GraphRow]:
    """Return the aliases of entities."""
    names = await rows.read("aliases", {"entity_id": entity_ids})
    return sorted(names, key=itemgetter("alias"))


async def erase_relations(rows: GraphTransaction, relations: Sequence[GraphRow]) -> None:
    """Remove relations, and the entities that nothing else connects."""
    await rows.delete("relations", relations)
    await erase_unconnected(rows, sorted({row[end] for row in relations for end, _ in ENDS}))


async def erase_unconnected(rows: GraphTransaction, entity_ids: Sequence[str]) -> None:
    """Remove the entities that have one name and no relations."""
    for entity_id in entity_ids:
        names = await read_names(rows, [entity_id])
        if len(names) <= 1 and not await _is_connected(rows, entity_id):
            await rows.delete("aliases", names)
            await rows.delete("entities", await rows.read("entities", {"entity_id": [entity_id]}))


async def _is_connected(rows: GraphTransaction, entity_id: str) -> bool:
    for end, _ in ENDS:
        if await rows.read("relations", {end: [entity_id]}, limit=1):
            return True
    return False


async def erase_name(rows: GraphTransaction, row: GraphRow) -> None:
    """Remove a name of an entity that has others; its relations stay with the entity."""
    of_entity = {"entity_id": [row["entity_id"]]}
    names = await read_names(rows, of_entity["entity_id"])
    other = next((name for name in names if name["alias"] != row["alias"]), None)
    if other is None:
        return
    await rows.delete("aliases", [row])
    for entity in await rows.read("entities", {**of_entity, "name": [row["name"]]}):
        await rows.update("entities", entity, {"name": other["name"]})
    for end, end_alias in ENDS:
        stated = {end: of_entity["entity_id"], end_alias: [row["alias"]]}
        for relation in await rows.read("relations", stated):
            await rows.update("relations", relation, {end_alias: other["alias"]})
