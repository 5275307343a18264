"""What an extractor can do. `RuleExtractor` needs no model, `ModelExtractor` uses one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from memrecall.types import Language, Role

By = Literal["model", "rules"]
Event = Literal["ADD", "UPDATE", "DELETE", "NONE"]
MemoryType = Literal[
    "user_profile",
    "user_preference",
    "relationship",
    "habit",
    "plan",
    "event",
    "decision",
    "instruction",
    "configuration",
    "general",
    "retraction",
]
EntityType = Literal[
    "person", "organization", "place", "field", "animal", "language", "event", "thing"
]

USER = "user"
"""The subject of a fact about a speaker who has no name."""

RETRACTION: MemoryType = "retraction"
"""The type of a "forget that …": it is never stored, it only ends what it tells."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message of a conversation; without a `speaker` its sender is "user"."""

    message_id: str
    speaker: str | None
    role: Role
    text: str
    ts: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence that stands without its conversation, and what it is about.

    `subject` is "user", a speaker's name, or the person or thing that is told about. `field` is the
    profile slot it fills (name, home, job, …). `negated` says that it denies or ends something.
    `valid_from` is since when it holds, if that is known.
    """

    text: str
    subject: str = USER
    memory_type: MemoryType = "general"
    field: str | None = None
    source_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    negated: bool = False
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """A memory that exists, as far as deciding needs it."""

    memory_key: str
    text: str
    subject: str = USER
    field: str | None = None
    memory_type: str = "general"
    valid_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done for a fact, and why.

    ADD stores `text`; UPDATE stores `text` in the place of `memory_key`, which it supersedes;
    DELETE ends `memory_key`; NONE does nothing, and `memory_key` is what makes it needless, if any.
    `field` is the slot that a fact without one takes over from what it supersedes.
    """

    event: Event
    fact: Fact
    memory_key: str | None = None
    text: str = ""
    reason: str = ""
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """Somebody or something that relations connect."""

    name: str
    type: EntityType = "thing"


@dataclass(frozen=True, slots=True)
class Relation:
    """`source` stands in `relationship` to `destination`; `ended` says that it no longer does."""

    source: str
    relationship: str
    destination: str
    source_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Extracted:
    """The facts of a conversation; `problem` says why a model's answer was not used, if so."""

    facts: tuple[Fact, ...]
    by: By = "rules"
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions on some facts, in their order."""

    decisions: tuple[Decision, ...]
    by: By = "rules"
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Related:
    """The entities and relations of a conversation."""

    entities: tuple[Entity, ...]
    relations: tuple[Relation, ...]
    by: By = "rules"
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A shorter text that keeps who said what and when."""

    text: str
    by: By = "rules"
    problem: str = ""


class Extractor(Protocol):
    """Reads conversations. Nothing is stored, and no method raises because of what was said."""

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """The facts that the utterances tell, in order.

        `now` and `zone` resolve relative dates of utterances without a time. `context` is what was
        said before: it resolves "it" and short answers, and gives no facts. `prompt` guides a model
        in words of the application; rules have no use for it.
        """
        ...

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        """What to do for each fact, given what is known; nothing for no facts."""
        ...

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """The entities that the utterances name and how they relate."""
        ...

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """A summary of at most so many characters; in the language of the text if none is given."""
        ...
