"""Knowledge graphs in the tables of the store."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, bindparam, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.scope import Scope
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import lock_scopes
from memrecall.store.database.memory_tables import aliases, entities, relations
from memrecall.store.database.statements import Reads, filter_scope, split
from memrecall.store.graph_types import (
    MAX_RELATIONS,
    NewRelation,
    Row,
    ScopedGraph,
    StoredEntity,
    StoredRelation,
    check_name,
    collect_names,
    named_entity,
)
from memrecall.store.graph_writer import GraphWriter, has_end
from memrecall.text.normalize import entity_key

Result = TypeVar("Result")

# Every search runs it: built once, because building costs as much as running.
_SELECT_BY_NAME = select(aliases.c.entity_id, aliases.c.agent_id, aliases.c.hidden).where(
    aliases.c.user_id == bindparam("of_user"),
    aliases.c.alias.in_(bindparam("names", expanding=True)),
)


class Graph:
    """Writes and reads the graph of one scope; reads on one connection if it is given."""

    def __init__(self, database: Database, scope: Scope, reads: Reads | None = None) -> None:
        self._database = database
        self._scope = scope
        self._reads = reads or database

    async def add(self, types: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""
        names = collect_names(types, new)
        if not names:
            return []
        return await self._write(lambda writer: writer.add(names, new))

    async def merge(self, name: str, alias: str, source_message_ids: Sequence[str] = ()) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""
        check_name(name)
        check_name(alias)
        await self._write(lambda writer: writer.merge(name, alias, source_message_ids))

    async def split(self, alias: str) -> None:
        """Give a name an entity of its own, with the relations that were stated with it."""
        check_name(alias)
        await self._write(lambda writer: writer.split(alias))

    async def revise(self, ends: Mapping[str, datetime | None]) -> None:
        """Set when relations end, by their ids; None for those that hold."""
        await self._write(lambda writer: writer.revise(ends))

    async def erase(self, relation_ids: Sequence[str]) -> None:
        """Remove relations, and the entities that nothing else connects."""
        await self._write(lambda writer: writer.erase(relation_ids))
        await self._database.truncate_log()

    async def erase_unconnected(self, entity_ids: Sequence[str]) -> None:
        """Remove the entities that have one name and no relations."""
        await self._write(lambda writer: writer.erase_unconnected(entity_ids))

    async def hide_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Hide names of entities from pages, by the entity's id, and show its other names."""
        await self._write(lambda writer: writer.hide_names(names))

    async def erase_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Remove names of entities that have others, by the entity's id."""
        await self._write(lambda writer: writer.erase_names(names))
        await self._database.truncate_log()

    async def erase_sources(self, message_ids: Sequence[str], stated: Collection[str]) -> None:
        """Remove messages from all evidence, and relations and names without any other."""
        await self._write(lambda writer: writer.erase_sources(message_ids, stated))
        await self._database.truncate_log()

    async def entities(self, names: Iterable[str], *, hidden: bool = False) -> list[StoredEntity]:
        """Return the entities that have any of the names; the cost grows with the names alone."""
        ids: set[str] = set()
        for batch in split(sorted({entity_key(name) for name in names} - {""})):
            parameters = {"of_user": self._scope.user_id, "names": list(batch)}
            rows = await self._reads.fetch(_SELECT_BY_NAME, parameters)
            rows = [row for row in rows if hidden or not row.hidden]
            ids |= {row.entity_id for row in rows if self._scope.agent_id in (None, row.agent_id)}
        if not ids:
            return []  # the usual case when the words of a query are tried as names
        return await self._fetch_entities(
            self._select_entities().where(entities.c.entity_id.in_(sorted(ids))),
            visible=not hidden,
        )

    async def page(
        self, *, limit: int, after: str | None = None, hidden: bool = False
    ) -> list[StoredEntity]:
        """Return the entities that follow the id `after`, oldest first; `hidden` ones too."""
        statement = self._select_entities()
        if after is not None:
            statement = statement.where(entities.c.entity_id > after)
        if hidden:
            return await self._fetch_entities(statement.limit(limit))
        has_name = exists().where(
            aliases.c.user_id == self._scope.user_id,
            aliases.c.entity_id == entities.c.entity_id,
            aliases.c.hidden.is_(False),
        )
        return await self._fetch_entities(statement.where(has_name).limit(limit), visible=True)

    def _select_entities(self) -> Select[Any]:
        statement = filter_scope(select(entities), entities, self._scope)
        return statement.order_by(entities.c.entity_id)

    async def _fetch_entities(
        self, statement: Select[Any], *, visible: bool = False
    ) -> list[StoredEntity]:
        rows = await self._reads.fetch(statement)
        of_rows = aliases.c.entity_id.in_([row.entity_id for row in rows])
        select_names = select(aliases.c.entity_id, aliases.c.name, aliases.c.source_message_ids)
        conditions = [of_rows, *([aliases.c.hidden.is_(False)] if visible else [])]
        select_names = filter_scope(select_names.where(*conditions), aliases, self._scope)
        names: dict[str, dict[str, tuple[str, ...]]] = {}
        for row in await self._reads.fetch(select_names.order_by(aliases.c.alias)):
            names.setdefault(row.entity_id, {})[row.name] = tuple(row.source_message_ids)
        return [
            named_entity(row.entity_id, row.name, row.type, names.get(row.entity_id, {}))
            for row in rows
        ]

    async def around(
        self, entity_ids: Sequence[str], as_of: datetime | None = None, limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest valid relations of entities, with source id and destination id."""
        return await self._fetch_around(entity_ids, limit, _is_valid(as_of))

    async def all_around(
        self, entity_ids: Sequence[str], limit: int = MAX_RELATIONS
    ) -> list[tuple[str, str, StoredRelation]]:
        """Return the latest relations of entities like `around`, ended ones included."""
        return await self._fetch_around(entity_ids, limit)

    async def _fetch_around(
        self, entity_ids: Sequence[str], limit: int, *conditions: ColumnElement[bool]
    ) -> list[tuple[str, str, StoredRelation]]:
        if not entity_ids:
            return []
        rows = await self._fetch_latest(limit, has_end(entity_ids), *conditions)
        return [(row.source_id, row.destination_id, _to_relation(row)) for row in rows[::-1]]

    async def find(self, relation_ids: Sequence[str]) -> list[StoredRelation]:
        """Return relations by their ids, ended ones included."""
        has_id = relations.c.relation_id.in_(list(relation_ids))
        return [_to_relation(row) for row in await self._fetch_latest(len(relation_ids), has_id)]

    async def latest(self, limit: int) -> list[StoredRelation]:
        """Return the valid relations that were stored last, latest first."""
        rows = await self._fetch_latest(limit, _is_valid(None))
        return [_to_relation(row) for row in rows]

    async def _fetch_latest(self, limit: int, *conditions: ColumnElement[bool]) -> Sequence[Any]:
        statement = filter_scope(
            _select_relations(self._scope.user_id), relations, self._scope
        ).where(*conditions)
        # Ids begin with the time of their creation, and the table's key with the owner.
        latest_first = statement.order_by(relations.c.relation_id.desc())
        return await self._reads.fetch(latest_first.limit(limit))

    async def _write(self, write: Callable[[GraphWriter], Awaitable[Result]]) -> Result:
        """Call `write` in a transaction that locks the user."""

        async def work(connection: AsyncConnection) -> Result:
            locks = await lock_scopes(connection, [self._scope], with_sessions=False)
            result = await write(GraphWriter(connection, self._scope, locks.now))
            await locks.save(connection)
            return result

        return await self._database.transact(work)


class StoreGraphs:
    """Graphs in the tables of the store."""

    is_in_store = True

    def __init__(self, database: Database) -> None:
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


def _select_relations(user_id: str) -> Select[Any]:
    """Return the query for relations with the names of their ends, as `named_entity` has them."""
    source, destination = entities.alias("source"), entities.alias("destination")
    statement = select(
        relations, *(_shown_name(end, user_id).label(end.name) for end in (source, destination))
    )
    for end, end_id in (
        (source, relations.c.source_id),
        (destination, relations.c.destination_id),
    ):
        same_entity = and_(end.c.user_id == user_id, end.c.entity_id == end_id)
        statement = statement.join(end, same_entity)
    return statement


def _shown_name(entity: Any, user_id: str) -> ColumnElement[str]:
    """Return the name of an entity, or the first of its others if that one is hidden."""
    # The id, not the column of the entity: from that, a cluster cannot see that one shard answers.
    visible = select(aliases.c.name).where(
        aliases.c.user_id == user_id,
        aliases.c.entity_id == entity.c.entity_id,
        aliases.c.hidden.is_(False),
    )
    own = visible.where(aliases.c.name == entity.c.name).limit(1).scalar_subquery()
    first = visible.order_by(aliases.c.alias).limit(1).scalar_subquery()
    return func.coalesce(own, first, entity.c.name)


def _is_valid(as_of: datetime | None) -> ColumnElement[bool]:
    moment = as_of or datetime.now(UTC)
    has_not_ended = or_(relations.c.valid_to.is_(None), relations.c.valid_to > moment)
    if as_of is None:
        return has_not_ended
    has_begun = or_(
        relations.c.valid_from <= moment,
        and_(relations.c.valid_from.is_(None), relations.c.created_at <= moment),
    )
    return and_(has_not_ended, has_begun)


def _to_relation(row: Any) -> StoredRelation:
    return StoredRelation(
        row.relation_id,
        row.source,
        row.relationship,
        row.destination,
        row.valid_from,
        row.valid_to,
        tuple(row.source_message_ids),
        row.agent_id,
    )
