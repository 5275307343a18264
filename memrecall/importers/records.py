"""What the readers of all formats yield, and the ids, times and texts of it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal

from pydantic import ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.importers.source import SourceFile
from memrecall.json_objects import make_storable
from memrecall.types import (
    ID_LENGTH,
    MESSAGE_LENGTH,
    NAME_LENGTH,
    NewMemory,
    NewMessage,
    Role,
    clean_shown_name,
    read_iso_time,
)

DateOrder = Literal["dmy", "mdy", "ymd"]
DATE_ORDERS: tuple[DateOrder, ...] = ("dmy", "mdy", "ymd")
_HASH_LENGTH = 24
_REMEMBERED = 100_000  # equal messages further apart than this get the same number


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What the caller knows of a file that the file does not say."""

    user: str | None = None  # the user of messages that name none
    me: str | None = None  # the speaker who is the user
    date_order: DateOrder | None = None
    zone: tzinfo = UTC  # of times without a zone
    columns: Mapping[str, str] = field(default_factory=dict)  # of a CSV file, by field
    agent: str | None = None  # the agent of messages that name none
    since: datetime | None = None  # of transcripts, only what was said from then on
    project: str | None = None  # of transcripts, only this one


@dataclass(frozen=True, slots=True)
class Record:
    """A message or a memory of a file."""

    line: int
    item: NewMessage | NewMemory
    session_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    names: tuple[str, ...] = ()  # other names of the speaker: ids, addresses
    is_turn: bool = False  # of a coding assistant, whose hooks may have stored it already
    is_local: bool = False  # its time was written without a zone


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that is no message, such as the line that somebody joined."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """An entry that should be a message and cannot be read."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the reader assumed, for the caller to confirm."""

    text: str


ReadItem = Record | Skipped | Fault | Note


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files: its name, how to recognise a file, and how to read one.

    `matches` gets any file, also an empty or binary one. In formats `between_people` every
    speaker has the role `other` until the caller says who the user is.
    """

    name: str
    matches: Callable[[SourceFile], bool]
    read: Callable[[SourceFile, ReadOptions], Iterator[ReadItem]]
    between_people: bool = False


def message_record(
    line: int,
    *,
    message_id: str,
    session_id: str | None,
    role: Role,
    text: str,
    ts: datetime | None,
    speaker: str | None = None,
    content_type: str = "text",
    names: tuple[str, ...] = (),
    user_id: str | None = None,
    project: str | None = None,
    is_turn: bool = False,
    is_local: bool = False,
    **metadata: Any,
) -> Record | Skipped | Fault:
    """Return a record of a message; skip one without text. Empty metadata is dropped."""
    clean = make_storable(text).strip()
    if not clean:
        return Skipped(line, "no text")
    try:
        message = NewMessage(
            message_id=message_id,
            role=role,
            content=clean,
            ts=ts,
            speaker=clean_name(speaker),
            content_type=content_type,
            project=project,
            metadata=make_storable({name: value for name, value in metadata.items() if value}),
        )
    except ValidationError as error:
        return Fault(line, describe_validation_error(error))
    except InvalidArgument as error:
        return Fault(line, str(error))
    return Record(line, message, session_id, user_id, None, names, is_turn, is_local)


@dataclass(frozen=True, slots=True)
class PeopleChat:
    """A chat between people: the format and the key that name its session, and its title."""

    format: str
    key: str
    title: str = ""

    def message(
        self,
        line: int,
        message_id: str,
        names: Sequence[str],
        content: tuple[str, str],
        ts: datetime | None,
        **fields: Any,
    ) -> Record | Skipped | Fault:
        """Return a record of a message: the names of its speaker, its text and content type."""
        if not content[0].strip():
            return Skipped(line, "media without text")
        session_id = stable_id(self.format, self.key)
        place = {"message_id": message_id, "session_id": session_id, "conversation": self.title}
        said = {"text": content[0], "content_type": content[1], "ts": ts}
        speaker = {"speaker": names[0] if names else None, "names": tuple(names[1:])}
        values: dict[str, Any] = {"role": Role.OTHER, **place, **said, **speaker, **fields}
        return message_record(line, **values)


def clean_name(name: str | None) -> str | None:
    """Return the name of a speaker without invisible marks, cut to its limit."""
    if not name:
        return None
    return clean_shown_name(make_storable(name))[:NAME_LENGTH] or None


def file_text(names: Iterable[object]) -> tuple[str, str]:
    """Return the text of a message that consists of files, and its content type."""
    known = [str(name) for name in names if name]
    return (f"[file] {', '.join(known)}", "file") if known else ("", "text")


def stable_id(*parts: str) -> str:
    """Return an id made of parts, the first of which names the format; a hash if it is long."""
    joined = "-".join(parts)
    if len(joined) <= ID_LENGTH and joined.isascii() and joined.isprintable() and " " not in joined:
        return joined
    return f"{parts[0]}-{digest(*parts[1:])}"


def digest(*parts: str) -> str:
    """Return a hash of texts, the same in every process."""
    data = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(data.encode(errors="surrogatepass")).hexdigest()[:_HASH_LENGTH]


class DerivedIds:
    """Ids of messages that have none: of what was said, and the number among equal ones.

    They do not depend on the position in the file, so that an export that begins later or goes
    on longer gives the same messages the same ids.
    """

    def __init__(self, format_name: str, conversation: str = "") -> None:
        self._format = format_name
        self._conversation = conversation
        self._counts: Counter[str] = Counter()

    def make(self, *parts: str) -> str:
        """Return the id of the next message that consists of these parts."""
        key = digest(self._conversation, *parts)
        if len(self._counts) > _REMEMBERED:
            self._counts.clear()
        self._counts[key] += 1
        number = self._counts[key]
        return stable_id(self._format, key if number == 1 else f"{key}-{number}")


def from_unix(value: object) -> datetime | None:
    """Return the time of seconds, milliseconds or microseconds since 1970; None if it is none."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
        for limit in (1e14, 1e11):
            if abs(seconds) >= limit:
                seconds /= 1e6 if limit == 1e14 else 1e3
                break
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """Return a time as UTC; one without a zone is in `zone`."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def from_iso(value: object, zone: tzinfo = UTC) -> datetime | None:
    """Return the time of an ISO 8601 text; None if it is none."""
    try:
        return in_zone(read_iso_time(str(value)), zone)
    except (ValueError, OverflowError):
        return None


class Lines:
    """The lines of one message; those far above the length of a message are dropped.

    What is kept of such a message is still too long, so that it is reported and not cut.
    """

    def __init__(self, *lines: str) -> None:
        self._lines: list[str] = []
        self._size = 0
        for line in lines:
            self.append(line)

    def append(self, line: str) -> None:
        """Add a line."""
        if self._size <= MESSAGE_LENGTH:
            self._lines.append(line)
            self._size += len(line) + 1

    @property
    def ends_blank(self) -> bool:
        """True if there is no line yet, or the last one is blank."""
        return not self._lines or not self._lines[-1]

    def join(self) -> str:
        """Return the text."""
        return "\n".join(self._lines)


def current_branch(parents: Mapping[str, str | None], leaf: str | None) -> list[str]:
    """Return the names from the root of a conversation's tree to a leaf."""
    branch: list[str] = []
    seen: set[str] = set()
    while leaf is not None and leaf in parents and leaf not in seen:
        branch.append(leaf)
        seen.add(leaf)
        leaf = parents[leaf]
    return branch[::-1]
