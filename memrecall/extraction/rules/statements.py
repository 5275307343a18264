"""Clauses, fact patterns and the statements that come of matching them."""

import re
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Literal

from memrecall.extraction.protocol import USER, EntityType, FactType
from memrecall.types import Language

Tense = Literal["present", "past", "future", "unreal"]
"""When a clause holds; `unreal` is for "would" and "might"."""

DateStyle = Literal["all", "steady", "relative", "none"]
"""Which times are written out: every time, all but weekdays, those relative to today, or none."""

ClauseKind = Literal["self", "kin", "named", "thing", "it"]
"""What a clause is about: the speaker, a relative or pet, a named person, a thing, or "it"."""

USER_LABELS: dict[Language, str] = {"en": "User", "zh": "用户"}


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """When something was said, in which time zone, and the date that a plan named before.

    "The 19th" after "12 December" is in December.
    """

    now: datetime
    zone: tzinfo
    previous: datetime | None = None


@dataclass(frozen=True, slots=True)
class FactPattern:
    """One row of a fact table; the group `value` of its pattern fills the slot.

    `negated` rows deny by themselves, `ended` rows say that something is over, `timed` rows need a
    time in the clause, and rows `about_speaker` describe the speaker whatever the subject is.
    """

    pattern: re.Pattern[str]
    memory_type: FactType
    field: str | None = None
    relation: str | None = None
    kind: EntityType = "thing"
    tenses: frozenset[Tense] = frozenset({"present", "past", "future"})
    negated: bool = False
    ended: bool = False
    timed: bool = False
    about_speaker: bool = False


@dataclass(frozen=True, slots=True)
class FactMatch:
    """A fact pattern that fits a clause, with the value that fills it."""

    rule: FactPattern
    value: str
    negated: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: its subject, and what it says about it.

    `lead` is a time or place before the subject, `noun` what belongs to the speaker ("sister",
    "database"), `name` a person's name, and `owner` the possessive as written ("my", "the", "").
    """

    kind: ClauseKind
    predicate: str
    lead: str = ""
    noun: str = ""
    name: str = ""
    owner: str = ""
    elided: bool = False

    @property
    def is_own(self) -> bool:
        """Return True if the thing belongs to the speaker."""
        return self.owner in ("my", "our", "user's")


@dataclass(frozen=True, slots=True)
class VerbPhrase:
    """A predicate as the fact patterns see it.

    `core` starts at the main verb, without auxiliaries, adverbs, times and "not". `timing` is the
    text in which a time may stand. `ended` says that it was so and is no more.
    """

    text: str
    core: str
    tense: Tense
    timing: str = ""
    negated: bool = False
    ended: bool = False
    progressive: bool = False
    habitual: bool = False
    modal: str = ""


@dataclass(frozen=True, slots=True)
class Person:
    """A person that facts are about: their label in sentences and the subject of their facts."""

    label: str
    key: str


@dataclass(frozen=True, slots=True)
class StatedRelation:
    """A relation stated by a clause; a `source` of None is the speaker."""

    relationship: str
    destination: str
    kind: EntityType = "thing"
    source: str | None = None
    source_kind: EntityType = "person"
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One clause in the third person, with its times still relative.

    `value` fills the slot `field`; `name` is the speaker's own name if the clause gives it, and
    `renames` a relative without a name whose name is `value`: "she is called Ida".
    """

    text: str
    subject: str
    language: Language
    memory_type: FactType
    field: str | None = None
    value: str = ""
    negated: bool = False
    tense: Tense = "present"
    dates: DateStyle = "all"
    relations: tuple[StatedRelation, ...] = ()
    name: str = ""
    renames: str = ""


@dataclass(slots=True)
class SpeakerContext:
    """A speaker's state between sentences: the people they have mentioned so far.

    `capitalized` are words written with a capital inside a sentence; `previous` is the speaker's
    previous sentence, `last_date` the last date of a plan, `mentions` the relatives named in
    passing, and nothing that they say while `in_role` or `in_scene` is about themselves. After a
    sentence or a question `about_other`, a clause without a subject is not about the speaker;
    `in_person` says that the message has an "I".
    """

    speaker: str | None
    others: frozenset[str] = frozenset()
    last_person: Person | None = None
    people: dict[str, Person] = field(default_factory=dict)
    capitalized: frozenset[str] = frozenset()
    previous: str = ""
    last_date: datetime | None = None
    in_role: bool = False
    in_scene: bool = False
    mentions: list[StatedRelation] = field(default_factory=list)
    about_other: bool = False
    in_person: bool = False

    def take_mentions(self) -> list[StatedRelation]:
        """Return the relatives named since the last statement, and forget them."""
        mentions, self.mentions = self.mentions, []
        return mentions

    def person(self, language: Language) -> Person:
        """Return the speaker as facts refer to them."""
        return Person(self.speaker or USER_LABELS[language], self.speaker or USER)
