"""`memrecall extract`, with a model behind a loopback server."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell, db, import_messages, shell
from tests.model.openai_server import ModelServer, Reply, serve, text

__all__ = ["db", "shell"]

LINES = [
    {"user_id": "ann", "message_id": f"m{ts}", "role": role, "content": content, "ts": ts}
    for role, content, ts in (
        ("user", "I like tea.", "2026-01-01T00:00:00Z"),
        ("assistant", "Good.", "2026-01-01T00:01:00Z"),
        ("user", "I live in Rome.", "2026-02-01T00:00:00Z"),
    )
]


def read_facts(request: dict[str, Any]) -> Reply:
    """Return the messages of people, each as a fact of its own."""
    lines = [json.loads(line) for line in request["messages"][-1]["content"].split("\n")]
    said = [line for line in lines if line.get("role") == "user" and "context" not in line]
    facts = [{"text": f"User says: {line['text']}", "sources": [line["id"]]} for line in said]
    return text(json.dumps({"facts": facts}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with serve() as model_server:
        model_server.answer = read_facts
        monkeypatch.setenv("MEMRECALL_MODEL", "deepseek-chat")
        monkeypatch.setenv("MEMRECALL_BASE_URL", model_server.url)
        monkeypatch.setenv("MEMRECALL_API_KEY", "k")
        yield model_server


@pytest.fixture
def common(shell: Shell, db: Path) -> tuple[object, ...]:
    import_messages(shell, db, LINES)
    return ("--user", "ann", "--db", db)


def test_says_what_it_sends_and_asks_first(
    shell: Shell,
    common: tuple[object, ...],
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = shell("extract", *common)
    assert asked.code == 2
    assert re.match(r"2 messages to read: 1 call of the model, about [\d,]+ tokens\n", asked.err)
    assert "not confirmed" in asked.err
    assert server.requests == []
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    done = shell("extract", *common)
    assert re.search(
        r"2 messages read; memories: 2 added, 0 updated, 0 ended; run job_x\w+\n", done.out
    )
    assert len(server.requests) == 1
    assert shell("extract", *common).out == "no messages to read\n"


def test_dry_run_since_and_json(
    shell: Shell, common: tuple[object, ...], server: ModelServer
) -> None:
    dry = shell("extract", *common, "--dry-run", "--json").json
    assert (dry["messages"], dry["calls"], dry["run"], dry["dry_run"]) == (2, 1, None, True)
    since = ("--since", "2026-01-15T00:00:00Z")
    assert shell("extract", *common, *since, "--dry-run", "--json").json["messages"] == 1
    assert "1 message to read" in shell("extract", *common, *since, "--dry-run").out
    assert server.requests == []
    report = shell("extract", *common, *since, "--yes", "--json").json
    assert (report["read"], report["added"], report["problems"]) == (1, 1, [])


def test_run_is_listed_and_taken_back(
    shell: Shell, common: tuple[object, ...], server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shell("extract", *common, "--yes", "--json").json["run"]
    listed = shell("extract", *common, "--list")
    assert listed.out == f"{run}  3 messages\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert shell("extract", *common, "--undo", run).code == 2
    undone = shell("extract", *common, "--undo", run, "--yes")
    assert undone.out == "2 memories changed back; 3 messages unread again\n"
    assert shell("memories", "list", *common, "--json").json["results"] == []
    assert shell("extract", *common, "--list").out == "no runs\n"
    missing = shell("extract", *common, "--undo", run, "--yes")
    assert (missing.code, f"no extraction '{run}'" in missing.err) == (2, True)


def test_without_a_model_it_says_what_to_set(shell: Shell, common: tuple[object, ...]) -> None:
    failed = shell("extract", *common, "--yes")
    assert failed.code == 2
    assert "no model is configured" in failed.err
    assert "Set MEMRECALL_MODEL" in failed.err


def test_failing_model_is_reported_by_the_exit_code(
    shell: Shell, common: tuple[object, ...], server: ModelServer
) -> None:
    server.answer = lambda request: text("no JSON")
    failed = shell("extract", *common, "--yes")
    assert failed.code == 1
    assert "2 messages not read" in failed.err
    server.answer = read_facts
    assert shell("extract", *common, "--yes", "--json").json["read"] == 2
