"""Entities and relations that a conversation tells."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from memrecall.extraction.names import fold_name
from memrecall.extraction.protocol import USER, Entity, Relation, Utterance
from memrecall.extraction.rules.dating import write_dates
from memrecall.extraction.rules.extracting import Telling, tell
from memrecall.extraction.rules.statements import Edge

_LONGEST_NAME = 60


def relate(
    utterances: Sequence[Utterance], *, now: datetime
) -> tuple[list[Entity], list[Relation]]:
    """Who and what is told of, and how they relate; a speaker who says his name goes by it."""
    told = tell(utterances, now=now, zone=UTC)
    names = {one.utterance.speaker: one.statement.name for one in told if one.statement.name}
    relations: dict[tuple[str, str, str], Relation] = {}
    entities: dict[str, Entity] = {}
    for speaker, name in names.items():
        _note(entities, Entity(name, "person"))
        if speaker is not None and fold_name(speaker) != fold_name(name):
            relations[speaker, "named", name] = Relation(speaker, "named", name)
    for telling in told:
        called = names.get(telling.utterance.speaker) or telling.utterance.speaker or USER
        for edge in telling.statement.edges:
            _connect(edge, telling, called, entities, relations)
    return list(entities.values()), list(relations.values())


def _connect(
    edge: Edge,
    telling: Telling,
    speaker: str,
    entities: dict[str, Entity],
    relations: dict[tuple[str, str, str], Relation],
) -> None:
    source = edge.source or speaker
    if len(edge.destination) > _LONGEST_NAME or fold_name(source) == fold_name(edge.destination):
        return
    _note(entities, Entity(source, edge.source_kind))
    _note(entities, Entity(edge.destination, edge.kind))
    relation = Relation(
        source,
        edge.relationship,
        edge.destination,
        (telling.utterance.message_id,),
        _since(telling),
        edge.ended,
    )
    key = (fold_name(source), edge.relationship, fold_name(edge.destination))
    before = relations.get(key)
    if before is not None and before.ended == relation.ended:
        ids = dict.fromkeys((*before.source_ids, *relation.source_ids))
        relation = replace(before, source_ids=tuple(ids))
    relations[key] = relation


def _note(entities: dict[str, Entity], entity: Entity) -> None:
    entities.setdefault(fold_name(entity.name) or entity.name, entity)


def _since(telling: Telling) -> datetime:
    said = telling.statement
    dated = write_dates(said.text, telling.moment, said.language, said.tense, said.dates)
    since = dated.since
    return since if since is not None and since <= telling.moment.now else telling.moment.now
