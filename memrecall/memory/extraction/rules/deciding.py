"""What to do for new facts, given what is known: add, supersede, end, or nothing.

Nothing is ever deleted because it was said again, and what contradicts replaces: it never only
removes. Deciding twice on the same facts does nothing the second time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memrecall.memory.extraction.facts import RETRACTION, Decision, Fact, Known
from memrecall.memory.extraction.gist import Gist, gist, overlap
from memrecall.memory.extraction.rules.frames import words
from memrecall.text.normalize import normalize

SINGLE = words(
    """
    name nickname surname age birthday home household origin nationality birthplace job employer
    work_style school major marital_status partner diet height weight email phone wechat address
    blood_type shoe_size size time_zone budget pronouns username zodiac religion ethnicity
    reply_language reply_length units student_number staff_number licence_plate anniversary
    """
)
"""Slots that hold one value at a time: a new one supersedes the old."""

_OF_A_KIND = 0.5  # words in common, from which two plans or settings are about the same thing
_MOVABLE = frozenset({"plan", "configuration", "decision", "instruction", "habit"})


@dataclass(frozen=True, slots=True)
class _Entry:
    """A memory, or a fact that is about to be one."""

    known: Known
    gist: Gist


def decide(facts: Sequence[Fact], known: Sequence[Known]) -> list[Decision]:
    """A decision for each fact, in order; a retraction may end several memories."""
    later = [_later(fact, facts[at + 1 :]) for at, fact in enumerate(facts)]
    entries = [_entry(one) for one in known]
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
            decisions[at] = [_supersede(fact, old, entries)]
        else:
            waiting.append(at)
    for at in waiting:
        decisions[at] = [_settle(facts[at], entries, at)]
    return [decision for made in decisions for decision in made]


def _settle(fact: Fact, entries: list[_Entry], at: int) -> Decision:
    if same := _same(fact, entries):
        return Decision("NONE", fact, _stored(same), reason="it is known already")
    if old := _contradicted(fact, entries):
        return _supersede(fact, old, entries)
    entries.append(_entry(_as_known(fact, f"{_NEW}{at}")))
    return Decision("ADD", fact, text=fact.text, reason="it is new")


_NEW = "\0"  # begins the key of what is not stored yet: no real key may contain it


def _stored(entry: _Entry) -> str | None:
    key = entry.known.memory_key
    return None if key.startswith(_NEW) else key


def _supersede(fact: Fact, old: _Entry, entries: list[_Entry]) -> Decision:
    entries[entries.index(old)] = _entry(_as_known(fact, old.known.memory_key))
    takes_back = fact.negated and gist(fact.text, fact.subject).denies != old.gist.denies
    why = "it takes back" if takes_back else "it replaces"
    return Decision("UPDATE", fact, old.known.memory_key, fact.text, f"{why}: {old.known.text}")


def _retract(fact: Fact, later: Sequence[Fact], entries: list[_Entry]) -> Iterator[Decision]:
    told = gist(fact.text, fact.subject)
    said_anew = [_entry(_as_known(one, "")) for one in later if one.memory_type != RETRACTION]
    ended = [
        entry
        for entry in entries
        if _is_about(fact, entry)
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


def _is_meant(fact: Fact, told: Gist, entry: _Entry) -> bool:
    """Whether what is to be forgotten is this: a slot ("my address"), or what is told by words."""
    if fact.negated:
        return fact.field is not None and entry.known.field == fact.field
    if told.denies != entry.gist.denies or not _alike(fact, entry):
        return False
    return (
        bool(told.terms) and told.terms <= entry.gist.terms and told.numbers <= entry.gist.numbers
    )


def _later(fact: Fact, others: Sequence[Fact]) -> Fact | None:
    """The fact of the same text that makes this one out of date, if any does."""
    if fact.memory_type == RETRACTION:
        return None
    entry = _entry(_as_known(fact, ""))
    for other in others:
        if other.memory_type == RETRACTION:
            told = gist(other.text, other.subject)
            if _is_about(other, entry) and _is_meant(other, told, entry):
                return other
        elif _contradicts(other, entry) and not _is_known_by(other, entry):
            return other
    return None


def _same(fact: Fact, entries: list[_Entry]) -> _Entry | None:
    return next((entry for entry in entries if _is_known_by(fact, entry)), None)


def _is_known_by(fact: Fact, entry: _Entry) -> bool:
    """Whether a memory says all that the fact says."""
    if not _is_about(fact, entry):
        return False
    told = gist(fact.text, fact.subject)
    if told.plain == entry.gist.plain:
        return True
    if told.denies != entry.gist.denies or not told.terms:
        return False
    within = told.terms <= entry.gist.terms and told.numbers <= entry.gist.numbers
    return within and _alike(fact, entry)


def _contradicted(fact: Fact, entries: list[_Entry]) -> _Entry | None:
    """The memory that the fact supersedes: the last one if several could be meant."""
    found = [
        entry for entry in entries if _contradicts(fact, entry) and not _is_known_by(fact, entry)
    ]
    if not found:
        return None
    told = gist(fact.text, fact.subject)
    return max(reversed(found), key=lambda entry: overlap(told, entry.gist))


def _contradicts(fact: Fact, entry: _Entry) -> bool:
    """Whether both cannot hold: one slot with two values, yes and no, or one plan at two times."""
    if not _is_about(fact, entry):
        return False
    told, known = gist(fact.text, fact.subject), entry.gist
    if fact.field is not None and fact.field == entry.known.field and _is_single(fact):
        return True
    if told.denies != known.denies:
        nested = told.terms <= known.terms or known.terms <= told.terms
        return nested and bool(told.terms & known.terms) and _alike(fact, entry)
    movable = fact.memory_type == entry.known.memory_type and fact.memory_type in _MOVABLE
    other_numbers = told.numbers != known.numbers
    return movable and other_numbers and overlap(told, known) >= _OF_A_KIND


def _is_single(fact: Fact) -> bool:
    """Whether the slot holds one value at a time; a setting's does."""
    field = fact.field or ""
    named = (
        field in SINGLE or field.startswith(("favourite_", "最喜欢的")) or field.endswith("_name")
    )
    return named or (fact.memory_type == "configuration" and field != "command")


def _alike(fact: Fact, entry: _Entry) -> bool:
    """Whether they speak of the same side of somebody, as far as their slots tell."""
    return fact.field == entry.known.field or fact.field is None or entry.known.field is None


def _is_about(fact: Fact, entry: _Entry) -> bool:
    return _fold(fact.subject) == _fold(entry.known.subject)


def _equal(known: Known, other: _Entry) -> bool:
    return (
        _fold(known.text) == _fold(other.known.text)
        or gist(known.text, known.subject) == other.gist
    )


def _fold(text: str) -> str:
    return normalize(text).casefold().strip()


def _as_known(fact: Fact, key: str) -> Known:
    return Known(key, fact.text, fact.subject, fact.field, fact.memory_type, fact.valid_from)


def _entry(known: Known) -> _Entry:
    return _Entry(known, gist(known.text, known.subject))


def apply(decisions: Sequence[Decision], known: Sequence[Known]) -> list[Known]:
    """What is known after the decisions, as a store that follows them would have it."""
    entries = {one.memory_key: one for one in known}
    for number, decision in enumerate(decisions):
        fact, key = decision.fact, decision.memory_key
        if decision.event == "ADD":
            entries[f"new-{number}"] = _as_known(fact, f"new-{number}")
        elif decision.event == "UPDATE" and key is not None:
            entries[key] = replace(_as_known(fact, key))
        elif decision.event == "DELETE" and key is not None:
            entries.pop(key, None)
    return list(entries.values())
