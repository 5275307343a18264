"""Writes to the knowledge graph of one scope, inside a transaction that has locked its user."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.scope import Scope
from memrecall.store.database.locks import agent_of
from memrecall.store.database.memory_tables import aliases, entities, relations
from memrecall.store.database.statements import mentions, new_id, select_by_keys, split
from memrecall.store.graph_types import NewRelation, merge_sources, require_other_name
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, check_text

_BEGAN = func.coalesce(relations.c.valid_from, relations.c.created_at)
_SOURCES_PER_CONDITION = 50  # of conditions that no index helps


class GraphWriter:
    """Writes one scope's entities and relations in one transaction."""

    def __init__(self, connection: AsyncConnection, scope: Scope, now: datetime) -> None:
        self._connection = connection
        self._scope = scope
        self._agent_id = agent_of(scope)
        self._now = now

    async def add(self, names: dict[str, str], new: Sequence[NewRelation]) -> list[str]:
        """Store entities (name to type) and relations; return the ids of new relations."""
        ids = await self._ensure_entities(names)
        created = []
        for relation in new:
            ends = (ids[entity_key(relation.source)], ids[entity_key(relation.destination)])
            relation_id = await self._relate(relation, *ends)
            if relation_id is not None:
                created.append(relation_id)
        return created

    async def _ensure_entities(self, names: dict[str, str]) -> dict[str, str]:
        """Return the entity ids of names (name to type) by folded name; create missing ones."""
        folded = {entity_key(name): name for name in reversed(list(names))}
        of_agent = (
            aliases.c.user_id == self._scope.user_id,
            aliases.c.agent_id == self._agent_id,
        )
        statement = select(aliases.c.alias, aliases.c.entity_id, aliases.c.hidden).where(*of_agent)
        rows = await select_by_keys(self._connection, statement, [aliases.c.alias], sorted(folded))
        if hidden := [row["alias"] for row in rows if row["hidden"]]:  # now it is named again
            shown = update(aliases).where(*of_agent, aliases.c.alias.in_(hidden))
            await self._connection.execute(shown.values(hidden=False))
        ids = {row["alias"]: row["entity_id"] for row in rows}
        for alias, name in folded.items():
            if alias not in ids:
                ids[alias] = await self._create(alias, name, names[name])
        return ids

    async def _create(self, alias: str, name: str, kind: str) -> str:
        owner = {"user_id": self._scope.user_id, "agent_id": self._agent_id}
        key = {**owner, "entity_id": new_id("en"), "name": name}
        await self._connection.execute(
            insert(entities), {**key, "type": kind, "created_at": self._now}
        )
        session = {"alias": alias, "session_id": self._scope.session_id}
        await self._connection.execute(insert(aliases), {**key, **session})
        return key["entity_id"]

    async def _relate(self, new: NewRelation, source: str, destination: str) -> str | None:
        """Store a relation unless it is valid already, or end it; return the id of a new one."""
        relationship = check_text("relationship", new.relationship)[:NAME_LENGTH]
        valid = (
            relations.c.user_id == self._scope.user_id,
            relations.c.agent_id == self._agent_id,
            relations.c.source_id == source,
            relations.c.valid_to.is_(None),
        )
        is_same = and_(
            relations.c.destination_id == destination, relations.c.relationship == relationship
        )
        begin = new.valid_from or self._now
        is_later = (new.said_at or self._now) < _BEGAN
        if new.ended:
            await self._end(begin, *valid, is_same, ~is_later)
            return None
        is_replaced = and_(relations.c.relationship.in_(new.replaces), ~is_same)
        await self._end(begin, *valid, is_replaced, ~is_later)
        end = await self._connection.scalar(
            select(func.min(_BEGAN)).where(*valid, is_replaced, is_later)
        )
        stored = (await self._connection.execute(select(relations).where(*valid, is_same))).first()
        if stored is not None:
            await self._add_sources(relations, stored, new.source_message_ids)
            return None
        ends = {"source_id": source, "relationship": relationship, "destination_id": destination}
        row = {**self._to_row(new), **ends, "relation_id": new_id("re"), "valid_to": end}
        await self._connection.execute(insert(relations), row)
        return str(row["relation_id"])

    async def _end(self, moment: datetime, *conditions: ColumnElement[bool]) -> None:
        """End relations at a moment, but not before they began."""
        end = case((moment < _BEGAN, _BEGAN), else_=moment)
        await self._connection.execute(update(relations).where(*conditions).values(valid_to=end))

    def _to_row(self, new: NewRelation) -> dict[str, Any]:
        return {
            "user_id": self._scope.user_id,
            "agent_id": self._agent_id,
            "session_id": self._scope.session_id,
            "valid_from": new.valid_from,
            "source_message_ids": list(new.source_message_ids),
            "created_at": self._now,
            "source_alias": entity_key(new.source),
            "destination_alias": entity_key(new.destination),
        }

    async def _add_sources(self, table: Table, row: Any, source_message_ids: Sequence[str]) -> None:
        """Add messages to the evidence of a relation or an alias."""
        sources = merge_sources(row.source_message_ids, source_message_ids)
        if sources != row.source_message_ids:
            key = [column == getattr(row, column.name) for column in table.primary_key.columns]
            statement = update(table).where(*key)
            await self._connection.execute(statement.values(source_message_ids=sources))

    async def merge(self, name: str, alias: str, source_message_ids: Sequence[str]) -> None:
        """Merge two entities: all relations of `alias` become relations of `name`."""
        ids = await self._ensure_entities({name: "thing", alias: "thing"})
        target, merged = ids[entity_key(name)], ids[entity_key(alias)]
        if target != merged:
            await self._move(merged, target)
            of_merged = (entities.c.user_id == self._scope.user_id, entities.c.entity_id == merged)
            await self._connection.execute(delete(entities).where(*of_merged))
        row = (await self._connection.execute(self._select_alias(alias))).one()
        await self._add_sources(aliases, row, source_message_ids)

    async def _move(self, entity_id: str, target: str, alias: str | None = None) -> None:
        """Move the names and relations of an entity to another, or only those of one alias."""
        for table, column, of_alias in (
            (aliases, "entity_id", aliases.c.alias),
            (relations, "source_id", relations.c.source_alias),
            (relations, "destination_id", relations.c.destination_alias),
        ):
            moved = [table.c.user_id == self._scope.user_id, table.c[column] == entity_id]
            moved += [] if alias is None else [of_alias == alias]
            await self._connection.execute(update(table).where(*moved).values({column: target}))

    async def revise(self, ends: Mapping[str, datetime | None]) -> None:
        """Set when relations end, by their ids; None for those that hold."""
        rows = [{"of_relation": key, "valid_to": end} for key, end in ends.items()]
        of_relation = relations.c.relation_id == bindparam("of_relation")
        statement = update(relations).where(relations.c.user_id == self._scope.user_id, of_relation)
        if rows:
            await self._connection.execute(statement, rows)

    async def split(self, name: str) -> None:
        """Give a name an entity of its own, with the relations that were stated with it."""
        alias = entity_key(name)
        row = (await self._connection.execute(self._select_alias(name))).first()
        of_entity = (
            aliases.c.user_id == self._scope.user_id,
            aliases.c.entity_id == (row.entity_id if row else None),
        )
        select_others = select(aliases.c.name).where(*of_entity, aliases.c.alias != alias)
        others = (await self._connection.scalars(select_others.order_by(aliases.c.alias))).all()
        require_other_name(name, others)
        old = (entities.c.user_id == self._scope.user_id, entities.c.entity_id == row.entity_id)
        entity = (await self._connection.execute(select(entities).where(*old))).one()
        fields = {**entity._mapping, "entity_id": new_id("en"), "name": row.name}
        await self._connection.execute(insert(entities), {**fields, "created_at": self._now})
        await self._move(row.entity_id, fields["entity_id"], alias)
        if entity_key(entity.name) == alias:
            await self._connection.execute(update(entities).where(*old).values(name=others[0]))

    def _select_alias(self, name: str) -> Select[Any]:
        return select(aliases).where(
            aliases.c.user_id == self._scope.user_id,
            aliases.c.agent_id == self._agent_id,
            aliases.c.alias == entity_key(name),
        )

    async def erase(self, relation_ids: Sequence[str]) -> None:
        """Remove relations, and the entities that nothing else connects."""
        of_user = relations.c.user_id == self._scope.user_id
        statement = select(relations.c.source_id, relations.c.destination_id).where(of_user)
        keys = sorted(relation_ids)
        rows = await select_by_keys(self._connection, statement, [relations.c.relation_id], keys)
        for batch in split(keys):
            erased = (of_user, relations.c.relation_id.in_(list(batch)))
            await self._connection.execute(delete(relations).where(*erased))
        await self.erase_unconnected(sorted({end for row in rows for end in row.values()}))

    async def erase_unconnected(self, entity_ids: Sequence[str]) -> None:
        """Remove the entities that have one name and no relations."""
        for entity_id in entity_ids:
            await self._erase_unconnected(entity_id)

    async def hide_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Hide names of entities, by the entity's id, and show its other names."""
        for entity_id, hidden in names.items():
            of_entity = (aliases.c.user_id == self._scope.user_id, aliases.c.entity_id == entity_id)
            is_hidden = aliases.c.alias.in_([entity_key(name) for name in hidden])
            statement = update(aliases).where(*of_entity, aliases.c.hidden != is_hidden)
            await self._connection.execute(statement.values(hidden=is_hidden))

    async def erase_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Remove names of entities that have others, by the entity's id."""
        for entity_id, erased in names.items():
            of_entity = (aliases.c.user_id == self._scope.user_id, aliases.c.entity_id == entity_id)
            is_erased = aliases.c.alias.in_([entity_key(name) for name in erased])
            statement = select(aliases).where(*of_entity, is_erased)
            for row in (await self._connection.execute(statement)).all():
                await self._erase_name(row)

    async def erase_sources(self, message_ids: Sequence[str], stated: Collection[str]) -> None:
        """Remove messages from all evidence, and relations and names without any other.

        The relations that are `stated` elsewhere stay.
        """
        orphans = []
        for table in (relations, aliases):
            for row in await self._citing(table, message_ids):
                sources = [name for name in row.source_message_ids if name not in message_ids]
                key = [column == getattr(row, column.name) for column in table.primary_key.columns]
                changed = update(table).where(*key).values(source_message_ids=sources)
                await self._connection.execute(changed)
                if table is aliases and not sources:
                    await self._erase_name(row)
                elif not sources and row.relation_id not in stated:
                    orphans.append(row.relation_id)
        await self.erase(orphans)

    async def _citing(self, table: Table, message_ids: Sequence[str]) -> list[Any]:
        rows: list[Any] = []
        for batch in split(message_ids, _SOURCES_PER_CONDITION):
            is_source = mentions(table.c.source_message_ids, batch)
            statement = select(table).where(table.c.user_id == self._scope.user_id, is_source)
            rows += (await self._connection.execute(statement)).all()
        return rows

    async def _erase_name(self, row: Any) -> None:
        """Remove a name of an entity that has others; its relations stay with the entity."""
        of_entity = (aliases.c.user_id == row.user_id, aliases.c.entity_id == row.entity_id)
        select_others = select(aliases.c.name).where(*of_entity, aliases.c.alias != row.alias)
        other = await self._connection.scalar(select_others.order_by(aliases.c.alias).limit(1))
        if other is None:
            return
        erased = (*of_entity, aliases.c.alias == row.alias)
        await self._connection.execute(delete(aliases).where(*erased))
        entity = (entities.c.user_id == row.user_id, entities.c.entity_id == row.entity_id)
        renamed = update(entities).where(*entity, entities.c.name == row.name)
        await self._connection.execute(renamed.values(name=other))
        for column in (relations.c.source_alias, relations.c.destination_alias):
            stated = (relations.c.user_id == row.user_id, column == row.alias)
            value = {column.name: entity_key(other)}
            await self._connection.execute(update(relations).where(*stated).values(value))

    async def _erase_unconnected(self, entity_id: str) -> None:
        """Remove an entity without relations, unless several names say that it is known."""
        of_user = relations.c.user_id == self._scope.user_id
        of_entity = (aliases.c.user_id == self._scope.user_id, aliases.c.entity_id == entity_id)
        is_connected = select(relations.c.relation_id).where(of_user, has_end([entity_id]))
        names = (await self._connection.scalars(select(aliases.c.alias).where(*of_entity))).all()
        if len(names) > 1 or await self._connection.scalar(is_connected.limit(1)):
            return
        await self._connection.execute(delete(aliases).where(*of_entity))
        of_entity = (entities.c.user_id == self._scope.user_id, entities.c.entity_id == entity_id)
        await self._connection.execute(delete(entities).where(*of_entity))


def has_end(entity_ids: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that a relation starts or ends at one of some entities."""
    ids = list(entity_ids)
    return or_(relations.c.source_id.in_(ids), relations.c.destination_id.in_(ids))


async def erase_session_names(connection: AsyncConnection, user_id: str, session_id: str) -> int:
    """Remove names that a session introduced and entities without names; return how many."""
    ends = or_(
        relations.c.source_id == aliases.c.entity_id,
        relations.c.destination_id == aliases.c.entity_id,
    )
    introduced = delete(aliases).where(
        aliases.c.user_id == user_id,
        aliases.c.session_id == session_id,
        ~exists().where(relations.c.user_id == user_id, ends),
    )
    has_name = exists().where(
        aliases.c.user_id == user_id, aliases.c.entity_id == entities.c.entity_id
    )
    nameless = delete(entities).where(entities.c.user_id == user_id, ~has_name)
    counts = [(await connection.execute(part)).rowcount for part in (introduced, nameless)]
    return sum(counts)
