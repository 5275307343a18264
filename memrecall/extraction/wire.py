"""How conversations, facts and memories are written for a model: one JSON object a line."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memrecall.errors import InvalidArgument
from memrecall.extraction.protocol import Fact, Known, Utterance
from memrecall.types import Role, format_time, parse_time


def _numbers(value: object) -> list[int]:
    """Numbers in whatever clothes: 1, "1", ["1", 2]; the rest is left out."""
    items = value if isinstance(value, list) else [value]
    return [int(item) for item in items if isinstance(item, int | str) and str(item).isdigit()]


def _text(value: object) -> str:
    return "" if value is None or value in ("null", "None", "none") else str(value).strip()


def _number(value: object) -> int | None:
    found = _numbers(value)
    return found[0] if found else None


Text = Annotated[str, BeforeValidator(_text)]
Numbers = Annotated[list[int], BeforeValidator(_numbers)]
Number = Annotated[int | None, BeforeValidator(_number)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FactItem(_Answer):
    """A fact as a model writes it; only its text is needed."""

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


class FactsAnswer(_Answer):
    """The answer to the prompt `extract_facts`."""

    facts: list[FactItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrapped(value, "facts", "text")


class DecisionItem(_Answer):
    """A decision as a model writes it."""

    fact: Number
    event: Text
    known: Number = None
    reason: Text = ""


class DecisionsAnswer(_Answer):
    """The answer to the prompt `decide`."""

    decisions: list[DecisionItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrapped(value, "decisions", "event")


class EntityItem(_Answer):
    """An entity as a model writes it."""

    name: Text
    type: Text = ""


class RelationItem(_Answer):
    """A relation as a model writes it."""

    source: Text
    relationship: Text
    destination: Text
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    ended: bool = False


class RelationsAnswer(_Answer):
    """The answer to the prompt `extract_relations`."""

    entities: list[EntityItem] = Field(default_factory=list)
    relations: list[RelationItem]


class SummaryAnswer(_Answer):
    """The answer to the prompt `summarise`."""

    summary: Text


def _wrapped(value: object, name: str, needed: str) -> Any:
    """A bare list, or one item alone, as the object that was asked for."""
    if isinstance(value, list):
        return {name: value}
    if isinstance(value, dict) and name not in value and needed in value:
        return {name: [value]}
    return value


LONGEST_TEXT = 4_000  # characters of one message that a model is shown


def to_line(value: dict[str, Any]) -> str:
    """One line of JSON without what is empty."""
    kept = {name: one for name, one in value.items() if one not in (None, "", (), [])}
    return json.dumps(kept, ensure_ascii=False)


def read_lines(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a text; other lines are left out."""
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def utterance_line(number: int, said: Utterance, text: str, *, context: bool = False) -> str:
    """An utterance under a number, which is short and cannot be mistaken for another's."""
    return to_line(
        {
            "id": number,
            "role": str(said.role),
            "speaker": said.speaker,
            "time": said.ts and format_time(said.ts),
            "context": context or None,
            "text": text[:LONGEST_TEXT],
        }
    )


def read_utterance(line: dict[str, Any]) -> Utterance:
    """The utterance of a line; what cannot be read is left out of it."""
    try:
        role = Role(str(line.get("role", "user")))
    except ValueError:
        role = Role.OTHER
    speaker = line.get("speaker")
    return Utterance(
        str(line.get("id", "")),
        str(speaker) if speaker else None,
        role,
        str(line.get("text", "")),
        read_time(line.get("time")),
    )


def read_time(value: object) -> datetime | None:
    """A time as a model or a line writes it; None if it is none."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except InvalidArgument:
        return None


def setting_line(now: datetime, zone: tzinfo, prompt: str | None) -> str:
    """When it is, where, and what the application wants."""
    return to_line({"now": format_time(now), "zone": zone_name(zone), "guidance": prompt})


def zone_name(zone: tzinfo) -> str:
    """The name of a zone, or its offset."""
    return getattr(zone, "key", None) or str(zone)


def read_zone(name: object) -> tzinfo:
    """The zone of that name; UTC if there is none."""
    try:
        return ZoneInfo(str(name))
    except (ValueError, OSError):
        return UTC


def fact_line(number: int, fact: Fact) -> str:
    """A fact to be decided on."""
    told = {"fact": number, "text": fact.text, "about": fact.subject, "type": fact.memory_type}
    return to_line({**told, "field": fact.field, "negated": fact.negated or None})


def known_line(number: int, known: Known) -> str:
    """A memory that a fact may concern."""
    told = {"known": number, "text": known.text, "about": known.subject, "type": known.memory_type}
    since = known.valid_from and format_time(known.valid_from)
    return to_line({**told, "field": known.field, "since": since})


def batches(
    numbered: Sequence[tuple[int, str]], most_lines: int, most_characters: int
) -> Iterable[list[tuple[int, str]]]:
    """The numbered lines in groups that fit one question."""
    group: list[tuple[int, str]] = []
    size = 0
    for number, line in numbered:
        if group and (len(group) >= most_lines or size + len(line) > most_characters):
            yield group
            group, size = [], 0
        group.append((number, line))
        size += len(line)
    if group:
        yield group
