"""The reading of sentences: from clauses to statements in the third person."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, NamedTuple

from memrecall.extraction.protocol import FactType
from memrecall.extraction.rules.matching import assign_device_slot, find_slot, has_content
from memrecall.extraction.rules.stated_relations import RelationReader
from memrecall.extraction.rules.statements import (
    Clause,
    DateStyle,
    FactMatch,
    FactPattern,
    Person,
    ReferenceTime,
    SpeakerContext,
    Statement,
    Tense,
    VerbPhrase,
)
from memrecall.extraction.rules.tables import LanguageTable
from memrecall.extraction.sentences import Sentence, is_balanced
from memrecall.text.words import has_more_than_time, has_predicate
from memrecall.types import Language

_FAMILY = frozenset({"married_to", "engaged_to", "partner_of", "child_of", "parent_of"})
_FAMILY |= {"sibling_of", "grandchild_of", "grandparent_of", "cousin_of"}

# What may be named by a number: a graphics card, a flat.
_NUMBERED = frozenset({"owns", "uses", "lives_in"})


class Order(NamedTuple):
    """A lasting instruction: the sentence, what to do, how it was put, and the slot it fills."""

    text: str
    action: str
    kind: str
    field: str | None


class SentenceReader(ABC):
    """The reader of one language; subclasses supply its grammar."""

    language: ClassVar[Language]
    table: ClassVar[LanguageTable]
    relations: ClassVar[RelationReader]

    def read(
        self, sentence: Sentence, speaker: SpeakerContext, time: ReferenceTime
    ) -> Iterator[Statement]:
        """Yield what a sentence states, clause by clause."""
        text, full = self._prepare(sentence.text, speaker.previous)
        me = speaker.person(self.language)
        if topic := _read_forget(self.table, text):
            yield from self._retract(topic, speaker, time)
        elif order := read_order(self.table, text) or read_order(self.table, full):
            yield self._state_order(order, me)
        elif choice := _read_choice(self.table, text):
            text = self._template("decision", me, self._third_person(choice, me, own=True))
            yield self._own(me, text, "decision", choice, "future")
        elif not sentence.is_question and (effect := self._read_effect(text, me)):
            yield effect
        else:
            yield from self._read_remembered(text, sentence, speaker, time)

    @abstractmethod
    def _prepare(self, text: str, previous: str) -> tuple[str, str]:
        """Return the normalized sentence, and the same with its opening words."""

    @abstractmethod
    def _read_clauses(
        self, text: str, speaker: SpeakerContext, time: ReferenceTime, *, is_question: bool
    ) -> Iterator[Statement]:
        """Yield the statements of the clauses of a sentence."""

    @abstractmethod
    def _match_clause(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, time: ReferenceTime
    ) -> FactMatch | None:
        """Return what a clause says, if it is a lasting fact."""

    @abstractmethod
    def _write(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, match: FactMatch
    ) -> str:
        """Return the clause as a sentence that does not depend on who says it."""

    @abstractmethod
    def _phrase_order(self, order: Order, me: Person) -> str:
        """Return an instruction as what the assistant should do."""

    @abstractmethod
    def _third_person(self, text: str, me: Person, *, own: bool) -> str:
        """Return the text with its first persons replaced."""

    def _find_person(self, clause: Clause, speaker: SpeakerContext) -> Person | None:
        """Return the person that a clause is about; None if it is about a thing."""
        me = speaker.person(self.language)
        if clause.kind == "self":
            return me
        if clause.kind == "kin":
            label = self.table.write("kin_label", me=me.label, noun=clause.noun, name=clause.name)
            kin = clause.noun.split()[-1]
            key = self.table.write("kin_key", me=me.label, key=me.key, noun=clause.noun, kin=kin)
            person = Person(label.strip(), clause.name or key)
            speaker.people.setdefault(clause.name or clause.noun, person)
            return person
        if clause.kind != "named":
            return None
        if not clause.name:
            return self._find_referent(clause.noun, speaker)
        last = speaker.last_person
        if last and last.key == clause.name:
            return last
        return speaker.people.get(clause.name) or Person(clause.name, clause.name)

    def _find_referent(self, pronoun: str, speaker: SpeakerContext) -> Person | None:
        """Return whom "she" means: the last person, or the only other one who is not a man."""
        misfit = dict(self.table.patterns("never_means")).get(pronoun.lower())
        last = speaker.last_person
        if last is None or misfit is None or not misfit.search(last.label):
            return last
        people = speaker.people.values()
        others = {person.key: person for person in people if not misfit.search(person.label)}
        return next(iter(others.values())) if len(others) == 1 else None

    def _named_relative(self, clause: Clause, match: FactMatch, person: Person) -> str:
        """Return what the relative is to whom a clause gives a name: "sister", else nothing."""
        is_introduction = clause.kind == "kin" and match.rule.about_speaker
        is_naming = clause.kind in ("kin", "named") and match.rule.field == "name"
        _, possessive, noun = person.key.rpartition(self.table.write("possessive"))
        return noun if possessive and (is_naming or is_introduction) else ""

    def entity_name(self, person: Person | None, me: Person) -> str | None:
        """Return the name of a person in the graph; None for the speaker.

        A relative without a name has one name, whatever the speaker calls them: 用户的妈妈.
        A pet without a name is "dog".
        """
        if person is None or person.key == me.key:
            return None
        owner, possessive, noun = person.key.rpartition(self.table.write("possessive"))
        if possessive and noun in self.table.words("pets"):
            return noun
        return owner + possessive + self.table.mapping("kin_names").get(noun, noun)

    def _note_mention(self, piece: str, speaker: SpeakerContext) -> None:
        """Remember the relative that a clause mentions: the next "she" may be about them."""
        me = speaker.person(self.language)
        if match := self.table.search("others_kin", piece):
            owner = speaker.people.get(match["owner"].capitalize()) or speaker.last_person
            if owner is not None:
                kin = (match["noun"], match["name"], self.entity_name(owner, me))
                speaker.mentions.append(self.relations.kin_relation(*kin))
        if match := self.table.search("mentioned_kin", piece):
            clause = Clause("kin", "", noun=match["noun"], name=match["name"] or "")
            speaker.last_person = self._find_person(clause, speaker)
            name = self.entity_name(speaker.last_person, me)
            relation = self.relations.kin_relation(match["noun"], name or "")
            if match["name"] or relation.relationship in _FAMILY:
                speaker.mentions.append(relation)

    def _state(
        self, clause: Clause, phrase: VerbPhrase, speaker: SpeakerContext, time: ReferenceTime
    ) -> Statement | None:
        """Return the statement of a clause, or None if it holds no lasting fact."""
        person = self._find_person(clause, speaker)
        if not phrase.core or (person is None and clause.kind != "thing"):
            return None
        if clause.kind == "named" and person is not None:
            clause = replace(clause, name=person.key)
        match = self._match_clause(clause, phrase, speaker, time)
        is_addressed = self.table.search("addressee", phrase.text)
        if match is None or is_addressed or not is_balanced(clause.noun + phrase.text):
            return None
        if not _is_well_formed(self.table, match, clause, phrase, time):
            return None
        match = assign_device_slot(match, clause.noun if clause.kind == "thing" else "")
        me = speaker.person(self.language)
        if person is not None and clause.kind in ("kin", "named"):
            speaker.last_person = person
        speaker.last_person = self._introduced_person(clause, match, me) or speaker.last_person
        subject = me if person is None or match.rule.about_speaker else person
        entity = self.entity_name(person, me)
        relations = self.relations.read(clause, match, phrase.core, entity)
        renames = ""
        if person is not None and (noun := self._named_relative(clause, match, person)):
            renames, relations = entity or "", (self.relations.kin_relation(noun, match.value),)
            if not match.rule.about_speaker:
                speaker.last_person = Person(person.label, match.value)
        in_childhood = self.table.search("in_childhood", phrase.text)
        # "A small firm, called Ferncast" names no speaker: only a stated subject does.
        is_own = clause.kind in ("self", "thing") and not clause.elided
        has_name = match.rule.field == "name" and is_own
        return Statement(
            text=self._write(clause, phrase, speaker, match),
            subject=subject.key,
            language=self.language,
            memory_type=match.rule.memory_type,
            field=None if in_childhood else match.rule.field,
            value=match.value,
            negated=match.negated,
            tense=self._time_tense(match, phrase),
            dates=self._date_style(match.rule, phrase),
            relations=(*relations, *speaker.take_mentions()),
            name=match.value if has_name else "",
            renames=renames,
        )

    def _state_order(self, order: Order, me: Person) -> Statement:
        if order.kind == "remind":
            about = self.table.remove("reminder_opening", order.action)
            about = self._third_person(about, me, own=True)
            return self._own(me, self._template("reminder", me, about), "plan", about, "future")
        kind = "wish" if order.kind == "wish" else "order"
        text = self._template(kind, me, self._phrase_order(order, me))
        return Statement(
            text, me.key, self.language, "instruction", order.field, order.action, dates="none"
        )

    def _template(self, name: str, me: Person, action: str) -> str:
        return self._tidy(self.table.write(name, me=me.label, what=action))

    def _restate(self, text: str, me: Person) -> str:
        return self._tidy(self._third_person(text, me, own=False))

    def _tidy(self, text: str) -> str:
        """Return the text as one sentence with its full stop."""
        flat = re.sub(r"\s+", " ", text).strip(" ,;:-–，、；：").rstrip("。.！!？?…~～")
        if self.language == "zh":
            return f"{flat}。"
        flat = re.sub(r" ([,.;:!?])", r"\1", flat)
        return (flat[:1].upper() + flat[1:] if flat[:1].isascii() else flat) + "."

    def _introduced_person(self, clause: Clause, match: FactMatch, me: Person) -> Person | None:
        """Return the person that a clause introduces by name, if any."""
        if kin := self.relations.named_kin(clause, match):
            noun, name = kin
            return Person(self.table.write("kin_label", me=me.label, noun=noun, name=name), name)
        if match.rule.kind == "person" and match.rule.relation and match.value != clause.name:
            return Person(match.value, match.value)
        # English goes on with "User's sister", Chinese with the name.
        is_named = match.rule.about_speaker and clause.kind in ("kin", "thing")
        return Person(match.value, match.value) if is_named and self.language == "zh" else None

    def _date_style(self, rule: FactPattern, phrase: VerbPhrase) -> DateStyle:
        """Keep recurring times in habits and tastes, and weekdays in a profile."""
        if rule.field == "age" and self.language == "zh":
            return "none"
        if rule.field and rule.field.endswith(("birthday", "anniversary")):
            return "relative"
        if phrase.tense != "present" and self.language == "en":
            return "all"
        if rule.memory_type in ("habit", "user_preference"):
            return "relative"
        return "steady" if rule.memory_type == "user_profile" else "all"

    def _time_tense(self, match: FactMatch, phrase: VerbPhrase) -> Tense:
        """Return the tense of its times: a booking is past, but what is booked lies ahead."""
        is_ahead = match.rule.memory_type == "plan" or self.table.match("booking", phrase.core)
        return "future" if is_ahead else phrase.tense

    def _read_effect(self, text: str, me: Person) -> Statement | None:
        """Return what something does to the speaker: "shellfish makes me break out"."""
        if self.table.search("effect_passing", text):
            return None
        for row, pattern in self.table.patterns("effects"):
            if pattern.fullmatch(text):
                memory_type, field = row.split(".")
                sentence = self._restate(text, me)
                return Statement(sentence, me.key, self.language, memory_type, field, text)  # type: ignore[arg-type]
        return None

    def _read_remembered(
        self, text: str, sentence: Sentence, speaker: SpeakerContext, time: ReferenceTime
    ) -> Iterator[Statement]:
        remembered = _read_remember(self.table, text)
        statements = list(
            self._read_clauses(remembered or text, speaker, time, is_question=sentence.is_question)
        )
        yield from statements
        if remembered and not statements and not sentence.is_question:
            me = speaker.person(self.language)
            yield self._own(me, self._restate(remembered, me), "general", remembered, "present")

    def _retract(
        self, topic: str, speaker: SpeakerContext, time: ReferenceTime
    ) -> Iterator[Statement]:
        """Yield what to forget: as statements if it has any, else by its words."""
        text = self.table.rewrite("topic", topic)
        statements = list(self._read_clauses(text, speaker, time, is_question=False))
        for statement in statements:
            yield replace(statement, memory_type="retraction", negated=False, relations=(), name="")
        if not statements:
            me = speaker.person(self.language)
            noun = self.table.fullmatch("topic_noun", topic)
            noun_slot = find_slot(self.table, noun["noun"].lower()) if noun else None
            slot = noun_slot[1] if noun_slot else None
            text = self._restate(topic, me)
            # A negated retraction empties its slot, whatever the value is.
            yield Statement(text, me.key, self.language, "retraction", slot, negated=bool(slot))

    def _own(
        self, me: Person, text: str, memory_type: FactType, value: str, tense: Tense
    ) -> Statement:
        return Statement(text, me.key, self.language, memory_type, value=value, tense=tense)


def read_order(table: LanguageTable, text: str) -> Order | None:
    """Return the lasting instruction of a sentence, or None."""
    matches = ((kind, pattern.match(text)) for kind, pattern in table.patterns("orders"))
    kind, match = next(((kind, match) for kind, match in matches if match), ("", None))
    if match is None:
        return None
    action = re.sub(r",? please$", "", match["what"].strip(), flags=re.IGNORECASE)
    if kind != "when" and table.search("one_time_order", text):
        return None
    is_order = not table.match("no_order", action) and table.search("order_verb", action)
    if kind == "when" and not is_order:
        return None
    slots = table.patterns("order_slots")
    field = next((slot for slot, pattern in slots if pattern.search(action)), None)
    return Order(text, action, kind, field)


def _read_choice(table: LanguageTable, text: str) -> str | None:
    """Return what "let us …" settles, or None."""
    match = table.match("choice", text)
    return "".join(match.groupdict().values()) if match else None


def _read_forget(table: LanguageTable, text: str) -> str | None:
    """Return what the assistant is asked to forget, or None if it is not said."""
    match = table.match("forget", text)
    if match is None or table.match("own_forgetting", text) or table.search("forget_later", text):
        return None
    groups = match.groupdict()
    topic = (groups["what"] or groups.get("that") or "").strip("，, ")
    return topic if topic and not table.fullmatch("forget_nothing", topic) else None


def _read_remember(table: LanguageTable, text: str) -> str | None:
    """Return what the assistant is asked to remember; something to do is not meant."""
    match = table.match("remember", text)
    if match is None or table.match("remember_to_do", match["what"]):
        return None
    return match["what"].strip(" ,:，：")


def _is_well_formed(
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
