"""Progress of long work: in a notebook, in a terminal, by a callback, or disabled."""

import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from memrecall import progress
from memrecall.memory import Importer, Library, Reindexer
from memrecall.progress import progress_bar, terminal_bar
from memrecall.settings import Settings

from .evaluation.samples import message, write_lines


class FakeNotebook:
    """A fake notebook kernel that records the states of each display."""

    def __init__(self) -> None:
        self.displays: list[list[str]] = []

    def display(self, view: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert display_id
        assert raw
        states = [view["text/plain"]]
        self.displays.append(states)
        return SimpleNamespace(update=lambda now, raw: states.append(now["text/plain"]))


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FakeNotebook:
    fake = FakeNotebook()
    module: Any = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    module.display = SimpleNamespace(display=fake.display)
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(progress, "_DELAY", 0.0)
    monkeypatch.setattr(progress, "_INTERVAL", 0.0)
    return fake


def test_notebook_line_is_updated_in_place(notebook: FakeNotebook) -> None:
    with progress_bar(None, "asking", 3, unit="questions") as advance:
        advance(1)
        advance(2)
    assert notebook.displays == [
        ["asking: 1 of 3 questions", "asking: 3 questions", "asking: 3 questions"]
    ]


def test_short_work_shows_no_line(notebook: FakeNotebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY", 60.0)
    with progress_bar(None, "asking", 3, unit="questions") as advance:
        advance(3)
    assert notebook.displays == []
    with progress_bar(True, "asking", 3, unit="questions") as advance:
        advance(1)
        assert len(notebook.displays) == 1  # shown at once on request


def test_progress_false_and_callback(notebook: FakeNotebook) -> None:
    steps: list[int] = []
    with progress_bar(False, "asking", 3, unit="questions") as advance:
        advance(3)
    with progress_bar(steps.append, "asking", 3, unit="questions") as advance:
        advance(3)
    assert steps == [3]
    assert notebook.displays == []


def test_terminal_shows_bar_and_pipe_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, width=80)
    with terminal_bar(terminal, "importing", 3, unit="lines") as advance:
        advance(3)
    assert "importing" in output.getvalue()
    assert "3/3" in output.getvalue()
    for choice in (True, None):
        with progress_bar(choice, "importing", 3, unit="lines") as advance:
            advance(3)
    assert capfd.readouterr() == ("", "")


async def test_import_and_embedding_report_progress(notebook: FakeNotebook, tmp_path: Path) -> None:
    rows = [message("lin", f"m{n}", "2026-01-05", f"number {n}") for n in range(300)]
    file = write_lines(tmp_path / "chat.jsonl", rows)
    settings = Settings(db=str(tmp_path / "m.db"), embedder="hash", snapshots=False)
    async with await Library.open(settings) as library:
        await Importer(library).run(file)
        await library.vectors.settle()
        first = [states[0].partition(":")[0] for states in notebook.displays]
        assert first == ["importing", "embedding"]
        assert notebook.displays[1][-1] == "embedding: 300 rows"
        await Reindexer(library).run()
        assert notebook.displays[2][-1] == "reindexing: 0 rows"
