"""Frames: what a predicate must look like to tell something that lasts."""

import re
from dataclasses import dataclass
from typing import Literal

from memrecall.extraction.protocol import EntityType, MemoryType

# When what a clause tells holds: now, earlier, later, or (would, might) nowhere.
Tense = Literal["present", "past", "future", "unreal"]
NOW_OR_BEFORE: frozenset[Tense] = frozenset({"present", "past"})
PRESENT: frozenset[Tense] = frozenset({"present"})
PAST: frozenset[Tense] = frozenset({"past"})
FUTURE: frozenset[Tense] = frozenset({"future"})
ANY: frozenset[Tense] = frozenset({"present", "past", "future"})


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set: how the tables of the rules are written."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Frame:
    """A pattern of predicates and what it tells; the group `value` is what fills the slot.

    `relation` and `kind` make an edge of the knowledge graph of it. `negated` frames deny by
    themselves, `ended` ones tell that something is over, `timed` ones count only with a time.
    """

    pattern: re.Pattern[str]
    memory_type: MemoryType
    field: str | None = None
    relation: str | None = None
    kind: EntityType = "thing"
    tenses: frozenset[Tense] = PRESENT
    negated: bool = False
    ended: bool = False
    timed: bool = False
    whom: Literal["anybody", "speaker"] = "anybody"


@dataclass(frozen=True, slots=True)
class Told:
    """A frame that fits, with what fills it."""

    frame: Frame
    value: str
    negated: bool
    ended: bool = False
