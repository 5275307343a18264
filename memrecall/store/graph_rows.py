"""The rows of a knowledge graph: the interface of graph databases, and changes in a transaction.

Names are compared by their `entity_key`, and each belongs to one entity.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from memrecall.errors import InvalidArgument
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

Result = TypeVar("Result")
GraphRow = dict[str, Any]  # with the columns of its table, times as datetime
Conditions = Mapping[str, Sequence[str] | None]  # the values of a column; None for empty ones

MAX_RELATIONS = 5_000  # that one query returns
MAX_SOURCES = 100  # messages that state one relation
# The end of a relation that a correction withdrew: it never held, whatever memories state.
WITHDRAWN = datetime(1000, 1, 1, tzinfo=UTC)
# The tables of a graph and their keys, wherever it is stored; referenced tables come first.
GRAPH_TABLES = {
    "entities": ("entity_id",),
    "aliases": ("agent_id", "alias"),
    "relations": ("relation_id",),
}


@dataclass(frozen=True, slots=True)
class NewRelation:
    """A relation to store, or to end if `ended` is set.

    `replaces` are relationships of which the source has one at a time: those to other entities end
    when this one begins. One that began after `said_at` is later news: this one ends before it.
    With `own` messages, only relations that come from no other ones end.
    """

    source: str
    relationship: str
    destination: str
    source_message_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False
    replaces: tuple[str, ...] = ()
    said_at: datetime | None = None  # None for now
    own: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class StoredEntity:
    """An entity by its first name; `aliases` has all its names.

    `alias_sources` are the messages that gave a merged entity its other names.
    """

    entity_id: str
    name: str
    type: str
    aliases: tuple[str, ...] = ()
    alias_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """A relation between two entities, which are given by name."""

    relation_id: str
    source: str
    relationship: str
    destination: str
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: tuple[str, ...]
    agent_id: str = DEFAULT_NAME


class GraphTransaction(Protocol):
    """One user's rows of `GRAPH_TABLES`: all changes of a transaction are stored or none."""

    def read(
        self,
        table: str,
        where: Conditions,
        *,
        after: str = "",
        limit: int | None = None,
        newest: bool = False,
    ) -> list[GraphRow]:
        """Return the rows that meet all conditions, in the order of their keys.

        Only rows whose id follows `after`, and at most `limit`: the first ones, or the `newest`.
        """

    def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""

    def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""

    def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row."""

    def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows; those that refer to an entity are removed before it."""


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely.

    It stores rows and knows nothing of their meaning: `Graph` does.
    """

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""

    async def read(
        self,
        user_id: str,
        table: str,
        where: Conditions,
        *,
        after: str = "",
        limit: int | None = None,
        newest: bool = False,
    ) -> list[GraphRow]:
        """Return rows of a user, as `GraphTransaction.read` does."""

    async def transact(self, scope: Scope, work: Callable[[GraphTransaction], Result]) -> Result:
        """Call `work`, a plain function, in a transaction on the graph of the scope's user."""

    async def compact(self, user_id: str) -> None:
        """Remove the bytes of deleted rows from files too."""

    async def erase_user(self, user_id: str) -> None:
        """Remove everything of a user."""

    async def close(self) -> None:
        """Close all connections and files."""


def collect_names(types: dict[str, str], new: Sequence[NewRelation]) -> dict[str, str]:
    """Return the type of every entity to store; InvalidArgument for a text that names none."""
    ends = [end for relation in new for end in (relation.source, relation.destination)]
    typed_names = {name: kind for name, kind in types.items() if entity_key(name)}
    names = {**typed_names, **{end: "thing" for end in ends if end not in typed_names}}
    for name in names:
        check_name(name)
    return names


def check_name(name: str) -> None:
    """Raise InvalidArgument for a text that cannot name an entity."""
    check_text("an entity's name", name)
    if not entity_key(name) or len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"{name[:80]!r} cannot name an entity", hint=f"Use 1 to {NAME_LENGTH} characters"
        )


def merge_sources(stored: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the messages that state something, those that are stored first."""
    return list(dict.fromkeys((*stored, *new)))[:MAX_SOURCES]


# The ends of a relation, and the names that it was stated with.
ENDS = (("source_id", "source_alias"), ("destination_id", "destination_alias"))


def erase_session_rows(rows: GraphTransaction, session_id: str) -> int:
    """Remove a session's relations, then its names without relations; return how many rows."""
    of_session = {"session_id": [session_id]}
    relations = rows.read("relations", of_session)
    rows.delete("relations", relations)
    names = rows.read("aliases", of_session)
    connected = [row for row in names if _is_connected(rows, row["entity_id"])]
    names = [row for row in names if row not in connected]
    rows.delete("aliases", names)
    ids = {row["entity_id"] for row in names}
    ids -= {row["entity_id"] for row in read_names(rows, sorted(ids))}
    entities = rows.read("entities", {"entity_id": sorted(ids)})
    rows.delete("entities", entities)
    return len(relations) + len(names) + len(entities)


def import_rows(rows: GraphTransaction, imported: Mapping[str, Sequence[GraphRow]]) -> None:
    """Store exported rows by their tables; rows whose key exists stay as they are."""
    for table, key in GRAPH_TABLES.items():
        key_of = itemgetter(*key)
        stored = {key_of(row) for row in rows.read(table, {})}
        rows.insert(table, [r for r in imported.get(table, ()) if key_of(r) not in stored])


def end_relations(
    rows: GraphTransaction, ended: Sequence[GraphRow], new: NewRelation, now: datetime
) -> list[datetime]:
    """End relations when a new one begins, but not before they began.

    Those that began after it was said stay; return when these began. So do those of others.
    """
    later = []
    for row in ended:
        if new.own is not None and not new.own.issuperset(row["source_message_ids"]):
            continue
        began = row["valid_from"] or row["created_at"]
        if began > (new.said_at or now):
            later.append(began)
        else:
            end = max(began, new.valid_from or now)
            rows.update("relations", row, {"valid_to": end})
    return later


def move(rows: GraphTransaction, entity_id: str, target: str) -> None:
    """Move the names and relations of an entity to another."""
    for table, column in (("aliases", "entity_id"), *(("relations", end) for end, _ in ENDS)):
        for row in rows.read(table, {column: [entity_id]}):
            rows.update(table, row, {column: target})


def add_sources(
    rows: GraphTransaction, table: str, row: GraphRow, message_ids: Sequence[str]
) -> None:
    """Add messages to the evidence of a relation or an alias."""
    sources = merge_sources(row["source_message_ids"], message_ids)
    if sources != row["source_message_ids"]:
        rows.update(table, row, {"source_message_ids": sources})


def drop_sources(rows: GraphTransaction, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
    """Remove messages from all evidence; return the rows that have no other."""
    unsupported = []
    for row in rows.citing(table, message_ids):
        sources = [name for name in row["source_message_ids"] if name not in message_ids]
        rows.update(table, row, {"source_message_ids": sources})
        if not sources:
            unsupported.append(row)
    return unsupported


def read_names(rows: GraphTransaction, entity_ids: Sequence[str]) -> list[GraphRow]:
    """Return the aliases of entities."""
    names = rows.read("aliases", {"entity_id": entity_ids})
    return sorted(names, key=itemgetter("alias"))


def erase_relations(rows: GraphTransaction, relations: Sequence[GraphRow]) -> None:
    """Remove relations, and the entities that nothing else connects."""
    rows.delete("relations", relations)
    erase_unconnected(rows, sorted({row[end] for row in relations for end, _ in ENDS}))


def erase_unconnected(rows: GraphTransaction, entity_ids: Sequence[str]) -> None:
    """Remove the entities that have one name and no relations."""
    for entity_id in entity_ids:
        names = read_names(rows, [entity_id])
        if len(names) <= 1 and not _is_connected(rows, entity_id):
            rows.delete("aliases", names)
            rows.delete("entities", rows.read("entities", {"entity_id": [entity_id]}))


def _is_connected(rows: GraphTransaction, entity_id: str) -> bool:
    return any(rows.read("relations", {end: [entity_id]}, limit=1) for end, _ in ENDS)


def erase_name(rows: GraphTransaction, row: GraphRow) -> None:
    """Remove a name of an entity that has others; its relations stay with the entity."""
    of_entity = {"entity_id": [row["entity_id"]]}
    names = read_names(rows, of_entity["entity_id"])
    other = next((name for name in names if name["alias"] != row["alias"]), None)
    if other is None:
        return
    rows.delete("aliases", [row])
    for entity in rows.read("entities", {**of_entity, "name": [row["name"]]}):
        rows.update("entities", entity, {"name": other["name"]})
    for end, end_alias in ENDS:
        stated = {end: of_entity["entity_id"], end_alias: [row["alias"]]}
        for relation in rows.read("relations", stated):
            rows.update("relations", relation, {end_alias: other["alias"]})
