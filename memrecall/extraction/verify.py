"""Checks of a model's replies: facts and relations need evidence, decisions must be safe."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import cast, get_args

from memrecall.embedding.base import TextEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.extraction.conflicts import has_one_value, is_known
from memrecall.extraction.decisions import KNOWN_ALREADY, REPLACED_LATER
from memrecall.extraction.evidence import Evidence, cited
from memrecall.extraction.protocol import (
    RETRACTION,
    USER,
    Decision,
    EntityType,
    Fact,
    FactType,
    KnownMemory,
    Relation,
    Utterance,
)
from memrecall.extraction.quotations import is_person, own_words
from memrecall.extraction.rules.conversation import build_facts, read_statements, slot_name
from memrecall.extraction.rules.tables import load_table
from memrecall.extraction.signature import (
    SPEAKER_NAMES,
    end_name,
    fact_keywords,
    fact_signature,
    fold_person_name,
)
from memrecall.extraction.summaries import whole_sentences
from memrecall.extraction.wire import DecisionItem, FactItem, RelationItem, parse_since
from memrecall.text.language import language_of
from memrecall.text.normalize import normalize_caseless
from memrecall.types import Language, Role

TYPES = frozenset(get_args(FactType))
ENTITY_TYPES = frozenset(get_args(EntityType))
MAX_FACT = 500
_MAX_FIELD = 40
_SHARED = load_table("shared")


def check_fact(
    item: FactItem,
    utterances: Mapping[int, Utterance],
    now: datetime,
    *,
    zone: tzinfo = UTC,
    context: Sequence[Utterance] = (),
) -> Fact | str:
    """Return the fact, or the reason why it is dropped: no person stated it in their own words."""
    text = _read_text(item)
    sources = _sources(text, item.sources, utterances)
    if not text:
        return "it has no text, or no sentence of it is short enough"
    if not sources:
        return "no person's message is its source"
    speaker = sources[-1].speaker
    subject = _subject(item.about, speaker, utterances)
    speakers = {message.speaker for message in utterances.values()}
    is_other = subject != (speaker or USER) and subject in speakers
    # One participant's words are evidence about another only if they name them.
    if is_other and not any(
        normalize_caseless(subject) in normalize_caseless(source.text) for source in sources
    ):
        return f"its source does not name {subject!r}"
    evidence = Evidence(sources, [*context, *utterances.values()], zone, now=now)
    if item.type == RETRACTION:
        if not asks_to_forget(sources):
            return "nobody asks to forget it"
    elif not _is_well_formed(text, language_of(text)):
        return "it is no whole sentence"
    elif objection := evidence.find_objection(text, subject):
        return objection
    since = parse_since(item.since) or sources[-1].ts or now
    return Fact(
        text,
        subject,
        cast(FactType, item.type) if item.type in TYPES else "general",
        slot_name(item.field[:_MAX_FIELD]) or _read_slot(item, text, subject),
        tuple(source.message_id for source in sources),
        min(since, now) if item.type != "plan" else sources[-1].ts or now,
        item.negated,
        fact_keywords(text, subject),
    )


def _read_text(item: FactItem) -> str:
    """Return the text of a fact: of a long one the first sentences, "" if none fits."""
    text = re.sub(r"\s+", " ", item.text).strip()
    return text if len(text) <= MAX_FACT else whole_sentences(text, MAX_FACT)


def _read_slot(item: FactItem, text: str, subject: str) -> str | None:
    """Return the slot that the rules read in a fact, because models often name none.

    A text that says more must not go when its slot gets another value. Plans fill none yet.
    """
    if item.type == "plan":
        return None
    message = Utterance("", None, Role.USER, text)
    for fact in build_facts(read_statements([message], now=datetime.now(UTC), zone=UTC)):
        whole = Fact(text, subject)
        if is_known(whole, KnownMemory("", fact.text, fact.subject)):
            return fact.field
    return None


async def split_inventions(
    facts: Sequence[Fact], messages: Sequence[Utterance], embedder: TextEmbedder | None
) -> tuple[list[Fact], list[Fact]]:
    """Return the facts that mean something like the messages they name, and the others."""
    if embedder is None:
        return list(facts), []
    related: list[Fact] = []
    unrelated: list[Fact] = []
    for fact in facts:
        sources = [message for message in messages if message.message_id in fact.source_ids]
        try:
            is_related = await Evidence(sources, messages).resembles(fact.text, embedder)
        except EmbedderFailed:
            is_related = True  # The other checks have passed; a message must not lose its facts.
        is_kept = is_related or fact.memory_type == RETRACTION
        (related if is_kept else unrelated).append(fact)
    return related, unrelated


def check_claim(
    item: FactItem, utterances: Mapping[int, Utterance], now: datetime, *, zone: tzinfo = UTC
) -> Fact | None:
    """Return what an assistant, a tool or a quoted text claims about the user; None otherwise."""
    text = _read_text(item)
    sources = cited(item.sources, utterances)
    if not text or not sources or item.type == RETRACTION:
        return None
    subject = _subject(item.about, None, utterances)
    if Evidence(sources, sources, zone, now=now, claims=True).find_objection(text, subject):
        return None
    memory_type = cast(FactType, item.type) if item.type in TYPES else "general"
    ids = tuple(source.message_id for source in sources)
    return Fact(text, subject, memory_type, slot_name(item.field[:_MAX_FIELD]), ids, None)


def asks_to_forget(sources: Sequence[Utterance]) -> bool:
    """Return True if a sender asks in their own words that something be forgotten."""
    return any(_SHARED.search("forget_request", own_words(source.text)) for source in sources)


def _sources(
    text: str, numbers: Sequence[int], utterances: Mapping[int, Utterance]
) -> list[Utterance]:
    """Return the utterances that a fact comes from; without numbers, the most similar one."""
    by_people = {number: item for number, item in utterances.items() if is_person(item)}
    if numbers:
        return cited(numbers, by_people)
    terms = fact_signature(text).terms
    shared = {
        number: len(terms & fact_signature(item.text).terms) for number, item in by_people.items()
    }
    best = max(shared, key=lambda number: (shared[number], -number), default=None)
    return [by_people[best]] if best is not None and (shared[best] or len(shared) == 1) else []


def _subject(about: str, speaker: str | None, utterances: Mapping[int, Utterance]) -> str:
    if fold_person_name(about) in SPEAKER_NAMES:
        return speaker or USER
    speakers = {item.speaker for item in utterances.values() if item.speaker}
    names = {fold_person_name(name): name for name in speakers}
    return names.get(fold_person_name(about), about)


def check_relations(
    items: Sequence[RelationItem], utterances: Mapping[int, Utterance], now: datetime
) -> list[Relation]:
    """Return the relations whose ends somebody names in their own words.

    A relation that ended needs only its successor to be named: "I moved to Faro" ends the one to
    Porto.
    """
    read = [relation for item in items if (relation := _read_relation(item, utterances, now))]
    messages = list(utterances.values())
    named = [relation for relation in read if _names_ends(relation, messages)]
    current = {
        (item.source, item.relationship, item.source_ids) for item in named if not item.ended
    }
    return [
        relation
        for relation in read
        if relation in named
        or (
            relation.ended
            and (relation.source, relation.relationship, relation.source_ids) in current
        )
    ]


def _read_relation(
    item: RelationItem, utterances: Mapping[int, Utterance], now: datetime
) -> Relation | None:
    ends = (end_name(item.source), end_name(item.destination))
    by_people = {number: message for number, message in utterances.items() if is_person(message)}
    naming = [message for message in by_people.values() if any(end in message.text for end in ends)]
    sources = cited(item.sources, by_people) if item.sources else naming[-1:]
    verb = re.sub(r"\W+", "_", item.relationship.strip().lower()).strip("_")
    if not all(ends) or not verb or not sources:
        return None
    since = parse_since(item.since) or sources[-1].ts or now
    ids = tuple(source.message_id for source in sources)
    return Relation(ends[0], verb, ends[1], ids, since, item.ended)


def _names_ends(relation: Relation, messages: Sequence[Utterance]) -> bool:
    sources = [message for message in messages if message.message_id in relation.source_ids]
    speakers = {fold_person_name(message.speaker or USER) for message in messages}
    evidence = Evidence(sources, messages)
    ends = (relation.source, relation.destination)
    return all(fold_person_name(end) in speakers or evidence.has_name(end) for end in ends)


_CERTAIN = (KNOWN_ALREADY, REPLACED_LATER)


def undecided_facts(facts: Sequence[Fact], decisions: Sequence[Decision]) -> list[int]:
    """Return the indexes of the facts that the rules cannot decide for certain."""
    certain = (choice for choice in decisions if choice.event == "NONE")
    decided = {id(choice.fact) for choice in certain if choice.reason in _CERTAIN}
    return [index for index, fact in enumerate(facts) if id(fact) not in decided]


def merge_verdicts(
    facts: Sequence[Fact],
    known: Sequence[KnownMemory],
    verdicts: Sequence[DecisionItem],
    by_rules: Sequence[Decision],
) -> tuple[Decision, ...]:
    """Return the model's decisions where they are valid, and the rules' everywhere else.

    A memory is superseded at most once, only by a fact about the same subject, and a fact that
    denies nothing never just deletes. A new value of a slot that has one replaces the old one,
    whatever the model says: the graph ends the old relation too.
    """
    memories = dict(enumerate(known, 1))
    verdict_of = {verdict.fact: verdict for verdict in reversed(verdicts)}
    undecided = undecided_facts(facts, by_rules)
    used: set[str] = set()
    merged: list[Decision] = []
    for index, fact in enumerate(facts):
        verdict = verdict_of.get(index) if index in undecided else None
        decision = _apply_verdict(fact, verdict, memories, used) if verdict else None
        fallback = [_unless_used(choice, used) for choice in by_rules if choice.fact is fact]
        is_change = has_one_value(fact) and any(choice.event == "UPDATE" for choice in fallback)
        if decision and decision.event in ("ADD", "NONE") and is_change:
            decision = None
        chosen = [decision] if decision else fallback
        used |= {item.memory_key for item in chosen if item.memory_key and item.event != "NONE"}
        merged += chosen
    return tuple(merged)


def _apply_verdict(
    fact: Fact, verdict: DecisionItem, memories: Mapping[int, KnownMemory], used: set[str]
) -> Decision | None:
    """Return the verdict as a decision, or None if it is invalid."""
    event = verdict.event.upper()
    memory = memories.get(verdict.known) if verdict.known is not None else None
    if memory is not None and fold_person_name(memory.subject) != fold_person_name(fact.subject):
        return None
    reason = verdict.reason or "the model said so"
    is_retraction = fact.memory_type == RETRACTION
    if event in ("UPDATE", "DELETE") and memory is not None and memory.memory_key not in used:
        if is_retraction:
            return Decision("DELETE", fact, memory.memory_key, reason=reason)
        # A contradicting fact is stored, because deleting alone would lose it.
        field = None if fact.field else memory.field
        return Decision("UPDATE", fact, memory.memory_key, fact.text, reason, field)
    if event in ("NONE", "ADD") and is_retraction:
        return Decision("NONE", fact, reason=reason)
    if event == "ADD":
        return Decision("ADD", fact, text=fact.text, reason=reason)
    if event == "NONE":
        return Decision("NONE", fact, memory.memory_key if memory else None, reason=reason)
    return None


def _unless_used(decision: Decision, used: set[str]) -> Decision:
    """Return the rules' decision, or an addition if its memory is superseded already."""
    if decision.memory_key not in used or decision.event == "NONE":
        return decision
    if decision.event == "DELETE":
        return replace(decision, event="NONE", memory_key=None)
    return replace(decision, event="ADD", memory_key=None)


def _is_well_formed(text: str, language: Language) -> bool:
    """Return True if the sentence of a fact says something: not 用户每次0.5g, nor "User it"."""
    return not load_table(language).search("no_sentence", text)
