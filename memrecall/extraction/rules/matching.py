"""Matching of fact patterns against the verb phrase of a clause."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from memrecall.extraction.protocol import EntityType, FactType
from memrecall.extraction.rules.dates import find_statement_times, has_time
from memrecall.extraction.rules.statements import (
    Clause,
    FactMatch,
    FactPattern,
    ReferenceTime,
    VerbPhrase,
)
from memrecall.extraction.rules.tables import LanguageTable, load_table

_SHARED = load_table("shared")
_STEPS = frozenset({"plan", "event", "decision"})
_ENDING_NEGATIONS = frozenset({"再也不", "不再", "已经不"})
_ORGANIZATIONS = frozenset({"works_at", "studies_at", "insured_by"})
_EMPTY_CHARACTERS = re.compile(r"[的了在到约订有个\s]")


def match_first(
    rules: Iterable[FactPattern],
    phrase: VerbPhrase,
    time: ReferenceTime,
    *,
    needs_content: bool = False,
) -> FactMatch | None:
    """Return the first rule that fits a verb phrase.

    With `needs_content`, a timed rule must say more than when something is.
    """
    for rule in rules:
        if phrase.tense not in rule.tenses:
            continue
        match = rule.pattern.match(phrase.core)
        if match is None or (rule.timed and not has_time(phrase.timing, time)):
            continue
        groups = match.groupdict()
        if rule.timed and needs_content and not has_content(groups["value"], time):
            continue
        negation = groups.get("neg") or ""
        if negation and not rule.ended and (rule.negated or rule.memory_type in _STEPS):
            continue
        is_end = negation in _ENDING_NEGATIONS or phrase.core.endswith("了")
        ended = rule.ended or (bool(negation) and is_end)
        value = groups["value"] or groups.get("other") or ""
        return FactMatch(rule, value.strip(), bool(negation) or rule.negated or rule.ended, ended)
    return None


def has_content(value: str, time: ReferenceTime) -> bool:
    """Return True if a value says more than when something is."""
    for span in find_statement_times(value, time):
        value = value.replace(span.text, "")
    return bool(_EMPTY_CHARACTERS.sub("", value))


def assign_device_slot(match: FactMatch, noun: str) -> FactMatch:
    """Return a match about a phone or computer with the slot of that device.

    A new phone replaces the old one. `noun` is the thing that the clause is about, if any.
    """
    rule = match.rule
    if rule.field not in ("owns", "uses", None) or match.negated or rule.memory_type == "plan":
        return match
    if rule.field is None and rule.memory_type not in ("decision", "general"):
        return match
    for slot, pattern in _SHARED.patterns("devices"):
        is_device = pattern.fullmatch(noun) if noun else pattern.search(match.value)
        if is_device and not _SHARED.search("one_of_several", match.value):
            return replace(match, rule=replace(rule, field=slot))
    return match


def find_slot(table: LanguageTable, noun: str) -> tuple[FactType, str] | None:
    """Return the memory type and slot that a noun names: "birthday", "sister's favourite tea"."""
    of_kin = table.fullmatch("noun_of_kin", noun)
    name = table.remove("slot_time", of_kin["what"] if of_kin else noun)
    slot = table.mapping("slots").get(table.remove("slot_adjective", name))
    memory_type: FactType = "plan" if slot == "goal" else "user_profile"
    if favourite := table.fullmatch("favourite", name):
        what = next(filter(None, favourite.groupdict().values()))
        memory_type, slot = "user_preference", table.write("favourite_slot", what=what)
    if slot is None:
        return None
    return ("relationship", f"{of_kin['who'].lower()}'s {slot}") if of_kin else (memory_type, slot)


def match_slot(table: LanguageTable, noun: str, phrase: VerbPhrase) -> FactMatch | None:
    """Match "my … is …" for a noun that names a slot."""
    rule = table.fact("slot_value")
    match = rule.pattern.match(phrase.core) if phrase.tense in rule.tenses else None
    noun_slot = find_slot(table, noun) if match else None
    if match is None or noun_slot is None:
        return None
    memory_type, slot = noun_slot
    if slot == "phone" and not table.search("phone_number", match["value"]):
        return None  # A phone, not its number.
    negated = phrase.negated or bool(match.groupdict().get("neg"))
    # 公司在杭州 says where the company is.
    is_place = phrase.core.startswith("在")
    relation = None if is_place else table.mapping("slot_relations").get(slot)
    kind: EntityType = "organization" if relation in _ORGANIZATIONS else "thing"
    rule = replace(rule, memory_type=memory_type, field=slot, relation=relation, kind=kind)
    return FactMatch(rule, match["value"].strip(), negated)


def match_introduction(
    table: LanguageTable, clause: Clause, phrase: VerbPhrase, is_name: Callable[[str], bool]
) -> FactMatch | None:
    """Match "my sister is Anna", a fact about the speaker."""
    rule = table.fact("introduction")
    match = rule.pattern.match(phrase.core)
    if match is None or phrase.tense not in rule.tenses or not is_name(match["value"]):
        return None
    noun = clause.noun.removeprefix("一只")
    field = noun if noun in table.words("single_kin") else rule.field
    field = "pet" if noun.split()[-1] in table.words("pets") else field
    return FactMatch(replace(rule, field=field), match["value"], phrase.negated)


def as_former(match: FactMatch) -> FactMatch:
    """Return a match as something that is over: it fills no slot."""
    rule = replace(match.rule, field=None, memory_type="event")
    return replace(match, rule=rule, negated=True, ended=True)
