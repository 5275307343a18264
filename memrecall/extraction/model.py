"""The extractor that asks a model: one call for the facts and relations of some messages.

A model sees conversations as JSON lines. Its answers are read leniently: a number may be a text,
and a list may be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from memrecall.agent.blocks import BLOCK_END, BLOCK_START
from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import (
    USER,
    Entity,
    EntityType,
    Extracted,
    Fact,
    FactType,
    KnownMemory,
    Relation,
    Summary,
    Utterance,
    fact_keywords,
    fold_person_name,
    is_speaker_name,
    text_length,
)
from memrecall.extraction.summaries import shorten, summarise, whole_sentences
from memrecall.extraction.verify import find_doubts
from memrecall.model import protocol
from memrecall.model.prompts import load_prompt
from memrecall.model.structured import Structured, ask_prompt
from memrecall.text.language import language_of
from memrecall.text.tokens import entity_key
from memrecall.text_length import estimate_tokens
from memrecall.types import LABEL_LENGTH, Language, Role, format_time, parse_time
from memrecall.workers import in_process

T = TypeVar("T", bound=BaseModel)
Verification = Literal["none", "model"]

SECONDS = 60.0
MAX_LINES, MAX_CHARACTERS = 40, 12_000  # of the messages of one call
MAX_TEXT = 4_000  # characters of one message in a prompt
MAX_KNOWN = 60
MAX_FACT = 500
_CONTEXT_LINES = 6
_MOST_DIGITS = 9  # of the number of a message or a memory
_LONGEST_QUOTED = 120
_TYPES = frozenset(get_args(FactType))
_ENTITY_TYPES = frozenset(get_args(EntityType))
_RECALLED = re.compile(rf"{re.escape(BLOCK_START)}.*?(?:{re.escape(BLOCK_END)}|\Z)", re.DOTALL)


def _numbers(value: object) -> list[int]:
    """Return the numbers in 1, "1" or ["1", 2], and drop anything else."""
    items = value if isinstance(value, list) else [value]
    texts = [str(item) for item in items if isinstance(item, int | str)]
    return [int(text) for text in texts if text.isdecimal() and len(text) <= _MOST_DIGITS]


def _text(value: object) -> str:
    return "" if value is None or value in ("null", "None", "none") else str(value).strip()


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [text for item in items if isinstance(item, str) and (text := _text(item))]


_Text = Annotated[str, BeforeValidator(_text)]
_Texts = Annotated[list[str], BeforeValidator(_texts)]
_Numbers = Annotated[list[int], BeforeValidator(_numbers)]
_Number = Annotated[int | None, BeforeValidator(lambda value: next(iter(_numbers(value)), None))]
_Flag = Annotated[bool, BeforeValidator(lambda value: False if value in (None, "") else value)]
_NoneIsEmpty = BeforeValidator(lambda value: [] if value is None else value)


class FactItem(BaseModel):
    """A fact as a model writes it; only the text is required."""

    text: _Text
    about: _Text = ""
    type: _Text = ""
    field: _Text = ""
    sources: _Numbers = Field(default_factory=list)
    since: _Text = ""
    negated: _Flag = False
    replaces: _Numbers = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value


class EntityItem(BaseModel):
    """An entity as a model writes it."""

    name: _Text
    type: _Text = ""
    aliases: _Texts = Field(default_factory=list)
    sources: _Numbers = Field(default_factory=list)


class RelationItem(BaseModel):
    """A relation as a model writes it."""

    source: _Text
    relationship: _Text
    destination: _Text
    sources: _Numbers = Field(default_factory=list)
    since: _Text = ""
    ended: _Flag = False


class ExtractAnswer(BaseModel):
    """The answer to the prompt `extract`."""

    facts: list[FactItem]
    relations: Annotated[list[RelationItem], _NoneIsEmpty] = Field(default_factory=list)
    entities: Annotated[list[EntityItem], _NoneIsEmpty] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, value: object) -> object:
        """Accept a bare list of facts, and a fact alone."""
        if isinstance(value, list):
            return {"facts": value}
        is_fact = isinstance(value, dict) and "facts" not in value and "text" in value
        return {"facts": [value]} if is_fact else value


class VerdictItem(BaseModel):
    """Whether messages state a fact, as a model writes it."""

    fact: _Number
    stated: bool


class VerifyAnswer(BaseModel):
    """The answer to the prompt `verify`."""

    verdicts: list[VerdictItem]

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, value: object) -> object:
        """Accept a bare list of verdicts, and a verdict alone."""
        if isinstance(value, list):
            return {"verdicts": value}
        is_verdict = isinstance(value, dict) and "verdicts" not in value and "fact" in value
        return {"verdicts": [value]} if is_verdict else value


class SummaryAnswer(BaseModel):
    """The answer to the prompt `summarise`."""

    summary: _Text


class ModelExtractor:
    """Reads conversations with a model; a reply that is not JSON is requested once more.

    Facts are kept as the model says them; `doubts` names what their messages do not confirm. With
    `verify="model"`, one more call asks about the doubted facts, and drops those that no message
    states.
    """

    def __init__(
        self,
        client: protocol.ChatCompletionClient,
        *,
        seconds: float = SECONDS,
        verify: Verification = "none",
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._verify = verify

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
        """Return the facts and relations of the utterances, by one call of the model.

        Callers pass at most `MAX_LINES` utterances of `MAX_CHARACTERS` together
        (`split_conversation`).
        """
        shown = _Shown(utterances, context[-_CONTEXT_LINES:], known[:MAX_KNOWN])
        if not any(u.is_from_person and visible_text(u) for u in utterances):
            return Extracted()
        language = language_of(" ".join(utterance.text for utterance in utterances))
        zone_name = getattr(zone, "key", None) or str(zone)
        setting = {"now": format_time(now), "zone": zone_name, "guidance": prompt}
        lines = [_to_line(setting), *shown.known_lines(), *shown.message_lines()]
        reply = await self._ask("extract", language, lines, ExtractAnswer)
        if reply.value is None:
            return Extracted(problem=reply.problem)
        read = [_read_fact(item, shown, now) for item in reply.value.facts]
        dropped = [
            f"memories: {item.text[:_LONGEST_QUOTED]!r} is not stored: it has no text"
            for item, fact in zip(reply.value.facts, read, strict=True)
            if fact is None
        ]
        dropped += [
            f"memories: {item.text[:_LONGEST_QUOTED]!r} replaces nothing: it names no message"
            for item in reply.value.facts
            if item.replaces and not shown.has_author(item.sources)
        ]
        dropped += [
            f"memories: {item.text[:_LONGEST_QUOTED]!r} replaces a memory that was not shown: {n}"
            for item in reply.value.facts
            for n in dict.fromkeys(item.replaces)
            if n not in shown.known
        ]
        facts = list(dict.fromkeys(filter(None, read)))
        marked = await in_process(
            text_length(*shown.messages, *facts), _mark, facts, shown, now, zone
        )
        if self._verify == "model":
            marked, unstated = await self._ask_about(marked, shown, language)
            dropped += unstated
        relations = [_read_relation(item, shown, now) for item in reply.value.relations]
        kept = list(dict.fromkeys(filter(None, relations)))
        entities = _read_entities(reply.value.entities, kept, shown)
        return Extracted(tuple(marked), tuple(entities), tuple(kept), dropped=tuple(dropped))

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return a summary by the model; one that is too long is cut after a sentence."""
        messages = [lines] if isinstance(lines, str) else lines
        texts = [item if isinstance(item, str) else item.text for item in messages]
        if not any(text.strip() for text in texts) or limit_characters <= 0:
            return Summary("")
        prompt_lines = [_to_line({"limit": limit_characters})]
        prompt_lines += [
            _to_line({"text": item})
            if isinstance(item, str)
            else _utterance_line(number, item, item.text)
            for number, item in enumerate(messages, 1)
        ]
        language = language_of(" ".join(texts))
        reply = await self._ask("summarise", language, prompt_lines, SummaryAnswer)
        if reply.value is None or not reply.value.summary:
            problem = reply.problem or "the summary is empty"
            text = await in_process(text_length(*texts), summarise, lines, limit_characters)
            return Summary(text, "text", problem)
        return Summary(shorten(reply.value.summary, limit_characters), "model")

    async def _ask_about(
        self, facts: Sequence[Fact], shown: _Shown, language: Language
    ) -> tuple[list[Fact], list[str]]:
        """Return the facts after asking once about the marked ones, and what was dropped."""
        marked = {number: fact for number, fact in enumerate(facts) if fact.doubts}
        if not marked:
            return list(facts), []
        lines = shown.message_lines()
        numbers = {message.message_id: number for number, message in shown.numbered.items()}
        for number, fact in marked.items():
            sources = [numbers[name] for name in fact.source_ids if name in numbers]
            lines.append(
                _to_line(
                    {"fact": number, "text": fact.text, "about": fact.subject, "sources": sources}
                )
            )
        reply = await self._ask("verify", language, lines, VerifyAnswer)
        verdicts = {item.fact: item.stated for item in reply.value.verdicts} if reply.value else {}
        kept: list[Fact] = []
        dropped: list[str] = []
        for number, fact in enumerate(facts):
            is_stated = verdicts.get(number) if number in marked else None
            if is_stated is False:
                reason = "the model was asked again and found it in no message"
                dropped.append(f"memories: {fact.text[:_LONGEST_QUOTED]!r} is not stored: {reason}")
            else:
                kept.append(replace(fact, doubts=()) if is_stated else fact)
        return kept, dropped

    async def _ask(
        self, prompt: str, language: Language, lines: Sequence[str], answer: type[T]
    ) -> Structured[T]:
        return await ask_prompt(
            self._client, prompt, language, lines, answer, seconds=self._seconds
        )


def split_conversation(utterances: Sequence[Utterance]) -> list[list[Utterance]]:
    """Return the utterances in parts that one call each can read, in order."""
    parts: list[list[Utterance]] = []
    size = 0
    for utterance in utterances:
        length = min(len(utterance.text), MAX_TEXT)
        if not parts or len(parts[-1]) >= MAX_LINES or size + length > MAX_CHARACTERS:
            parts.append([])
            size = 0
        parts[-1].append(utterance)
        size += length
    return parts


def estimate_call(utterances: Sequence[Utterance], context: Sequence[Utterance] = ()) -> int:
    """Return about how many tokens one call of the model sends, without the known memories."""
    language = language_of(" ".join(utterance.text for utterance in utterances))
    lines = _Shown(utterances, context[-_CONTEXT_LINES:], ()).message_lines()
    return sum(map(estimate_tokens, [load_prompt("extract", language), *lines]))


class _Shown:
    """What a model is shown: numbered messages after their context, and known memories."""

    def __init__(
        self,
        utterances: Sequence[Utterance],
        context: Sequence[Utterance],
        known: Sequence[KnownMemory],
    ) -> None:
        self.messages = [*context, *utterances]
        self.numbered = dict(enumerate(self.messages, 1))
        self.known = dict(enumerate(known, 1))
        self._new = utterances
        self._first_new = len(context) + 1

    def known_lines(self) -> list[str]:
        return [
            _to_line(
                {
                    "known": number,
                    "text": memory.text,
                    "about": memory.subject,
                    "type": memory.memory_type,
                    "field": memory.field,
                    "since": memory.valid_from and format_time(memory.valid_from),
                }
            )
            for number, memory in self.known.items()
        ]

    def message_lines(self) -> list[str]:
        return [
            _utterance_line(number, utterance, text, context=number < self._first_new)
            for number, utterance in self.numbered.items()
            if (text := visible_text(utterance))
        ]

    def has_author(self, numbers: Sequence[int]) -> bool:
        """Return True if these numbers tell whether a person or an assistant said something.

        Without valid numbers it may be the assistant, unless only people have said anything.
        """
        return any(number in self.numbered for number in numbers) or all(
            message.is_from_person for message in self.messages if visible_text(message)
        )

    def sources(self, numbers: Sequence[int]) -> list[Utterance]:
        """Return the messages with these numbers; without valid ones, all new ones of people."""
        named = [
            self.numbered[number] for number in dict.fromkeys(numbers) if number in self.numbered
        ]
        return named or [u for u in self._new if u.is_from_person]


def visible_text(utterance: Utterance) -> str:
    """Return what a model sees of a message: nothing of tools, and no recalled memories."""
    is_visible = utterance.is_from_person or utterance.role == Role.ASSISTANT
    return _RECALLED.sub("", utterance.text).strip() if is_visible else ""


def _to_line(value: dict[str, Any]) -> str:
    """Return one line of JSON without empty values."""
    filled = {name: item for name, item in value.items() if item not in (None, "", (), [])}
    return json.dumps(filled, ensure_ascii=False)


def _utterance_line(number: int, utterance: Utterance, text: str, *, context: bool = False) -> str:
    """Return an utterance as a line, with the number as its id."""
    return _to_line(
        {
            "id": number,
            "role": str(utterance.role),
            "speaker": utterance.speaker,
            "time": utterance.ts and format_time(utterance.ts),
            "context": context or None,
            "text": text[:MAX_TEXT],
        }
    )


def _parse_since(value: object) -> datetime | None:
    """Return a time, or None if it cannot be parsed."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except InvalidArgument:
        return None


def _mark(facts: Sequence[Fact], shown: _Shown, now: datetime, zone: tzinfo) -> list[Fact]:
    texts = {memory.memory_key: memory.text for memory in shown.known.values()}
    marked = []
    for fact in facts:
        known = [texts[key] for key in fact.replaces]
        doubts = find_doubts(fact, shown.messages, known, now=now, zone=zone)
        marked.append(replace(fact, doubts=doubts))
    return marked


def _read_fact(item: FactItem, shown: _Shown, now: datetime) -> Fact | None:
    """Return a model's fact; None if it has no text."""
    text = re.sub(r"\s+", " ", item.text).strip()
    text = text if len(text) <= MAX_FACT else whole_sentences(text, MAX_FACT) or text[:MAX_FACT]
    if not text:
        return None
    sources = shown.sources(item.sources)
    if is_speaker_name(item.about):  # without a name it is about the last speaker
        subject = (sources[-1].speaker if sources else None) or USER
    else:  # as the conversation writes the name
        speakers = {message.speaker for message in shown.messages if message.speaker}
        names = {fold_person_name(name): name for name in speakers}
        subject = names.get(fold_person_name(item.about), item.about)
    said_at = max((source.ts for source in sources if source.ts is not None), default=now)
    since = _parse_since(item.since) or said_at
    return Fact(
        text,
        subject,
        memory_type=cast(FactType, item.type) if item.type in _TYPES else "general",
        field=item.field.casefold()[:LABEL_LENGTH] or None,
        source_ids=tuple(source.message_id for source in sources),
        valid_from=said_at if item.type == "plan" else min(since, now),
        negated=item.negated,
        keywords=fact_keywords(text, subject),
        replaces=tuple(
            shown.known[number].memory_key
            for number in dict.fromkeys(item.replaces)
            if number in shown.known and shown.has_author(item.sources)
        ),
    )


def _end_name(name: str) -> str:
    """Return the name of an end of a relation; the user has one name in every language."""
    return USER if name and is_speaker_name(name) else name


def _read_relation(item: RelationItem, shown: _Shown, now: datetime) -> Relation | None:
    source, destination = _end_name(item.source), _end_name(item.destination)
    verb = re.sub(r"\W+", "_", item.relationship.strip().lower()).strip("_")
    if not (source and destination and verb) or entity_key(source) == entity_key(destination):
        return None
    messages = shown.sources(item.sources)
    said_at = max((message.ts for message in messages if message.ts is not None), default=now)
    return Relation(
        source,
        verb,
        destination,
        source_ids=tuple(message.message_id for message in messages),
        valid_from=min(_parse_since(item.since) or said_at, now),
        ended=item.ended,
    )


def _read_entities(
    items: Sequence[EntityItem], relations: Sequence[Relation], shown: _Shown
) -> list[Entity]:
    """Return the entities that relations connect or that have other names, with their types."""
    described: Mapping[str, EntityItem] = {
        entity_key(_end_name(item.name)): item for item in items if item.name
    }
    ends = [name for relation in relations for name in (relation.source, relation.destination)]
    named = [_end_name(item.name) for item in described.values() if item.aliases]
    entities: dict[str, Entity] = {}
    for name in (*ends, *named):
        key = entity_key(name)
        item = described.get(key) or EntityItem(name=name)
        kind = "person" if name == USER else item.type if item.type in _ENTITY_TYPES else "thing"
        aliases = tuple(a for a in item.aliases if entity_key(a) not in ("", key))
        sources = shown.sources(item.sources) if aliases else []
        entities.setdefault(
            key,
            Entity(name, cast(EntityType, kind), aliases, tuple(s.message_id for s in sources)),
        )
    return list(entities.values())
