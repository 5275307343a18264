"""What README shows is what happens."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = ["README.md", "README.zh.md"]
BASH, *BESIDE = (shutil.which(name) for name in ("bash", "curl", "grep"))
DOCS = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))


def blocks(name: str, kind: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures")
    return tmp_path


def test_the_transcript_is_real(folder: Path) -> None:
    transcript = "".join(blocks("README.md", "console"))
    code = "from memrecall.cli import main; main()"
    steps = re.findall(r"^\$ memrecall (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) == 5
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


@pytest.mark.skipif(None in (BASH, *BESIDE), reason="needs bash, curl and grep")
def test_the_calls_over_http_are_real(folder: Path) -> None:
    (transcript,) = blocks("README.md", "shell")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) == 6
    import_chat(folder)
    with shell(folder) as run:
        for command, shown in steps:
            assert run(command, lines=shown.count("\n")) == shown, command


def import_chat(folder: Path) -> None:
    code = "from memrecall.cli import main; main()"
    call = [sys.executable, "-c", code, "import", "fixtures/demo/chat.jsonl", "--db", "chat.db"]
    subprocess.run(call, cwd=folder, capture_output=True, check=True)


@contextmanager
def shell(folder: Path) -> Iterator[Callable[..., str]]:
    """A shell that has this memrecall; where README says 8765 it uses a port that is free."""
    program = folder / "bin" / "memrecall"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m memrecall "$@"\n')
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    path = f"{program.parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [str(BASH)],
        cwd=folder,
        env={**os.environ, "PATH": path, "MEMRECALL_PORT": port, "COLUMNS": "120"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, told = process.stdin, process.stdout

        def run(command: str, lines: int) -> str:
            asked.write(command.replace("8765", port) + "\n")
            if command.endswith("&"):  # goes on saying things: what is shown is what comes first
                said = [told.readline() for _ in range(lines)]
                return "".join(said).replace(port, "8765")
            asked.write("printf '\\n%s\\n' --end--\n")
            said = list(iter(told.readline, "--end--\n"))
            text = "".join(said).strip("\n").replace(port, "8765")
            return f"{text}\n" if text else ""

        try:
            yield run
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the shell and the server that it started


def without_times(shown: str) -> str:
    """What differs between two runs: how long it took, and the trace's id."""
    return re.sub(r"(; \d+\.\d+ s\b)|\d+\.\d+ s, tr_\w+", "", shown)


def test_the_python_examples_run(folder: Path) -> None:
    told = []
    for example in blocks("README.md", "python"):
        call = [sys.executable, "-c", example]
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        told.append(done.stdout)
    recalled, remembered = told
    assert "我不吃辣，海鲜也过敏" in recalled
    assert remembered == "User lives in Milan now.\n"


@pytest.mark.parametrize("kind", ["console", "json", "python", "text", "py", "shell"])
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
