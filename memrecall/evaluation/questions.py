"""The questions of an evaluation: what is asked, by whom, when, and what is evidence for it."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from memrecall.errors import InvalidArgument
from memrecall.search import SearchRequest
from memrecall.types import CleanText, Id, Name, describe_validation_error, parse_time


def read_bytes(path: Path) -> bytes:
    """A file's contents; an error if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {path}: {error.strerror}", hint="Give a file of JSON lines"
        ) from None


def digest(data: bytes) -> str:
    """What tells one file's contents from another's."""
    return hashlib.sha256(data).hexdigest()


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, counted from 1."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def read_object(line: bytes) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidArgument("JSON, but not an object")
    return data


def at_line(path: Path, number: int, error: Exception) -> InvalidArgument:
    """The same complaint, with the place that it is about."""
    said = describe_validation_error(error) if isinstance(error, ValidationError) else str(error)
    return InvalidArgument(f"{path} line {number}: {said}", line=number)


UNANSWERABLE = frozenset({"adversarial", "unanswerable"})  # categories

_MONTH = re.compile(r"(\d{4})-(\d\d)")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")

Label = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value or "")
]


class Question(BaseModel):
    """One line of a file of questions; fields with other names are left alone."""

    model_config = ConfigDict(frozen=True)

    query_id: Annotated[Name, StringConstraints(min_length=1)]
    user_id: Id
    query: CleanText
    evidence: tuple[Id, ...]  # of messages or memories; none: the question has no answer
    category: Label = ""
    as_of: str | None = None
    time_zone: str | None = None
    session_id: Id | None = None

    @property
    def answerable(self) -> bool:
        """Whether what is asked was ever said.

        Adversarial questions name evidence too: what was said of something, or somebody, else.
        """
        return bool(self.evidence) and self.category.casefold() not in UNANSWERABLE

    @property
    def zone(self) -> ZoneInfo:
        """Where the user is."""
        return ZoneInfo(self.time_zone or "UTC")

    @property
    def horizon(self) -> datetime | None:
        """The last moment that may be seen; None: everything may."""
        return None if self.as_of is None else last_moment(self.as_of, self.zone)

    @property
    def conversation(self) -> list[dict[str, str]]:
        """One message a line, speakers in turn, the user's last."""
        said = [line.strip() for line in self.query.split("\n") if line.strip()]
        roles = ("user", "assistant")
        return [
            {"role": roles[(len(said) - 1 - at) % 2], "content": text}
            for at, text in enumerate(said)
        ]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of a file, perhaps only its first; `lines` are those lines as they stand."""

    path: Path
    sha256: str
    questions: tuple[Question, ...]
    numbers: tuple[int, ...]
    lines: bytes


def read_questions(path: Path, most: int | None = None) -> QuestionSet:
    """Read a file of questions, at most so many; anything wrong is an error with its line."""
    data = read_bytes(path)
    found: dict[str, tuple[int, Question, bytes]] = {}
    for number, line in numbered_lines(data):
        if most is not None and len(found) >= most:
            break
        try:
            question = _read(line)
        except (InvalidArgument, ValidationError) as error:
            raise at_line(path, number, error) from None
        if question.query_id in found:
            first = found[question.query_id][0]
            twice = InvalidArgument(f"query_id {question.query_id!r} is on line {first} already")
            raise at_line(path, number, twice)
        found[question.query_id] = (number, question, line.strip() + b"\n")
    if not found:
        raise InvalidArgument(f"{path} has no question")
    numbers, questions, lines = zip(*found.values(), strict=True)
    return QuestionSet(path, digest(data), questions, numbers, b"".join(lines))


def _read(line: bytes) -> Question:
    data: dict[str, Any] = read_object(line)
    if isinstance(data.get("evidence"), list):
        data["evidence"] = _without_repeats(data["evidence"])
    question = Question.model_validate(data)
    SearchRequest(question.query)  # refuses what cannot be searched for
    try:
        zone = question.zone
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"time_zone {question.time_zone!r} is not known", hint="Write it like Asia/Shanghai"
        ) from None
    if question.as_of is not None:
        last_moment(question.as_of, zone)
    return question


def _without_repeats(keys: list[Any]) -> list[Any]:
    return [key for at, key in enumerate(keys) if key not in keys[:at]]


def last_moment(as_of: str, zone: ZoneInfo) -> datetime:
    """The last moment of a month (2025-01) or a day (2025-01-07) in that zone; a time is itself."""
    try:
        if month := _MONTH.fullmatch(as_of):
            first = datetime(int(month[1]), int(month[2]), 1, tzinfo=zone)
            return _before((first + timedelta(days=31)).replace(day=1))
        if day := _DAY.fullmatch(as_of):
            first = datetime(int(day[1]), int(day[2]), int(day[3]), tzinfo=zone)
            return _before(first + timedelta(days=1))
    except (ValueError, OverflowError):
        raise InvalidArgument(f"as_of {as_of!r} is not a date") from None
    return parse_time(as_of, "as_of")


def _before(moment: datetime) -> datetime:
    return moment.astimezone(UTC) - timedelta(microseconds=1)
