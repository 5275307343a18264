"""The corpus of an evaluation: messages and memories to import before the questions.

`make_small_stores` turns the sessions of a corpus into small stores with questions of their own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle, groupby
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ValidationError

from memrecall.errors import CallerError, EmbedderFailed, InvalidArgument
from memrecall.evaluation.questions import (
    Question,
    QuestionSet,
    at_line,
    numbered_lines,
    read_bytes,
    sha256_of,
)
from memrecall.json_objects import parse_json_line
from memrecall.library.library import Library
from memrecall.scope import Permission, Scope
from memrecall.search.ranking.people import find_speakers
from memrecall.store import ScopedMessage, parse_record
from memrecall.text.language import language_of, language_of_most
from memrecall.types import Language, NewMemory, Origin, Role

_BATCH = 1_000
_ACTOR = "evaluation"
SMALL_STORE = range(5, 41)  # messages of a session that can become a small store
_QUESTIONS_EACH = 2  # of its own and of another store, at most
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


@dataclass(slots=True, eq=False)
class _Session:
    """The rows of one session, and the questions that it alone answers, by line number."""

    messages: list[tuple[int, ScopedMessage]] = field(default_factory=list)
    memories: list[tuple[int, CorpusMemory]] = field(default_factory=list)
    questions: list[tuple[int, Question]] = field(default_factory=list)

    @property
    def language(self) -> Language:
        """The language of most messages."""
        return language_of_most(entry.message.content for _, entry in self.messages)

    @property
    def speakers(self) -> list[str]:
        """The names of the speakers, users first, so that users are renamed to users."""
        messages = [entry.message for _, entry in self.messages]
        messages.sort(key=lambda message: message.role != Role.USER)
        return list(dict.fromkeys(message.speaker for message in messages if message.speaker))

    def copy_into(self, corpus: Corpus, user: str) -> None:
        """Add the rows to a corpus as those of a new user."""
        for number, entry in self.messages:
            scope = replace(entry.scope, user_id=user)
            corpus.add_message(number, replace(entry, scope=scope))
        for number, item in self.memories:
            corpus.add_memory(number, replace(item, scope=replace(item.scope, user_id=user)))


def make_small_stores(
    corpus: Corpus, question_set: QuestionSet, count: int, seed: int
) -> tuple[Corpus, QuestionSet]:
    """Turn at most `count` sessions into users of their own, with answerable and other questions.

    A session of 5 to 40 messages becomes a store, with two of its own questions and two of another
    store. Those cannot be answered: they have no evidence and the category `unanswerable`, and
    their speakers have the names of this store's speakers. The same seed gives the same stores.
    """
    random = Random(seed)  # noqa: S311
    sessions = _split_sessions(corpus, question_set)
    stores = [item for item in sessions if len(item.messages) in SMALL_STORE and item.questions]
    if len(stores) < 2:
        raise InvalidArgument(
            f"{question_set.path} has questions about {len(stores)} sessions of "
            f"{SMALL_STORE[0]} to {SMALL_STORE[-1]} messages in {corpus.path}",
            hint="Small stores need two such sessions or more",
        )
    random.shuffle(stores)
    del stores[count:]
    small, questions = Corpus(corpus.path, ""), list[tuple[int, Question]]()
    for at, (store, other) in enumerate(zip(stores, _other_stores(stores), strict=True), 1):
        user = f"small-{at}"
        store.copy_into(small, user)
        questions += _ask_small_store(store, other, user, small.latest.get(user), random)
    numbers, parsed = zip(*questions, strict=True)
    lines = b"".join(q.model_dump_json(exclude_none=True).encode() + b"\n" for q in parsed)
    small.sha256 = sha256_of(corpus.sha256.encode() + lines)
    return small, QuestionSet(question_set.path, sha256_of(lines), parsed, numbers, lines)


def _other_stores(stores: Sequence[_Session]) -> Iterator[_Session]:
    """Yield another store for each: of its language if possible, which would be a hint."""
    rings: dict[str, list[_Session]] = defaultdict(list)
    for store in stores:
        rings[store.language].append(store)
    for store in stores:
        same = rings[store.language]
        ring = same if len(same) > 1 else stores
        yield ring[(ring.index(store) + len(ring) // 2) % len(ring)]


def _split_sessions(corpus: Corpus, question_set: QuestionSet) -> list[_Session]:
    """Return the sessions with the memories and questions that belong to a single one."""
    sessions: dict[tuple[str, str], _Session] = defaultdict(_Session)
    homes: dict[tuple[str, str], str] = {}  # session id by user and key
    for number, entry in corpus.messages:
        user, session_id = entry.scope.user_id, entry.scope.session_id
        if session_id is not None:
            sessions[user, session_id].messages.append((number, entry))
            homes[user, str(entry.message.message_id)] = session_id
    if not sessions:
        raise InvalidArgument(
            f"{corpus.path} has no sessions", hint="Small stores need messages with a session_id"
        )
    for number, item in corpus.memories:
        user = item.scope.user_id
        home = _common_home(homes, user, item.memory.source_message_ids)
        if home is not None:
            sessions[user, home].memories.append((number, item))
            homes[user, str(item.memory.memory_key)] = home
    for number, question in zip(question_set.numbers, question_set.questions, strict=True):
        home = _common_home(homes, question.user_id, question.evidence)
        if home is not None and question.answerable:
            sessions[question.user_id, home].questions.append((number, question))
    return list(sessions.values())


def _common_home(
    homes: Mapping[tuple[str, str], str], user: str, keys: Collection[str]
) -> str | None:
    found = {homes.get((user, key)) for key in keys}
    return found.pop() if len(found) == 1 else None


def _ask_small_store(
    store: _Session, other: _Session, user: str, latest: datetime | None, random: Random
) -> Iterator[tuple[int, Question]]:
    """Yield questions that a store answers, and questions of another store."""
    own_texts = {question.query for _, question in store.questions}
    others = [item for item in other.questions if item[1].query not in own_texts]
    own, foreign = (
        random.sample(items, min(_QUESTIONS_EACH, len(items)))
        for items in (store.questions, others)
    )
    for number, question in own:
        yield number, _move(question, user, number)
    for number, question in foreign:
        horizon = question.horizon
        is_later = horizon is not None and (latest is None or horizon >= latest)
        changes = {
            "query": _rename(question.query, other.speakers, store.speakers),
            "evidence": (),
            "category": "unanswerable",
            "as_of": question.as_of if is_later else None,  # an earlier one would hide the store
        }
        yield number, _move(question, user, number, **changes)


def _move(question: Question, user: str, number: int, **changes: Any) -> Question:
    """Return a question of a line as one of a new user, who has no other session."""
    fields = {"query_id": f"{user}-line-{number}", "user_id": user, "session_id": None, **changes}
    return question.model_copy(update=fields)


def _rename(query: str, theirs: Sequence[str], ours: Sequence[str]) -> str:
    """Return a query with the names of other speakers replaced by ours, all in one pass."""
    known = find_speakers(query, ours)
    strangers = find_speakers(query, [name for name in theirs if name not in ours])
    successors = cycle([name for name in ours if name not in known] or ours)
    names = {}
    for (speaker, words), new in zip(strangers.items(), successors, strict=False):
        is_first_name = len(words.split()) < len(speaker.split())
        names[words] = new.split()[0] if is_first_name else new
    if not names:
        return query
    pattern = "|".join(map(_name_pattern, sorted(names, key=len, reverse=True)))
    return re.sub(pattern, lambda match: names[match.group()], query)


def _name_pattern(name: str) -> str:
    """Return the pattern of a name as a whole word; Chinese has no spaces between words."""
    if language_of(name) == "zh":
        return re.escape(name)
    letter = r"[^\W\u4e00-\u9fff]"
    return f"(?<!{letter}){re.escape(name)}(?!{letter})"


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
    await library.vectors.embed_pending(corpus.keys)
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
