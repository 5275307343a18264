"""The data of an evaluation: labelled questions, their results, and the corpus they are about."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from memrecall.errors import CallerError, EmbedderFailed, InvalidArgument, describe_validation_error
from memrecall.json_objects import parse_json_line
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.search import SearchRequest
from memrecall.store import Feedback, ScopedMessage, parse_record
from memrecall.text_length import single_line
from memrecall.types import (
    CleanText,
    Id,
    Name,
    NewMemory,
    Origin,
    TimeZone,
    format_time,
    parse_time,
)

_RIGHT, _WRONG = "recalled", "missed"  # categories of questions from feedback
UNANSWERABLE = frozenset({"adversarial", "unanswerable"})  # categories

_MONTH = re.compile(r"(\d{4})-(\d\d)")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")

_Label = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value or "")
]

_BATCH = 1_000
_ACTOR = "evaluation"
_MEMORY_FIELDS = frozenset(NewMemory.model_fields)
_SCOPE_FIELDS = ("user_id", "agent_id", "session_id")

ReadMessage = Callable[[bytes], ScopedMessage]


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
            end = (first + timedelta(days=31)).replace(day=1)
            return end.astimezone(UTC) - timedelta(microseconds=1)
        if day := _DAY.fullmatch(as_of):
            first = datetime(int(day[1]), int(day[2]), int(day[3]), tzinfo=zone)
            return (first + timedelta(days=1)).astimezone(UTC) - timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"as_of {as_of!r} is not a date") from None
    return parse_time(as_of, "as_of")


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


@dataclass(frozen=True, slots=True)
class CorpusMemory:
    """A memory of the corpus with its scope."""

    scope: Scope
    memory: NewMemory


@dataclass(slots=True)
class Corpus:
    """The messages and memories that the questions are about, by line number."""

    path: Path
    sha256: str
    messages: list[tuple[int, ScopedMessage]] = field(default_factory=list)
    memories: list[tuple[int, CorpusMemory]] = field(default_factory=list)
    # For each user, the time from which each key is known; None for a memory without valid_from.
    keys: dict[str, dict[str, datetime | None]] = field(default_factory=dict)
    latest: dict[str, datetime] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of rows to import."""
        return len(self.messages) + len(self.memories)

    def add_message(self, number: int, entry: ScopedMessage) -> tuple[str, str]:
        """Add the message of a line; return its user and key."""
        self.messages.append((number, entry))
        key = str(entry.message.message_id)
        return self._add_key(entry.scope.user_id, key, entry.message.ts)

    def add_memory(self, number: int, item: CorpusMemory) -> tuple[str, str]:
        """Add the memory of a line; return its user and key."""
        self.memories.append((number, item))
        key = str(item.memory.memory_key)
        return self._add_key(item.scope.user_id, key, item.memory.valid_from)

    def _add_key(self, user: str, key: str, moment: datetime | None) -> tuple[str, str]:
        self.keys.setdefault(user, {}).setdefault(key, moment)
        if moment is not None:
            self.latest[user] = max(moment, self.latest.get(user, moment))
        return user, key

    def now(self, user_id: str) -> datetime:
        """Return the time of questions without `as_of`: a minute after the latest message.

        For a user without dated rows, that is the latest message of all users.
        """
        latest = self.latest.get(user_id) or max(self.latest.values(), default=None)
        return datetime.now(UTC) if latest is None else latest + timedelta(minutes=1)


def read_corpus(path: Path, read_message: ReadMessage) -> Corpus:
    """Read a corpus: lines with a `memory_key` are memories, all others messages.

    A user's export can be read too. Deleted rows and other tables are skipped.
    """
    data = read_bytes(path)
    corpus = Corpus(path, sha256_of(data))
    lines: dict[tuple[str, str], int] = {}
    for number, line in numbered_lines(data):
        try:
            row = _unwrap(line)
            if row is None:
                continue
            fields = parse_json_line(row) if b'"memory_key"' in row else {}
            if fields.get("memory_key") is None:
                user, key = corpus.add_message(number, read_message(row))
            else:
                user, key = corpus.add_memory(number, _read_memory(fields))
            if (user, key) in lines:
                raise InvalidArgument(f"{key!r} of {user!r} repeats line {lines[user, key]}")
        except (CallerError, ValidationError) as error:
            raise at_line(path, number, error) from None
        lines[user, key] = number
    if not corpus.keys:
        raise InvalidArgument(f"{path} contains no message")
    return corpus


def _unwrap(line: bytes) -> bytes | None:
    """Return the row of a line of a user's export; None for a row that a corpus does not have."""
    record = parse_json_line(line) if b'"table"' in line else {}
    if "format" not in record:
        return line
    row = record["row"] if parse_record(record)[0] in ("messages", "memories") else None
    if row is None or row.get("deleted_at") is not None:
        return None
    if "memory_key" in row:  # it was stored long before the evaluation
        row = {**row, "valid_from": row.get("valid_from") or row["created_at"]}
    return json.dumps(row).encode()


def _read_memory(data: dict[str, Any]) -> CorpusMemory:
    user, agent, session = (data.get(name) or None for name in _SCOPE_FIELDS)
    for name, value in zip(_SCOPE_FIELDS, (user, agent, session), strict=True):
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} {value!r} is not a string")
    if user is None:
        raise InvalidArgument("user_id is missing")
    fields = {name: data[name] for name in _MEMORY_FIELDS & data.keys() if data[name] is not None}
    scope = Scope(user, agent, session, frozenset({Permission.SENSITIVE}))
    return CorpusMemory(scope, NewMemory.model_validate(fields))


def check_labels(question_set: QuestionSet, corpus: Corpus) -> None:
    """Reject questions whose user or evidence is not in the corpus."""
    for number, question in zip(question_set.numbers, question_set.questions, strict=True):
        user, keys = question.user_id, corpus.keys.get(question.user_id)
        if keys is None:
            missing = [f"user {user!r}"]
        else:
            missing = [
                f"evidence {key!r} of {user!r}" for key in question.evidence if key not in keys
            ]
        if missing:
            problem = InvalidArgument(f"{missing[0]} is not in {corpus.path}")
            raise at_line(question_set.path, number, problem)


def count_hidden(question_set: QuestionSet, corpus: Corpus, stored_at: datetime) -> int:
    """Count questions with evidence later than their `as_of`, which they cannot find.

    A memory without `valid_from` counts from `stored_at`, the time of the evaluation.
    """
    hidden = 0
    for question in question_set.questions:
        horizon, keys = question.horizon, corpus.keys[question.user_id]
        if horizon is not None:
            moments = [keys[key] or stored_at for key in question.evidence]
            hidden += any(moment > horizon for moment in moments)
    return hidden


async def import_corpus(library: Library, corpus: Corpus, advance: Callable[[int], None]) -> None:
    """Store and embed the corpus. Repeating it after an interruption is safe."""
    for start in range(0, len(corpus.messages), _BATCH):
        batch = corpus.messages[start : start + _BATCH]
        try:
            await library.add_entries([entry for _, entry in batch])
        except CallerError as error:
            raise _at_lines(corpus.path, [number for number, _ in batch], error) from None
        advance(len(batch))
    for scope, group in groupby(corpus.memories, key=lambda item: item[1].scope):
        items = list(group)
        memories = [item.memory for _, item in items]
        try:
            await library.add_memories(scope, memories, origin=Origin.IMPORT, actor=_ACTOR)
        except CallerError as error:
            raise _at_lines(corpus.path, [number for number, _ in items], error) from None
        advance(len(items))
    library.vectors.expect(dict.fromkeys(corpus.keys, 1))  # also what was stored before
    await library.vectors.settle()
    if library.vectors.failure:
        raise EmbedderFailed(
            f"the corpus could not be embedded: {library.vectors.failure}",
            hint="Fix the embedder, or set MEMRECALL_EMBEDDER=none to measure keyword search",
        )


def _at_lines(path: Path, numbers: list[int], error: CallerError) -> InvalidArgument:
    """Add the line number, or the range of lines, to an error of the store."""
    faults: dict[int, str] = error.details.get("faults", {})
    if faults:
        position = min(faults)
        return at_line(path, numbers[position], InvalidArgument(faults[position]))
    return InvalidArgument(f"{path} lines {numbers[0]} to {numbers[-1]}: {error}")
