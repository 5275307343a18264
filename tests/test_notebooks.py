"""The notebooks, run from clean kernels, offline; what they show is what was committed."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook

from notebooks.execute import HERE, ROOT, execute, names, read

from .cases import check_each
from .inert import Reader

LARGEST = 100_000  # bytes
OFFLINE = (
    "import pytest_socket; "
    "pytest_socket.socket_allow_hosts(['127.0.0.1', '::1'], allow_unix_socket=True)"
)
PROGRESS = re.compile(r"(importing|embedding|asking): [\d,.]+ \w+")
NUMBER = re.compile(r"\d+\.\d+")
# What no two runs share: ids, how long something took, and times at which something was written.
PASSING = re.compile(
    r"\b(?:mem|m|re|tr|job)_[0-9a-f]+|\b\d+\.\d+ s\b|\b\d{4}-\d\d-\d\d \d\d:\d\d\b"
)
TOLD_UNTIL = "2026-06"  # nothing that the notebooks tell of is later


class Words(Reader):
    """The text of HTML, with a space where an element ends."""

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def visible(output: Any) -> str:
    """What a reader sees of an output, without what passes."""
    data = output.get("data", {})
    rich = data.get("text/html") or data.get("image/svg+xml")
    text = Words(rich).text if rich else data.get("text/plain") or output.get("text", "")
    return PASSING.sub(lambda found: _unless_told(found[0]), text)


def _unless_told(passing: str) -> str:
    is_told = passing[0].isdigit() and " s" not in passing and passing < TOLD_UNTIL
    return passing if is_told else "*"


def outputs(notebook: Any) -> Iterator[tuple[int, str]]:
    """What is to be compared; a bar is shown or not, as fast as the machine is."""
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            if not PROGRESS.fullmatch(output.get("data", {}).get("text/plain", "")):
                yield number, visible(output)


def assert_alike(kept: str, now: str, place: str) -> None:
    """The same words, and the same figures but for their last digits."""
    assert NUMBER.sub("#", now) == NUMBER.sub("#", kept), f"{place}: run `make notebooks`"
    figures = [float(found) for found in NUMBER.findall(kept)]
    assert [float(found) for found in NUMBER.findall(now)] == pytest.approx(figures, abs=0.03)


@cache
def executed(name: str) -> list[tuple[int, str]]:
    """What a notebook shows when a clean kernel runs it, which takes its time."""
    folder = ROOT if name == "replay_a_cassette.ipynb" else HERE  # paths work in both
    return list(outputs(execute(read(name), folder, OFFLINE)))


def with_marks(name: str) -> Any:
    """The notebook that makes three runs of an evaluation takes its time."""
    is_long = name == "compare_retrieval.ipynb"
    return pytest.param(name, marks=pytest.mark.long) if is_long else name


@pytest.mark.concurrent
@pytest.mark.timeout(600)  # a kernel starts, and runs every cell
@pytest.mark.parametrize("name", [with_marks(name) for name in names()])
def test_a_notebook_shows_what_was_committed(name: str) -> None:
    kept, now = list(outputs(read(name))), executed(name)
    assert [number for number, _ in now] == [number for number, _ in kept]
    for (number, before), (_, after) in zip(kept, now, strict=True):
        assert_alike(before, after, f"{name}, cell {number}")


@pytest.mark.concurrent
def test_an_error_is_raised_and_a_kernel_can_reach_nobody() -> None:
    calls_home = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)"
    notebook = new_notebook(cells=[new_code_cell(calls_home)])  # type: ignore[no-untyped-call]
    with pytest.raises(CellExecutionError, match="SocketConnectBlockedError"):
        execute(notebook, setup=OFFLINE)


KINDS = {"stream", "display_data", "execute_result"}
FOREIGN = re.compile(r"<script|<iframe|<link|src=|https?://(?!www\.w3\.org/2000/svg)")


def test_what_is_committed_is_whole_small_and_nobodys() -> None:
    def check(name: str) -> None:
        text = (HERE / name).read_text("utf-8")
        assert len(text.encode()) < LARGEST
        cells = code_cells(json.loads(text, object_hook=nbformat.NotebookNode))
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        shown = [output for cell in cells for output in cell.outputs]
        assert {output.output_type for output in shown} <= KINDS
        assert not any(output.get("name") == "stderr" for output in shown)
        assert not re.search(r"/(?:home|root|tmp|Users|work)/", text)
        for output in shown:
            assert not FOREIGN.search(json.dumps(output.get("data", {})))

    check_each(names(), check)


def test_every_notebook_asserts_and_shows_both_faces() -> None:
    def check(name: str) -> None:
        source = "\n".join(cell.source for cell in code_cells(read(name)))
        assert "assert " in source
        assert "await " in source
        assert "Memory(" in source.replace("AsyncMemory(", "")
        assert re.search("[\u4e00-\u9fff]", (HERE / name).read_text("utf-8"))

    check_each(names(), check)


def test_every_notebook_is_listed() -> None:
    listed = re.findall(r"\]\((\w+\.ipynb)\)", (HERE / "README.md").read_text("utf-8"))
    assert sorted(listed) == names()
