"""A model's decisions, held against what the rules know must not happen."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast, get_args

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
LONGEST_FACT = 500
_LONGEST_FIELD = 40
_SPEAKER = frozenset({"", "user", "theuser", "用户", "me", "i", "我", "speaker"})


def check_fact(item: FactItem, said: Mapping[int, Utterance], now: datetime) -> Fact | None:
    """The fact, or None if no person said it or one person said it of another in silence."""
    text = re.sub(r"\s+", " ", item.text)[:LONGEST_FACT].strip()
    sources = _sources(text, item.sources, said)
    if not text or not sources:
        return None
    speaker = sources[-1].speaker
    subject = _subject(item.about, speaker, said)
    if _is_other(subject, speaker, said) and not _names(sources, subject):
        return None
    since = read_time(item.since) or sources[-1].ts or now
    return Fact(
        text,
        subject,
        cast(MemoryType, item.type) if item.type in TYPES else "general",
        slot_name(item.field[:_LONGEST_FIELD]),
        tuple(one.message_id for one in sources),
        min(since, now) if item.type != "plan" else sources[-1].ts or now,
        item.negated,
        fact_keywords(text, subject),
    )


def _sources(text: str, numbers: Sequence[int], said: Mapping[int, Utterance]) -> list[Utterance]:
    """The utterances of people that a fact came from; without a number, the most alike one."""
    spoken = {number: one for number, one in said.items() if is_person(one)}
    named = [spoken[number] for number in dict.fromkeys(numbers) if number in spoken]
    if named or numbers:
        return named
    terms = fact_signature(text).terms
    shared = {number: len(terms & fact_signature(one.text).terms) for number, one in spoken.items()}
    best = max(shared, key=lambda number: (shared[number], -number), default=None)
    return [spoken[best]] if best is not None and (shared[best] or len(spoken) == 1) else []


def _subject(about: str, speaker: str | None, said: Mapping[int, Utterance]) -> str:
    if fold_name(about) in _SPEAKER:
        return speaker or USER
    names = {fold_name(one.speaker): one.speaker for one in said.values() if one.speaker}
    return names.get(fold_name(about), about)


def _is_other(subject: str, speaker: str | None, said: Mapping[int, Utterance]) -> bool:
    """Whether the subject takes part in the conversation and is not who spoke."""
    return subject != (speaker or USER) and any(one.speaker == subject for one in said.values())


def _names(sources: Sequence[Utterance], name: str) -> bool:
    return any(normalize(name).casefold() in normalize(one.text).casefold() for one in sources)


def check_relation(
    item: RelationItem, said: Mapping[int, Utterance], now: datetime
) -> Relation | None:
    """The relation, or None if its ends are not in what was said."""
    texts = normalize(" ".join(one.text for one in said.values())).casefold()
    speakers = {fold_name(one.speaker or USER) for one in said.values()}
    ends = (end_name(item.source), end_name(item.destination))
    named = [
        end and (normalize(end).casefold() in texts or fold_name(end) in speakers) for end in ends
    ]
    sources = [said[number] for number in dict.fromkeys(item.sources) if number in said]
    spoken = [one for one in sources if is_person(one)] if item.sources else _any_source(said, ends)
    verb = re.sub(r"\W+", "_", item.relationship.strip().lower()).strip("_")
    if not all(named) or not verb or not spoken:
        return None
    since = read_time(item.since) or spoken[-1].ts or now
    return Relation(
        ends[0], verb, ends[1], tuple(one.message_id for one in spoken), since, item.ended
    )


def end_name(name: str) -> str:
    """The end of a relation as it is kept: the user has one name in every language."""
    return USER if fold_name(name) in _SPEAKER and name else name


def _any_source(said: Mapping[int, Utterance], ends: tuple[str, str]) -> list[Utterance]:
    spoken = [one for one in said.values() if is_person(one)]
    naming = [one for one in spoken if any(end in one.text for end in ends)]
    return naming[-1:]


_SURE = ("it is known already", "later words in the same text replace it")


def open_facts(facts: Sequence[Fact], decisions: Sequence[Decision]) -> list[int]:
    """The places of the facts that are worth asking about: those that the rules cannot settle."""
    sure = {id(one.fact) for one in decisions if one.event == "NONE" and one.reason in _SURE}
    return [at for at, fact in enumerate(facts) if id(fact) not in sure]


def merge_verdicts(
    facts: Sequence[Fact],
    known: Sequence[Known],
    verdicts: Sequence[DecisionItem],
    by_rules: Sequence[Decision],
) -> tuple[Decision, ...]:
    """The model's decisions where they can be followed, the rules' everywhere else.

    A memory is superseded once at most, only for a fact about the same subject, and a fact that
    denies nothing never only deletes.
    """
    memories = dict(enumerate(known, 1))
    said = {one.fact: one for one in reversed(verdicts) if one.fact is not None}
    open_ones = set(open_facts(facts, by_rules))
    used: set[str] = set()
    merged: list[Decision] = []
    for at, fact in enumerate(facts):
        rules = [one for one in by_rules if one.fact is fact]
        verdict = said.get(at) if at in open_ones else None
        decision = _follow(fact, verdict, memories, used) if verdict else None
        chosen = [decision] if decision else [_unless_used(one, used) for one in rules]
        used |= {one.memory_key for one in chosen if one.memory_key and one.event != "NONE"}
        merged += chosen
    return tuple(merged)


def _follow(
    fact: Fact, verdict: DecisionItem, memories: Mapping[int, Known], used: set[str]
) -> Decision | None:
    """The verdict as a decision; None if it cannot be followed."""
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
        # What contradicts is kept: deleting alone would lose it.
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
    """The rules' decision; where its memory was superseded just now, the fact is added."""
    if decision.memory_key not in used or decision.event == "NONE":
        return decision
    if decision.event == "DELETE":
        return replace(decision, event="NONE", memory_key=None)
    return replace(decision, event="ADD", memory_key=None)
