"""What a graph database promises, and the one that is always there: tables of the store."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from memrecall.scope import Scope
from memrecall.store.graph.relations import (
    MOST_RELATIONS,
    Graph,
    NewRelation,
    StoredEntity,
    StoredRelation,
)

Row = Mapping[str, Any]

# The tables of an export that tell of a graph, wherever it is kept.
GRAPH_TABLES = ("entities", "aliases", "relations")


class ScopedGraph(Protocol):
    """The graph of one scope. Without an agent in the scope, of all agents of the user."""

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name and type) and relations; the ids of the relations that are new."""
        ...

    async def merge(self, name: str, alias: str) -> None:
        """Two names are of one entity: what was said of `alias` is said of `name` from now on."""
        ...

    async def entities(self, names: Iterable[str]) -> list[StoredEntity]:
        """Entities by any of their names; it costs the names, not the size of the graph."""
        ...

    async def page(self, *, limit: int, after: str | None = None) -> list[StoredEntity]:
        """So many entities, the earliest first, beginning after the one of that id."""
        ...

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MOST_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """The latest relations that hold and touch an entity: source id, destination id, it."""
        ...


class GraphDB(Protocol):
    """Keeps the graphs of all users, each so that it can be erased to the last byte."""

    @property
    def is_in_store(self) -> bool:
        """Whether the store itself exports, imports and erases it with its other tables."""
        ...

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """The graph of one scope."""
        ...

    def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Everything of a user as rows of `GRAPH_TABLES`, times as RFC 3339."""
        ...

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """Take such rows; what is there under the same key stays."""
        ...

    async def erase_user(self, user_id: str) -> None:
        """Leave nothing of a user."""
        ...

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """Leave nothing that was said in a session."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Any) -> None:
        self._database = database

    def for_scope(self, scope: Scope) -> ScopedGraph:
        """The graph of one scope."""
        return Graph(self._database, scope)

    async def rows(self, user_id: str) -> AsyncIterator[tuple[str, Row]]:
        """Nothing: they are among the store's own."""
        nothing: tuple[tuple[str, Row], ...] = ()
        for row in nothing:
            yield row

    async def add_rows(self, user_id: str, rows: Iterable[tuple[str, Row]]) -> None:
        """The store has taken them."""

    async def erase_user(self, user_id: str) -> None:
        """The store has done it."""

    async def erase_session(self, user_id: str, session_id: str) -> None:
        """The store has done it."""

    async def close(self) -> None:
        """The database is closed with its store."""
