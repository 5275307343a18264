"""Decisions on new facts: add, supersede or end memories, or do nothing.

No memory is deleted because it was said again, and a contradicting fact replaces a memory instead
of only removing it. Deciding twice on the same facts has no effect the second time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from memrecall.extraction.conflicts import (
    contradicts,
    denies_other_value,
    ends,
    has_same_slot,
    has_same_subject,
    is_known,
    replaces,
    signature_of,
)
from memrecall.extraction.protocol import RETRACTION, Decision, Fact, FactType, KnownMemory
from memrecall.extraction.signature import FactSignature, overlap
from memrecall.text.normalize import normalize_caseless

REPLACED_LATER = "later words in the same text replace it"
KNOWN_ALREADY = "it is known already"
OTHER_IS_CURRENT = "it denies another value than the current one"
_NEW = "\0"  # Starts the key of a memory that is not stored yet; real keys cannot contain it.


def decide(facts: Sequence[Fact], known: Sequence[KnownMemory]) -> list[Decision]:
    """Return a decision for each fact, in order; a retraction may end several memories."""
    memories = list(known)
    decisions: list[list[Decision]] = [[] for _ in facts]
    # Superseding comes first: a fact may be known only by a memory that is about to end.
    pending: list[int] = []
    for place, fact in enumerate(facts):
        later = facts[place + 1 :]
        if _is_replaced(fact, later):
            decisions[place] = [Decision("NONE", fact, reason=REPLACED_LATER)]
        elif fact.memory_type == RETRACTION:
            decisions[place] = list(_retract(fact, later, memories))
        elif (old := _find_contradicted(fact, memories)) and not _find_same(fact, memories):
            decisions[place] = list(_supersede(fact, old, memories))
        else:
            pending.append(place)
    for place in pending:
        decisions[place] = list(_add(facts[place], memories, place))
    return [decision for group in decisions for decision in group]


def find_successor(fact: Fact, later: Iterable[KnownMemory]) -> KnownMemory | None:
    """Return the first of some memories, said after a fact, that takes its place."""
    memory = fact.as_known()
    for known in later:
        kind = cast(FactType, known.memory_type)
        newer = Fact(known.text, known.subject, kind, known.field)
        if contradicts(newer, memory) and not is_known(fact, known):
            return known
    return None


def as_one_fact(text: str, facts: Sequence[Fact]) -> Fact:
    """Return a text as a fact, of the same slot as the one in it if that says all of the text.

    A text that says more must not go when its slot gets another value.
    """
    if len(facts) == 1:
        (fact,) = facts
        whole = replace(fact, text=text)
        if is_known(whole, fact.as_known()):
            return whole
    return Fact(text)


def _add(fact: Fact, memories: list[KnownMemory], place: int) -> Iterator[Decision]:
    if same := _find_same(fact, memories):
        yield Decision("NONE", fact, _stored_key(same), reason=KNOWN_ALREADY)
    elif old := _find_contradicted(fact, memories):
        yield from _supersede(fact, old, memories)
    elif any(denies_other_value(fact, memory) for memory in memories):
        yield Decision("NONE", fact, reason=OTHER_IS_CURRENT)
    else:
        memories.append(fact.as_known(f"{_NEW}{place}"))
        yield Decision("ADD", fact, text=fact.text, reason="it is new")


def _stored_key(memory: KnownMemory) -> str | None:
    key = memory.memory_key
    return None if key.startswith(_NEW) else key


def _supersede(fact: Fact, old: KnownMemory, memories: list[KnownMemory]) -> Iterator[Decision]:
    """Replace a memory by the fact, and end other memories that it says are over."""
    ended = [memory for memory in memories if memory is not old and _is_over(fact, memory)]
    field = None if fact.field else old.field
    key = old.memory_key
    memories[memories.index(old)] = replace(fact.as_known(key), field=fact.field or field)
    is_negated = signature_of(fact).is_negated
    verb = (
        "takes back" if fact.negated and is_negated != signature_of(old).is_negated else "replaces"
    )
    yield Decision("UPDATE", fact, key, fact.text, f"it {verb}: {old.text}", field)
    for memory in ended:
        memories.remove(memory)
        reason = f"it ended: {memory.text}"
        yield Decision("DELETE", fact, memory.memory_key, reason=reason)


def _is_over(fact: Fact, memory: KnownMemory) -> bool:
    is_stored = _stored_key(memory) is not None
    return is_stored and ends(fact, memory) and not is_known(fact, memory)


def _retract(fact: Fact, later: Sequence[Fact], memories: list[KnownMemory]) -> Iterator[Decision]:
    signature = signature_of(fact)
    restated = [other.as_known() for other in later if other.memory_type != RETRACTION]
    ended = [
        memory
        for memory in memories
        if has_same_subject(fact, memory)
        and _is_meant(fact, signature, memory)
        and not any(_is_equal(memory, other) for other in restated)
    ]
    for memory in ended:
        memories.remove(memory)
        key = memory.memory_key
        yield Decision("DELETE", fact, key, reason="the speaker asked to forget it")
    if not ended:
        yield Decision("NONE", fact, reason="nothing like it is known")


def _is_meant(fact: Fact, signature: FactSignature, memory: KnownMemory) -> bool:
    """Return True if a retraction means this memory: by its slot ("my address") or its words."""
    if fact.negated:
        return fact.field is not None and memory.field == fact.field
    old = signature_of(memory)
    if signature.is_negated != old.is_negated or not has_same_slot(fact, memory):
        return False
    has_terms = bool(signature.terms) and signature.terms <= old.terms
    return has_terms and signature.numbers <= old.numbers


def _is_replaced(fact: Fact, later: Sequence[Fact]) -> bool:
    """Return True if a later fact of the same text makes this one out of date."""
    if fact.memory_type == RETRACTION:
        return False
    memory = fact.as_known()
    for other in later:
        if other.memory_type == RETRACTION:
            signature = signature_of(other)
            if has_same_subject(other, memory) and _is_meant(other, signature, memory):
                return True
        elif replaces(other, memory):
            return True
    return False


def _find_same(fact: Fact, memories: list[KnownMemory]) -> KnownMemory | None:
    return next((memory for memory in memories if is_known(fact, memory)), None)


def _find_contradicted(fact: Fact, memories: list[KnownMemory]) -> KnownMemory | None:
    """Return the memory that the fact supersedes: the closest one, and of equals the last."""
    signature = signature_of(fact)
    return max(
        (old for old in reversed(memories) if replaces(fact, old)),
        key=lambda old: overlap(signature, signature_of(old)),
        default=None,
    )


def _is_equal(memory: KnownMemory, other: KnownMemory) -> bool:
    same_text = normalize_caseless(memory.text) == normalize_caseless(other.text)
    return same_text or signature_of(memory) == signature_of(other)
