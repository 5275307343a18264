"""The labelled recall data set: keys exist, and labels are consistent."""

import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memrecall.importers.jsonl import read_entry
from memrecall.types import NewMemory, NewMessage, Role, parse_time

from .cases import check_each

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "recall"
USERS = {"wei": "w", "nora": "n"}
WINDOW = 5
LONGEST_CONVERSATION = 14
AT_LEAST = {
    "unanswerable": 10,
    "outside_window": 8,
    "time": 6,
    "contradiction": 4,
    "assistant_said": 4,
    "path_or_number": 4,
    "vague": 4,
    "count": 4,
    "already_in_conversation": 3,
    "clear": 3,
    "preference": 3,
}
FIELDS = {
    *("id", "user_id", "kind", "now", "zone", "conversation"),
    *("evidence", "acceptable", "answerable", "labels"),
}
LABELS = {"filter", "expand", "detail", "abstain"}

Json = dict[str, Any]


def read_lines(name: str) -> list[Json]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def read_messages() -> dict[str, dict[str, NewMessage]]:
    """Read the messages of each user by id, as `memrecall import` does."""
    rows: dict[str, dict[str, NewMessage]] = {user: {} for user in USERS}
    for line in (FOLDER / "history.jsonl").read_bytes().splitlines():
        entry = read_entry(line)
        key = entry.message.message_id
        assert key is not None
        assert key not in rows[entry.scope.user_id], key
        rows[entry.scope.user_id][key] = entry.message
    return rows


def read_memories() -> dict[str, dict[str, NewMemory]]:
    rows: dict[str, dict[str, NewMemory]] = {user: {} for user in USERS}
    for row in read_lines("memories.jsonl"):
        user = row.pop("user_id")
        memory = NewMemory.model_validate(row)
        assert memory.memory_key is not None
        assert memory.memory_key not in rows[user], memory.memory_key
        rows[user][memory.memory_key] = memory
    return rows


MESSAGES = read_messages()
SESSIONS = {(row["user_id"], row["session_id"]) for row in read_lines("history.jsonl")}
MEMORIES = read_memories()
QUESTIONS = read_lines("questions.jsonl")

each_user = pytest.mark.parametrize("user", USERS)


def each_question(check: Callable[[Json], None]) -> Callable[[], None]:
    """Return a test that checks every question."""
    return lambda: check_each(QUESTIONS, check, lambda row: str(row["id"]))


@each_user
def test_history_covers_ten_months_in_many_sessions(user: str) -> None:
    messages = MESSAGES[user]
    assert list(messages) == [f"{USERS[user]}{n:03}" for n in range(1, len(messages) + 1)]
    times = [message.ts for message in messages.values() if message.ts is not None]
    assert len(times) == len(messages) >= 150
    assert times == sorted(times)
    assert times[-1] - times[0] > timedelta(days=290)
    assert times[-1] < datetime(2026, 11, 1, tzinfo=UTC)
    roles = {message.role for message in messages.values()}
    assert roles == {Role.USER, Role.ASSISTANT, Role.TOOL}
    assert sum(owner == user for owner, _ in SESSIONS) >= 20


@each_user
def test_memory_sources_belong_to_user(user: str) -> None:
    memories = MEMORIES[user]
    assert len(memories) == 12
    assert memories.keys().isdisjoint(MESSAGES[user])
    assert sum(memory.sensitive for memory in memories.values()) == 2
    for memory in memories.values():
        assert set(memory.source_message_ids) <= MESSAGES[user].keys()


def test_each_user_has_one_injected_instruction() -> None:
    pattern = re.compile("忽略之前的所有指令|ignore previous instructions")
    for messages in MESSAGES.values():
        assert sum(bool(pattern.search(m.content)) for m in messages.values()) == 1


@each_user
def test_every_kind_has_enough_questions(user: str) -> None:
    kinds = Counter(row["kind"] for row in QUESTIONS if row["user_id"] == user)
    assert kinds.keys() == AT_LEAST.keys()
    assert kinds.total() >= 50
    assert not {kind: kinds[kind] for kind, minimum in AT_LEAST.items() if kinds[kind] < minimum}


def test_question_ids_and_requests_are_unique() -> None:
    assert len({row["id"] for row in QUESTIONS}) == len(QUESTIONS)
    requests = [json.dumps(row["conversation"]) for row in QUESTIONS]
    assert len(set(requests)) == len(requests)


@each_question
def test_fields_match_readme(question: Json) -> None:
    assert question.keys() - {"session_id"} == FIELDS
    assert question["labels"].keys() == LABELS
    assert all(isinstance(label, bool) for label in question["labels"].values())
    assert isinstance(question["answerable"], bool)


@each_question
def test_conversation_alternates_and_ends_with_user(question: Json) -> None:
    conversation = question["conversation"]
    assert 1 <= len(conversation) <= LONGEST_CONVERSATION
    roles = [message["role"] for message in conversation]
    assert roles == ["user" if n % 2 == 0 else "assistant" for n in range(len(roles))]
    assert roles[-1] == "user"
    assert all(message["content"].strip() for message in conversation)
    contents = {message.content for message in MESSAGES[question["user_id"]].values()}
    assert contents.isdisjoint(message["content"] for message in conversation)


@each_question
def test_labelled_keys_exist_and_are_visible(question: Json) -> None:
    user, evidence, acceptable = (question[name] for name in ("user_id", "evidence", "acceptable"))
    keys = [*evidence, *acceptable]
    assert len(set(keys)) == len(keys)
    assert set(keys) <= MESSAGES[user].keys() | MEMORIES[user].keys()
    assert not any(MEMORIES[user][key].sensitive for key in keys if key in MEMORIES[user])
    if "session_id" in question:
        assert (user, question["session_id"]) in SESSIONS


@each_question
def test_question_time_is_after_history(question: Json) -> None:
    user, now = question["user_id"], parse_time(question["now"])
    local = datetime.fromisoformat(question["now"])
    assert local.utcoffset() == now.astimezone(ZoneInfo(question["zone"])).utcoffset()
    assert all(message.ts is not None and message.ts < now for message in MESSAGES[user].values())
    for key in question["evidence"]:
        memory = MEMORIES[user].get(key)
        if memory is not None:
            assert memory.valid_from is None or memory.valid_from <= now
            assert memory.valid_to is None or memory.valid_to > now


@each_question
def test_labels_are_consistent(question: Json) -> None:
    kind, labels, answerable = (question[name] for name in ("kind", "labels", "answerable"))
    inside = kind == "already_in_conversation"
    assert answerable == bool(question["evidence"])
    assert answerable != (inside or kind == "unanswerable")
    assert labels["abstain"] == (not answerable and not inside)
    if labels["expand"]:
        assert len(question["conversation"]) > WINDOW
    if kind == "outside_window":
        assert labels["expand"]
    if not answerable:
        assert not labels["filter"]
        assert not labels["detail"]
