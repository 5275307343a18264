"""Statements: what a sentence tells, before it becomes a fact or a relation."""

from dataclasses import dataclass, field

from memrecall.extraction.protocol import USER, EntityType, MemoryType
from memrecall.extraction.rules.dating import Dates
from memrecall.extraction.rules.frames import Tense
from memrecall.model.prompts import Language

_CALLED: dict[Language, str] = {"en": "User", "zh": "用户"}


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody that facts are about: how they call him, and the key of his facts."""

    label: str
    key: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation told by a statement; a `source` of None is the speaker."""

    relationship: str
    destination: str
    kind: EntityType = "thing"
    source: str | None = None
    source_kind: EntityType = "person"
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One telling clause in the third person, its dates still as they were said.

    `value` is what fills its slot, `name` the name that the speaker says is his.
    """

    text: str
    subject: str
    language: Language
    memory_type: MemoryType
    field: str | None = None
    value: str = ""
    negated: bool = False
    tense: Tense = "present"
    dates: Dates = "all"
    edges: tuple[Edge, ...] = ()
    name: str = ""


@dataclass(slots=True)
class Scene:
    """Who speaks, whom he spoke of last, and who else takes part.

    `named` are words that have a capital in the middle of a sentence; `before` is the sentence
    that the same one said last.
    """

    speaker: str | None
    others: frozenset[str] = frozenset()
    last: Person | None = None
    introduced: dict[str, Person] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    before: str = ""

    def me(self, language: Language) -> Person:
        """The speaker as facts call him."""
        return Person(self.speaker or _CALLED[language], self.speaker or USER)
