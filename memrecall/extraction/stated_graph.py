"""The relations and names of entities that statements give."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from memrecall.extraction.protocol import USER, Entity, Related, Relation, Utterance
from memrecall.extraction.quotations import is_person
from memrecall.extraction.rules.conversation import SourcedStatement, read_statements
from memrecall.extraction.rules.dates import date_statement, find_statement_times
from memrecall.extraction.rules.statements import StatedRelation
from memrecall.extraction.rules.tables import load_table
from memrecall.text.normalize import entity_key

_MAX_NAME = 60
_SHARED = load_table("shared")


@dataclass(frozen=True, slots=True)
class StatedAlias:
    """Two names of one entity, and the messages that say so."""

    name: str
    other: str
    source_ids: tuple[str, ...]
    of_speaker: bool = False


def stated_aliases(utterances: Sequence[Utterance], now: datetime) -> list[StatedAlias]:
    """Return the names that a conversation equates: "Robert, also known as Bob", 我叫李明.

    A speaker who gives their name is one entity with what is known of them without it.
    """
    statements = read_statements(utterances, now=now, zone=UTC)
    aliases = [
        StatedAlias(item.statement.name, item.utterance.speaker or USER, _ids(item), True)
        for item in statements
        if item.statement.name
    ]
    aliases += [
        StatedAlias(item.statement.value, item.statement.renames, _ids(item))
        for item in statements
        if item.statement.field == "name" and _is_only_one(item.statement.renames)
    ]
    for utterance in filter(is_person, utterances):
        ids = (utterance.message_id,)
        pairs = dict.fromkeys(aliases_in(utterance.text))
        aliases += [StatedAlias(min(pair), max(pair), ids) for pair in pairs]
    return [alias for alias in aliases if entity_key(alias.name) != entity_key(alias.other)]


def _is_only_one(relative: str) -> bool:
    """Return True if a person has one such relative: a husband, but perhaps several sisters."""
    nouns = (load_table(language).words("single_kin") for language in ("en", "zh"))
    return any(relative.endswith(noun) for words in nouns for noun in words)


def _ids(statement: SourcedStatement) -> tuple[str, ...]:
    return (statement.utterance.message_id,)


def build_graph(utterances: Sequence[Utterance], now: datetime) -> Related:
    """Return the entities and relations; speakers who give their name appear under it."""
    statements = read_statements(utterances, now=now, zone=UTC)
    naming = (item for item in statements if item.statement.name)
    names = {item.utterance.speaker: item.statement.name for item in naming}
    renamed = {item.statement.renames: item.statement.value for item in statements}
    graph = _Graph(renamed)
    for name in names.values():
        graph.add_entity(Entity(name, "person"))
    for statement in statements:
        speaker = statement.utterance.speaker
        for relation in statement.statement.relations:
            graph.add(relation, statement, names.get(speaker) or speaker or USER)
    return Related(tuple(graph.entities.values()), tuple(graph.relations.values()))


class _Graph:
    """Entities by their key, and relations by the keys of their ends."""

    def __init__(self, renamed: dict[str, str]) -> None:
        self.renamed = renamed
        self.entities: dict[str, Entity] = {}
        self.relations: dict[tuple[str, str, str], Relation] = {}

    def add(self, stated: StatedRelation, statement: SourcedStatement, speaker: str) -> None:
        ends = (stated.source or speaker, _without_time(stated, statement))
        source, destination = (self.renamed.get(end, end) for end in ends)
        if len(destination) > _MAX_NAME or entity_key(source) == entity_key(destination):
            return
        self.add_entity(Entity(source, "person"))
        self.add_entity(Entity(destination, stated.kind))
        sources = (statement.utterance.message_id,)
        now = statement.time.now
        since = min(date_statement(statement.statement, statement.time).since or now, now)
        relation = Relation(source, stated.relationship, destination, sources, since, stated.ended)
        key = (entity_key(source), stated.relationship, entity_key(destination))
        first = self.relations.get(key)
        if first is not None and first.ended == relation.ended:
            ids = dict.fromkeys((*first.source_ids, *sources))
            relation = replace(first, source_ids=tuple(ids))
        self.relations[key] = relation

    def add_entity(self, entity: Entity) -> None:
        self.entities.setdefault(entity_key(entity.name), entity)


def _without_time(stated: StatedRelation, statement: SourcedStatement) -> str:
    """Return the destination; the name of a place ends before a time that follows it."""
    name = stated.destination
    if stated.kind not in ("place", "organization"):
        return name
    spans = find_statement_times(name, statement.time)
    return min((name[: s.position].rstrip(" ,，") for s in spans), key=len, default="") or name


def aliases_in(text: str) -> Iterator[frozenset[str]]:
    """Yield the pairs of names that a text equates: "Robert, also known as Bob", 李老师就是李明."""
    for _, pattern in _SHARED.patterns("aliases"):
        for match in pattern.finditer(text):
            pair = frozenset({match["first"], match["second"]})
            if len(pair) == 2:
                yield pair
