"""The command line, called in process as a shell would call it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memrecall.cli.app import run


@dataclass(frozen=True)
class Outcome:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Shell = Callable[..., Outcome]


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    """Runs `memrecall` with a home of its own and an embedder that needs no loading."""
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["memrecall", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"
