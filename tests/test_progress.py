"""Progress of long work: in a terminal, by a callback, or disabled."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from memrecall.memory import Importer, Library, Reindexer
from memrecall.progress import progress_bar, terminal_bar
from memrecall.settings import Settings

from .evaluation.samples import message, write_lines


def test_progress_false_and_callback() -> None:
    steps: list[int] = []
    with progress_bar(False, "asking", 3, unit="questions") as advance:
        advance(3)
    with progress_bar(steps.append, "asking", 3, unit="questions") as advance:
        advance(3)
    assert steps == [3]


def test_terminal_shows_bar_and_pipe_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=80)
    with terminal_bar(terminal, "importing", 3, unit="lines") as advance:
        advance(3)
    assert "importing" in output.getvalue()
    assert "3/3" in output.getvalue()
    with progress_bar(True, "importing", 3, unit="lines") as advance:
        advance(3)
    assert capfd.readouterr() == ("", "")


async def test_import_and_reindexing_report_progress(tmp_path: Path) -> None:
    rows = [message("lin", f"m{n}", "2026-01-05", f"number {n}") for n in range(300)]
    file = write_lines(tmp_path / "chat.jsonl", rows)
    settings = Settings(db=str(tmp_path / "m.db"), embedder="hash", snapshots=False)
    steps: list[int] = []
    async with await Library.open(settings) as library:
        await Importer(library).run(file, progress=steps.append)
        assert sum(steps) == 300
        await library.vectors.settle()
        await Reindexer(library).run(steps.append)
        assert sum(steps) == 300
