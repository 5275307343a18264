"""A fixture that runs the command line in this process."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from memrecall.cli.app import run_command_line
from memrecall.testing import ScriptedClient


@dataclass(frozen=True)
class Outcome:
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Shell = Callable[..., Outcome]
PEANUTS = "我对花生过敏，千万别放。"
GARAGE = "The spare key of the garage is with Joyce."
_DATABASES: dict[str, bytes] = {}  # by the messages that were imported into them


_build_commands_once = cache(get_command)


@pytest.fixture
def shell(
    fresh_console: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Shell:
    """Run `memrecall` with temporary user folders and the hash embedder."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")
    monkeypatch.setattr("typer.main.get_command", _build_commands_once)

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["memrecall", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_info:
            run_command_line()
        captured = capsys.readouterr()
        return Outcome(int(exit_info.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def import_messages(shell: Shell, db: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Import messages into a database, or copy one that has them; return its path."""
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    if text in _DATABASES:
        db.touch(mode=0o600)
        db.write_bytes(_DATABASES[text])
        return db
    file = db.with_suffix(".jsonl")
    file.write_text(text, "utf-8")
    assert shell("import", file, "--db", db).code == 0
    _DATABASES[text] = db.read_bytes()
    return db


@pytest.fixture
def chat(shell: Shell, db: Path) -> Path:
    """A database with some messages of lin and of maya."""
    messages = {
        "lin": ["周五聚餐，大家有什么忌口？", PEANUTS, "好的，记下了。", "今天跑了十公里。"],
        "maya": ["Biscuit limps again.", GARAGE, "Good to know.", "Lentil stew tonight."],
    }
    return import_messages(
        shell,
        db,
        (
            {
                "user_id": user,
                "message_id": f"{user}-{n}",
                "ts": f"2026-03-0{n + 1}T09:00:00Z",
                "role": "assistant" if n == 2 else "user",
                "content": text,
                "session_id": "s1",
            }
            for user, texts in messages.items()
            for n, text in enumerate(texts)
        ),
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the configured model by a scripted one."""

    def play(*steps: Any, **options: Any) -> ScriptedClient:
        client = ScriptedClient(steps, **options)
        monkeypatch.setattr("memrecall.memory.client_of", lambda settings: client)
        return client

    return play


def assert_error_line(outcome: Outcome, message: str = "") -> None:
    """Assert that a command failed and printed one line of error, with its code."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert outcome.err.endswith("]\n")
    assert outcome.err.count("\n") == 1
