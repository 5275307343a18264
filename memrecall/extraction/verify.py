"""Checks of a model's replies: facts and relations need evidence, decisions must be safe."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast, get_args

from memrecall.extraction.decisions import KNOWN_ALREADY, REPLACED_LATER
from memrecall.extraction.names import fold_name
from memrecall.extraction.protocol import (
    RETRACTION,
    USER,
    Decision,
    EntityType,
    Fact,
    Known,
    MemoryType,
    Relation,
    Utterance,
)
from memrecall.extraction.rules.conversation import slot_name
from memrecall.extraction.rules.sentences import is_person
from memrecall.extraction.signature import fact_keywords, fact_signature
from memrecall.extraction.wire import DecisionItem, FactItem, RelationItem, read_time
from memrecall.text.normalize import normalize

TYPES = frozenset(get_args(MemoryType))
ENTITY_TYPES = frozenset(get_args(EntityType))
MAX_FACT = 500
_MAX_FIELD = 40
_SPEAKER = frozenset({"", "user", "theuser", "用户", "me", "i", "我", "speaker"})


def check_fact(item: FactItem, utterances: Mapping[int, Utterance], now: datetime) -> Fact | None:
    """Return the fact, or None if no person stated it."""
    text = re.sub(r"\s+", " ", item.text)[:MAX_FACT].strip()
    sources = _sources(text, item.sources, utterances)
    if not text or not sources:
        return None
    speaker = sources[-1].speaker
    subject = _subject(item.about, speaker, utterances)
    if _is_other(subject, speaker, utterances) and not _name_occurs(sources, subject):
        return None
    since = read_time(item.since) or sources[-1].ts or now
    return Fact(
        text,
        subject,
        cast(MemoryType, item.type) if item.type in TYPES else "general",
        slot_name(item.field[:_MAX_FIELD]),
        tuple(one.message_id for one in sources),
        min(since, now) if item.type != "plan" else sources[-1].ts or now,
        item.negated,
        fact_keywords(text, subject),
    )


def _sources(
    text: str, numbers: Sequence[int], utterances: Mapping[int, Utterance]
) -> list[Utterance]:
    """Return the utterances that a fact comes from; without numbers, the most similar one."""
    spoken = {number: one for number, one in utterances.items() if is_person(one)}
    named = [spoken[number] for number in dict.fromkeys(numbers) if number in spoken]
    if named or numbers:
        return named
    terms = fact_signature(text).terms
    shared = {number: len(terms & fact_signature(one.text).terms) for number, one in spoken.items()}
    best = max(shared, key=lambda number: (shared[number], -number), default=None)
    return [spoken[best]] if best is not None and (shared[best] or len(spoken) == 1) else []


def _subject(about: str, speaker: str | None, utterances: Mapping[int, Utterance]) -> str:
    if fold_name(about) in _SPEAKER:
        return speaker or USER
    names = {fold_name(one.speaker): one.speaker for one in utterances.values() if one.speaker}
    return names.get(fold_name(about), about)


def _is_other(subject: str, speaker: str | None, utterances: Mapping[int, Utterance]) -> bool:
    """Return True if the subject is another participant of the conversation."""
    return subject != (speaker or USER) and any(
        one.speaker == subject for one in utterances.values()
    )


def _name_occurs(sources: Sequence[Utterance], name: str) -> bool:
    return any(normalize(name).casefold() in normalize(one.text).casefold() for one in sources)


def check_relation(
    item: RelationItem, utterances: Mapping[int, Utterance], now: datetime
) -> Relation | None:
    """Return the relation, or None if the conversation does not name both ends."""
    texts = normalize(" ".join(one.text for one in utterances.values())).casefold()
    speakers = {fold_name(one.speaker or USER) for one in utterances.values()}
    ends = (end_name(item.source), end_name(item.destination))
    named = [
        end and (normalize(end).casefold() in texts or fold_name(end) in speakers) for end in ends
    ]
    sources = [utterances[number] for number in dict.fromkeys(item.sources) if number in utterances]
    spoken = (
        [one for one in sources if is_person(one)]
        if item.sources
        else _any_source(utterances, ends)
    )
    verb = re.sub(r"\W+", "_", item.relationship.strip().lower()).strip("_")
    if not all(named) or not verb or not spoken:
        return None
    since = read_time(item.since) or spoken[-1].ts or now
    return Relation(
        ends[0], verb, ends[1], tuple(one.message_id for one in spoken), since, item.ended
    )


def end_name(name: str) -> str:
    """Return the name of an end of a relation; the user has one name in every language."""
    return USER if fold_name(name) in _SPEAKER and name else name


def _any_source(utterances: Mapping[int, Utterance], ends: tuple[str, str]) -> list[Utterance]:
    spoken = [one for one in utterances.values() if is_person(one)]
    naming = [one for one in spoken if any(end in one.text for end in ends)]
    return naming[-1:]


_CERTAIN = (KNOWN_ALREADY, REPLACED_LATER)


def open_facts(facts: Sequence[Fact], decisions: Sequence[Decision]) -> list[int]:
    """Return the places of the facts that the rules cannot decide for certain."""
    sure = {id(one.fact) for one in decisions if one.event == "NONE" and one.reason in _CERTAIN}
    return [at for at, fact in enumerate(facts) if id(fact) not in sure]


def merge_verdicts(
    facts: Sequence[Fact],
    known: Sequence[Known],
    verdicts: Sequence[DecisionItem],
    by_rules: Sequence[Decision],
) -> tuple[Decision, ...]:
    """Return the model's decisions where they are valid, and the rules' everywhere else.

    A memory is superseded at most once, only by a fact about the same subject, and a fact that
    denies nothing never just deletes.
    """
    memories = dict(enumerate(known, 1))
    verdict_of = {one.fact: one for one in reversed(verdicts) if one.fact is not None}
    open_ones = set(open_facts(facts, by_rules))
    used: set[str] = set()
    merged: list[Decision] = []
    for at, fact in enumerate(facts):
        rules = [one for one in by_rules if one.fact is fact]
        verdict = verdict_of.get(at) if at in open_ones else None
        decision = _apply_verdict(fact, verdict, memories, used) if verdict else None
        chosen = [decision] if decision else [_unless_used(one, used) for one in rules]
        used |= {one.memory_key for one in chosen if one.memory_key and one.event != "NONE"}
        merged += chosen
    return tuple(merged)


def _apply_verdict(
    fact: Fact, verdict: DecisionItem, memories: Mapping[int, Known], used: set[str]
) -> Decision | None:
    """Return the verdict as a decision, or None if it is invalid."""
    event = verdict.event.upper()
    memory = memories.get(verdict.known) if verdict.known is not None else None
    if memory is not None and fold_name(memory.subject) != fold_name(fact.subject):
        return None
    reason = verdict.reason or "the model said so"
    if fact.memory_type == RETRACTION:
        return _retract(fact, event, memory, used, reason)
    if event == "ADD":
        return Decision("ADD", fact, text=fact.text, reason=reason)
    if event == "NONE":
        return Decision("NONE", fact, memory.memory_key if memory else None, reason=reason)
    if event in ("UPDATE", "DELETE") and memory is not None and memory.memory_key not in used:
        # A contradicting fact is stored, because deleting alone would lose it.
        field = None if fact.field else memory.field
        return Decision("UPDATE", fact, memory.memory_key, fact.text, reason, field)
    return None


def _retract(
    fact: Fact, event: str, memory: Known | None, used: set[str], reason: str
) -> Decision | None:
    if event in ("UPDATE", "DELETE") and memory is not None and memory.memory_key not in used:
        return Decision("DELETE", fact, memory.memory_key, reason=reason)
    return Decision("NONE", fact, reason=reason) if event in ("NONE", "ADD") else None


def _unless_used(decision: Decision, used: set[str]) -> Decision:
    """Return the rules' decision, or an addition if its memory is superseded already."""
    if decision.memory_key not in used or decision.event == "NONE":
        return decision
    if decision.event == "DELETE":
        return replace(decision, event="NONE", memory_key=None)
    return replace(decision, event="ADD", memory_key=None)
