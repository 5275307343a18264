"""The JSON lines in which a model sees conversations, and the answers it gives."""

import json
from datetime import datetime, tzinfo
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Fact, KnownMemory, Utterance
from memrecall.types import format_time, parse_time


def _numbers(value: object) -> list[int]:
    """Return the numbers in 1, "1" or ["1", 2], and drop anything else."""
    items = value if isinstance(value, list) else [value]
    return [int(item) for item in items if isinstance(item, int | str) and str(item).isdigit()]


def _text(value: object) -> str:
    return "" if value is None or value in ("null", "None", "none") else str(value).strip()


def _number(value: object) -> int | None:
    return next(iter(_numbers(value)), None)


Text = Annotated[str, BeforeValidator(_text)]
Numbers = Annotated[list[int], BeforeValidator(_numbers)]
Number = Annotated[int | None, BeforeValidator(_number)]


class FactItem(BaseModel):
    """A fact as a model writes it; only the text is required."""

    text: Text
    about: Text = ""
    type: Text = ""
    field: Text = ""
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    negated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value


class _ListAnswer(BaseModel):
    """An answer with one list, which may also come as a bare list or as its only item."""

    item_key: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _wrap(cls, value: object) -> object:
        (name,) = cls.model_fields
        if isinstance(value, list):
            return {name: value}
        is_item = isinstance(value, dict) and name not in value and cls.item_key in value
        return {name: [value]} if is_item else value


class FactsAnswer(_ListAnswer):
    """The answer to the prompt `extract_facts`."""

    item_key = "text"
    facts: list[FactItem]


class DecisionItem(BaseModel):
    """A decision as a model writes it."""

    fact: Number
    event: Text
    known: Number = None
    reason: Text = ""


class DecisionsAnswer(_ListAnswer):
    """The answer to the prompt `decide`."""

    item_key = "event"
    decisions: list[DecisionItem]


class EntityItem(BaseModel):
    """An entity as a model writes it."""

    name: Text
    type: Text = ""


class RelationItem(BaseModel):
    """A relation as a model writes it."""

    source: Text
    relationship: Text
    destination: Text
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    ended: bool = False


class RelationsAnswer(BaseModel):
    """The answer to the prompt `extract_relations`."""

    entities: list[EntityItem] = Field(default_factory=list)
    relations: list[RelationItem]


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


def fact_line(number: int, fact: Fact) -> str:
    """Return a fact to decide on as a line."""
    line = {"fact": number, "text": fact.text, "about": fact.subject, "type": fact.memory_type}
    return to_line({**line, "field": fact.field, "negated": fact.negated or None})


def known_line(number: int, known: KnownMemory) -> str:
    """Return a memory that a fact may affect as a line."""
    line = {"known": number, "text": known.text, "about": known.subject, "type": known.memory_type}
    since = known.valid_from and format_time(known.valid_from)
    return to_line({**line, "field": known.field, "since": since})
