"""The interface of graph databases, and the default one: tables of the store."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from memrecall.scope import Scope
from memrecall.store.graph.relations import (
    MAX_RELATIONS,
    Graph,
    NewRelation,
    StoredEntity,
    StoredRelation,
)

Row = Mapping[str, Any]

# The tables of an export that hold a graph, wherever it is stored.
GRAPH_TABLES = ("entities", "aliases", "relations")


class ScopedGraph(Protocol):
    """The graph of one scope; without an agent, that of all agents of the user."""

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""
        ...

    async def merge(self, name: str, alias: str) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""
        ...

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Return the entities that have any of the names."""
        ...

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first."""
        ...

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities, with source id and destination id."""
        ...


class GraphDB(Protocol):
    """A database of all users' graphs, each of which can be erased completely."""

    @property
    def is_in_store(self) -> bool:
        """Whether the store exports, imports and erases the graphs with its other tables."""
        ...

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """Return the graph of a scope."""
        ...

    def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Yield everything of a user as rows of `GRAPH_TABLES`, times as RFC 3339."""
        ...

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Store such rows; those whose key exists stay as they are."""
        ...

    async def erase_user(self, user_id: str) -> None:
        """Remove everything of a user."""
        ...

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Remove everything that comes from a session."""
        ...

    async def close(self) -> None:
        """Close all connections and files."""
        ...


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Any) -> None:
        self._database = database

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """Return the graph of a scope."""
        return Graph(self._database, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Yield nothing: the store exports its tables itself."""
        no_rows: tuple[tuple[str, Row], ...] = ()
        for row in no_rows:
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Do nothing: the store imports its tables itself."""

    async def erase_user(self, user_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Do nothing: the store erases its tables itself."""

    async def close(self) -> None:
        """Do nothing: the store closes the database."""
