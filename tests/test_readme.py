"""What README shows is what happens."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = ["README.md", "README.zh.md"]
DOCS = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))


def blocks(name: str, kind: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures")
    return tmp_path


def test_the_transcript_is_real(folder: Path) -> None:
    (transcript,) = blocks("README.md", "console")
    code = "from memrecall.cli import main; main()"
    steps = re.findall(r"^\$ memrecall (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) == 4
    for arguments, shown in steps:
        call = [sys.executable, "-c", code, *shlex.split(arguments)]
        environment = {**os.environ, "COLUMNS": "120"}
        done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == (shown, 0), done.stderr


def test_the_recall_is_real(folder: Path) -> None:
    (transcript,) = blocks("README.md", "text")
    command, shown = transcript.split("\n", 1)
    code = "from memrecall.cli import main; main()"
    environment = {**os.environ, "COLUMNS": "88"}
    for arguments in (
        ["import", "fixtures/demo/chat.jsonl", "--db", "chat.db"],
        shlex.split(command.removeprefix("$ memrecall ")),
    ):
        call = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert without_times(done.stdout) == without_times(shown)


def without_times(shown: str) -> str:
    """What differs between two runs: how long it took, and the trace's id."""
    return re.sub(r"(; \d+\.\d+ s\b)|\d+\.\d+ s, tr_\w+", "", shown)


def test_the_python_example_runs(folder: Path) -> None:
    (example,) = blocks("README.md", "python")
    call = [sys.executable, "-c", example]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "我不吃辣，海鲜也过敏" in done.stdout


@pytest.mark.parametrize("kind", ["console", "python", "text", "py"])
def test_both_languages_show_the_same(kind: str) -> None:
    english, chinese = (blocks(name, kind) for name in READMES)
    assert english == chinese


@pytest.mark.parametrize(
    "name", [*READMES, "CONTRIBUTING.md", *map(str, Path("docs").glob("*.md"))]
)
def test_links_lead_somewhere(name: str) -> None:
    file = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text("utf-8")):
        assert (file.parent / target).exists(), target
