"""Question files: conversations, dates and error messages."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memrecall.errors import InvalidArgument
from memrecall.evaluation.datasets import (
    Question,
    check_labels,
    last_moment,
    read_corpus,
    read_questions,
)
from memrecall.importers.jsonl import read_entry
from memrecall.memory import AsyncMemory
from memrecall.settings import Settings
from memrecall.store import Feedback
from memrecall.types import format_time
from tests.evaluation.samples import CORPUS, QUERIES, message, write_lines
from tests.extractors import SentenceExtractor

UTC_ZONE = ZoneInfo("UTC")


def make_question(query: str) -> Question:
    return Question(query_id="q", user_id="u", query=query, evidence=())


@pytest.mark.parametrize(
    ("query", "roles"),
    [
        ("one line", ["user"]),
        ("she\n\n  he \n", ["assistant", "user"]),
        ("a\nb\nc", ["user", "assistant", "user"]),
        ("a\nb\nc\nd", ["assistant", "user", "assistant", "user"]),
    ],
)
def test_conversation_ends_with_user_message(query: str, roles: list[str]) -> None:
    conversation = make_question(query).conversation
    assert [expected_text["role"] for expected_text in conversation] == roles
    assert [expected_text["content"] for expected_text in conversation] == query.split()[
        : len(roles)
    ] or roles == ["user"]


def test_feedback_becomes_a_question_that_is_read_again(tmp_path: Path) -> None:
    label = Feedback(
        user_id="林",
        trace_id="tr_1",
        agent_id="default",
        query="我对什么\n过敏？",
        asked_at=datetime(2026, 4, 7, 10, tzinfo=UTC),
        is_right=False,
        evidence=("m1",),
        in_evaluation=True,
        actor="",
        updated_at=datetime(2026, 4, 8, tzinfo=UTC),
    )
    unanswerable = replace(label, trace_id="tr_2", evidence=(), is_right=True)
    questions = [Question.from_feedback(each, "Asia/Shanghai") for each in (label, unanswerable)]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(question.to_line() for question in questions), "utf-8")
    assert read_questions(file).questions == tuple(questions)
    assert len(questions[0].conversation) == 1
    assert [question.answerable for question in questions] == [True, False]
    assert [question.category for question in questions] == ["missed", "recalled"]


async def test_export_of_a_user_is_a_corpus(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "a.db"), embedder="none")
    async with AsyncMemory(settings=settings, extractor=SentenceExtractor()) as memory:
        said = await memory.add("I live in Lisbon and I am allergic to peanuts.", "ann")
        await memory.add("My cat is called Miso.", "ann")
        hidden = (await memory.add("I work at Porto Lighting.", "ann"))["results"][0]["id"]
        await memory.forget(hidden)
        lines = [line async for line in memory.export("ann")]
        stored = await memory.get(said["results"][1]["id"])
    corpus = read_corpus(write_lines(tmp_path / "export.jsonl", lines), read_entry)
    assert said["messages"][0] in corpus.keys["ann"]
    assert hidden not in corpus.keys["ann"]
    assert "Porto" not in str([entry.message.content for _, entry in corpus.messages])
    assert stored is not None
    since = corpus.keys["ann"][stored["id"]]
    assert since is not None
    assert format_time(since) <= stored["created_at"]
    broken = write_lines(
        tmp_path / "broken.jsonl", ['{"format": 1, "table": "messages", "row": {}}']
    )
    with pytest.raises(InvalidArgument, match=r"broken.jsonl line 1: .*'agent_id'"):
        read_corpus(broken, read_entry)


@pytest.mark.parametrize(
    ("as_of", "zone", "moment"),
    [
        ("2025-01", "UTC", "2025-01-31T23:59:59.999999Z"),
        ("2024-02", "UTC", "2024-02-29T23:59:59.999999Z"),
        ("2025-12", "UTC", "2025-12-31T23:59:59.999999Z"),
        ("2025-01-07", "UTC", "2025-01-07T23:59:59.999999Z"),
        ("2025-01-07", "Asia/Shanghai", "2025-01-07T15:59:59.999999Z"),
        ("2025-03", "America/New_York", "2025-04-01T03:59:59.999999Z"),
        ("2025-01-07T10:00:00Z", "UTC", "2025-01-07T10:00:00Z"),
        ("2025-01-07T10:00:00+08:00", "UTC", "2025-01-07T02:00:00Z"),
    ],
)
def test_as_of_is_last_moment_of_period(as_of: str, zone: str, moment: str) -> None:
    assert format_time(last_moment(as_of, ZoneInfo(zone))) == moment


@pytest.mark.parametrize("as_of", ["2025-13", "2025-02-30", "soon", "9999-12", "2025"])
def test_invalid_as_of_is_rejected(as_of: str) -> None:
    with pytest.raises(InvalidArgument, match=as_of):
        last_moment(as_of, UTC_ZONE)


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**QUERIES[0], **changes}.items() if value != "absent"}


@pytest.mark.parametrize(
    ("row", "expected_text"),
    [
        ("not json", "line 2: not JSON"),
        ("[1]", "line 2: not a JSON object"),
        ('{"query_id": "q1", "query_id": "q2"}', "line 2: query_id is given twice"),
        (changed(query_id="absent"), "line 2: query_id is missing"),
        (changed(query_id="q0"), "line 2: query_id 'q0' repeats line 1"),
        (changed(query="absent"), "line 2: query is missing"),
        (changed(query="  "), "line 2: the query is empty"),
        (changed(query="x" * 10_001), "line 2: the query has 10001 characters"),
        (changed(evidence="absent"), "line 2: evidence is missing"),
        (changed(evidence="m1"), "line 2: evidence"),
        (changed(evidence=[7]), "line 2: evidence.0 7"),
        (changed(user_id=""), "line 2: user_id"),
        (changed(as_of="soon"), "line 2: as_of 'soon' is not a time"),
        (changed(as_of=2025), "line 2: as_of 2025"),
        (
            changed(time_zone="Mars/Base"),
            "line 2: time_zone 'Mars/Base': time zone 'Mars/Base' is not known",
        ),
        (changed(user_id="nobody"), "line 2: user 'nobody' is not in"),
        (changed(evidence=["m9"]), "line 2: evidence 'm9' of 'lin' is not in"),
    ],
)
def test_invalid_question_error_names_line(tmp_path: Path, row: Any, expected_text: str) -> None:
    file = write_lines(tmp_path / "queries.jsonl", [changed(query_id="q0"), row])
    corpus = read_corpus(write_lines(tmp_path / "corpus.jsonl", CORPUS), read_entry)
    with pytest.raises(InvalidArgument) as failure:
        check_labels(read_questions(file), corpus)
    assert expected_text in str(failure.value)
    assert str(file) in str(failure.value)


@pytest.mark.parametrize(
    ("row", "expected_text"),
    [
        ("{", "line 2: not JSON"),
        (message("lin", "m2", "soon", "x"), "line 2: ts"),
        (message("lin", "m1", "2025-01-01", "again"), "line 2: 'm1' of 'lin' repeats line 1"),
        ({"user_id": "lin", "memory_key": "m1", "content": "x"}, "line 2: 'm1' of 'lin' repeats"),
        ({"user_id": "lin", "memory_key": "k"}, "line 2: content is missing"),
        ({"memory_key": "k", "content": "x"}, "line 2: user_id is missing"),
        ({"user_id": 5, "memory_key": "k", "content": "x"}, "line 2: user_id 5 is not a string"),
        ({"user_id": "lin", "memory_key": "k", "content": " "}, "line 2: content is empty"),
    ],
)
def test_invalid_corpus_line_is_named(tmp_path: Path, row: Any, expected_text: str) -> None:
    rows = [message("lin", "m1", "2025-01-01", "hello"), row]
    with pytest.raises(InvalidArgument) as failure:
        read_corpus(write_lines(tmp_path / "corpus.jsonl", rows), read_entry)
    assert expected_text in str(failure.value)


def test_empty_files_are_rejected(tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty.jsonl", [])
    with pytest.raises(InvalidArgument, match="contains no question"):
        read_questions(empty)
    with pytest.raises(InvalidArgument, match="contains no message"):
        read_corpus(empty, read_entry)
    with pytest.raises(InvalidArgument, match="cannot read"):
        read_questions(tmp_path / "nowhere.jsonl")


def test_question_limit(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "queries.jsonl", [*QUERIES[:2], "not json"])
    question_set = read_questions(file, 2)
    assert [question.query_id for question in question_set.questions] == ["q1", "q2"]
    assert question_set.lines.count(b"\n") == 2


def test_numeric_category_and_repeated_evidence(tmp_path: Path) -> None:
    rows = [changed(category=3, evidence=["m1", "m1"]), changed(query_id="n", category=None)]
    first, second = read_questions(write_lines(tmp_path / "q.jsonl", rows)).questions
    assert (first.category, first.evidence) == ("3", ("m1",))
    assert second.category == ""
