"""Reads Chinese sentences: what they tell, of whom, in the third person."""

import re
from collections.abc import Iterator
from dataclasses import replace

from memrecall.extraction.rules.chinese.clauses import (
    Clause,
    read_clause,
    read_thing,
    strip_markers,
)
from memrecall.extraction.rules.chinese.kinship import KIN_WORD
from memrecall.extraction.rules.chinese.moods import asserted
from memrecall.extraction.rules.chinese.moves import place_work
from memrecall.extraction.rules.chinese.names import begins_with_noun, is_bare_noun
from memrecall.extraction.rules.chinese.naming import (
    dates_of,
    edges_of,
    introduced,
    naming_of,
    tidy,
    turn_persons,
)
from memrecall.extraction.rules.chinese.orders import (
    phrase_order,
    read_choice,
    read_forget,
    read_order,
    read_remember,
)
from memrecall.extraction.rules.chinese.predicates import (
    PARTICLES,
    Predicate,
    read_predicate,
    told_by,
)
from memrecall.extraction.rules.chinese.things import SLOT_OF, told_of_thing
from memrecall.extraction.rules.dating import Moment
from memrecall.extraction.rules.devices import as_device
from memrecall.extraction.rules.frames import Tense, Told
from memrecall.extraction.rules.speech import Sentence, is_balanced
from memrecall.extraction.rules.statements import Person, Scene, Statement
from memrecall.text.normalize import replace_characters

# What is said to somebody stays between the two.
_YOU = re.compile("你|您")
_BARE_ORIGIN = re.compile("[^，是来在有说]{2,6}人")
_SOMEBODY = re.compile(KIN_WORD)
_NEEDS_SUBJECT = frozenset({"event", "plan", "habit", "decision"})


def read_chinese(sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What a sentence tells, clause by clause."""
    folded = replace_characters(sentence.text)
    restored = {ord(new): old for old, new in zip(sentence.text, folded, strict=True) if old != new}
    for statement in _read(strip_markers(folded.strip()), sentence, scene, moment):
        # Rules know one script and one width; a fact keeps those of its speaker.
        yield replace(statement, text=statement.text.translate(restored))


def _read(text: str, sentence: Sentence, scene: Scene, moment: Moment) -> Iterator[Statement]:
    me = scene.me("zh")
    if forgotten := read_forget(text):
        yield from _retractions(forgotten, scene, moment)
        return
    if order := read_order(text):
        yield _instruction(*order, me)
        return
    if choice := read_choice(text):
        yield Statement(
            tidy(f"{me.label}决定{choice}"), me.key, "zh", "decision", value=choice, tense="future"
        )
        return
    text = place_work(text, replace_characters(scene.before))
    remembered = read_remember(text)
    found = list(_tell(remembered or text, scene, moment, asks=sentence.asks))
    yield from found
    if remembered and not found and not sentence.asks:
        written = tidy(turn_persons(remembered, me.label, own=False))
        yield Statement(written, me.key, "zh", "general", value=remembered)


def _tell(text: str, scene: Scene, moment: Moment, *, asks: bool) -> Iterator[Statement]:
    before: Clause | None = None
    last: Statement | None = None
    topic = False
    people = {*scene.others, *scene.introduced}
    for piece in asserted(text, asks=asks):
        order = read_order(piece)
        if order:
            yield _instruction(*order, scene.me("zh"))
            continue
        clause = read_clause(piece, people)
        topic = topic and clause is None
        statement = _state(clause, scene, moment) if clause else None
        named = naming_of(piece, last) if clause is None else None
        if named is not None:
            clause, statement = named, _state(named, scene, moment)
        elif clause is None and not topic:
            clause, statement = _elided(piece, before, scene, moment)
            # 小温，下周一入职 and 房东姓欧阳，就住楼下: what follows is about them
            opens = before is None and _SOMEBODY.match(piece)
            topic = statement is None and (bool(opens) or is_bare_noun(piece))
        if clause is not None and (not clause.elided or statement is not None):
            before = replace(clause, elided=False)
        if statement is not None:
            last = last if named is not None else statement
            yield statement


# What is booked lies ahead, though the booking is past.
_BOOKS = re.compile("(?:已经|刚刚?)?(?:订|预订|预约|约|抢|买)(?:了|到了?|好了?)|报名")


def _dated_as(told: Told, predicate: Predicate) -> Tense:
    """What tense its times are read in."""
    ahead = told.frame.memory_type == "plan" or (
        _BOOKS.match(predicate.core) and "票" in predicate.core
    )
    return "future" if ahead else predicate.tense


def _elided(
    piece: str, before: Clause | None, scene: Scene, moment: Moment
) -> tuple[Clause | None, Statement | None]:
    """A clause without a subject: the one before is meant, else the speaker, or some thing."""
    if (thing := read_thing(piece)) and (told := _state(thing, scene, moment)):
        return thing, told
    person = before if before is not None and before.kind != "thing" else Clause("self", "")
    clause = replace(person, said=piece, lead="", elided=True)
    statement = _state(clause, scene, moment)
    has_subject = (
        statement is not None
        and statement.memory_type in _NEEDS_SUBJECT
        and begins_with_noun(read_predicate(clause, moment).core)
    )
    return clause, None if has_subject else statement  # 锅炉保养过了 is not about the speaker


def _state(clause: Clause, scene: Scene, moment: Moment) -> Statement | None:
    if clause.kind == "it":
        return None
    me = scene.me("zh")
    person = _person(clause, scene)
    if clause.kind == "named" and person is not None:
        clause = replace(clause, name=person.key)
    predicate = read_predicate(clause, moment)
    if clause.kind == "thing":
        said = PARTICLES.sub("", clause.said)
        told = told_of_thing(replace(clause, said=said), moment)
    elif person is None:
        return None
    else:
        told = introduced(clause, predicate.core) if clause.kind == "kin" else None
        told = told or told_by(predicate, clause, moment)
    if told is None or _YOU.search(predicate.said) or not is_balanced(predicate.said):
        return None
    told = as_device(told, clause.noun if clause.kind == "thing" else "")
    if person is not None and clause.kind in ("kin", "named"):
        scene.last = person
    if told.frame.whom == "speaker" and clause.kind in ("kin", "thing"):
        scene.last = Person(told.value, told.value)
    about_me = person is None or clause.kind == "self" or told.frame.whom == "speaker"
    subject = me.key if about_me or person is None else person.key
    return Statement(
        text=_write(clause, predicate, scene),
        subject=subject,
        language="zh",
        memory_type=told.frame.memory_type,
        field=told.frame.field,
        value=told.value,
        negated=told.negated,
        tense=_dated_as(told, predicate),
        dates=dates_of(told.frame),
        edges=() if "的" in clause.name else edges_of(clause, told, predicate.core),
        name=told.value if told.frame.field == "name" and clause.kind in ("self", "thing") else "",
    )


def _person(clause: Clause, scene: Scene) -> Person | None:
    me = scene.me("zh")
    if clause.kind == "self":
        return me
    if clause.kind == "kin":
        person = Person(
            f"{me.label}的{clause.noun}{clause.name}", clause.name or f"{me.label}的{clause.noun}"
        )
        scene.introduced.setdefault(clause.name or clause.noun, person)
        return person
    if clause.kind == "named":
        if not clause.name:
            return scene.last
        known = scene.last if scene.last and scene.last.key == clause.name else None
        return known or scene.introduced.get(clause.name) or Person(clause.name, clause.name)
    return None


def _write(clause: Clause, predicate: Predicate, scene: Scene) -> str:
    """The clause as a sentence that needs nobody to know who 我 is."""
    me = scene.me("zh")
    if clause.kind == "thing":
        owner = "" if not clause.own else me.label + ("" if clause.noun.startswith("最") else "的")
        noun = turn_persons(clause.noun, me.label, own=False)
        said = re.sub("^[:：]", "是", predicate.said[len(clause.lead) :])
        return tidy(f"{clause.lead}{owner}{noun}{turn_persons(said, me.label, own=False)}")
    person = _person(clause, scene)
    who = person.label if person else ""
    said = turn_persons(predicate.said, me.label, own=clause.kind == "self")
    return tidy(who + ("是" if _BARE_ORIGIN.fullmatch(said) else "") + said)


def _instruction(text: str, kind: str, field: str | None, me: Person) -> Statement:
    if kind == "remind":
        about = turn_persons(re.sub("^.*?提醒我", "", text), me.label, own=True)
        return Statement(
            tidy(f"{me.label}要求提醒{about}"), me.key, "zh", "plan", value=about, tense="future"
        )
    phrase = re.sub("我们|我", me.label, phrase_order(text, kind))
    phrase = f"在{phrase}" if kind == "when_i" and phrase.startswith(me.label) else phrase
    written = tidy(f"{me.label}希望助手{phrase}")
    return Statement(written, me.key, "zh", "instruction", field, value=text, dates="none")


def _retractions(what: str, scene: Scene, moment: Moment) -> Iterator[Statement]:
    """What is to be forgotten: as a statement if it is one, else by its words."""
    me = scene.me("zh")
    text = what if re.match("我|[^我]{0,6}我", what) else f"我{what}"
    found = list(_tell(text, scene, moment, asks=False))
    if found:
        yield from (
            replace(one, memory_type="retraction", negated=False, edges=(), name="")
            for one in found
        )
        return
    noun = re.sub("^我?的?", "", what)
    written = tidy(turn_persons(what, me.label, own=False))
    # Denying stands for "whatever it is": a slot is to be emptied.
    slot = SLOT_OF.get(noun)
    yield Statement(written, me.key, "zh", "retraction", slot, negated=slot is not None)
