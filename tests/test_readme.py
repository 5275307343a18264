"""The transcripts, examples and links of README and docs."""

import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from memrecall.cli import main

from .cases import check_each

ROOT = Path(__file__).parent.parent
MEMRECALL = (sys.executable, "-c", "from memrecall.cli import main; main()")
READMES = ["README.md", "README.zh.md"]
BASH, *BESIDE = (shutil.which(name) for name in ("bash", "curl", "grep"))
DOCS = sorted(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))


def blocks(name: str, kind: str) -> list[str]:
    text = (ROOT / name).read_text("utf-8")
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    return tmp_path


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the demo's chat, which tests copy."""
    file = tmp_path_factory.mktemp("chat") / "chat.db"
    call = [*MEMRECALL, "import", "fixtures/demo/chat.jsonl", "--db", str(file)]
    subprocess.run(call, cwd=ROOT, capture_output=True, check=True)
    return file


@pytest.mark.docs
@pytest.mark.usefixtures("fresh_console")
def test_console_transcript_matches(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    transcript = "".join(blocks("README.md", "console"))
    steps = re.findall(r"^\$ memrecall (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) == 5
    for arguments, expected in steps:
        monkeypatch.setattr("sys.argv", ["memrecall", *shlex.split(arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        output = capsys.readouterr()
        assert (output.out, exit_info.value.code or 0) == (expected, 0), output.err


@pytest.mark.docs
@pytest.mark.concurrent
def test_recall_transcript_matches(folder: Path, chat: Path) -> None:
    (transcript,) = blocks("README.md", "text")
    command, expected = transcript.split("\n", 1)
    environment = {**os.environ, "COLUMNS": "88"}
    shutil.copy(chat, folder)
    call = [*MEMRECALL, *shlex.split(command.removeprefix("$ memrecall "))]
    process = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert without_times(process.stdout) == without_times(expected)


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)  # starts several processes, one after the other
@pytest.mark.skipif(None in (BASH, *BESIDE), reason="needs bash, curl and grep")
def test_http_transcript_matches(folder: Path, chat: Path) -> None:
    (transcript,) = blocks("README.md", "shell")
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", transcript, re.MULTILINE)
    assert len(steps) == 6
    shutil.copy(chat, folder)
    with shell(folder) as run:
        for command, expected in steps:
            assert run(command, lines=expected.count("\n")) == expected, command


@contextmanager
def shell(folder: Path) -> Iterator[Callable[..., str]]:
    """Run a shell that finds this memrecall, and uses a free port instead of 8765.

    The service chooses the port, so that no other process can take it before.
    """
    program = folder / "bin" / "memrecall"
    program.parent.mkdir()
    python = shlex.quote(sys.executable)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = serve ] && set -- "$@" --port 0\nexec {python} -m memrecall "$@"\n'
    )
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [str(BASH)],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "120"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, output = process.stdin, process.stdout
        port = "8765"  # until the service prints another

        def run(command: str, lines: int) -> str:
            nonlocal port
            stdin.write(command.replace("8765", port) + "\n")
            if command.endswith("&"):  # keeps printing: compare the first lines only
                lines_read = [output.readline() for _ in range(lines)]
                if listens := re.search(r"http://127\.0\.0\.1:(\d+)", lines_read[0]):
                    port = listens[1]
                return "".join(lines_read).replace(port, "8765")
            stdin.write("printf '\\n%s\\n' --end--\n")
            lines_read = list(iter(output.readline, "--end--\n"))
            text = "".join(lines_read).strip("\n").replace(port, "8765")
            return f"{text}\n" if text else ""

        try:
            yield run
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the shell and the server that it started


def without_times(text: str) -> str:
    """Remove what differs between two runs: durations and the trace's id.

    A call that takes less than 0.1 s has no duration, so that a slow one may have an extra line.
    """
    text = re.sub(r"^ +\d+\.\d+ s\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(; \d+\.\d+ s\b)|\d+\.\d+ s, tr_\w+", "", text)


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)
def test_python_examples_run(folder: Path) -> None:
    outputs = []
    for example in blocks("README.md", "python"):
        call = [sys.executable, "-c", example]
        process = subprocess.run(call, cwd=folder, capture_output=True, text=True)
        assert (process.returncode, process.stderr) == (0, "")
        outputs.append(process.stdout)
    recall_output, memory_output = outputs
    assert "我不吃辣，海鲜也过敏" in recall_output
    assert memory_output == "User lives in Milan now.\n"


def test_readmes_share_code_blocks() -> None:
    def check(kind: str) -> None:
        english, chinese = (blocks(name, kind) for name in READMES)
        assert english == chinese

    check_each(["console", "json", "python", "text", "py", "shell"], check)


def names_of(module: str) -> set[str]:
    """Return what a module defines; one for an agent framework, which is not installed, is read."""
    if not module.startswith("memrecall.integrations."):
        return {*vars(import_module(module)), *getattr(import_module(module), "__all__", ())}
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8")
    nodes = ast.parse(source).body
    return {n.name for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)}


def test_imports_in_documents_work() -> None:
    """What a document imports exists, also where its examples need a model or a server to run."""

    def check(name: str) -> None:
        for block in (*blocks(name, "py"), *blocks(name, "python")):
            for node in ast.walk(ast.parse(block, name)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memrecall"):
                    names = names_of(str(node.module))
                    assert [alias.name for alias in node.names if alias.name not in names] == []

    check_each([*READMES, *DOCS], check)


def test_relative_links_exist() -> None:
    def check(name: str) -> None:
        file = ROOT / name
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", file.read_text("utf-8")):
            assert target.startswith("https://") or (file.parent / target).exists(), target

    check_each([*READMES, "CONTRIBUTING.md", *DOCS], check)
