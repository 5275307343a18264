"""The extractor interface: conversations in, facts and relations out. `ModelExtractor` is one."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal, Protocol

from memrecall.text.keywords import extract_keywords
from memrecall.text.tokens import normalize, strip_accents
from memrecall.types import USER as USER
from memrecall.types import Doubt, Message, NewMessage, Role

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

_MOST_KEYWORDS = 6
_LABELS = re.compile(r"\bUser(?:'s)?\b|用户")
_SPEAKER_NAMES = frozenset({"", "user", "theuser", "用户", "me", "i", "我", "speaker"})


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message of a conversation; a sender without a `speaker` name is "user"."""

    message_id: str
    speaker: str | None
    role: Role
    text: str
    ts: datetime | None = None

    @classmethod
    def of(cls, message: Message | NewMessage, message_id: str | None = None) -> "Utterance":
        """Return a message in the form that extractors read, under the id it is stored with."""
        name = message.message_id if message_id is None else message_id
        return cls(name or "", message.speaker, message.role, message.content, message.ts)

    @property
    def is_from_person(self) -> bool:
        """Whether a person said it, and no assistant, tool or application."""
        return self.role in (Role.USER, Role.OTHER)


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence that can be understood without its conversation, and its subject.

    `subject` is "user", a speaker's name, or the person or thing that it is about. `field` is the
    profile slot it fills (name, home, job, …). `negated` says that it denies or ends something.
    `valid_from` is the time since which it holds, if known. `replaces` are the keys of known
    memories that no longer hold because of it. `doubts` name what its messages do not confirm.
    """

    text: str
    subject: str = USER
    memory_type: FactType = "general"
    field: str | None = None
    source_ids: tuple[str, ...] = ()
    valid_from: datetime | None = None
    negated: bool = False
    keywords: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownMemory:
    """A stored memory, with what is needed to tell whether a fact replaces it."""

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
class Entity:
    """A person or thing that relations connect, and its other names."""

    name: str
    type: EntityType = "thing"
    aliases: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()  # the messages that give the other names


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
    """The facts and relations of a conversation; `problem` says why it could not be read."""

    facts: tuple[Fact, ...] = ()
    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()
    problem: str = ""
    dropped: tuple[str, ...] = ()  # what was not taken over from the model's answer, with reasons


@dataclass(frozen=True, slots=True)
class Summary:
    """A shorter text that keeps who said what and when."""

    text: str
    by: Literal["model", "text"] = "text"
    problem: str = ""


class Extractor(Protocol):
    """Reads conversations; stores nothing, and raises for no content of a conversation."""

    async def extract(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
        known: Sequence[KnownMemory] = (),
    ) -> Extracted:
        """Return the facts and relations of the utterances, in order.

        `now` and `zone` resolve relative dates of utterances without a time. `context` are earlier
        utterances: they resolve "it" and short answers, and give no facts. `known` are memories
        that the facts may repeat or replace. `prompt` says what the application is looking for.
        """
        ...

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return a summary within the limit, in the language of the text."""
        ...


def fact_keywords(text: str, subject: str = USER) -> tuple[str, ...]:
    """Return the most important words of a fact, without its subject."""
    words = extract_keywords(_LABELS.sub(" ", text.replace(subject, " ")), _MOST_KEYWORDS)
    return tuple(word.word for word in words)


def fold_person_name(name: str) -> str:
    """Return a person's name without case, width, script, accents and punctuation.

    It compares speakers and subjects. Entities are compared by their `entity_key`, as in a graph.
    """
    return re.sub(r"[\W_]+", "", strip_accents(normalize(name).strip().casefold()))


def is_speaker_name(name: str) -> bool:
    """Return True if a name stands for whoever speaks: "user", "I", 用户."""
    return fold_person_name(name) in _SPEAKER_NAMES
