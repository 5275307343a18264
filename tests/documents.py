"""Run the code blocks of a document in their order, as a reader would paste them.

A `sh` block is pasted into one shell that all blocks of the document share; a `python` block is
saved and run in it. The `text` block that follows shows the output. A command must not fail.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
PORT = "8765"
_END = "--end-of-block--"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A call that takes less than 0.1 s has no duration, so that a slow one may have an extra line.
# Only a terminal shows the user of the service's example.
_VARYING = re.compile(
    r"^ +\d+\.\d+ s\n|; \d+\.\d+ s\b|\d+\.\d+ s, tr_\w+|(?<=/v1/users/)\w+(?=/messages\?page_size)",
    re.MULTILINE,
)


def read_blocks(name: str) -> list[tuple[str, str]]:
    """Return the kind and the text of each code block of a document."""
    return _BLOCK.findall((ROOT / name).read_text("utf-8"))


def without_times(text: str) -> str:
    """Remove what differs between two runs or places: durations, ids of traces, a user."""
    return _VARYING.sub("", text)


def run_document(name: str, folder: Path, environment: Path | None = None) -> None:
    """Run the blocks of a document in a folder, and compare what they print.

    A document that does not activate an environment itself gets one.
    """
    blocks = read_blocks(name)
    with open_shell(folder) as shell:
        if environment:
            shell.run(f"source {shlex.quote(str(environment / 'bin' / 'activate'))}\n")
        for (kind, text), (next_kind, output) in pairwise([*blocks, ("", "")]):
            expected = output if next_kind == "text" else ""
            if kind == "sh":
                printed = shell.run(text, lines=expected.count("\n"))
            elif kind == "python":
                (folder / "example.py").write_text(text, "utf-8")
                printed = shell.run("python example.py\n")
            else:
                continue
            assert without_times(printed) == without_times(expected), text


def make_clone(folder: Path) -> Path:
    """Copy the files of the repository, and install the copy as `make demo` does."""
    names = subprocess.run(
        [
            shutil.which("git") or "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        if (source := ROOT / name).is_file() or source.is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name, follow_symlinks=False)
    make_environment(folder / ".venv", folder)
    return folder


def make_environment(folder: Path, source: Path) -> None:
    """Create a virtual environment with the dependencies of this one and memrecall from a folder.

    Its service takes any free port, so that no other process can have it.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    paths = (source, *(path for path in sys.path if path.endswith("-packages")))
    Path(packages, "memrecall.pth").write_text("".join(f"{path}\n" for path in paths), "utf-8")
    program, python = folder / "bin" / "memrecall", shlex.quote(str(folder / "bin" / "python"))
    program.write_text(
        f'#!/bin/sh\n[ "$1" = serve ] && set -- "$@" --port 0\nexec {python} -m memrecall "$@"\n'
    )
    program.chmod(0o755)


class Shell:
    """A shell that runs the blocks of one document."""

    def __init__(self, folder: Path, commands: IO[str], output: IO[str]) -> None:
        self._folder = folder
        self._commands = commands
        self._output = output
        self._port = PORT  # until the service prints another

    def run(self, block: str, lines: int = 0) -> str:
        """Return what a block prints: of a command in the background, the first lines."""
        file = self._folder / "block.sh"
        file.write_text(block.replace(PORT, self._port), "utf-8")
        self._commands.write(f". ./{file.name} < /dev/null\n")
        if block.endswith("&\n"):
            printed = "".join(self._output.readline() for _ in range(lines))
            if listens := re.search(r"http://127\.0\.0\.1:(\d+)", printed):
                self._port = listens[1]
        else:
            self._commands.write(f"printf '\\n%s\\n' {_END}\n")
            printed = "".join(iter(self._read_line, f"{_END}\n")).removesuffix("\n")
        if printed and not printed.endswith("\n"):
            printed += "\n"
        return printed.replace(self._port, PORT)

    def _read_line(self) -> str:
        line = self._output.readline()
        assert line, "a command failed, and the shell has ended"
        return line


@contextmanager
def open_shell(folder: Path) -> Iterator[Shell]:
    """Open a shell that ends when a command fails; whatever it started ends with it."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MEMRECALL", "PYTHON"))}
    environment = {**inherited, "HOME": str(folder), "COLUMNS": "88"}
    with subprocess.Popen(
        [shutil.which("bash") or "bash", "-e", "-o", "pipefail"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Shell(folder, process.stdin, process.stdout)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
