"""Data types of the public interfaces, validated on input.

Text that one of the databases cannot store (NUL, lone surrogates) is rejected here, so that both
databases accept exactly the same input.
"""

import hashlib
import math
import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
)

from memrecall.errors import VALUE, InvalidArgument
from memrecall.text_length import truncate_text

ID_LENGTH, NAME_LENGTH, LABEL_LENGTH = 64, 255, 50
MESSAGE_LENGTH = 1_000_000
MEMORY_BYTES = 100 * 1024
JSON_DEPTH = 32
JSON_INTEGER_BITS = 1024  # the range of a float
EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
"""The first time that is accepted; see `check_moment`."""

_LEAP_SECOND = re.compile(r"(?<=[T ]\d\d:\d\d):60(?!\d)")

Language = Literal["en", "zh"]

Doubt = Literal["number", "date", "source", "negation"]
"""What of a model's fact the messages do not confirm: code knows it for certain."""

EXPERIENCE, PROCEDURAL = "experience", "procedural_memory"
DIGESTS = (EXPERIENCE, PROCEDURAL)
"""The types of memories that summarise conversations."""

EXTRACTION, SESSION_END = "extraction", "session end"
DERIVED_BY = (EXTRACTION, SESSION_END)
"""The actors whose memories are derived from messages, not written by anyone."""

_WRITTEN_BY = " (written by "  # after a speaker in a space

USER = "user"
"""The subject of what is known about a user who has no name, and their entity in a graph."""


class Role(StrEnum):
    """The author of a message, in the terms of chat models."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    OTHER = "other"


class Origin(StrEnum):
    """The source of a memory, set by the code that writes it, never by its text."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    IMPORT = "import"  # from elsewhere: imported, or quoted in a message


def check_text(name: str, value: str) -> str:
    """Return `value` if every database can store it; InvalidArgument names the character."""
    if not isinstance(value, str):
        raise InvalidArgument(
            f"{name} {value!r} is a {type(value).__name__}, not a text", hint="Pass a string"
        )
    if "\0" in value:
        raise InvalidArgument(
            f"{name} contains a NUL character at position {value.index(chr(0))}",
            hint="Remove it: databases cannot store it in text",
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{name} contains half of a surrogate pair at position {error.start}",
            hint="Decode the text with the right encoding",
        ) from None
    return value


def check_id(name: str, value: str) -> str:
    """Return `value` if it can be an id: 1 to 64 printable characters."""
    check_text(name, value)
    if not 1 <= len(value) <= ID_LENGTH or not value.isprintable() or value != value.strip():
        raise InvalidArgument(
            f"{name} {truncate_text(value, 80)!r} is not an id",
            hint=f"Use 1 to {ID_LENGTH} printable characters with no space at the ends",
        )
    return value


def check_shown_name(name: str, value: str) -> str:
    """Return `value`, stripped, if it can be a name that others see: at most 255 characters."""
    if len(check_text(name, value)) > NAME_LENGTH:
        raise InvalidArgument(f"the {name} has {len(value)} characters", hint="Use at most 255")
    return _require_shown(name, value.strip())


def check_shown_text(name: str, value: str) -> str:
    """Return `value`, stripped, if it can be a text that others see; it may have several lines."""
    lines = check_text(name, value).strip().splitlines()
    return "\n".join(_require_shown(name, line) for line in lines)


def _require_shown(name: str, value: str) -> str:
    """Raise InvalidArgument for control characters, and for those that turn a text around."""
    if not value.isprintable():
        raise InvalidArgument(
            f"the {name} {truncate_text(value, 80)!r} has characters that are not printable",
            hint="Use letters, digits, marks and spaces",
        )
    return value


def clean_shown_name(name: str) -> str:
    """Return a name with a space for what `check_shown_name` refuses.

    Of speakers: to refuse one would lose what they said.
    """
    visible = "".join(char if char.isprintable() else " " for char in name)
    return " ".join(visible.split())


def name_writer(speaker: str, author: str) -> str:
    """Return a speaker in a space with the member who wrote it."""
    return f"{clean_shown_name(speaker)}{_WRITTEN_BY}{author})"


def split_writer(label: str) -> tuple[str, str]:
    """Return the speaker, and the rest that names who wrote it; it is empty without one."""
    speaker, mark, author = label.rpartition(_WRITTEN_BY)
    return (speaker, mark + author) if mark else (label, "")


def check_json(name: str, value: Any, depth: int = 0) -> Any:
    """Return `value` if it is JSON that both databases store unchanged."""
    if depth > JSON_DEPTH:
        raise InvalidArgument(f"{name} is nested deeper than {JSON_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"{name} has the key {key!r}, which is not a string")
            check_text(name, key)
            check_json(name, item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_json(name, item, depth + 1)
    else:
        _check_scalar(name, value)
    return value


def _check_scalar(name: str, value: object) -> None:
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidArgument(f"{name} contains {value}, which JSON cannot express")
    elif isinstance(value, int):
        if value.bit_length() > JSON_INTEGER_BITS:
            raise InvalidArgument(f"{name} contains an integer of {value.bit_length()} bits")
    elif value is not None:
        raise InvalidArgument(f"{name} contains a {type(value).__name__}, which is not a JSON type")


def parse_time(value: object, name: str = "time") -> datetime:
    """Parse an RFC 3339 or ISO 8601 time as UTC; a time without a zone is UTC."""
    moment = parse_stored_time(value, name)
    check_moment(name, moment)
    return moment


def check_moment(name: str, moment: datetime | None) -> None:
    """Reject the first and the last year of the calendar, which some time zones do not have."""
    if moment is not None and moment.year in (MINYEAR, MAXYEAR):
        raise InvalidArgument(
            f"{name} {moment.isoformat()} is outside the years 2 to 9998",
            hint="Leave it out if there is no such limit",
        )


def parse_stored_time(value: object, name: str = "time") -> datetime:
    """Parse a time that was accepted earlier, when every year was."""
    try:
        moment = read_iso_time(value) if isinstance(value, str) else value
        if isinstance(moment, datetime):
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"{name} {value!r} is outside the years 1 to 9999") from None
    except ValueError:
        pass
    raise InvalidArgument(
        f"{name} {value!r} is not a time", hint="Write it like 2026-01-26T10:47:00Z"
    )


def read_iso_time(text: str) -> datetime:
    """Return the time of an RFC 3339 or ISO 8601 text, no week date; ValueError if it is none.

    A leap second is the first second of the next day, as in Unix time.
    """
    text, leap = _LEAP_SECOND.subn(":59", text.strip().upper())
    if "W" in text:
        raise ValueError("a week is not a day")
    moment = datetime.fromisoformat(text)
    if leap and f"{moment - (moment.utcoffset() or timedelta()):%H:%M}" != "23:59":
        raise ValueError("only days of UTC end with a leap second")
    return moment + timedelta(seconds=leap)


def check_time_zone(value: str) -> str:
    """Return `value` if it is the name of a time zone, like Asia/Shanghai."""
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"time zone {truncate_text(value, 80)!r} is not known",
            hint="Write it like Asia/Shanghai",
        ) from None
    return value


def check_range(since: datetime | None, until: datetime | None) -> None:
    """Reject a time range that ends before it begins, or that the calendar does not have."""
    check_moment("since", since)
    check_moment("until", until)
    if since is not None and until is not None and since > until:
        raise InvalidArgument(
            f"since {format_time(since)} is after until {format_time(until)}",
            hint="Swap them: since is inclusive, until exclusive",
        )


def format_time(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_zone(moment: datetime, zone: tzinfo) -> datetime:
    """Return a time in a zone, or in UTC if the calendar of the zone ends before it."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment.astimezone(UTC)


def format_minute(moment: datetime, zone: tzinfo = UTC) -> str:
    """Format a time to the minute for people, in a zone."""
    return cut_to_minute(to_zone(moment, zone).isoformat())


def cut_to_minute(time: str) -> str:
    """Return an RFC 3339 text to the minute for people, in the zone that it is written in."""
    return time[:16].replace("T", " ")


def _validator(check: Callable[[str, Any], object], accepts: type = object) -> BeforeValidator:
    """Return a validator; a value of another type than `check` accepts is left to pydantic."""
    return BeforeValidator(
        lambda value: check(VALUE, value) if isinstance(value, accepts) else value
    )


def _clean_speaker(value: str | None) -> str | None:
    return clean_shown_name(value) or None if value else None


def _check_nonblank(name: str, value: str) -> str:
    if not value.strip():
        raise InvalidArgument(f"{name} is empty", hint="Pass what to remember")
    return check_text(name, value)


def _check_object(name: str, value: object) -> object:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} is not a JSON object")
    return check_json(name, value)


_TEXT = _validator(check_text, str)
CleanText = Annotated[str, _TEXT]
Id = Annotated[str, _validator(check_id, str)]
Name = Annotated[str, StringConstraints(max_length=NAME_LENGTH), _TEXT]
Speaker = Annotated[
    Name | None, BeforeValidator(lambda value: value or None), AfterValidator(_clean_speaker)
]
Label = Annotated[str, StringConstraints(min_length=1, max_length=LABEL_LENGTH), _TEXT]
ProjectLabel = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH), _TEXT]
TimeZone = Annotated[str, _validator(lambda _, value: check_time_zone(value), str)]
Content = Annotated[str, StringConstraints(max_length=MESSAGE_LENGTH), _TEXT]
Moment = Annotated[datetime, _validator(lambda name, value: parse_time(value, name))]
JsonObject = Annotated[dict[str, Any], _validator(_check_object)]


class _Input(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NewMessage(_Input):
    """A message to store. `ts` defaults to now, `message_id` to a new id."""

    content: Content
    role: Role
    message_id: Id | None = None
    ts: Moment | None = None
    speaker: Speaker = None
    content_type: Label = "text"
    parent_message_id: Id | None = None
    metadata: JsonObject = Field(default_factory=dict)
    project: ProjectLabel | None = None  # counts where the scope has none


class Message(BaseModel):
    """A stored message: raw evidence, never changed."""

    model_config = ConfigDict(frozen=True)

    message_id: str
    ts: datetime
    user_id: str
    role: Role
    content: str
    speaker: str | None = None
    session_id: str
    agent_id: str
    content_type: str = "text"
    parent_message_id: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    create_time: datetime
    sequence_no: int
    project: str | None = None
    author: str | None = None  # the member who wrote it to a space


class Keyword(_Input):
    """A keyword of a memory, with its weight."""

    keyword: Name
    weight: float = Field(default=1.0, ge=0.0, le=1.0)


class NewMemory(_Input):
    """A memory to store. `memory_key` defaults to a new key."""

    content: Annotated[str, _validator(_check_nonblank, str)]
    summary: CleanText = ""
    memory_key: Id | None = None
    memory_type: Label = "general"
    layer: Literal["short", "long"] = "long"
    keywords: tuple[Keyword, ...] = ()
    metadata: JsonObject = Field(default_factory=dict)
    sensitive: bool = False
    valid_from: Moment | None = None
    valid_to: Moment | None = None
    source_message_ids: tuple[Id, ...] = ()
    subject: Speaker = None  # the person or thing it is about
    speaker: Speaker = None  # who said it
    field: Label | None = None  # a profile field: name, home, job, …
    pinned: bool = False  # exempt from retention policies
    expires_at: Moment | None = None
    conflicts_with: tuple[Id, ...] = ()  # memories that it contradicts without replacing them
    doubts: tuple[Doubt, ...] = ()  # what its messages do not confirm
    said_at: Moment | None = None  # the time of its latest message, if that is known
    project: ProjectLabel | None = None  # counts where the scope has none

    def as_claim(self, *keys: str) -> "NewMemory":
        """Return a claim that conflicts with other memories; it fills no slot of the profile."""
        if not keys:
            return self
        conflicts = tuple(dict.fromkeys([*self.conflicts_with, *keys]))
        return self.model_copy(update={"conflicts_with": conflicts, "field": None})


class Provenance(BaseModel):
    """The writer and the source of a memory, set by the writing code and never changed."""

    model_config = ConfigDict(frozen=True)

    origin: Origin
    actor: str
    session_id: str | None
    time: datetime
    sha256: str
    conflicts_with: tuple[str, ...] = ()  # what the user said, and this unconfirmed claim denies
    doubts: tuple[Doubt, ...] = ()  # what of a model's fact its messages do not confirm
    said_at: datetime | None = None  # None if it was stored when it was said
    run: str | None = None  # the extraction of stored messages that it was added by

    @property
    def claimed_by(self) -> str | None:
        """The origin of an unconfirmed claim; None for all other memories."""
        return self.origin.value if self.conflicts_with and self.origin != Origin.USER else None


class MemoryRecord(BaseModel):
    """A stored memory."""

    model_config = ConfigDict(frozen=True)

    memory_key: str
    user_id: str
    agent_id: str
    session_id: str | None
    summary: str
    content: str
    memory_type: str
    layer: str
    keywords: tuple[Keyword, ...]
    metadata: dict[str, Any]
    sensitive: bool
    valid_from: datetime | None
    valid_to: datetime | None
    source_message_ids: tuple[str, ...]
    provenance: Provenance
    truncated: bool
    created_at: datetime
    updated_at: datetime
    subject: str | None = None
    speaker: str | None = None
    field: str | None = None
    pinned: bool = False
    expires_at: datetime | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    superseded_reason: str | None = None
    last_recalled_at: datetime | None = None
    deleted_at: datetime | None = None
    project: str | None = None
    author: str | None = None  # the member who wrote it to a space

    @property
    def checked(self) -> bool:
        """Whether nothing in it contradicts the messages that it comes from."""
        return not self.provenance.doubts

    @property
    def is_hidden(self) -> bool:
        """True if it is deleted or has expired."""
        has_expired = self.expires_at is not None and self.expires_at <= datetime.now(UTC)
        return self.deleted_at is not None or has_expired

    @property
    def since(self) -> datetime:
        """When it began to hold: `valid_from`, or else when it was stored."""
        return self.valid_from or self.created_at

    @property
    def said_at(self) -> datetime:
        """When it was said, or when its text was corrected since."""
        checksum = hashlib.sha256(self.content.encode()).hexdigest()
        if not self.truncated and checksum != self.provenance.sha256:
            return self.updated_at
        return self.provenance.said_at or self.created_at
