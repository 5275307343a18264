"""The knowledge graph: relations extracted from messages, and queries to neighbours."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_jsonable_python

from memrecall.errors import InvalidArgument, NotFound
from memrecall.extraction.conflicts import opposite_relations, replaced_relationships
from memrecall.extraction.protocol import Extractor, Relation, Utterance, text_length
from memrecall.extraction.rules.extractor import RuleExtractor
from memrecall.extraction.stated_graph import stated_aliases
from memrecall.library.graph_evidence import possible_names
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.store import Graph, NewRelation, StoredEntity, StoredRelation
from memrecall.store.database.cursors import LARGEST_LIST, require_limit
from memrecall.store.graph_rows import WITHDRAWN
from memrecall.text.normalize import entity_key
from memrecall.types import NAME_LENGTH, MemoryRecord, Role, check_text
from memrecall.workers import in_process

DEEPEST = 6
MOST_ENTITIES = 2_000  # that one query visits
MOST_RELATED_NAMES = 8
_MOST_RELATIONS = 200

_CORRECTION = re.compile(r"re_[0-9a-f]{25}(\.re_[0-9a-f]{25})?")
_RELATION_FIELDS = ("source", "relationship", "destination", "ended")


def relation_item(relation: StoredRelation) -> dict[str, Any]:
    """Return a relation as a dict, times as text."""
    fields = to_jsonable_python(relation)
    return {"id": fields.pop("relation_id"), **fields}


def entity_item(entity: StoredEntity) -> dict[str, Any]:
    """Return an entity as a dict, with the messages that gave it other names if there are any."""
    item = {"name": entity.name, "type": entity.type, "aliases": list(entity.aliases)}
    sources = {name: list(ids) for name, ids in entity.alias_sources.items()}
    return {**item, "alias_sources": sources} if sources else item


async def list_entities(graph: Graph, limit: int, cursor: str | None) -> dict[str, Any]:
    """Return a page of entities with their types and aliases, oldest first."""
    require_limit("limit", limit, LARGEST_LIST)
    page = await graph.page(limit=limit + 1, after=cursor)
    items = [entity_item(entity) for entity in page[:limit]]
    next_cursor = page[limit - 1].entity_id if len(page) > limit else None
    return {"entities": items, "next_cursor": next_cursor}


async def list_relations(
    graph: Graph, name: str, *, depth: int, as_of: datetime | None, limit: int
) -> dict[str, Any]:
    """Return the relations within `depth` steps of an entity, nearest first."""
    require_limit("depth", depth, DEEPEST)
    require_limit("limit", limit, LARGEST_LIST)
    frontier = {entity.entity_id for entity in await graph.entities([name])}
    visited = set(frontier)
    relations: dict[str, StoredRelation] = {}
    for _ in range(depth):
        if not frontier or len(visited) > MOST_ENTITIES or len(relations) >= limit:
            break
        edges = await graph.around(sorted(frontier), as_of)
        relations.update({relation.relation_id: relation for _, _, relation in edges})
        ends = {end for source, destination, _ in edges for end in (source, destination)}
        frontier = ends - visited
        visited |= ends
    return {"relations": [relation_item(item) for item in list(relations.values())[:limit]]}


async def related_names(graph: Graph, query: str, as_of: datetime | None) -> tuple[str, ...]:
    """Return the names of entities related to those that a query names, nearest first."""
    entities = await graph.entities(possible_names(query))
    if not entities:
        return ()
    folded_query = entity_key(query)
    ids = {entity.entity_id for entity in entities}
    names: dict[str, None] = {}
    for source, _, relation in await graph.around(sorted(ids), as_of, _MOST_RELATIONS):
        name = relation.destination if source in ids else relation.source
        if entity_key(name) not in folded_query:
            names.setdefault(name)
    return tuple(names)[:MOST_RELATED_NAMES]


async def write_relations(
    library: Library,
    extractor: Extractor,
    scope: Scope,
    utterances: Sequence[Utterance],
    context: Sequence[Utterance] = (),
) -> dict[str, Any]:
    """Extract entities and relations from messages and write them into the graph."""
    # A message that is not stored has no id, and cannot be a source.
    new_ids = {utterance.message_id for utterance in utterances} - {""}
    extracted = await extractor.relations([*context, *utterances], now=datetime.now(UTC))
    if context:
        new = (r for r in extracted.relations if new_ids.intersection(r.source_ids))
        extracted = replace(extracted, relations=tuple(new))
    types = {entity.name[:NAME_LENGTH]: entity.type for entity in extracted.entities}
    relations = [
        replace(relation, source_ids=tuple(i for i in relation.source_ids if i in new_ids))
        for relation in extracted.relations
    ]
    times = {u.message_id: u.ts for u in utterances if u.ts is not None}
    if relations or types:
        await library.claim_for_graph(scope)
    graph = library.graph(scope)
    await graph.add(
        dict(types),
        [
            _new_relation(item, times)
            for relation in relations
            for item in (*opposite_relations(relation), relation)
        ],
    )
    length = text_length(*utterances)
    for alias in await in_process(length, stated_aliases, utterances, datetime.now(UTC)):
        if alias.of_speaker or await graph.entities((alias.name, alias.other)):
            await library.claim_for_graph(scope)
            sources = tuple(filter(None, alias.source_ids))
            await graph.merge(alias.name, alias.other, () if alias.of_speaker else sources)
            if alias.of_speaker:  # The message is evidence of the name, not of "user".
                await graph.merge(alias.other, alias.name, sources)
    return {
        "entities": [{"name": name, "type": kind} for name, kind in types.items()],
        "relations": [
            {name: getattr(relation, name) for name in _RELATION_FIELDS} for relation in relations
        ],
        "problems": [extracted.problem] if extracted.problem else [],
    }


async def relate_memory(library: Library, scope: Scope, record: MemoryRecord) -> None:
    """Write the relations that the corrected text of a memory states, as long as it holds.

    Rules read it, because the text is a plain sentence and a correction must not need a model.
    """
    if record.subject is None or record.provenance.conflicts_with:
        return  # Nobody's facts and mere claims are not in the graph.
    source = record.source_message_ids[-1] if record.source_message_ids else ""
    utterance = Utterance(source, record.speaker, Role.USER, record.content, record.since)
    await write_relations(library, RuleExtractor(), scope, [utterance])
    await library.changes(scope).follow_neighbours([record.memory_key])


async def replace_relation(
    library: Library,
    scope: Scope,
    wrong: Mapping[str, str],
    correction: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Replace the valid relations that say `wrong` by a correction, or remove them."""
    if correction is not None and not correction.keys() <= wrong.keys():
        raise InvalidArgument(
            f"{min(correction.keys() - wrong.keys())!r} is no part of a relation",
            hint=f"Use {', '.join(wrong)}",
        )
    right = {name: check_text(name, text) for name, text in {**wrong, **(correction or {})}.items()}
    if correction is not None and right == wrong:
        raise InvalidArgument("the correction changes nothing", hint="Pass what differs")
    graph = library.graph(scope)
    ids = [entity.entity_id for entity in await graph.entities([wrong["source"]])]
    matches = [
        relation
        for start, _, relation in await graph.around(ids)
        if start in ids
        and relation.relationship == wrong["relationship"]
        and entity_key(relation.destination) == entity_key(wrong["destination"])
    ]
    if not matches:
        raise NotFound(f"no relation says {' '.join(wrong.values())!r}", hint="Read the graph")
    ids = []
    for relation in matches:
        of_agent, created = replace(scope, agent_id=relation.agent_id), []
        if correction is not None:  # first, so that a failure in between loses nothing
            created = await library.graph(of_agent).add({}, [_restate(relation, *right.values())])
        await library.changes(of_agent).withdraw(relation)
        ids.append(".".join([relation.relation_id, *created]))
    message = "removed" if correction is None else "corrected"
    outcome = {"found": len(matches), "relation": correction and right, "message": message}
    return {"ids": ids, **outcome}


async def find_withdrawn(
    library: Library, scope: Scope, correction_id: str
) -> tuple[StoredRelation, list[StoredRelation]]:
    """Return the relation that a correction withdrew and the ones it stored instead."""
    key, *others = correction_id.split(".")
    found = {r.relation_id: r for r in await library.graph(scope).find([key, *others])}
    if key not in found or found[key].valid_to != WITHDRAWN:
        raise NotFound(
            f"there is no correction {correction_id!r}",
            hint="It was undone before, or its relation was erased",
        )
    return found[key], [found[other] for other in others if other in found]


async def undo_correction(library: Library, scope: Scope, correction_id: str) -> None:
    """Store the relation that a correction withdrew, and erase what the correction stored."""
    old, corrections = await find_withdrawn(library, scope, correction_id)
    scope = replace(scope, agent_id=old.agent_id)
    graph, sources = library.graph(scope), set(old.source_message_ids)
    await graph.add({}, [_restate(old, old.source, old.relationship, old.destination)])
    # What other messages have stated since stays.
    repeated = [r.relation_id for r in corrections if sources.issuperset(r.source_message_ids)]
    await graph.erase([old.relation_id, *repeated])
    await library.changes(scope).follow(await library.store.memories(scope).citing(sorted(sources)))


def is_correction_id(text: str) -> bool:
    """Return True for an id that `replace_relation` returned."""
    return _CORRECTION.fullmatch(text) is not None


def _restate(
    relation: StoredRelation, source: str, relationship: str, destination: str
) -> NewRelation:
    """Return a relation with the evidence of another."""
    evidence = (relation.source_message_ids, relation.valid_from)
    return NewRelation(source, relationship, destination, *evidence)


def _new_relation(relation: Relation, times: Mapping[str, datetime]) -> NewRelation:
    said_at = max((times[name] for name in relation.source_ids if name in times), default=None)
    return NewRelation(
        relation.source[:NAME_LENGTH],
        relation.relationship,
        relation.destination[:NAME_LENGTH],
        relation.source_ids,
        relation.valid_from,
        relation.ended,
        replaced_relationships(relation.relationship),
        said_at,
    )
