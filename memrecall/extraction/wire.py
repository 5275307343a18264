"""The JSON lines in which a model sees conversations, and the answers it gives."""

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
    """Return the numbers in 1, "1" or ["1", 2], and drop anything else."""
    items = value if isinstance(value, list) else [value]
    return [int(item) for item in items if isinstance(item, int | str) and str(item).isdigit()]


def _text(value: object) -> str:
    return "" if value is None or value in ("null", "None", "none") else str(value).strip()


def _number(value: object) -> int | None:
    numbers = _numbers(value)
    return numbers[0] if numbers else None


Text = Annotated[str, BeforeValidator(_text)]
Numbers = Annotated[list[int], BeforeValidator(_numbers)]
Number = Annotated[int | None, BeforeValidator(_number)]


class _ModelReply(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FactItem(_ModelReply):
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


class FactsAnswer(_ModelReply):
    """The answer to the prompt `extract_facts`."""

    facts: list[FactItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrap(value, "facts", "text")


class DecisionItem(_ModelReply):
    """A decision as a model writes it."""

    fact: Number
    event: Text
    known: Number = None
    reason: Text = ""


class DecisionsAnswer(_ModelReply):
    """The answer to the prompt `decide`."""

    decisions: list[DecisionItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrap(value, "decisions", "event")


class EntityItem(_ModelReply):
    """An entity as a model writes it."""

    name: Text
    type: Text = ""


class RelationItem(_ModelReply):
    """A relation as a model writes it."""

    source: Text
    relationship: Text
    destination: Text
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    ended: bool = False


class RelationsAnswer(_ModelReply):
    """The answer to the prompt `extract_relations`."""

    entities: list[EntityItem] = Field(default_factory=list)
    relations: list[RelationItem]


class SummaryAnswer(_ModelReply):
    """The answer to the prompt `summarise`."""

    summary: Text


def _wrap(value: object, name: str, required: str) -> Any:
    """Wrap a bare list, or a single item, in the requested object."""
    if isinstance(value, list):
        return {name: value}
    if isinstance(value, dict) and name not in value and required in value:
        return {name: [value]}
    return value


MAX_TEXT = 4_000  # Characters of one message in a prompt.


def to_line(value: dict[str, Any]) -> str:
    """Return one line of JSON without empty values."""
    filled = {name: item for name, item in value.items() if item not in (None, "", (), [])}
    return json.dumps(filled, ensure_ascii=False)


def read_lines(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a text; other lines are skipped."""
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def utterance_line(number: int, utterance: Utterance, text: str, *, context: bool = False) -> str:
    """Return an utterance as a line; the number stands for its id."""
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


def read_utterance(line: dict[str, Any]) -> Utterance:
    """Return the utterance of a line; unreadable values are dropped."""
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
    """Return a time, or None if it cannot be parsed."""
    if not isinstance(value, str) or not value:
        return None
    try:
        return parse_time(value)
    except InvalidArgument:
        return None


def setting_line(now: datetime, zone: tzinfo, prompt: str | None) -> str:
    """Return the current time, the time zone and the guidance as a line."""
    return to_line({"now": format_time(now), "zone": zone_name(zone), "guidance": prompt})


def zone_name(zone: tzinfo) -> str:
    """Return the name of a time zone, or its offset."""
    return getattr(zone, "key", None) or str(zone)


def read_zone(name: object) -> tzinfo:
    """Return the time zone of a name, or UTC if it is unknown."""
    try:
        return ZoneInfo(str(name))
    except (ValueError, OSError):
        return UTC


def fact_line(number: int, fact: Fact) -> str:
    """Return a fact to decide on as a line."""
    line = {"fact": number, "text": fact.text, "about": fact.subject, "type": fact.memory_type}
    return to_line({**line, "field": fact.field, "negated": fact.negated or None})


def known_line(number: int, known: Known) -> str:
    """Return a memory that a fact may affect as a line."""
    line = {"known": number, "text": known.text, "about": known.subject, "type": known.memory_type}
    since = known.valid_from and format_time(known.valid_from)
    return to_line({**line, "field": known.field, "since": since})


def batches(
    numbered: Sequence[tuple[int, str]], max_lines: int, max_characters: int
) -> Iterable[list[tuple[int, str]]]:
    """Yield the numbered lines in groups that fit one prompt."""
    group: list[tuple[int, str]] = []
    size = 0
    for number, line in numbered:
        if group and (len(group) >= max_lines or size + len(line) > max_characters):
            yield group
            group, size = [], 0
        group.append((number, line))
        size += len(line)
    if group:
        yield group
