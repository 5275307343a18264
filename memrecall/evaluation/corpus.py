"""The corpus of an evaluation: messages and memories, and how they get into a store."""

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
    digest,
    numbered_lines,
    read_bytes,
    read_object,
)
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.store import ScopedMessage
from memrecall.types import NewMemory, Origin

BATCH = 1_000
ACTOR = "evaluation"
_MEMORY_FIELDS = frozenset(NewMemory.model_fields)
_SCOPE_FIELDS = ("user_id", "agent_id", "session_id")

ReadMessage = Callable[[bytes], ScopedMessage]


@dataclass(frozen=True, slots=True)
class CorpusMemory:
    """A memory of the corpus, with its scope."""

    scope: Scope
    memory: NewMemory


@dataclass(slots=True)
class Corpus:
    """What the questions are about."""

    path: Path
    sha256: str
    messages: list[tuple[int, ScopedMessage]] = field(
        default_factory=list
    )  # with their line numbers
    memories: list[tuple[int, CorpusMemory]] = field(default_factory=list)
    # Of each user: every key with the time since when it is known, None for a memory without one.
    keys: dict[str, dict[str, datetime | None]] = field(default_factory=dict)
    last_said: dict[str, datetime] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many lines are to be stored."""
        return len(self.messages) + len(self.memories)

    def now(self, user_id: str) -> datetime:
        """When a question that names no time is asked: a minute after the user's last message.

        A user who is only remembered is asked about after everybody's last message.
        """
        last = self.last_said.get(user_id) or max(self.last_said.values(), default=None)
        return datetime.now(UTC) if last is None else last + timedelta(minutes=1)


def read_corpus(path: Path, read_message: ReadMessage) -> Corpus:
    """Read messages as an import does, and lines with a `memory_key` as memories."""
    data = read_bytes(path)
    corpus = Corpus(path, digest(data))
    places: dict[tuple[str, str], int] = {}
    for number, line in numbered_lines(data):
        try:
            user, key = _take(corpus, number, line, read_message)
            if (user, key) in places:
                raise InvalidArgument(f"{key!r} of {user!r} is on line {places[user, key]} already")
        except (CallerError, ValidationError) as error:
            raise at_line(path, number, error) from None
        places[user, key] = number
    if not corpus.keys:
        raise InvalidArgument(f"{path} has no message")
    return corpus


def _take(corpus: Corpus, number: int, line: bytes, read_message: ReadMessage) -> tuple[str, str]:
    """Put one line where it belongs; tells whose it is and its key."""
    data = read_object(line) if b'"memory_key"' in line else {}
    if data.get("memory_key") is None:
        entry = read_message(line)
        corpus.messages.append((number, entry))
        user, key, moment = entry.scope.user_id, str(entry.message.message_id), entry.message.ts
    else:
        found = _read_memory(data)
        corpus.memories.append((number, found))
        user, key = found.scope.user_id, str(found.memory.memory_key)
        moment = found.memory.valid_from
    corpus.keys.setdefault(user, {}).setdefault(key, moment)
    if moment is not None:
        corpus.last_said[user] = max(moment, corpus.last_said.get(user, moment))
    return user, key


def _read_memory(data: dict[str, Any]) -> CorpusMemory:
    user, agent, session = (data.get(name) or None for name in _SCOPE_FIELDS)
    for name, value in zip(_SCOPE_FIELDS, (user, agent, session), strict=True):
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} {value!r} is not a string")
    if user is None:
        raise InvalidArgument("user_id is missing")
    given = {name: data[name] for name in _MEMORY_FIELDS & data.keys() if data[name] is not None}
    scope = Scope(user, agent, session, frozenset({Permission.SENSITIVE}))
    return CorpusMemory(scope, NewMemory.model_validate(given))


def check_labels(asked: QuestionSet, corpus: Corpus) -> None:
    """Refuse questions about nobody, or with evidence that the corpus has not."""
    for number, question in zip(asked.numbers, asked.questions, strict=True):
        keys = corpus.keys.get(question.user_id)
        if keys is None:
            unknown = InvalidArgument(f"user {question.user_id!r} is not in {corpus.path}")
            raise at_line(asked.path, number, unknown)
        missing = [key for key in question.evidence if key not in keys]
        if missing:
            lacking = InvalidArgument(
                f"evidence {missing[0]!r} of {question.user_id!r} is not in {corpus.path}"
            )
            raise at_line(asked.path, number, lacking)


def count_hidden(asked: QuestionSet, corpus: Corpus, stored_at: datetime) -> int:
    """How many questions have evidence that is later than their `as_of`, and so out of reach.

    A memory that does not say since when it holds is known from when the evaluation is run.
    """
    hidden = 0
    for question in asked.questions:
        horizon, keys = question.horizon, corpus.keys[question.user_id]
        if horizon is not None:
            moments = [keys[key] or stored_at for key in question.evidence]
            hidden += any(moment > horizon for moment in moments)
    return hidden


async def fill(library: Library, corpus: Corpus, advance: Callable[[int], None]) -> None:
    """Store the corpus and make its vectors. Can be done again after it was stopped."""
    for start in range(0, len(corpus.messages), BATCH):
        part = corpus.messages[start : start + BATCH]
        try:
            await library.add_entries([entry for _, entry in part])
        except CallerError as error:
            raise _placed(corpus.path, [number for number, _ in part], error) from None
        advance(len(part))
    for scope, group in groupby(corpus.memories, key=lambda item: item[1].scope):
        some = list(group)
        batch = [remembered.memory for _, remembered in some]
        try:
            await library.add_memories(scope, batch, origin=Origin.IMPORT, actor=ACTOR)
        except CallerError as error:
            raise _placed(corpus.path, [number for number, _ in some], error) from None
        advance(len(some))
    await library.vectors.embed_pending(corpus.keys)
    if library.vectors.failure:
        raise EmbedderFailed(
            f"the corpus could not be embedded: {library.vectors.failure}",
            hint="Mend that, or set MEMRECALL_EMBEDDER to none to measure keywords alone",
        )


def _placed(path: Path, numbers: list[int], error: CallerError) -> InvalidArgument:
    """The store's complaint about some lines; it names the first by its position, or none."""
    faults: dict[int, str] = error.details.get("faults", {})
    if faults:
        position = min(faults)
        return at_line(path, numbers[position], InvalidArgument(faults[position]))
    return InvalidArgument(f"{path} lines {numbers[0]} to {numbers[-1]}: {error}")
