"""Entities and relations of a conversation."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from memrecall.extraction.names import fold_name
from memrecall.extraction.protocol import USER, Entity, Relation, Utterance
from memrecall.extraction.rules.conversation import SourcedStatement, read_statements
from memrecall.extraction.rules.dates import date_statement
from memrecall.extraction.rules.statements import StatedRelation

_MAX_NAME = 60


def build_graph(
    utterances: Sequence[Utterance], *, now: datetime
) -> tuple[list[Entity], list[Relation]]:
    """Return the entities and relations; speakers who give their name appear under it."""
    statements = read_statements(utterances, now=now, zone=UTC)
    names = {one.utterance.speaker: one.statement.name for one in statements if one.statement.name}
    graph = _Graph()
    for speaker, name in names.items():
        graph.add_entity(Entity(name, "person"))
        if speaker is not None and fold_name(speaker) != fold_name(name):
            graph.relations[speaker, "named", name] = Relation(speaker, "named", name)
    for statement in statements:
        speaker = statement.utterance.speaker
        for relation in statement.statement.relations:
            graph.add(relation, statement, names.get(speaker) or speaker or USER)
    return list(graph.entities.values()), list(graph.relations.values())


class _Graph:
    """Entities by folded name, and relations by their ends."""

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}
        self.relations: dict[tuple[str, str, str], Relation] = {}

    def add(self, stated: StatedRelation, statement: SourcedStatement, speaker: str) -> None:
        source, destination = stated.source or speaker, stated.destination
        if len(destination) > _MAX_NAME or fold_name(source) == fold_name(destination):
            return
        self.add_entity(Entity(source, stated.source_kind))
        self.add_entity(Entity(destination, stated.kind))
        sources = (statement.utterance.message_id,)
        since = _since(statement)
        relation = Relation(source, stated.relationship, destination, sources, since, stated.ended)
        key = (fold_name(source), stated.relationship, fold_name(destination))
        known = self.relations.get(key)
        if known is not None and known.ended == relation.ended:
            ids = dict.fromkeys((*known.source_ids, *sources))
            relation = replace(known, source_ids=tuple(ids))
        self.relations[key] = relation

    def add_entity(self, entity: Entity) -> None:
        self.entities.setdefault(fold_name(entity.name) or entity.name, entity)


def _since(statement: SourcedStatement) -> datetime:
    since = date_statement(statement.statement, statement.time).since
    now = statement.time.now
    return since if since is not None and since <= now else now
