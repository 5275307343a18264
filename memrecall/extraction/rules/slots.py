"""The reading of clauses: whom a clause is about, and the slot of theirs that it fills."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from memrecall.extraction.rules.dates import find_statement_times, has_time, is_ahead
from memrecall.extraction.rules.statements import (
    DateStyle,
    Person,
    ReferenceTime,
    SlotPattern,
    StatedRelation,
    Statement,
    Tense,
)
from memrecall.extraction.rules.tables import load_table
from memrecall.extraction.signature import is_name
from memrecall.text.words import is_dictionary_word, tag_words, word_classes
from memrecall.types import Language

_LISTED = frozenset({"likes", "dislikes", "avoids", "allergic_to"})
_COUPLES = frozenset({"partner_of", "engaged_to", "married_to"})
_MAX_VALUE = {"en": 90, "zh": 40}
_MAX_AGE = 115


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a clause is about, what it says of them, and the tables that may read it."""

    person: Person
    predicate: str
    sections: tuple[str, ...]
    is_elided: bool = False


class SlotReader:
    """Reads the clauses of one language with its tables."""

    def __init__(self, language: Language) -> None:
        self.language = language
        self.table = load_table(language)

    def read_clause(
        self, clause: str, me: Person, previous: Person | None, time: ReferenceTime
    ) -> tuple[Person | None, Statement | None]:
        """Return whom a clause is about, and what it states if it fills a slot.

        The first table row that matches the whole clause decides. `previous` is the subject of a
        clause without one.
        """
        person: Person | None = None
        for subject in self._subjects(clause, me, previous):
            for section in subject.sections:
                for slot in self.table.slots(section):
                    if statement := self._fill(slot, subject, clause, me, time):
                        return subject.person if subject.sections != ("my",) else None, statement
            person = subject.person if subject.sections != ("my",) else None
        return person, None

    def read_mentions(self, clause: str, me: Person, time: ReferenceTime) -> Iterator[Statement]:
        """Yield the relatives that a clause mentions: "with my sister Ida", "my dog barks"."""
        for slot in self.table.slots("mentions"):
            for match in slot.pattern.finditer(clause):
                if not slot.named and self._is_no_relative(clause, match.end()):
                    continue
                subject = Subject(me, match.group(), ())
                if statement := self._fill(slot, subject, clause, me, time):
                    yield statement

    def _is_no_relative(self, clause: str, end: int) -> bool:
        """Return True for a relative who is gone, and for a fan or player: 我老公周杰伦."""
        follows = word_classes(clause[end : end + 4])[:1] if self.language == "zh" else []
        return "".join(follows).startswith("n") or any(
            self.table.search(name, clause) for name in ("gone", "former")
        )

    def _subjects(self, clause: str, me: Person, previous: Person | None) -> Iterator[Subject]:
        """Yield the readings of a clause's subject, the most specific one first."""
        table = self.table
        if match := table.match("kins_own", clause):
            yield Subject(self._relative(match, me), match["predicate"], ("my",))
        if match := table.match("own", clause):
            yield Subject(me, match["predicate"], ("my",))
        if match := table.match("kin", clause):
            yield Subject(self._relative(match, me), match["predicate"], ("person",))
        elif match := table.match("self", clause):
            yield Subject(me, match["predicate"], ("self", "person", "plans"))
        elif previous is not None and table.match("elided", clause):
            sections = ("person",) if previous.noun else ("self", "person", "plans")
            yield Subject(previous, clause, sections, is_elided=True)
        if (match := table.match("plan", clause)) and not (previous and previous.noun):
            yield Subject(me, match["predicate"], ("plans",))

    def _relative(self, match: re.Match[str], me: Person) -> Person:
        groups = match.groupdict()
        noun, name = groups["noun"].lower(), groups.get("name") or ""
        label = self.table.write("kin_label", me=me.label, noun=noun, name=name).strip()
        key = self.table.write("kin_key", me=me.label, key=me.key, noun=noun)
        return Person(label, name or key, noun)

    def _fill(
        self, slot: SlotPattern, subject: Subject, clause: str, me: Person, time: ReferenceTime
    ) -> Statement | None:
        """Return the statement of a slot pattern; None if it does not fit."""
        person = subject.person
        # 我有个姐姐，叫周悦: only a stated subject gets a name.
        is_own = slot.own or slot.named
        if (is_own and person.noun) or (subject.is_elided and slot.field == "name"):
            return None
        match = slot.pattern.fullmatch(subject.predicate)
        if match is None:
            return None
        groups = {name: (text or "").strip(" ,，") for name, text in match.groupdict().items()}
        value = groups["value"] = groups["value"] or groups.get("other", "")
        is_passing = slot.memory_type == "user_preference" and self.table.search("passing", clause)
        if is_passing or not self._is_valid(slot, groups, time):
            return None
        kin = groups.get("kin", "").lower()
        field = slot.field
        if slot.favourite:
            field = f"favourite_{groups['what']}".replace(" ", "_")
        elif self.table.mapping("kinship").get(kin) in _COUPLES:
            field = "partner"
        elif kin in self.table.words("single_kin"):
            field = kin
        elif kin in self.table.words("pets"):
            field = "pet"
        when = groups.get("when") or self._time_before(slot, clause, value, time)
        is_plan = slot.memory_type == "plan"
        tense: Tense = "future" if is_plan else "past" if when else "present"
        dates: DateStyle = "all" if is_plan or when else "relative" if slot.date else "none"
        entity = self.entity_name(person) if person.noun else None
        return Statement(
            text=self._write(slot, groups, person, me, when),
            subject=person.key,
            language=self.language,
            memory_type=slot.memory_type,
            field=field,
            value=value,
            negated=slot.ended or slot.denied,
            tense=tense,
            dates=dates,
            relations=tuple(self._relations(slot, groups, person, entity)),
            name=value if field == "name" and not person.noun and not kin else "",
            renames=self.entity_name(self._named(kin, me)) if slot.named else "",
            is_weak=slot.weak,
        )

    def _is_valid(self, slot: SlotPattern, groups: dict[str, str], time: ReferenceTime) -> bool:
        """Return True if the value is of the kind that the slot needs."""
        value = groups["value"]
        if len(value) > _MAX_VALUE[self.language]:
            return False
        if slot.timed:
            plan = f"{value} {groups.get('rest', '')}".strip()
            if self.table.search("recurring", plan) or not is_ahead(plan, time):
                return False
        if slot.date and (not has_time(value, time) or _is_too_old(value, time)):
            return False
        if slot.field == "name" or slot.kind == "person" or slot.named:
            return self._is_name(slot, value)
        if slot.field == "age" and not _is_age(value):
            return False
        if groups.get("where") and "v" in word_classes(groups["where"]):
            return False  # 在网上看到做蛋糕的
        if self.language == "zh" and (slot.field == "hometown" or groups.get("role")):
            return (word_classes(value) == ["ns"]) == (slot.field == "hometown")
        place = groups.get("place") or (value if slot.kind == "place" else "")
        return not place or bool(groups.get("purpose")) or self._is_place(place)

    def _is_name(self, slot: SlotPattern, value: str) -> bool:
        if self.language == "en":
            words = value.split()
            is_word = any(word in self.table.words("not_names") for word in words)
            return not is_word and not self.table.fullmatch("nationality", value)
        if slot.kind == "person" and value in self.table.words("family"):
            return True
        if slot.weak and len(value) > 2 and is_dictionary_word(value):
            return False  # 我是秦始皇: only names of the famous are words
        is_given = slot.named and slot.kind != "person"  # 我儿子叫壮壮 names him, whatever it is
        return is_name(value) or (is_given and not self.table.search("no_name", value))

    def _is_place(self, value: str) -> bool:
        if self.language == "en":
            return value.split()[0] not in self.table.words("not_names")
        if self.table.fullmatch("place_name", value) or value[0].isascii():
            return True
        if self.table.fullmatch("no_place", value):
            return False
        words = tag_words(value)
        # The segmenter takes 合肥 for a noun.
        is_noun = len(words) == 1 and words[0][1] in ("n", "nz", "nr")
        return is_noun or words[0][1] == "ns"

    def _time_before(self, slot: SlotPattern, clause: str, value: str, time: ReferenceTime) -> str:
        """Return the time that stands before the verb in Chinese: 上周 of 我上周搬到杭州."""
        if self.language == "en" or "{when}" not in slot.sentence:
            return ""
        spans = find_statement_times(clause.partition(value)[0], time, "past")
        return spans[0].text if spans else ""

    def _write(
        self, slot: SlotPattern, groups: dict[str, str], person: Person, me: Person, when: str
    ) -> str:
        """Return the sentence of a slot with its values."""
        spaced = {
            name: f" {text}" if text and self.language == "en" else text
            for name, text in ((key, groups.get(key, "")) for key in ("role", "names"))
        }
        if groups.get("names"):
            spaced["names"] = self.table.write("names", names=groups["names"])
        groups |= {"what": groups.get("what", "").lower()}
        third = {name: self.table.rewrite("persons", text) for name, text in groups.items()}
        if slot.weak and groups.get("kin"):  # 姐 is 姐姐
            third["value"] = self.table.mapping("kin_names").get(groups["kin"], groups["kin"])
        gap = " " if self.language == "en" else ""
        subject = f"{third['subject']}{gap}" if third.get("subject") else ""
        values = third | spaced | {"subject": subject, "when": when and f"{gap}{when}"}
        text = slot.sentence.format(**values, who=person.label, me=me.label)
        flat = re.sub(r"\s+", " ", text).strip(" ,;，、").rstrip("。.！!？?…~～")
        return f"{flat}." if self.language == "en" else f"{flat}。"

    def _relations(
        self, slot: SlotPattern, groups: dict[str, str], person: Person, entity: str | None
    ) -> Iterator[StatedRelation]:
        """Yield the relations for the knowledge graph that a slot gives."""
        value, ended = groups["value"], slot.ended
        if person.noun:
            yield self._kin_relation(person.noun, entity or "")
        if slot.named:
            yield self._kin_relation(groups["kin"].lower(), value)
        elif slot.field in ("family", "pet") and not ended:
            nouns = (*self.table.words("pets"), *self.table.mapping("kinship"))
            endings = (noun for noun in nouns if value.lower().endswith(noun))
            noun = max(endings, key=len, default="")
            named = groups.get("names") or groups.get("called") or ""
            unnamed = [noun] if slot.field == "pet" else []
            names = self.table.pattern("list_separator").split(named) if named else unnamed
            for name in filter(None, names):
                yield self._kin_relation(noun, name)
        elif slot.relation:
            separator = self.table.pattern("list_separator")
            values = separator.split(value) if slot.relation in _LISTED else [value]
            for item in filter(None, (self.table.remove("value_verb", item) for item in values)):
                yield StatedRelation(slot.relation, item, slot.kind, entity, ended=ended)
        if slot.relation and groups.get("old"):
            yield StatedRelation(slot.relation, groups["old"], slot.kind, entity, ended=True)
        if groups.get("role"):
            role = re.sub(r"^as an? ", "", groups["role"])
            yield StatedRelation("works_as", role, "field", entity)
        if groups.get("subject"):
            yield StatedRelation("studies", groups["subject"], "field", entity)

    def _kin_relation(self, noun: str, name: str) -> StatedRelation:
        if noun in self.table.words("pets"):
            return StatedRelation("owns", name, "animal")
        relationship = self.table.mapping("kinship").get(noun, "knows")
        return StatedRelation(relationship, name, "person")

    def _named(self, noun: str, me: Person) -> Person:
        key = self.table.write("kin_key", me=me.label, key=me.key, noun=noun)
        return Person(key, key, noun)

    def entity_name(self, person: Person) -> str:
        """Return the name of a relative in the graph.

        One without a name has one name there, whatever the speaker calls them: 用户的妈妈.
        A pet without a name is "dog".
        """
        noun = person.noun
        if not person.key.endswith(noun):  # the relative's name
            return person.key
        if noun in self.table.words("pets"):
            return noun
        return person.key.removesuffix(noun) + self.table.mapping("kin_names").get(noun, noun)


def _is_too_old(date: str, time: ReferenceTime) -> bool:
    year = re.search(r"\b1\d{3}(?!\d)", date)
    return year is not None and int(year.group()) < time.now.year - _MAX_AGE


def _is_age(value: str) -> bool:
    digits = re.sub(r"\D", "", value)
    return not digits or 0 < int(digits) <= _MAX_AGE


READERS: dict[Language, SlotReader] = {"en": SlotReader("en"), "zh": SlotReader("zh")}


def retract(statement: Statement) -> Statement:
    """Return a statement as a request to forget it."""
    return replace(statement, memory_type="retraction", negated=False, relations=(), name="")
