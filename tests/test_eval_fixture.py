"""The evaluation data set: evidence exists and precedes its query."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from memrecall.importers.jsonl import read_entry
from memrecall.types import NewMemory, NewMessage, Role, parse_time

from .cases import check_each

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "eval"
FIELDS = ("query_id", "user_id", "query", "answer", "evidence", "category", "as_of", "language")
USERS = {
    "en": {"arjun", "grace", "dana", "cabin-four"},
    "zh": {"team-hedeng", "fang-min", "lu-jia", "lao-tan"},
}
GROUPS = {"cabin-four", "team-hedeng"}
AT_LEAST = {
    **dict.fromkeys(("reference", "temporal", "change", "two_hop", "group", "code", "fact"), 20),
    "unanswerable": 24,
}
MESSAGES_AT_LEAST, MEMORIES_AT_LEAST, QUERIES_AT_LEAST = 640, 40, 160
MULTI_LINE_AT_LEAST = 15

Json = dict[str, Any]


def read_lines(name: str) -> list[Json]:
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").splitlines()]


def read_corpus() -> tuple[dict[str, dict[str, NewMessage]], dict[str, dict[str, NewMemory]]]:
    """Read the messages, as `memrecall import` does, and the memories of each user by id."""
    messages: dict[str, dict[str, NewMessage]] = {}
    memories: dict[str, dict[str, NewMemory]] = {}
    for row in read_lines("corpus.jsonl"):
        user = row["user_id"]
        own_messages = messages.setdefault(user, {})
        own_memories = memories.setdefault(user, {})
        key = row["memory_key"] if "memory_key" in row else row["message_id"]
        assert key not in own_messages, key
        assert key not in own_memories, key
        if "memory_key" in row:
            fields = {name: value for name, value in row.items() if name != "user_id"}
            own_memories[key] = NewMemory.model_validate(fields)
        else:
            own_messages[key] = read_entry(json.dumps(row).encode()).message
    return messages, memories


MESSAGES, MEMORIES = read_corpus()
QUERIES = read_lines("queries.jsonl")
ANSWERABLE = [row for row in QUERIES if row["category"] != "unanswerable"]


def each_user(check: Callable[[str], None]) -> Callable[[], None]:
    """Return a test that checks every user."""
    return lambda: check_each(sorted(MESSAGES), check)


def each_query(check: Callable[[Json], None]) -> Callable[[], None]:
    """Return a test that checks every query."""
    return lambda: check_each(QUERIES, check, lambda row: str(row["query_id"]))


def each_answerable(check: Callable[[Json], None]) -> Callable[[], None]:
    """Return a test that checks every answerable query."""
    return lambda: check_each(ANSWERABLE, check, lambda row: str(row["query_id"]))


def get_time(user: str, key: str) -> datetime:
    """Return the time of a message, or the start of a memory's validity."""
    moment = MESSAGES[user][key].ts if key in MESSAGES[user] else MEMORIES[user][key].valid_from
    assert moment is not None, key
    return moment


def get_text(user: str, key: str) -> str:
    row = MESSAGES[user].get(key) or MEMORIES[user][key]
    return row.content


def folded(text: str) -> str:
    return " ".join(text.casefold().split())


def test_users_match_readme() -> None:
    assert set(MESSAGES) == USERS["en"] | USERS["zh"]
    assert sum(map(len, MESSAGES.values())) >= MESSAGES_AT_LEAST
    assert sum(map(len, MEMORIES.values())) >= MEMORIES_AT_LEAST


@each_user
def test_history_is_chronological_over_most_of_a_year(user: str) -> None:
    times = [get_time(user, key) for key in MESSAGES[user]]
    assert times == sorted(times)
    assert len(set(times)) == len(times)
    assert (times[-1] - times[0]).days > 300


@each_user
def test_speakers_match_chat_kind(user: str) -> None:
    messages = MESSAGES[user].values()
    people = {message.speaker for message in messages if message.role is Role.USER}
    assert None not in people
    assert len(people) >= 4 if user in GROUPS else len(people) == 1
    assert any(message.role is Role.ASSISTANT for message in messages)


@each_user
def test_memory_sources_exist(user: str) -> None:
    for memory in MEMORIES[user].values():
        assert set(memory.source_message_ids) <= set(MESSAGES[user]), memory.memory_key
        assert memory.valid_from is not None
        assert memory.valid_to is None or memory.valid_from < memory.valid_to


def test_every_category_has_enough_queries_in_both_languages() -> None:
    categories = Counter(row["category"] for row in QUERIES)
    assert set(categories) == set(AT_LEAST)
    for category, minimum in AT_LEAST.items():
        assert categories[category] >= minimum, category
        for language in USERS:
            rows = [row for row in QUERIES if row["language"] == language]
            assert sum(row["category"] == category for row in rows) >= minimum // 2, category
    languages = Counter(row["language"] for row in QUERIES)
    assert len(QUERIES) >= QUERIES_AT_LEAST
    assert languages["en"] == languages["zh"] == len(QUERIES) // 2


def test_queries_are_unique() -> None:
    assert len({row["query_id"] for row in QUERIES}) == len(QUERIES)
    assert len({folded(row["query"]) for row in QUERIES}) == len(QUERIES)


def test_readme_counts_are_current() -> None:
    counts = Counter((row["category"], row["language"]) for row in QUERIES)
    readme = (FOLDER / "README.md").read_text("utf-8")
    for category in AT_LEAST:
        row = f"| {counts[category, 'en']} | {counts[category, 'zh']} |"
        lines = [line for line in readme.splitlines() if line.startswith(f"| `{category}` |")]
        assert len(lines) == 1, category
        assert lines[0].endswith(row), category
    for user in MESSAGES:
        row = f"| {len(MESSAGES[user])} | {len(MEMORIES[user])} |"
        lines = [line for line in readme.splitlines() if line.startswith(f"| `{user}` |")]
        assert len(lines) == 1, user
        assert lines[0].endswith(row), user


@each_query
def test_query_has_required_fields(query: Json) -> None:
    assert tuple(query) == FIELDS
    assert query["query"].strip() == query["query"] != ""
    assert query["user_id"] in USERS[query["language"]]
    assert query["query_id"].startswith(f"{query['language']}-{query['category']}-")
    assert datetime.fromisoformat(query["as_of"]).tzinfo is not None
    assert (query["category"] == "group") <= (query["user_id"] in GROUPS)


@each_query
def test_only_unanswerable_queries_lack_evidence(query: Json) -> None:
    answerable = query["category"] != "unanswerable"
    assert bool(query["evidence"]) is answerable
    assert bool(query["answer"]) is answerable


@each_answerable
def test_evidence_belongs_to_user_and_precedes_query(query: Json) -> None:
    user, evidence = query["user_id"], query["evidence"]
    assert len(set(evidence)) == len(evidence)
    assert set(evidence) <= set(MESSAGES[user]) | set(MEMORIES[user])
    assert set(evidence) & set(MESSAGES[user])  # a memory is never the only evidence
    query_time = parse_time(query["as_of"])
    for key in evidence:
        assert get_time(user, key) < query_time, key
        valid_to = MEMORIES[user][key].valid_to if key in MEMORIES[user] else None
        assert valid_to is None or query_time < valid_to, key


@each_answerable
def test_evidence_does_not_contain_query(query: Json) -> None:
    for line in query["query"].splitlines():
        for key in query["evidence"]:
            assert folded(line) not in folded(get_text(query["user_id"], key)), key


def test_two_hop_evidence_spans_two_days() -> None:
    for row in QUERIES:
        if row["category"] == "two_hop":
            days = {get_time(row["user_id"], key).date() for key in row["evidence"]}
            assert len(days) > 1, row["query_id"]


def test_dialogues_end_with_user_reference() -> None:
    dialogues = [row for row in QUERIES if "\n" in row["query"]]
    assert len(dialogues) >= MULTI_LINE_AT_LEAST
    for row in dialogues:
        lines = row["query"].split("\n")
        assert row["category"] == "reference", row["query_id"]
        assert len(lines) % 2 == 1, row["query_id"]  # user, assistant, …, user
        assert all(line.strip() for line in lines), row["query_id"]


def test_queries_have_varied_times() -> None:
    assert len({row["as_of"][:7] for row in QUERIES}) >= 6
