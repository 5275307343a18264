"""The interface of graph databases, and the entities and relations that they store.

Names are compared by their `entity_key`, and each belongs to one entity.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from memrecall.errors import InvalidArgument, NotFound
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


class GraphReader(Protocol):
    """Read access to one user's rows of `GRAPH_TABLES`."""

    async def read(
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


class GraphTransaction(GraphReader, Protocol):
    """Changes of one user's rows, all of which are stored or none."""

    async def citing(self, table: str, message_ids: Sequence[str]) -> list[GraphRow]:
        """Return the aliases or relations that have any of the messages as a source."""

    async def insert(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Store rows whose keys are new."""

    async def update(self, table: str, row: GraphRow, changes: GraphRow) -> None:
        """Change columns of a stored row."""

    async def delete(self, table: str, rows: Sequence[GraphRow]) -> None:
        """Remove stored rows; those that refer to an entity are removed before it."""


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely.

    It stores rows and knows nothing of their meaning: `Graph` does.
    """

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""

    def reader(self, user_id: str) -> GraphReader:
        """Return read access to a user's graph."""

    async def transact(
        self, scope: Scope, work: Callable[[GraphTransaction], Awaitable[Result]]
    ) -> Result:
        """Call `work` in a transaction on the graph of the scope's user."""

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


def require_other_name(alias: str, others: Sequence[str]) -> None:
    """Raise NotFound for a name without an entity, or whose entity has no other name."""
    if not others:
        raise NotFound(
            f"{alias!r} shares no entity with another name", hint="Read the entities of the graph"
        )
