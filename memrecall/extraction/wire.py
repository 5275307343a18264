"""The JSON lines in which a model sees conversations, and the answers it gives."""

import json
from datetime import datetime, tzinfo
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Fact, KnownMemory, Utterance
from memrecall.types import format_time, parse_time

_MOST_DIGITS = 9  # of the number of a message or a memory


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


def _number(value: object) -> int | None:
    return next(iter(_numbers(value)), None)


def _flag(value: object) -> object:
    return False if value is None or value == "" else value


def _items(value: object) -> object:
    return [] if value is None else value


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[list[str], BeforeValidator(_texts)]
Numbers = Annotated[list[int], BeforeValidator(_numbers)]
Number = Annotated[int | None, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]


class FactItem(BaseModel):
    """A fact as a model writes it; only the text is required."""

    text: Text
    about: Text = ""
    type: Text = ""
    field: Text = ""
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    negated: Flag = False
    replaces: Numbers = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value


class EntityItem(BaseModel):
    """An entity as a model writes it."""

    name: Text
    type: Text = ""
    aliases: Texts = Field(default_factory=list)
    sources: Numbers = Field(default_factory=list)


class RelationItem(BaseModel):
    """A relation as a model writes it."""

    source: Text
    relationship: Text
    destination: Text
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    ended: Flag = False


class ExtractAnswer(BaseModel):
    """The answer to the prompt `extract`."""

    facts: list[FactItem]
    relations: Annotated[list[RelationItem], BeforeValidator(_items)] = Field(default_factory=list)
    entities: Annotated[list[EntityItem], BeforeValidator(_items)] = Field(default_factory=list)

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

    fact: Number
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

    summary: Text


MAX_TEXT = 4_000  # Characters of one message in a prompt.


def to_line(value: dict[str, Any]) -> str:
    """Return one line of JSON without empty values."""
    filled = {name: item for name, item in value.items() if item not in (None, "", (), [])}
    return json.dumps(filled, ensure_ascii=False)


def utterance_line(number: int, utterance: Utterance, text: str, *, context: bool = False) -> str:
    """Return an utterance as a line, with the number as its id."""
    return to_line(
        {
            "id": number,
            "role": str(utterance.role),
            "speaker": utterance.speaker,
            "time": utterance.ts and format_time(utterance.ts),
            "context": context or None,
            "text": text[:MAX_TEXT],
        }
    )


def parse_since(value: object) -> datetime | None:
    """Return a time, or None if it cannot be parsed."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except InvalidArgument:
        return None


def setting_line(now: datetime, zone: tzinfo, prompt: str | None) -> str:
    """Return the current time, the time zone and the guidance as a line."""
    name = getattr(zone, "key", None) or str(zone)
    return to_line({"now": format_time(now), "zone": name, "guidance": prompt})


def fact_line(number: int, fact: Fact, sources: list[int]) -> str:
    """Return a fact to check as a line."""
    return to_line({"fact": number, "text": fact.text, "about": fact.subject, "sources": sources})


def known_line(number: int, known: KnownMemory) -> str:
    """Return a memory that a fact may repeat or replace as a line."""
    line = {"known": number, "text": known.text, "about": known.subject, "type": known.memory_type}
    since = known.valid_from and format_time(known.valid_from)
    return to_line({**line, "field": known.field, "since": since})
