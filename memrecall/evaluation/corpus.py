"""The corpus of an evaluation: messages and memories to import before the questions."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memrecall.errors import CallerError, EmbedderFailed, InvalidArgument
from memrecall.evaluation.questions import (
    QuestionSet,
    at_line,
    numbered_lines,
    read_bytes,
    sha256_of,
)
from memrecall.json_objects import parse_json_line
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import ScopedMessage, parse_record
from memrecall.types import NewMemory, Origin

_BATCH = 1_000
_ACTOR = "evaluation"
_MEMORY_FIELDS = frozenset(NewMemory.model_fields)
_SCOPE_FIELDS = ("user_id", "agent_id", "session_id")

ReadMessage = Callable[[bytes], ScopedMessage]


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
            user, key = _add_line(corpus, number, row, read_message)
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


def _add_line(
    corpus: Corpus, number: int, line: bytes, read_message: ReadMessage
) -> tuple[str, str]:
    """Add one line to the corpus; return its user and key."""
    data = parse_json_line(line) if b'"memory_key"' in line else {}
    if data.get("memory_key") is None:
        return corpus.add_message(number, read_message(line))
    return corpus.add_memory(number, _read_memory(data))


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
