"""The knowledge graph follows the memories: a relation holds as long as a memory that states it.

A memory states a relation if both come from the same message and it names both ends.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

from memrecall.errors import InvalidArgument
from memrecall.plugins import find_plugin, require_plugin
from memrecall.scope import Scope
from memrecall.store import (
    Graph,
    GraphDB,
    MemoryQuery,
    Removal,
    Store,
    StoredEntity,
    StoredRelation,
    StoreGraphs,
    read_filter,
)
from memrecall.store.graph import MAX_RELATIONS, WITHDRAWN
from memrecall.store.memories.changes import SYSTEM, MemoryChanges
from memrecall.store.memories.history import AuditEntry
from memrecall.store.memories.removal import MemoryRemover
from memrecall.store.memories.writer import MemoryWriter
from memrecall.text.tokens import CJK, entity_key, fold_spaces, is_cjk
from memrecall.types import USER, MemoryRecord

_SHORTEST_NAME = 2
_LONGEST_QUERY = 400  # characters that are searched for names
_LONGEST_NAME = 6  # words
_LONGEST_CJK_NAME = 12  # characters
_SENTENCE_ENDS = "?!.,;:，。？！；：…\"'"
_SYMBOLS = re.compile(r"[^\w\s]+")
_LETTER = rf"[^\W{CJK}]"  # of a word that has an end: 住在Porto names Porto
_PIECE = re.compile(rf"[{CJK}]|{_LETTER}+")
_MOST_READ = 50  # memories whose texts are searched for names; beyond, all relations are read
_ALL_RELATIONS = 1_000_000
_MOST_TRIES = 20  # to follow memories that other writers change at the same time
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN_BY = timedelta(days=500_000)  # from the end of a relation to what hides it: 1,369 years
_HIDDEN_WITHOUT_END = datetime(2, 1, 1, tzinfo=UTC)

_Names = Mapping[str, frozenset[str]]  # the keys of an entity's names, by its id
_Edge = tuple[str, str, StoredRelation]


def possible_names(query: str, shortest: int = _SHORTEST_NAME) -> list[str]:
    """Return every part of a query that could be the name of an entity, folded.

    They are looked up in an index: the cost depends on the query's length, not on the number of
    entities.
    """
    folded = fold_spaces(query[:_LONGEST_QUERY])
    pieces = [(match.start(), match.end()) for match in _PIECE.finditer(folded)]
    names: dict[str, None] = {}
    for first, (start, _) in enumerate(pieces):
        has_cjk = False
        for last in range(first, min(first + _LONGEST_CJK_NAME, len(pieces))):
            begin, end = pieces[last]
            has_cjk = has_cjk or is_cjk(folded[begin])
            if last - first >= _LONGEST_NAME and not has_cjk:
                break
            names.setdefault(folded[start:end])
            # Symbols after a word can belong to a name, as in C++.
            symbols = _SYMBOLS.match(folded, end)
            names.setdefault(
                folded[start : symbols.end() if symbols else end].rstrip(_SENTENCE_ENDS)
            )
    return [name for name in names if len(name) >= shortest]


class TrackedChanges(MemoryChanges):
    """Changes of a scope's memories that its knowledge graph follows."""

    def __init__(self, store: Store, graph: Graph, scope: Scope) -> None:
        super().__init__(store.database, scope)
        self._memories = store.memories(graph.scope)
        self._timeline = store.timeline(graph.scope)
        self._graph = graph

    async def _write(
        self,
        entry: AuditEntry,
        write: Callable[[MemoryWriter], list[str]],
        keys: Sequence[str] = (),
    ) -> list[str]:
        before = await self._memories.get_states(keys)
        changed = await super()._write(entry, write, keys)
        after = await self._memories.get_states(changed)
        await self.follow([*before, *after])
        await self.follow_messages({name for m in after for name in m.source_message_ids})
        return changed

    async def _remove(self, entry: AuditEntry, work: Callable[[MemoryRemover], Removal]) -> Removal:
        removal = await super()._remove(entry, work)
        await self.follow(await self._memories.get_states(removal.memories))
        return removal

    async def delete(
        self,
        keys: Sequence[str],
        *,
        message_ids: Sequence[str] = (),
        actor: str,
        reason: str = "",
        sources: bool = True,
        digests: bool = True,
    ) -> Removal:
        """Hide memories and messages, and the relations that nothing else states."""
        removal = await super().delete(
            keys,
            message_ids=message_ids,
            actor=actor,
            reason=reason,
            sources=sources,
            digests=digests,
        )
        await self.follow_messages(removal.messages)
        return removal

    async def delete_all(self, *, actor: str = SYSTEM, sources: bool = True) -> Removal:
        """Hide every memory of the scope, with `sources` their messages, and the relations."""
        removal = await super().delete_all(actor=actor, sources=sources)
        await self.follow_messages(removal.messages)
        return removal

    async def undo_message(self, message_id: str, *, actor: str) -> list[str]:
        """Show a deleted message, the memories hidden with it and what they state."""
        changed = await super().undo_message(message_id, actor=actor)
        await self.follow_messages([message_id])
        return changed

    async def follow_expired(self, since: datetime) -> None:
        """Hide the relations that only memories state which have expired since a moment."""
        expired = await self._memories.expired(since)
        await self.follow(expired)
        await self.follow_messages({name for m in expired for name in m.source_message_ids})

    async def purge(
        self, keys: Sequence[str], *, sources: bool = True, actor: str = SYSTEM
    ) -> Removal:
        """Erase memories and the relations that only they state; return what was erased.

        With `sources` the messages that they come from are erased too.
        """
        purged = await self._memories.get_states(keys)
        message_ids = [name for memory in purged for name in memory.source_message_ids]
        before = [*purged, *(await self._memories.citing(message_ids) if sources else ())]
        removal = await super().purge(keys, sources=sources, actor=actor)
        await self._follow_erasure(before, removal)
        return removal

    async def purge_message(self, message_id: str, *, actor: str = SYSTEM) -> Removal:
        """Erase a message, and the memories and relations that were derived from it alone."""
        before = await self._memories.citing([message_id])
        removal = await super().purge_message(message_id, actor=actor)
        await self._follow_erasure(before, removal)
        return removal

    async def take_back(self, message_ids: Sequence[str], *, actor: str = SYSTEM) -> Removal:
        """Erase messages so that they can be stored again, and what only they state."""
        before = await self._memories.citing(message_ids)
        removal = await super().take_back(message_ids, actor=actor)
        await self._follow_erasure(before, removal)
        return removal

    async def take_back_export(
        self,
        message_ids: Sequence[str],
        memory_keys: Sequence[str],
        imported_at: datetime,
        *,
        actor: str = SYSTEM,
    ) -> Removal:
        """Erase messages and memories that an import wrote, and what only the messages state."""
        before = await self._memories.citing(message_ids)
        before = [memory for memory in before if memory.memory_key not in memory_keys]
        removal = await super().take_back_export(message_ids, memory_keys, imported_at, actor=actor)
        await self._follow_erasure(before, removal)
        return removal

    async def erase_project(self, project: str, *, actor: str = SYSTEM) -> Removal:
        """Erase the messages and memories of a project, and the relations that only they state."""
        of_project = MemoryQuery(read_filter({"project": project}), superseded=True)
        before = await self._memories.get_states(await self._memories.keys(of_project))
        removal = await super().erase_project(project, actor=actor)
        await self._follow_erasure(before, removal)
        return removal

    async def _follow_erasure(self, before: Sequence[MemoryRecord], removal: Removal) -> None:
        """Erase the relations that only erased memories or messages state."""
        erased = [memory for memory in before if memory.memory_key in removal.memories]
        if removal.messages:
            kept = [memory for memory in before if memory.memory_key not in removal.memories]
            edges = await self._relations_of(await self._entities_near(kept))
            names = await self._names_of(edges)
            stated = [e[2].relation_id for e in edges if any(_states(m, e, names) for m in kept)]
            await self._graph.erase_sources(removal.messages, stated)
        await self.follow(erased, erase=True)
        await self._graph.database.compact(self._graph.scope.user_id)

    async def follow(self, changed: Sequence[MemoryRecord], *, erase: bool = False) -> None:
        """Let the relations that changed memories state, or stated, hold as long as these do.

        With `erase`, relations that no memory states any more are removed instead of hidden.
        """
        stating = [memory for memory in changed if memory.subject]
        for _ in range(_MOST_TRIES if stating else 0):
            last_change = await self._memories.last_change()
            await self._follow(stating, erase)
            if await self._memories.last_change() == last_change:
                return  # Otherwise another writer may have ended a memory that was taken to hold.

    async def _follow(self, stating: Sequence[MemoryRecord], erase: bool) -> None:
        near = await self._entities_near(stating)
        edges = await self._relations_of(near)
        names = await self._names_of(edges)
        affected = [edge for edge in edges if any(_states(m, edge, names) for m in stating)]
        memories = await self._memories_behind(affected)
        ends: dict[str, datetime | None] = {}
        erased: list[str] = []
        for edge in affected:
            holding = [memory for memory in memories if _states(memory, edge, names)]
            if erase and not holding:
                erased.append(edge[2].relation_id)
            elif edge[2].valid_to != WITHDRAWN:
                ends[edge[2].relation_id] = _end_of(edge[2], holding)
        if ends:
            await self._graph.revise(ends)
        if erased:
            await self._graph.erase(erased)
        revised = [
            (
                source,
                destination,
                replace(relation, valid_to=ends.get(relation.relation_id, relation.valid_to)),
            )
            for source, destination, relation in edges
            if relation.relation_id not in erased
        ]
        await self._follow_names(near, revised, stating, erase)

    async def follow_messages(self, message_ids: Collection[str]) -> None:
        """Hide the relations that only hidden messages state, and no memory; show the others."""
        edges = await self._graph.citing(message_ids) if message_ids else []
        if not edges:
            return
        names = await self._names_of(edges)
        memories = await self._memories_behind(edges)
        edges = [
            edge
            for edge in edges
            if edge[2].valid_to != WITHDRAWN and not any(_states(m, edge, names) for m in memories)
        ]
        sources = sorted({name for _, _, edge in edges for name in edge.source_message_ids})
        visible = {message.message_id for message in await self._timeline.get_many(sources)}
        ends: dict[str, datetime | None] = {}
        for _, _, relation in edges:
            is_shown = not visible.isdisjoint(relation.source_message_ids)
            if is_shown != (relation.valid_to is None or relation.valid_to > WITHDRAWN):
                ends[relation.relation_id] = _shift_end(relation.valid_to, is_shown=is_shown)
        if ends:
            await self._graph.revise(ends)
            near = await self._graph.entities(
                {end for *_, r in edges for end in (r.source, r.destination)}, hidden=True
            )
            await self._follow_names(near, await self._relations_of(near), (), False)

    async def follow_neighbours(self, keys: Sequence[str]) -> None:
        """Let the relations of memories, of those before and of all after them, follow these."""
        states: dict[str, MemoryRecord] = {}
        links = set(keys)
        while links:
            found = await self._memories.get_states(sorted(links))
            states |= {memory.memory_key: memory for memory in found}
            near = [m.supersedes for m in found if m.memory_key in keys]
            near += [memory.superseded_by for memory in found]
            links = {link for link in near if link} - states.keys()
        await self.follow(list(states.values()))

    async def _memories_behind(self, edges: Sequence[_Edge]) -> list[MemoryRecord]:
        """Return the memories that come from the same messages as relations."""
        sources = {source for _, _, edge in edges for source in edge.source_message_ids}
        memories = await self._memories.citing(sorted(sources)) if sources else []
        if any(not edge.source_message_ids for _, _, edge in edges):
            memories += await self._memories.without_sources()
        return memories

    async def _follow_names(
        self,
        entities: Sequence[StoredEntity],
        edges: Sequence[_Edge],
        changed: Sequence[MemoryRecord],
        erase: bool,
    ) -> None:
        """Hide the names of entities that rest on deleted memories alone; show the others."""
        hidden: dict[str, list[str]] = {}
        unconnected: list[str] = []
        for entity in entities:
            own = [edge for edge in edges if entity.entity_id in edge[:2]]
            if not own and erase:
                unconnected.append(entity.entity_id)
            elif _rests_on_deleted(entity, own, changed):
                hidden[entity.entity_id] = list(entity.aliases)
            else:
                hidden[entity.entity_id] = await self._deleted_names(entity, changed, erase)
        if unconnected:
            await self._graph.erase_unconnected(unconnected)
        if hidden:
            await self._graph.hide_names(hidden)
        if erase:
            await self._graph.erase_names({key: names for key, names in hidden.items() if names})

    async def _deleted_names(
        self, entity: StoredEntity, changed: Sequence[MemoryRecord], erase: bool
    ) -> list[str]:
        """Return the names that only deleted or erased memories say belong to an entity."""
        sources = {name for memory in changed for name in memory.source_message_ids}
        hidden = []
        for name, ids in entity.alias_sources.items():
            if sources.isdisjoint(ids):
                continue
            memories = await self._memories.citing(ids)
            key = entity_key(name)
            naming = [m for m in memories if _is_named(key, entity_key(m.content))]
            was_named = erase and any(_is_named(key, entity_key(m.content)) for m in changed)
            if (naming or was_named) and all(memory.is_hidden for memory in naming):
                hidden.append(name)
        return hidden

    async def _entities_near(self, memories: Sequence[MemoryRecord]) -> list[StoredEntity]:
        """Return the entities that memories name, hidden ones included; of many memories, all."""
        if len(memories) > _MOST_READ:
            return await self._graph.page(limit=_ALL_RELATIONS, hidden=True)
        texts = [memory.content for memory in memories]
        names = {name for text in texts for name in possible_names(text, shortest=1)}
        return await self._graph.entities(names, hidden=True)

    async def _relations_of(self, entities: Sequence[StoredEntity]) -> list[_Edge]:
        """Return the relations of entities, ended ones included."""
        limit = _ALL_RELATIONS if len(entities) > MAX_RELATIONS else MAX_RELATIONS
        return await self._graph.all_around([entity.entity_id for entity in entities], limit)

    async def _names_of(self, edges: Iterable[_Edge]) -> _Names:
        ends = {name for _, _, edge in edges for name in (edge.source, edge.destination)}
        return {
            entity.entity_id: frozenset(map(entity_key, (entity.name, *entity.aliases)))
            for entity in await self._graph.entities(ends, hidden=True)
        }


def _states(memory: MemoryRecord, edge: _Edge, names: _Names) -> bool:
    """Return True if a memory comes from a message of the relation and names both ends.

    If their messages were erased, both have none.
    """
    source, destination, relation = edge
    own, common = set(memory.source_message_ids), set(relation.source_message_ids)
    if not memory.subject or not (own & common or own == common):
        return False
    text = entity_key(memory.content)
    # Texts call the user by another word in each language.
    known = {USER, entity_key(memory.subject), entity_key(memory.speaker or USER)}
    return all(
        names.get(end, frozenset()) & known or any(_is_named(n, text) for n in names.get(end, ()))
        for end in (source, destination)
    )


def _rests_on_deleted(
    entity: StoredEntity, edges: Sequence[_Edge], changed: Sequence[MemoryRecord]
) -> bool:
    """Return True if all relations of an entity are hidden, or the memories that name it."""
    if edges:
        # A relation that ends when it begins is hidden.
        return all(
            relation.valid_to is not None and relation.valid_to <= (relation.valid_from or _NEVER)
            for _, _, relation in edges
        )
    names = [entity_key(name) for name in (entity.name, *entity.aliases)]
    naming = [m for m in changed if any(_is_named(n, entity_key(m.content)) for n in names)]
    return bool(naming) and all(memory.is_hidden for memory in naming)


def _shift_end(end: datetime | None, *, is_shown: bool) -> datetime | None:
    """Return the end of a relation that is hidden with its messages, or shown with them again.

    A hidden one ends before every other time, and its own end can be told from that.
    """
    if is_shown:
        return None if end is None or end <= _HIDDEN_WITHOUT_END else end + _HIDDEN_BY
    first, last = _HIDDEN_WITHOUT_END + _HIDDEN_BY, WITHDRAWN + _HIDDEN_BY
    if end is None or end >= last:
        return _HIDDEN_WITHOUT_END
    return max(end, first + timedelta.resolution) - _HIDDEN_BY


def _is_named(name: str, text: str) -> bool:
    if is_cjk(name[0]) or is_cjk(name[-1]):
        return name in text
    return re.search(rf"(?<!{_LETTER}){re.escape(name)}(?!{_LETTER})", text) is not None


def _end_of(relation: StoredRelation, memories: Sequence[MemoryRecord]) -> datetime | None:
    """Return when a relation ends that these memories state; an empty time hides it."""
    visible = [memory for memory in memories if not memory.is_hidden]
    if not visible:
        return relation.valid_from or _NEVER
    ends = [memory.valid_to for memory in visible]
    return None if None in ends else max(end for end in ends if end is not None)


def find_graphs(spec: str) -> Callable[[Store], GraphDB]:
    """Return what makes the graph database that a setting names; "", "store": the store's tables.

    A wrong setting is refused here, before the store is opened and its schema upgraded.
    """
    name = spec.partition(":")[0]
    if name in ("", "store"):
        return lambda store: StoreGraphs(store.database)
    if name == "ladybug" and find_plugin("graph_dbs", name) is None:
        hint = "Export each user with the version before, unset graph_db, and import the exports"
        raise InvalidArgument("the graph database 'ladybug' was removed", hint=hint)
    make, argument = require_plugin("graph_dbs", spec, ("store",))
    return partial(make, argument)
