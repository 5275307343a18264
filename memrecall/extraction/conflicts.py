"""Conflicts between a new fact and a memory, or a new relation and others: what it ends."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from memrecall.extraction.protocol import USER, Fact, FactType, KnownMemory, Relation
from memrecall.extraction.rules.tables import load_table
from memrecall.extraction.signature import FactSignature, fact_signature, overlap
from memrecall.text.normalize import normalize_caseless

_SHARED = load_table("shared")
_SINGLE_KIN = load_table("en").words("single_kin") | load_table("zh").words("single_kin")
_TASTES = _SHARED.words("taste_slots")
_POSSESSIONS = _SHARED.words("possession_slots")
_RELATION_SLOTS = _SHARED.mapping("relation_slots")
_TASTE_RELATIONS = _SHARED.mapping("tastes")
_PARTNER_SLOTS = {"partner", "marital_status"} | {
    noun
    for language in ("en", "zh")
    for noun, relation in load_table(language).mapping("kinship").items()
    if _RELATION_SLOTS.get(relation) == "partner"
}
# From this share of common words on, two plans or settings are about the same thing.
_SAME_TOPIC = 0.5
_SHORTEST_NAME = 2  # letters; Chinese terms are single characters


def signature_of(item: Fact | KnownMemory) -> FactSignature:
    """Return the signature of a fact or a memory."""
    return fact_signature(item.text, item.subject)


def has_same_subject(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if both are about the same person or thing."""
    return normalize_caseless(fact.subject) == normalize_caseless(memory.subject)


def has_same_slot(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if their slots are equal or one has none."""
    return fact.field == memory.field or fact.field is None or memory.field is None


def is_known(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if a memory says everything that the fact says."""
    if not has_same_subject(fact, memory):
        return False
    new, old = signature_of(fact), signature_of(memory)
    if new.plain == old.plain:
        return True
    if new.is_negated != old.is_negated or not new.terms or new.replaced - old.replaced:
        return False
    is_part = new.terms <= old.terms and new.numbers <= old.numbers and new.days <= old.days
    return is_part and has_same_slot(fact, memory)


def contradicts(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if both cannot hold: two values of a slot, yes and no, or a moved plan."""
    if not has_same_subject(fact, memory):
        return False
    new = signature_of(fact)
    if ends(fact, memory) or (has_equal_slot(fact, memory) and _is_single_value(fact)):
        return not _keeps_profession(fact, memory) and not _leaves_value(fact, new, memory)
    if new.is_negated != signature_of(memory).is_negated:
        return False
    return _is_recounted(fact, new, memory) or _is_moved(fact, new, memory)


def replaces(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if the fact contradicts a memory that does not say the same anyway."""
    return contradicts(fact, memory) and not is_known(fact, memory)


def ends(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if the fact says that the memory no longer holds."""
    if not has_same_subject(fact, memory):
        return False
    new = signature_of(fact)
    return (
        _is_opposite(fact, new, memory)
        or _is_replacement(fact, new, memory)
        or _changes_work(fact, memory)
        or (_slot(fact.field) == _slot(memory.field) == "partner")
    ) and not _leaves_value(fact, new, memory)


def rows_contradict(row: Mapping[Any, Any], other: Mapping[Any, Any]) -> bool:
    """Return True if two stored memories cannot both hold."""

    def replaces_row(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> bool:
        kinds = (cast(FactType, row["memory_type"]) for row in (new, old))
        fact, known = (
            Fact(row["content"], row["subject"] or USER, kind, row["field"])
            for row, kind in zip((new, old), kinds, strict=True)
        )
        return replaces(fact, known.as_known())

    return replaces_row(row, other) or replaces_row(other, row)


def replaced_relationships(relationship: str) -> tuple[str, ...]:
    """Return the relationships of which a person has one at a time, with this one among them."""
    slot = _RELATION_SLOTS.get(relationship)
    return tuple(name for name, other in _RELATION_SLOTS.items() if slot and other == slot)


def opposite_relations(relation: Relation) -> Iterator[Relation]:
    """Yield the relations to the same thing that a new taste ends, as ended ones."""
    taste = None if relation.ended else _TASTE_RELATIONS.get(relation.relationship)
    for name, other in _TASTE_RELATIONS.items():
        if taste is not None and other != taste:
            yield replace(relation, relationship=name, ended=True)


def has_one_value(fact: Fact) -> bool:
    """Return True for a slot of which everybody has one value: home, employer, name."""
    return _slot(fact.field) in _SHARED.words("single_value_slots")


def has_equal_slot(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if both fill the same slot; a wife, a boyfriend and a divorce fill one."""
    return _slot(fact.field) == _slot(memory.field)


def denies_other_value(fact: Fact, memory: KnownMemory) -> bool:
    """Return True for "no longer lives in Berlin" if the memory is the present home, Rome."""
    new = signature_of(fact)
    return has_same_subject(fact, memory) and new.is_negated and _leaves_value(fact, new, memory)


def _slot(field: str | None) -> str | None:
    return "partner" if field in _PARTNER_SLOTS else field


def _is_single_value(fact: Fact) -> bool:
    """Return True if the slot holds one value at a time, as settings and named nouns do."""
    field = fact.field or ""
    is_listed = (
        has_one_value(fact)
        or field.startswith(("favourite_", "最喜欢的"))
        or field.endswith("_name")
    )
    is_noun = fact.memory_type == "general" and field not in _SHARED.words("multi_value_slots")
    is_person = fact.memory_type == "relationship" and field in _SINGLE_KIN
    is_setting = fact.memory_type == "configuration" and field != "command"
    return bool(field) and (is_listed or is_noun or is_person or is_setting)


def _is_opposite(fact: Fact, new: FactSignature, memory: KnownMemory) -> bool:
    """Return True for yes after no or no after yes.

    "No coffee at night" does not contradict that the person likes coffee.
    """
    old, known = signature_of(memory), memory
    if new.is_negated == old.is_negated or not new.terms & old.terms:
        return False
    is_narrower = old.terms < new.terms and new.is_change
    is_broader = new.terms < old.terms and (new.is_negated or new.is_change)
    if is_broader and _SHARED.search("list", known.text):
        return False  # The rest of "tea and coffee" still holds.
    if not (new.terms == old.terms or is_narrower or is_broader):
        return False
    are_tastes = fact.field in _TASTES and known.field in _TASTES
    if not has_same_slot(fact, memory) and not are_tastes:
        return fact.field in _POSSESSIONS and known.field in _POSSESSIONS
    if new.is_negated and known.memory_type == "event" and fact.memory_type != "event":
        return known.field is not None  # What happened has happened.
    return not _SHARED.search("given_away", fact.text) or known.field in _POSSESSIONS


def _is_replacement(fact: Fact, new: FactSignature, memory: KnownMemory) -> bool:
    """Return True if the memory is what the fact switches from or now likes less."""
    old, known = signature_of(memory), memory
    if fact.field == "prefers":
        is_reversed = new.terms <= old.replaced or (new.replaced and new.replaced == old.terms)
        return known.field == "prefers" and bool(is_reversed)
    if not new.replaced or old.is_negated or _SHARED.search("yet_to_come", fact.text):
        return False
    if known.memory_type == "event" or fact.memory_type == "plan":
        return False
    return new.replaced <= old.terms or old.terms <= new.replaced


def _changes_work(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if a job was left and the memory is its employer, or the other way round."""
    if fact.field == "job" and _SHARED.search("left_work", fact.text):
        return memory.field == "employer"
    is_employed = fact.field == "employer" and not fact.negated
    was_unemployed = _SHARED.search("left_work", memory.text)
    return is_employed and memory.field == "job" and bool(was_unemployed)


def _leaves_value(fact: Fact, new: FactSignature, memory: KnownMemory) -> bool:
    """Return True if a fact of the same slot leaves a memory as it is.

    "No longer lives in Berlin" says nothing about Rome, and "is married" nothing against a name.
    """
    old = signature_of(memory)
    if old.is_negated or not has_equal_slot(fact, memory):
        return False
    if new.is_negated and not _SHARED.fullmatch("broke_up", fact.text):
        is_part = new.terms <= old.terms or old.terms <= new.terms
        is_named = is_part or len("".join(new.terms & old.terms)) >= _SHORTEST_NAME
        return has_one_value(fact) and not is_named
    is_union = _SHARED.fullmatch("is_couple", fact.text)
    return bool(is_union and _SHARED.search("named_partner", memory.text))


def _keeps_profession(fact: Fact, memory: KnownMemory) -> bool:
    """Return True if a person lost their job but not their profession: a nurse remains one."""
    is_out_of_work = _SHARED.search("left_work", fact.text)
    is_retired = _SHARED.search("retired", fact.text)
    is_profession = memory.field == "job" and memory.memory_type != "event"
    return fact.field == "job" and bool(is_out_of_work) and not is_retired and is_profession


def _is_recounted(fact: Fact, new: FactSignature, memory: KnownMemory) -> bool:
    """Return True for "three kids" after "two kids"."""
    if fact.field != memory.field or fact.field not in _SHARED.words("counted_slots"):
        return False
    numbers = signature_of(memory).numbers
    has_changed = new.numbers and numbers and new.numbers != numbers
    return bool(has_changed) and overlap(new, signature_of(memory)) >= _SAME_TOPIC


def _is_moved(fact: Fact, new: FactSignature, memory: KnownMemory) -> bool:
    """Return True for the same plan, setting or habit at another time or with another number."""
    old = signature_of(memory)
    is_movable = fact.memory_type in _SHARED.words("movable_types")
    if fact.memory_type != memory.memory_type or not is_movable:
        return False
    # Swimming on Thursdays does not end swimming on Tuesdays, unless the fact says so.
    is_moved = bool(new.days and old.days) and new.days != old.days and new.is_change
    return (is_moved or new.numbers != old.numbers) and overlap(new, old) >= _SAME_TOPIC
