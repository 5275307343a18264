"""What to do for new facts, given what is known: add, supersede, end, or nothing.

Nothing is ever deleted because it was said again, and what contradicts replaces: it never only
removes. Deciding twice on the same facts does nothing the second time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from memrecall.extraction.gist import Gist, gist, overlap
from memrecall.extraction.protocol import RETRACTION, Decision, Fact, Known
from memrecall.extraction.rules.contradicting import (
    Entry,
    alike,
    as_entry,
    contradicts,
    ends,
    fold,
    is_about,
    is_known_by,
)


def decide(facts: Sequence[Fact], known: Sequence[Known]) -> list[Decision]:
    """A decision for each fact, in order; a retraction may end several memories."""
    later = [_later(fact, facts[at + 1 :]) for at, fact in enumerate(facts)]
    entries = [as_entry(one) for one in known]
    decisions: list[list[Decision]] = [[] for _ in facts]
    # What supersedes comes first: a fact may be known only by a memory that is about to end.
    waiting: list[int] = []
    for at, fact in enumerate(facts):
        if later[at] is not None:
            decisions[at] = [
                Decision("NONE", fact, reason="later words in the same text replace it")
            ]
        elif fact.memory_type == RETRACTION:
            decisions[at] = list(_retract(fact, facts[at + 1 :], entries))
        elif (old := _contradicted(fact, entries)) and not _same(fact, entries):
            decisions[at] = list(_supersede(fact, old, entries))
        else:
            waiting.append(at)
    for at in waiting:
        decisions[at] = list(_settle(facts[at], entries, at))
    return [decision for made in decisions for decision in made]


def _settle(fact: Fact, entries: list[Entry], at: int) -> Iterator[Decision]:
    if same := _same(fact, entries):
        yield Decision("NONE", fact, _stored(same), reason="it is known already")
    elif old := _contradicted(fact, entries):
        yield from _supersede(fact, old, entries)
    else:
        entries.append(as_entry(_as_known(fact, f"{_NEW}{at}")))
        yield Decision("ADD", fact, text=fact.text, reason="it is new")


_NEW = "\0"  # begins the key of what is not stored yet: no real key may contain it


def _stored(entry: Entry) -> str | None:
    key = entry.known.memory_key
    return None if key.startswith(_NEW) else key


def _supersede(fact: Fact, old: Entry, entries: list[Entry]) -> Iterator[Decision]:
    """The fact in the place of a memory; what else it says is over ends with it."""
    also = [one for one in entries if one is not old and _is_over(fact, one)]
    field = None if fact.field else old.known.field
    entries[entries.index(old)] = as_entry(
        replace(_as_known(fact, old.known.memory_key), field=fact.field or field)
    )
    takes_back = fact.negated and gist(fact.text, fact.subject).denies != old.gist.denies
    why = "it takes back" if takes_back else "it replaces"
    yield Decision(
        "UPDATE", fact, old.known.memory_key, fact.text, f"{why}: {old.known.text}", field
    )
    for one in also:
        entries.remove(one)
        yield Decision("DELETE", fact, one.known.memory_key, reason=f"it ended: {one.known.text}")


def _is_over(fact: Fact, entry: Entry) -> bool:
    stored = _stored(entry) is not None
    return stored and ends(fact, entry) and not is_known_by(fact, entry)


def _retract(fact: Fact, later: Sequence[Fact], entries: list[Entry]) -> Iterator[Decision]:
    told = gist(fact.text, fact.subject)
    said_anew = [as_entry(_as_known(one, "")) for one in later if one.memory_type != RETRACTION]
    ended = [
        entry
        for entry in entries
        if is_about(fact, entry)
        and _is_meant(fact, told, entry)
        and not any(_equal(entry.known, one) for one in said_anew)
    ]
    for entry in ended:
        entries.remove(entry)
        yield Decision(
            "DELETE", fact, entry.known.memory_key, reason="the speaker asked to forget it"
        )
    if not ended:
        yield Decision("NONE", fact, reason="nothing like it is known")


def _is_meant(fact: Fact, told: Gist, entry: Entry) -> bool:
    """Whether what is to be forgotten is this: a slot ("my address"), or what is told by words."""
    if fact.negated:
        return fact.field is not None and entry.known.field == fact.field
    if told.denies != entry.gist.denies or not alike(fact, entry):
        return False
    return (
        bool(told.terms) and told.terms <= entry.gist.terms and told.numbers <= entry.gist.numbers
    )


def _later(fact: Fact, others: Sequence[Fact]) -> Fact | None:
    """The fact of the same text that makes this one out of date, if any does."""
    if fact.memory_type == RETRACTION:
        return None
    entry = as_entry(_as_known(fact, ""))
    for other in others:
        if other.memory_type == RETRACTION:
            told = gist(other.text, other.subject)
            if is_about(other, entry) and _is_meant(other, told, entry):
                return other
        elif contradicts(other, entry) and not is_known_by(other, entry):
            return other
    return None


def _same(fact: Fact, entries: list[Entry]) -> Entry | None:
    return next((entry for entry in entries if is_known_by(fact, entry)), None)


def _contradicted(fact: Fact, entries: list[Entry]) -> Entry | None:
    """The memory that the fact supersedes: the last one if several could be meant."""
    found = [
        entry for entry in entries if contradicts(fact, entry) and not is_known_by(fact, entry)
    ]
    if not found:
        return None
    told = gist(fact.text, fact.subject)
    return max(reversed(found), key=lambda entry: overlap(told, entry.gist))


def _equal(known: Known, other: Entry) -> bool:
    return (
        fold(known.text) == fold(other.known.text) or gist(known.text, known.subject) == other.gist
    )


def _as_known(fact: Fact, key: str) -> Known:
    return Known(key, fact.text, fact.subject, fact.field, fact.memory_type, fact.valid_from)


def apply(decisions: Sequence[Decision], known: Sequence[Known]) -> list[Known]:
    """What is known after the decisions, as a store that follows them would have it."""
    entries = {one.memory_key: one for one in known}
    for number, decision in enumerate(decisions):
        fact, key = decision.fact, decision.memory_key
        if decision.event == "ADD":
            entries[f"new-{number}"] = _as_known(fact, f"new-{number}")
        elif decision.event == "UPDATE" and key is not None:
            entries[key] = replace(_as_known(fact, key), field=decision.field or fact.field)
        elif decision.event == "DELETE" and key is not None:
            entries.pop(key, None)
    return list(entries.values())
