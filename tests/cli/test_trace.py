"""`memrecall trace`: stored recalls."""

import sqlite3
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from memrecall.store import TraceSummary
from memrecall.testing import call, think
from tests.cases import check_each, read_rows
from tests.cli.conftest import PEANUTS, Shell, assert_error_line

NOW = "2026-04-21T09:00:00Z"


@pytest.fixture
def peanuts_script(script: Any) -> None:
    """A model that finds the peanuts."""
    search = call("search_memories", query="花生", min_relevance_score=0.0)
    arguments = {"reason": "done", "search_summary": "found", "confidence": 0.8}
    finish = call("handoff", relevant_memory_keys=["lin-1"], **arguments)
    detail = call("get_memory_detail", memory_key="lin-1")
    script(think("look", search), detail, finish)


def recall(shell: Shell, chat: Path, user: str, query: str, *options: str) -> Any:
    outcome = shell("recall", query, "--user", user, "--db", chat, "--now", NOW, *options)
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.mark.parametrize(
    ("user", "query"), [("lin", "我对花生过敏吗？"), ("maya", "Who has the spare key?")]
)
def test_stored_trace_prints_like_live_recall(
    shell: Shell, chat: Path, user: str, query: str
) -> None:
    live = recall(shell, chat, user, query).out
    assert shell("trace", "show", "--last", "--user", user, "--db", chat).out == live
    trace_id = live.split()[-1]
    assert shell("trace", "show", trace_id, "--user", user, "--db", chat).out == live


def test_recall_json_equals_stored_trace(shell: Shell, chat: Path) -> None:
    result = recall(shell, chat, "lin", "花生过敏", "--json").json
    trace = shell("trace", "show", "--last", "--user", "lin", "--db", chat, "--json").json
    assert trace == result
    shell("users", "disable", "lin", "--db", chat)
    assert shell("trace", "show", "--last", "--user", "lin", "--db", chat).code == 0


@pytest.mark.usefixtures("peanuts_script")
def test_truncated_large_trace_can_be_shown(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = recall(shell, chat, "lin", "我对花生过敏吗？", "--json").json
    result["trace"]["events"] = result["trace"]["events"][4:]
    for event in result["trace"]["events"]:
        event.pop("output", None)
    monkeypatch.setattr(
        "memrecall.cli.recall._get_trace", AsyncMock(return_value=SimpleNamespace(body=result))
    )
    for options in ([], ["--brief"]):
        outcome = shell("trace", "show", "--last", "--user", "lin", "--db", chat, *options)
        assert (outcome.code, outcome.err) == (0, "")
        assert "│ " + PEANUTS in outcome.out


@pytest.mark.usefixtures("peanuts_script")
def test_brief_prints_call_in_one_line(shell: Shell, chat: Path) -> None:
    full = recall(shell, chat, "lin", "我对花生过敏吗？").out
    brief = shell("trace", "show", "--last", "--user", "lin", "--db", chat, "--brief").out
    assert "│ " + PEANUTS in brief
    assert "iteration" not in brief
    calls = [line for line in brief.splitlines() if line.startswith("    ▸ ")]
    assert (
        len(calls) == full.count("▸") - 1
    )  # every call except the handoff, which is printed below
    assert len(brief.splitlines()) < len(full.splitlines())


def test_list_is_newest_first_and_paged(shell: Shell, chat: Path) -> None:
    for query in ("花生一", "花生二", "花生三"):
        recall(shell, chat, "lin", query)
    base = ["trace", "list", "--user", "lin", "--db", chat, "--json"]
    listing = shell(*base).json
    assert [item["query"] for item in listing["items"]] == ["花生三", "花生二", "花生一"]
    assert listing["next_cursor"] is None
    assert listing["items"][0].keys() == {field.name for field in fields(TraceSummary)}
    first = shell(*base, "--limit", "2").json
    second = shell(*base, "--cursor", first["next_cursor"]).json
    assert [item["query"] for item in second["items"]] == ["花生一"]
    lines = shell("trace", "list", "--user", "lin", "--db", chat, "--limit", "2").out.splitlines()
    assert len(lines) == 3
    assert "花生三" in lines[0]
    assert listing["items"][0]["trace_id"] in lines[0]
    assert "--cursor" in lines[2]


def test_empty_trace_list_prints_none(shell: Shell, chat: Path) -> None:
    assert shell("trace", "list", "--user", "lin", "--db", chat).out == "none\n"
    outcome = shell("trace", "show", "--last", "--user", "lin", "--db", chat)
    assert outcome.code == 2
    assert "no recall of user 'lin' is stored" in outcome.err


def test_traces_of_other_users_are_hidden(shell: Shell, chat: Path) -> None:
    recall(shell, chat, "lin", "花生过敏")
    trace_id = shell("trace", "list", "--user", "lin", "--db", chat, "--json").json["items"][0]
    name = trace_id["trace_id"]
    other_user = shell("trace", "show", name, "--user", "maya", "--db", chat)
    missing = shell("trace", "show", "tr_0", "--user", "maya", "--db", chat)
    assert other_user.code == missing.code == 2
    assert other_user.err.replace(name, "tr_0") == missing.err
    assert shell("trace", "list", "--user", "maya", "--db", chat, "--json").json["items"] == []


def test_zero_trace_days_stores_no_traces(
    shell: Shell, chat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRECALL_TRACE_DAYS", "0")
    recall(shell, chat, "lin", "花生过敏")
    assert shell("trace", "list", "--user", "lin", "--db", chat, "--json").json["items"] == []


def test_purge_removes_old_traces_of_all_users(shell: Shell, chat: Path) -> None:
    recall(shell, chat, "lin", "花生过敏")
    recall(shell, chat, "maya", "the garage")
    with sqlite3.connect(chat) as raw:
        raw.execute("UPDATE traces SET created_at = '2020-01-01 00:00:00.000000'")
    raw.close()
    recall(shell, chat, "maya", "the spare key", "--agent", "default")
    base = ["trace", "purge", "--db", chat, "--older-than"]
    assert shell(*base, "36500", "--json").json["purged"] == 0
    assert shell(*base, "7").out == "1 trace purged\n"  # storing a new trace removed maya's
    remaining = shell("trace", "list", "--user", "maya", "--db", chat, "--json").json["items"]
    assert [item["query"] for item in remaining] == ["the spare key"]
    assert shell(*base, "0", "--json").json["purged"] == 1


def test_invalid_arguments_print_one_error_line(shell: Shell, chat: Path) -> None:

    def check(case: tuple[list[str], str]) -> None:
        arguments, message = case
        assert_error_line(shell("trace", *arguments, "--db", chat), message)

    check_each(read_rows("commands", "trace"), check)
