"""A fixture that runs the command line in this process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from memrecall.cli.app import run


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
            run()
        captured = capsys.readouterr()
        return Outcome(int(exit_info.value.code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"
