"""Reads English sentences: what they tell, of whom, in the third person."""

import re
from collections.abc import Iterator
from dataclasses import replace

from memrecall.extraction.rules.dating import Moment
from memrecall.extraction.rules.devices import as_device
from memrecall.extraction.rules.english.clauses import Clause, read_clause, strip_markers
from memrecall.extraction.rules.english.effects import read_effect
from memrecall.extraction.rules.english.frames import told_by
from memrecall.extraction.rules.english.grammar import (
    Predicate,
    conjugate,
    expand,
    read_predicate,
    turn_persons,
)
from memrecall.extraction.rules.english.moods import asserted
from memrecall.extraction.rules.english.moves import place_work
from memrecall.extraction.rules.english.naming import (
    dates_of,
    edges_of,
    introduced,
    named_kin,
    tidy,
    unfold,
)
from memrecall.extraction.rules.english.orders import (
    phrase_order,
    read_choice,
    read_forget,
    read_order,
    read_remember,
)
from memrecall.extraction.rules.english.profile import WHAT_ELSE
from memrecall.extraction.rules.english.table import NUMBER
from memrecall.extraction.rules.english.things import told_of_thing
from memrecall.extraction.rules.english.verbs import form_of
from memrecall.extraction.rules.frames import Tense, Told
from memrecall.extraction.rules.speech import Sentence, is_balanced
from memrecall.extraction.rules.statements import Person, Scene, Statement

# What is said to somebody stays between the two.
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.IGNORECASE)
_ADVERBS = re.compile(
    r"^(?:(?:just|finally|already|recently|also|still|officially|now|currently) )+", re.IGNORECASE
)
_DIARY = re.compile(
    r"(?:(?:just|finally|already|recently|also|still|really|never|officially) )*"
    r"(?:love|hate|like|prefer|enjoy|cannot|live|work|need to|have to|allergic|vegan"
    r"|vegetarian|no longer|used to"
    r"|do not (?:eat|drink|like)|not a fan|going to|planning|born|married|retired)\b",
    re.IGNORECASE,
)
_BE_LEFT_OUT = re.compile(
    r"(?:allergic|vegan|vegetarian|not a|going|planning|born|married|retired)\b", re.IGNORECASE
)


def read_english(sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What a sentence tells, clause by clause."""
    text = place_work(strip_markers(expand(sentence.text)), expand(scene.before))
    me = scene.me("en")
    if forgotten := read_forget(text):
        yield from _retractions(forgotten, scene, moment)
        return
    # "No jargon" opens with a word that elsewhere only leads up to a statement.
    if order := read_order(text) or read_order(expand(sentence.text)):
        yield _instruction(*order, me)
        return
    if choice := read_choice(text):
        chosen = tidy(f"{me.label} decided to {turn_persons(choice, me.label, own=True)}")
        yield Statement(chosen, me.key, "en", "decision", value=choice, tense="future")
        return
    remembered = read_remember(text)
    if (affected := read_effect(text)) and not sentence.asks:
        written = tidy(turn_persons(text, me.label, own=False))
        yield Statement(written, me.key, "en", *affected, value=text)
        return
    found = list(_tell(unfold(remembered or text), scene, moment, asks=sentence.asks))
    yield from found
    if remembered and not found and not sentence.asks:
        written = tidy(turn_persons(remembered, me.label, own=False))
        yield Statement(written, me.key, "en", "general", value=remembered)


def _tell(text: str, scene: Scene, moment: Moment, *, asks: bool) -> Iterator[Statement]:
    before: Clause | None = None
    tense: Predicate | None = None
    for place, piece in enumerate(asserted(text, asks=asks)):
        clause = read_clause(piece)
        if clause is None and (place == 0 or before is not None):
            clause = _elided(piece, before, tense)
        if clause is None:
            before = None  # whoever it is about, the next one may be about him too
            continue
        before, tense = clause, read_predicate(clause.said)
        statement = _state(clause, tense, scene, moment)
        if statement is not None:
            yield statement


def _elided(piece: str, before: Clause | None, tense: Predicate | None) -> Clause | None:
    """A clause without a subject: that of the one before, or, in the style of a diary, "I"."""
    first = re.split(r"\W", _ADVERBS.sub("", piece), maxsplit=1)[0].lower()
    form = form_of(first)
    if before is not None and tense is not None:
        if first == "like":
            return None  # more often "such as" than a taste
        if form == "s" and before.kind == "self":
            return None  # "I ordered a disk, comes on Friday"
        if form == "ing":
            return replace(before, said=f"am {piece}", lead="") if tense.progressive else None
        if (
            form
            or _DIARY.match(piece)
            or first in ("am", "is", "are", "was", "can", "cannot", "will", "do")
        ):
            return replace(before, said=piece, lead="", elided=True)
        return None
    if form == "past" or _DIARY.match(piece):
        piece = piece[0].lower() + piece[1:]
        said = f"am {piece}" if _BE_LEFT_OUT.match(piece) else piece
        return Clause("self", said, elided=True)
    return None


def _state(clause: Clause, predicate: Predicate, scene: Scene, moment: Moment) -> Statement | None:
    if clause.kind == "it" or not predicate.core:
        return None
    me = scene.me("en")
    person = _person(clause, scene)
    if clause.kind == "named" and person is not None:
        clause = replace(clause, name=person.key)
    if clause.kind == "thing":
        told = told_of_thing(clause, predicate, moment)
    elif person is None:
        return None
    else:
        told = introduced(clause, predicate) if clause.kind == "kin" else None
        told = told or told_by(
            predicate, moment, of_speaker=clause.kind == "self", lead=clause.lead
        )
        told = None if told and _is_doubtful(clause, told, scene) else told
    if told is None or _YOU.search(predicate.said) or not is_balanced(clause.noun + predicate.said):
        return None
    told = as_device(told, clause.noun if clause.kind == "thing" else "")
    if clause.kind in ("kin", "named") and person is not None:
        scene.last = person
    if kin := named_kin(clause, told):
        scene.last = Person(f"{me.label}'s {kin[0]} {kin[1]}", kin[1])
    about_me = person is None or clause.kind == "self" or told.frame.whom == "speaker"
    return Statement(
        text=_write(clause, predicate, scene, told),
        subject=me.key if about_me else person.key if person else me.key,
        language="en",
        memory_type=told.frame.memory_type,
        field=None if _AS_A_CHILD.search(predicate.said) else told.frame.field,
        value=told.value,
        negated=told.negated,
        tense=_dated_as(told, predicate),
        dates=dates_of(told.frame, predicate),
        edges=edges_of(clause, told) if not _is_described(clause.name) else (),
        name=told.value if told.frame.field == "name" and clause.kind in ("self", "thing") else "",
    )


_AS_A_CHILD = re.compile(
    r"\bwhen (?:I|he|she|we|they) (?:was|were)\b|\bas a (?:kid|child|teenager)\b"
)
_BOOKS = re.compile(
    r"(?:book|reserve|schedule|order|sign up|register|make an appointment|buy (?:\w+ "
    r")?tickets?|get tickets?)\b"
)


def _dated_as(told: Told, predicate: Predicate) -> Tense:
    """What tense its times are read in: what is booked lies ahead, though the booking is past."""
    ahead = told.frame.memory_type == "plan" or _BOOKS.match(predicate.core)
    return "future" if ahead else predicate.tense


_WEEKDAYS = re.compile(r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days")
_OF_PEOPLE = frozenset({"user_profile", "user_preference", "relationship"})


def _is_doubtful(clause: Clause, told: Told, scene: Scene) -> bool:
    """Whether what opens a sentence with a capital may be no name: "Van failed its test"."""
    if clause.kind != "named" or not clause.name or told.frame.memory_type in _OF_PEOPLE:
        return told.frame in WHAT_ELSE and clause.kind != "self"
    known = clause.name in scene.introduced or bool(scene.last and scene.last.key == clause.name)
    return not known and clause.name.split()[0] not in scene.named


def _is_described(name: str) -> bool:
    """Whether somebody has no name in the conversation: "user's sister"."""
    return "'s " in name


def _person(clause: Clause, scene: Scene) -> Person | None:
    me = scene.me("en")
    if clause.kind == "self":
        return me
    if clause.kind == "kin":
        label = f"{me.label}'s {clause.noun}" + (f" {clause.name}" if clause.name else "")
        person = Person(label, clause.name or f"{me.key}'s {clause.noun.split()[-1]}")
        scene.introduced.setdefault(clause.name or clause.noun, person)
        return person
    if clause.kind == "named":
        if not clause.name:
            return scene.last
        known = scene.last if scene.last and scene.last.key == clause.name else None
        return known or scene.introduced.get(clause.name) or Person(clause.name, clause.name)
    return None


def _write(clause: Clause, predicate: Predicate, scene: Scene, told: Told) -> str:
    """The clause as a sentence that needs nobody to know who "I" is."""
    me = scene.me("en")
    said = predicate.said
    if clause.kind == "self":
        body = conjugate(said, past=predicate.tense == "past")
        body = turn_persons(body, me.label, own=True)
        who = me.label
    else:
        body = turn_persons(said, me.label, own=False)
        person = _person(clause, scene)
        owner = {"the": "The", "": ""}.get(clause.whose, f"{me.label}'s")
        who = (
            person.label if person else f"{owner} {turn_persons(clause.noun, me.label, own=False)}"
        )
    if told.frame.field == "age" and re.fullmatch(
        rf"(?:is|am) (?:almost |nearly |about )?{NUMBER}", body
    ):
        body += " years old"
    lead = turn_persons(clause.lead, me.label, own=clause.kind == "self")
    lead = f"on {lead}" if _WEEKDAYS.fullmatch(lead) else lead[:1].lower() + lead[1:]
    return tidy(f"{who} {body} {lead}")


def _instruction(what: str, kind: str, field: str | None, me: Person) -> Statement:
    if kind == "remind":
        about = turn_persons(
            re.sub("^remind me ", "", what, flags=re.IGNORECASE), me.label, own=True
        )
        text = tidy(f"{me.label} wants to be reminded {about}")
        return Statement(text, me.key, "en", "plan", value=about, tense="future")
    phrase = turn_persons(phrase_order(what, kind), me.label, own=True)
    wants = "would prefer that" if kind == "wish" else "wants the assistant to"
    text = tidy(f"{me.label} {wants} {phrase}")
    return Statement(text, me.key, "en", "instruction", field, value=what, dates="none")


def _retractions(what: str, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What is to be forgotten: as a statement if it is one, else by its words."""
    me = scene.me("en")
    found = list(_tell(unfold(what), scene, moment, asks=False))
    if found:
        yield from (
            replace(one, memory_type="retraction", negated=False, edges=(), name="")
            for one in found
        )
        return
    slot = re.fullmatch(r"(?:my|our) (?:old |current |former )?(.+)", what, re.IGNORECASE)
    told = (
        told_of_thing(
            Clause("thing", "is x", noun=slot[1], whose="my"), read_predicate("is x"), moment
        )
        if slot
        else None
    )
    field = told.frame.field if told else None
    written = tidy(turn_persons(what, me.label, own=False))
    # Denying stands for "whatever it is": a slot is to be emptied.
    yield Statement(written, me.key, "en", "retraction", field, negated=field is not None)
