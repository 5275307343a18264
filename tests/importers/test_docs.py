"""docs/importing.md: its table has every format, and its examples run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from memrecall.importers import FileFormat, ReadOptions, Record
from memrecall.importers.plan import FORMATS
from memrecall.importers.source import open_source
from tests.cli.conftest import Shell, db, shell

__all__ = ["db", "shell"]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "importing.md").read_text("utf-8")


def block(language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert match
    return match[1]


def test_table_has_every_format() -> None:
    rows = re.findall(r"^\| `(\w[\w-]*)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(known.name for known in FORMATS)


def test_console_example_runs(shell: Shell, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = re.split(r"^\$ memrecall ", block("console"), flags=re.MULTILINE)[1:]
    assert len(commands) == 3
    for command in commands:
        line, _, output = command.partition("\n")
        arguments = [str(db) if word == "chat.db" else word for word in shlex.split(line)]
        assert shell(*arguments).out == output


def test_format_of_the_example_reads_a_file(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(block("python"), names)  # noqa: S102 -- the example of the page
    file = tmp_path / "my.notes"
    file.write_text("2026-03-01 tea\n2026-03-02 soup\n")
    notes = names["NOTES"]
    assert isinstance(notes, FileFormat)
    with open_source(file) as source:
        assert notes.matches(source.files[0])
        items = list(notes.read(source.files[0], ReadOptions()))
    assert [item.line for item in items if isinstance(item, Record)] == [1, 2]
