"""The extractor interface; `RuleExtractor` needs no model, `ModelExtractor` uses one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from memrecall.types import USER as USER
from memrecall.types import Role

By = Literal["model", "rules"]
DecisionEvent = Literal["ADD", "UPDATE", "DELETE", "NONE"]
FactType = Literal[
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

RETRACTION: FactType = "retraction"
"""The type of a request to forget: it is never stored, it only ends other memories."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message of a conversation; a sender without a `speaker` name is "user"."""

    message_id: str
    speaker: str | None
    role: Role
    text: str
    ts: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence that can be understood without its conversation, and its subject.

    `subject` is "user", a speaker's name, or the person or thing that it is about. `field` is the
    profile slot it fills (name, home, job, …). `negated` says that it denies or ends something.
    `valid_from` is the time since which it holds, if known.
    """

    text: str
    subject: str = USER
    memory_type: FactType = "general"
    field: str | None = None
    source_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    negated: bool = False
    keywords: tuple[str, ...] = ()

    def as_known(self, key: str = "") -> "KnownMemory":
        """Return the fact as an existing memory."""
        return KnownMemory(
            key, self.text, self.subject, self.field, self.memory_type, self.valid_from
        )


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """An existing memory, with what a decision needs to know about it."""

    memory_key: str
    text: str
    subject: str = USER
    field: str | None = None
    memory_type: str = "general"
    valid_from: datetime | None = None


def text_length(*lines: Utterance | Fact | KnownMemory | str) -> int:
    """Return the number of characters of messages, facts or memories."""
    return sum(len(line if isinstance(line, str) else line.text) for line in lines)


@dataclass(frozen=True, slots=True)
class Decision:
    """The action for a fact, and its reason.

    ADD stores `text`; UPDATE stores `text` and supersedes `memory_key`; DELETE ends `memory_key`;
    NONE does nothing, and `memory_key` is the memory that makes the fact redundant, if any.
    `field` is the slot that a fact without one inherits from the memory it supersedes.
    """

    event: DecisionEvent
    fact: Fact
    memory_key: str | None = None
    text: str = ""
    reason: str = ""
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """A person or thing that relations connect."""

    name: str
    type: EntityType = "thing"


@dataclass(frozen=True, slots=True)
class Relation:
    """A directed relation between two entities; `ended` says that it no longer holds."""

    source: str
    relationship: str
    destination: str
    source_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Extracted:
    """The facts of a conversation; `problem` says why a model's reply was not used, if so.

    `claims` are what an assistant, a tool or a quoted text says of the user: no facts, but worth
    storing as conflicts with what the user said. `dropped` names each fact of a model that is not
    among the facts, with the reason.
    """

    facts: tuple[Fact, ...]
    by: By = "rules"
    problem: str = ""
    claims: tuple[Fact, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions on some facts, in order."""

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
    """Reads conversations; stores nothing, and raises for no content of a conversation."""

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """Return the facts of the utterances, in order.

        `now` and `zone` resolve relative dates of utterances without a time. `context` are earlier
        utterances: they resolve "it" and short answers, and give no facts. `prompt` tells a model
        what the application is looking for; rules ignore it.
        """
        ...

    async def decide(self, facts: Sequence[Fact], known: Sequence[KnownMemory]) -> Decided:
        """Return what to do for each fact, given the known memories."""
        ...

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """Return the entities that the utterances name, and their relations."""
        ...

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return a summary within the limit, in the language of the text."""
        ...
