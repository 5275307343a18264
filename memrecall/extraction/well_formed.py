"""Whether a fact is well-formed: a predicate of its subject, and an object where it needs one."""

from memrecall.extraction.rules.matching import has_content
from memrecall.extraction.rules.statements import Clause, FactMatch, ReferenceTime, VerbPhrase
from memrecall.extraction.rules.tables import LanguageTable, load_table
from memrecall.text.word_classes import has_more_than_time, has_predicate
from memrecall.types import Language

# What may be named by a number: a graphics card, a flat.
_NUMBERED = frozenset({"owns", "uses", "lives_in"})


def is_well_formed(text: str, language: Language) -> bool:
    """Return True if the sentence of a fact says something: not 用户每次0.5g, nor "User it"."""
    return not load_table(language).search("no_sentence", text)


def is_well_formed_match(
    table: LanguageTable,
    match: FactMatch,
    clause: Clause,
    phrase: VerbPhrase,
    time: ReferenceTime,
) -> bool:
    """Return True if what a clause says can stand alone: not 戒俩月了, nor 跟他定了周六去."""
    pattern = "incomplete_fragment" if clause.elided else "incomplete"
    if table.search(pattern, phrase.core) or not _has_object(table, match, time):
        return False
    if table.language != "zh" or not clause.elided:
        return True
    # Only a stated subject has a name, an origin or a date of birth: 叫拾光, 是1986年成立的.
    is_claim = match.rule.field in ("origin", "birthday") and phrase.core.startswith("是")
    if match.rule.field == "name" or is_claim:
        return clause.kind != "self"
    return match.rule.memory_type != "habit" or has_predicate(phrase.core)


def _has_object(table: LanguageTable, match: FactMatch, time: ReferenceTime) -> bool:
    """Return True if a relation or taste names something: no pronoun, time or particle."""
    rule, value = match.rule, match.value
    if rule.relation is None and rule.memory_type != "user_preference" and rule.field != "name":
        return True
    if table.search("no_object", value) or not has_content(value, time):
        return False
    may_be_number = rule.relation is None or rule.relation in _NUMBERED
    return table.language != "zh" or may_be_number or has_more_than_time(value)
