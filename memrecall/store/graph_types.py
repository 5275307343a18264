"""The interface of graph databases, and the entities and relations that they store.

Names are compared by their `entity_key`, and each belongs to one entity.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

Row = Mapping[str, Any]

MAX_RELATIONS = 5_000  # that one query returns
MAX_SOURCES = 100  # messages that state one relation
# The end of a relation that a correction withdrew: it never held, whatever memories state.
WITHDRAWN = datetime(1000, 1, 1, tzinfo=UTC)
# The tables of an export that hold a graph, wherever it is stored.
GRAPH_TABLES = ("entities", "aliases", "relations")


@dataclass(frozen=True, slots=True)
class NewRelation:
    """A relation to store, or to end if `ended` is set.

    `replaces` are relationships of which the source has one at a time: those to other entities end
    when this one begins. One that began after `said_at` is later news: this one ends before it.
    """

    source: str
    relationship: str
    destination: str
    source_message_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False
    replaces: tuple[str, ...] = ()
    said_at: datetime | None = None  # None for now


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


class ScopedGraph(Protocol):
    """The graph of one scope; without an agent, that of all agents of the user."""

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""

    async def merge(self, name: str, alias: str, source_message_ids: Sequence[str] = ()) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""

    async def split(self, alias: str) -> None:
        """Give a name an entity of its own, with the relations that were stated with it."""

    async def entities(self, names: Iterable[str], *, hidden: bool = False) -> list[StoredEntity]:
        """Return the entities that have any of the names; by `hidden` names too."""

    async def page(
        self, *, limit: int, after: str | None = None, hidden: bool = False
    ) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first; `hidden` ones too."""

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities, with source id and destination id."""

    async def all_around(
        self, entity_ids: Sequence[str], limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest relations of entities like `around`, ended ones included."""

    async def find(self, relation_ids: Sequence[str]) -> list[StoredRelation]:
        """Return relations by their ids, ended ones included."""

    async def revise(self, ends: Mapping[str, datetime | None]) -> None:
        """Set when relations end, by their ids; None for those that hold."""

    async def erase(self, relation_ids: Sequence[str]) -> None:
        """Remove relations, and the entities that nothing else connects."""

    async def erase_unconnected(self, entity_ids: Sequence[str]) -> None:
        """Remove the entities that have one name and no relations."""

    async def hide_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Hide names of entities from pages, by the entity's id, and show its other names."""

    async def erase_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Remove names of entities that have others, by the entity's id."""

    async def erase_sources(self, message_ids: Sequence[str], stated: Collection[str]) -> None:
        """Remove messages from all evidence, and relations and names without any other.

        The relations that are `stated` elsewhere stay.
        """


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely."""

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """Return the graph of a scope."""

    def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Yield everything of a user as rows of `GRAPH_TABLES`, times as RFC 3339."""

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Store such rows; those whose key exists stay as they are."""

    async def erase_user(self, user_id: str) -> None:
        """Remove everything of a user."""

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Remove everything that comes from a session."""

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


def named_entity(
    entity_id: str, name: str, kind: str, names: Mapping[str, Sequence[str]]
) -> StoredEntity:
    """Return an entity with its names, and the messages that merged them.

    If its own name is hidden, it appears under the first of the others.
    """
    sources = {alias: tuple(ids) for alias, ids in names.items() if ids}
    shown = name if name in names else next(iter(names), name)
    return StoredEntity(entity_id, shown, kind, tuple(names), sources)


def require_other_name(alias: str, others: Sequence[str]) -> None:
    """Raise NotFound for a name without an entity, or whose entity has no other name."""
    if not others:
        raise NotFound(
            f"{alias!r} shares no entity with another name", hint="Read the entities of the graph"
        )
