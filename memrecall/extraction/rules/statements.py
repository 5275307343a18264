"""Slot patterns, and the statements that come of matching them."""

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal

from memrecall.extraction.protocol import EntityType, FactType
from memrecall.types import Language

Tense = Literal["present", "past", "future"]
"""When a clause holds."""

DateStyle = Literal["all", "relative", "none"]
"""Which times are written out: every time, those relative to today, or none."""

USER_LABELS: dict[Language, str] = {"en": "User", "zh": "用户"}


@dataclass(frozen=True, slots=True)
class ReferenceTime:
    """When something was said, and in which time zone."""

    now: datetime
    zone: tzinfo


@dataclass(frozen=True, slots=True)
class SlotPattern:
    """One row of a slot table; the group `value` of its pattern fills the slot.

    `sentence` is the fact in the third person. `own` rows are only about the speaker, `ended` rows
    say that something is over, `denied` rows deny by themselves, `timed` rows need a time to come,
    `date` rows a date as their value, `named` rows give a relative a name, and `favourite` rows
    name their slot. A `weak` row ("I'm Anna", "my sister") gives way to more.
    """

    pattern: re.Pattern[str]
    sentence: str
    memory_type: FactType
    field: str | None = None
    relation: str | None = None
    kind: EntityType = "thing"
    own: bool = False
    ended: bool = False
    denied: bool = False
    timed: bool = False
    date: bool = False
    named: bool = False
    favourite: bool = False
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    """A person that facts are about: their label in sentences and the subject of their facts.

    `noun` is what a relative is to the speaker; it is empty for the speaker.
    """

    label: str
    key: str
    noun: str = ""


@dataclass(frozen=True, slots=True)
class StatedRelation:
    """A relation stated by a clause; a `source` of None is the speaker."""

    relationship: str
    destination: str
    kind: EntityType = "thing"
    source: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One clause in the third person, with its times still relative.

    `value` fills the slot `field`; `name` is the speaker's own name if the clause gives it, and
    `renames` a relative without a name whose name is `value`: "my sister is called Ida".
    """

    text: str
    subject: str
    language: Language
    memory_type: FactType
    field: str | None = None
    value: str = ""
    negated: bool = False
    tense: Tense = "present"
    dates: DateStyle = "none"
    relations: tuple[StatedRelation, ...] = ()
    name: str = ""
    renames: str = ""
    is_weak: bool = False
