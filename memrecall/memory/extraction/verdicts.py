"""A model's decisions, held against what the rules know must not happen."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memrecall.memory.extraction.answers import DecisionItem
from memrecall.memory.extraction.facts import RETRACTION, Decision, Fact, Known
from memrecall.memory.extraction.names import fold_name

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
