"""The labelled questions of an evaluation, their results, and helpers to read JSON lines."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.json_objects import parse_json_line
from memrecall.search import SearchRequest
from memrecall.store import Feedback
from memrecall.text_length import single_line
from memrecall.types import CleanText, Id, Name, TimeZone, format_time, parse_time


def read_bytes(path: Path) -> bytes:
    """Return a file's contents; raise `InvalidArgument` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"cannot read {path}: {error.strerror}", hint="Pass a file of JSON lines"
        ) from None


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of a file's contents."""
    return hashlib.sha256(data).hexdigest()


def numbered_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, numbered from 1."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield number, line


def at_line(path: Path, number: int, error: Exception) -> InvalidArgument:
    """Return the error with its file and line."""
    problem = str(error)
    if isinstance(error, ValidationError):
        problem = describe_validation_error(error)
    return InvalidArgument(f"{path} line {number}: {problem}", line=number)


_RIGHT, _WRONG = "recalled", "missed"  # categories of questions from feedback
UNANSWERABLE = frozenset({"adversarial", "unanswerable"})  # categories

_MONTH = re.compile(r"(\d{4})-(\d\d)")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")

_Label = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value or "")
]


class Question(BaseModel):
    """One line of a file of questions; other fields are ignored."""

    model_config = ConfigDict(frozen=True)

    query_id: Annotated[Name, StringConstraints(min_length=1)]
    user_id: Id
    query: CleanText
    evidence: tuple[Id, ...]  # message or memory keys; empty: the question has no answer
    category: _Label = ""
    as_of: str | None = None
    time_zone: TimeZone | None = None
    session_id: Id | None = None

    @property
    def answerable(self) -> bool:
        """True if the corpus contains the answer.

        Adversarial questions have evidence too, but about another subject or person.
        """
        return bool(self.evidence) and self.category.casefold() not in UNANSWERABLE

    @property
    def zone(self) -> ZoneInfo:
        """The user's time zone."""
        return ZoneInfo(self.time_zone or "UTC")

    @property
    def horizon(self) -> datetime | None:
        """The latest visible moment; None: everything is visible."""
        return None if self.as_of is None else last_moment(self.as_of, self.zone)

    @classmethod
    def from_feedback(cls, feedback: Feedback, time_zone: str | None) -> "Question":
        """Return the labelled question of a recall, asked at the time of the recall."""
        return cls(
            query_id=feedback.trace_id,
            user_id=feedback.user_id,
            query=single_line(feedback.query),  # several lines would be a conversation
            evidence=feedback.evidence,
            category=_RIGHT if feedback.is_right else _WRONG,
            as_of=format_time(feedback.asked_at),
            time_zone=time_zone,
        )

    def to_line(self) -> str:
        """Return the question as one line of a file."""
        return self.model_dump_json(exclude_defaults=True) + "\n"

    @property
    def conversation(self) -> list[dict[str, str]]:
        """One message per line of the query, roles alternating, the user's message last."""
        lines = [line.strip() for line in self.query.split("\n") if line.strip()]
        roles = ("user", "assistant")
        return [
            {"role": roles[(len(lines) - 1 - at) % 2], "content": text}
            for at, text in enumerate(lines)
        ]


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of a file, or its first ones, with their line numbers and raw lines."""

    path: Path
    sha256: str
    questions: tuple[Question, ...]
    numbers: tuple[int, ...]
    lines: bytes


def read_questions(path: Path, limit: int | None = None) -> QuestionSet:
    """Read a file of questions, at most `limit`; errors name the line."""
    data = read_bytes(path)
    questions: dict[str, tuple[int, Question, bytes]] = {}
    for number, line in numbered_lines(data):
        if limit is not None and len(questions) >= limit:
            break
        try:
            question = _read(line)
        except (InvalidArgument, ValidationError) as error:
            raise at_line(path, number, error) from None
        if question.query_id in questions:
            first = questions[question.query_id][0]
            repeated = InvalidArgument(f"query_id {question.query_id!r} repeats line {first}")
            raise at_line(path, number, repeated)
        questions[question.query_id] = (number, question, line.strip() + b"\n")
    if not questions:
        raise InvalidArgument(f"{path} contains no question")
    numbers, parsed, lines = zip(*questions.values(), strict=True)
    return QuestionSet(path, sha256_of(data), parsed, numbers, b"".join(lines))


def _read(line: bytes) -> Question:
    data: dict[str, Any] = parse_json_line(line)
    if isinstance(keys := data.get("evidence"), list):
        data["evidence"] = [key for at, key in enumerate(keys) if key not in keys[:at]]
    question = Question.model_validate(data)
    SearchRequest(question.query)  # rejects queries that cannot be searched for
    _ = question.horizon  # rejects an invalid `as_of`
    return question


def last_moment(as_of: str, zone: ZoneInfo) -> datetime:
    """Return the last moment of a month (2025-01) or day (2025-01-07); a time is unchanged."""
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


@dataclass(frozen=True, slots=True)
class RecallRecord:
    """The handoff of a recall and its cost."""

    relevant_memory_keys: tuple[str, ...]
    confidence: float
    abstained: bool
    stop_reason: str
    iterations: int
    windows: tuple[int, ...]
    tool_calls: int
    model_calls: int
    prompt_characters: int
    fallback: str | None = None  # why the recall went on without its model


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The keys retrieved for one question, best first; equal for equal runs."""

    query_id: str
    category: str
    retrieved: tuple[tuple[str, float | None], ...]
    probabilities: tuple[float, ...] | None = None  # of `retrieved`, if the search returns them
    recalled: RecallRecord | None = None
    without_vectors: bool = False  # some rows, or all, could be found by their words only

    @property
    def keys(self) -> list[str]:
        """The retrieved keys without their scores."""
        return [key for key, _ in self.retrieved]

    def to_line(self) -> str:
        """Return the result as one line of JSON."""
        fields = asdict(self)
        fields |= fields.pop("recalled") or {}
        if self.probabilities is None:
            del fields["probabilities"]
        if not self.without_vectors:
            del fields["without_vectors"]
        return json.dumps(fields, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "QuestionResult":
        """Parse the fields of a line written by `to_line`."""
        data: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(
            query_id=data.pop("query_id"),
            category=data.pop("category"),
            retrieved=tuple((key, score) for key, score in data.pop("retrieved")),
            probabilities=data.pop("probabilities", None),
            without_vectors=data.pop("without_vectors", False),
            recalled=RecallRecord(**data) if data else None,
        )
