"""Whether a fact and a memory cannot both hold: what a new fact takes the place of."""

import re
from dataclasses import dataclass

from memrecall.extraction.gist import Gist, gist, overlap
from memrecall.extraction.protocol import Fact, Known
from memrecall.extraction.rules.chinese.kinship import ONLY_ONE as CHINESE_PERSONS
from memrecall.extraction.rules.english.kinship import ONLY_ONE as ENGLISH_PERSONS
from memrecall.extraction.rules.frames import words
from memrecall.text.normalize import normalize

SINGLE = words(
    """
    name nickname surname age birthday home household origin nationality birthplace job employer
    work_style school major marital_status partner diet height weight email phone wechat address
    blood_type shoe_size size time_zone budget pronouns username zodiac religion ethnicity
    reply_language reply_length units student_number staff_number licence_plate anniversary
    vehicle phone_model computer_model commute
    """
)
"""Slots that hold one value at a time: a new one supersedes the old."""

_TASTES = words("likes prefers avoids hobby supports diet uses")
_POSSESSED = words("owns uses pet vehicle phone_model computer_model")
_COUNTED = words("family pet owns")
_PERSONS = ENGLISH_PERSONS | CHINESE_PERSONS
_SAME_SLOT = {"partner": "marital_status"}
# Slots of things in general that are not named by a noun, and may hold several values.
_SEVERAL = words("owns experience expertise travel")
_OF_A_KIND = 0.5  # words in common, from which two plans or settings are about the same thing
_MOVABLE = frozenset({"plan", "configuration", "decision", "instruction", "habit"})
_PARTED = re.compile(
    r"\b(?:sold|gave away|got rid of)\b|卖掉|卖了|送人|送走|送给|扔了|扔掉|弄丢|丢了", re.IGNORECASE
)
_LEFT_WORK = re.compile(
    r"\b(?:laid off|fired|redundant|unemployed|between jobs|retired"
    r"|(?:quit|left|lost|resigned from) (?:their|the) (?:old )?(?:job|position|company|role))\b"
    r"|离职|辞职|辞了|裸辞|被裁|失业|待业|退休",
    re.IGNORECASE,
)
_RETIRED = re.compile(r"\bretired\b|退休", re.IGNORECASE)
_LISTS = re.compile(r", | and | & |、|和|以及|还有", re.IGNORECASE)
_YET_TO_COME = re.compile(
    r"\b(?:will|going to|plans?|planning|wants?|thinking|considering)\b|打算|准备|计划|想|考虑",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory, or a fact that is about to be one."""

    known: Known
    gist: Gist


def as_entry(known: Known) -> Entry:
    """A memory with its gist."""
    return Entry(known, gist(known.text, known.subject))


def is_about(fact: Fact, entry: Entry) -> bool:
    """Whether both are about the same one."""
    return fold(fact.subject) == fold(entry.known.subject)


def fold(text: str) -> str:
    """A text for comparing, whatever its width and case."""
    return normalize(text).casefold().strip()


def alike(fact: Fact, entry: Entry) -> bool:
    """Whether they speak of the same side of somebody, as far as their slots tell."""
    return fact.field == entry.known.field or fact.field is None or entry.known.field is None


def is_known_by(fact: Fact, entry: Entry) -> bool:
    """Whether a memory says all that the fact says."""
    if not is_about(fact, entry):
        return False
    told = gist(fact.text, fact.subject)
    if told.plain == entry.gist.plain:
        return True
    if told.denies != entry.gist.denies or not told.terms or told.instead - entry.gist.instead:
        return False
    within = (
        told.terms <= entry.gist.terms
        and told.numbers <= entry.gist.numbers
        and told.days <= entry.gist.days
    )
    return within and alike(fact, entry)


def contradicts(fact: Fact, entry: Entry) -> bool:
    """Whether both cannot hold: one slot with two values, yes and no, or one plan at two times."""
    if not is_about(fact, entry):
        return False
    told, known = gist(fact.text, fact.subject), entry.gist
    if ends(fact, entry) or (_slot(fact.field) == _slot(entry.known.field) and _is_single(fact)):
        return not _only_left_work(fact, entry)
    if told.denies != known.denies:
        return False
    return _is_counted_anew(fact, told, entry) or _is_moved(fact, told, entry)


def ends(fact: Fact, entry: Entry) -> bool:
    """Whether the fact says that what the memory tells is over."""
    if not is_about(fact, entry):
        return False
    told = gist(fact.text, fact.subject)
    return (
        _takes_back(fact, told, entry)
        or _is_instead(fact, told, entry)
        or _changes_work(fact, entry)
    )


def _slot(field: str | None) -> str | None:
    return _SAME_SLOT.get(field, field) if field else None


def _is_single(fact: Fact) -> bool:
    """Whether the slot holds one value at a time; a setting's does, and one that a noun names."""
    field = fact.field or ""
    named = (
        field in SINGLE or field.startswith(("favourite_", "最喜欢的")) or field.endswith("_name")
    )
    of_a_noun = fact.memory_type == "general" and field not in _SEVERAL
    person = fact.memory_type == "relationship" and field in _PERSONS
    set_up = fact.memory_type == "configuration" and field != "command"
    return bool(field) and (named or of_a_noun or person or set_up)


def _takes_back(fact: Fact, told: Gist, entry: Entry) -> bool:
    """Yes after no or no after yes; "no coffee at night" leaves the liking of coffee alone."""
    known = entry.gist
    if told.denies == known.denies or not told.terms & known.terms:
        return False
    same = told.terms == known.terms
    finer = known.terms < told.terms and told.changes
    broader = told.terms < known.terms and (told.denies or told.changes)
    if broader and _LISTS.search(entry.known.text):
        return False  # the rest of "tea and coffee" still holds
    if not (same or finer or broader) or not (alike(fact, entry) or _both_tastes(fact, entry)):
        return _both_possessed(fact, entry) and (same or finer or broader)
    if told.denies and entry.known.memory_type == "event" and fact.memory_type != "event":
        return entry.known.field is not None  # what happened has happened
    return not _PARTED.search(fact.text) or entry.known.field in _POSSESSED


def _both_tastes(fact: Fact, entry: Entry) -> bool:
    return fact.field in _TASTES and entry.known.field in _TASTES


def _both_possessed(fact: Fact, entry: Entry) -> bool:
    return fact.field in _POSSESSED and entry.known.field in _POSSESSED


def _is_instead(fact: Fact, told: Gist, entry: Entry) -> bool:
    """What is switched from, left for something else, or liked less than it was."""
    known = entry.gist
    if fact.field == "prefers":
        turned = told.terms <= known.instead or (told.instead and told.instead == known.terms)
        return entry.known.field == "prefers" and bool(turned)
    if not told.instead or known.denies or _YET_TO_COME.search(fact.text):
        return False
    if entry.known.memory_type == "event" or fact.memory_type == "plan":
        return False
    return told.instead <= known.terms or known.terms <= told.instead


def _changes_work(fact: Fact, entry: Entry) -> bool:
    """Who has left his work has no employer; who has one is not without work."""
    if fact.field == "job" and _LEFT_WORK.search(fact.text):
        return entry.known.field == "employer"
    works = fact.field == "employer" and not fact.negated
    return works and entry.known.field == "job" and bool(_LEFT_WORK.search(entry.known.text))


def _only_left_work(fact: Fact, entry: Entry) -> bool:
    """Whether somebody lost his work and not his profession: a nurse remains one."""
    left = _LEFT_WORK.search(fact.text) and not _RETIRED.search(fact.text)
    of_profession = entry.known.field == "job" and entry.known.memory_type != "event"
    return fact.field == "job" and bool(left) and of_profession


def _is_counted_anew(fact: Fact, told: Gist, entry: Entry) -> bool:
    """ "Three kids" after "two kids"."""
    if fact.field != entry.known.field or fact.field not in _COUNTED:
        return False
    counts = told.numbers and entry.gist.numbers and told.numbers != entry.gist.numbers
    return bool(counts) and overlap(told, entry.gist) >= _OF_A_KIND


def _is_moved(fact: Fact, told: Gist, entry: Entry) -> bool:
    """The same plan, setting or habit at another time or with another number."""
    known = entry.gist
    if fact.memory_type != entry.known.memory_type or fact.memory_type not in _MOVABLE:
        return False
    # Who swims on Thursdays may swim on Tuesdays too, unless he says that it changed.
    moved = bool(told.days and known.days) and told.days != known.days and told.changes
    return (moved or told.numbers != known.numbers) and overlap(told, known) >= _OF_A_KIND
