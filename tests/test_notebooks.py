"""The notebooks, executed offline in fresh kernels and compared with their saved outputs."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import nbformat
import pytest

from notebooks.execute import HERE, ROOT, execute, names, read

from .cases import check_each
from .inert import HtmlChecker

LARGEST = 100_000  # bytes
OFFLINE = (
    "import pytest_socket; "
    "pytest_socket.socket_allow_hosts(['127.0.0.1', '::1'], allow_unix_socket=True)"
)
PROGRESS = re.compile(r"(importing|embedding|asking): [\d,.]+ \w+")
NUMBER = re.compile(r"\d+\.\d+")
# Text that differs in every run: ids, durations and creation times.
VARIABLE = re.compile(
    r"\b(?:mem|m|re|tr|job)_[0-9a-f]+|\b\d+\.\d+ s\b|\b\d{4}-\d\d-\d\d \d\d:\d\d\b"
)
HISTORY_END = "2026-06"  # times before this are part of the chat histories


class Words(HtmlChecker):
    """The text of HTML, with a space where an element ends."""

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def visible(output: Any) -> str:
    """Return the visible text of an output, without what differs in every run."""
    data = output.get("data", {})
    rich = data.get("text/html") or data.get("image/svg+xml")
    text = Words(rich).text if rich else data.get("text/plain") or output.get("text", "")
    return VARIABLE.sub(lambda match: _mask(match[0]), text)


def _mask(text: str) -> str:
    is_history = text[0].isdigit() and " s" not in text and text < HISTORY_END
    return text if is_history else "*"


def outputs(notebook: Any) -> Iterator[tuple[int, str]]:
    """Yield the outputs to compare; progress bars depend on the machine's speed."""
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            if not PROGRESS.fullmatch(output.get("data", {}).get("text/plain", "")):
                yield number, visible(output)


def assert_similar(expected: str, actual: str, place: str) -> None:
    """Check that texts are equal and numbers nearly so."""
    assert NUMBER.sub("#", actual) == NUMBER.sub("#", expected), f"{place}: run `make notebooks`"
    figures = [float(match) for match in NUMBER.findall(expected)]
    assert [float(match) for match in NUMBER.findall(actual)] == pytest.approx(figures, abs=0.03)


@cache
def executed(name: str) -> list[tuple[int, str]]:
    """Return a notebook's outputs when a fresh kernel runs it; cached, because it is slow."""
    folder = ROOT if name == "replay_a_cassette.ipynb" else HERE  # paths work in both
    return list(outputs(execute(read(name), folder, OFFLINE)))


def mark_long(name: str) -> Any:
    """Mark the notebook with three evaluation runs as long."""
    is_long = name == "compare_retrieval.ipynb"
    return pytest.param(name, marks=pytest.mark.long) if is_long else name


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)  # a kernel starts, and runs every cell
@pytest.mark.parametrize("name", [mark_long(name) for name in names()])
def test_saved_outputs_are_current(name: str) -> None:
    saved_outputs, now = list(outputs(read(name))), executed(name)
    assert [number for number, _ in now] == [number for number, _ in saved_outputs]
    for (number, before), (_, after) in zip(saved_outputs, now, strict=True):
        assert_similar(before, after, f"{name}, cell {number}")


KINDS = {"stream", "display_data", "execute_result"}
FOREIGN = re.compile(r"<script|<iframe|<link|src=|https?://(?!www\.w3\.org/2000/svg)")


def test_saved_notebooks_are_complete_small_and_clean() -> None:
    def check(name: str) -> None:
        text = (HERE / name).read_text("utf-8")
        assert len(text.encode()) < LARGEST
        cells = code_cells(json.loads(text, object_hook=nbformat.NotebookNode))
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        cell_outputs = [output for cell in cells for output in cell.outputs]
        assert {output.output_type for output in cell_outputs} <= KINDS
        assert not any(output.get("name") == "stderr" for output in cell_outputs)
        assert not re.search(r"/(?:home|root|tmp|Users|work)/", text)
        for output in cell_outputs:
            assert not FOREIGN.search(json.dumps(output.get("data", {})))

    check_each(names(), check)


def test_every_notebook_is_listed() -> None:
    listed_names = re.findall(r"\]\((\w+\.ipynb)\)", (HERE / "README.md").read_text("utf-8"))
    assert sorted(listed_names) == names()
