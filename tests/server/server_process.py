"""`memrecall serve` in a separate process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT = 100.0  # seconds, including the start of a process
WITHOUT_DASHBOARD = {"MEMRECALL_DASHBOARD": "false"}  # the embedder takes seconds to load
_MAIN = "import sys; from memrecall.cli import main; main()"


def make_environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return environment variables without the settings of the current user."""
    homes = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    # Starting worker processes costs two seconds; tests of them set their number.
    quick = {"MEMRECALL_EMBEDDER": "hash", "MEMRECALL_TEXT_WORKERS": "0"}
    return {**os.environ, **homes, **quick, **variables}


def command_line(*arguments: object) -> list[str]:
    """Return the arguments that run a memrecall command."""
    return [sys.executable, "-c", _MAIN, *map(str, arguments)]


def run_command(
    folder: Path, *arguments: object, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a memrecall command and return its output."""
    return subprocess.run(
        command_line(*arguments),
        env=make_environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@dataclass
class ServerProcess:
    """A running server, its announcement and its log."""

    process: subprocess.Popen[str]
    info: dict[str, Any]
    log: Path

    @property
    def url(self) -> str:
        return str(self.info["url"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the parsed lines of the log."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


@contextmanager
def run_server(
    folder: Path, *arguments: object, prefix: Sequence[str] = (), **variables: str
) -> Iterator[ServerProcess]:
    """Run a server while the block runs, by a command before its own if there is a prefix."""
    log = folder / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*prefix, *command_line("serve", "--port", 0, "--json", *arguments)],
            env=make_environment(folder, **variables),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text("utf-8")
        yield ServerProcess(process, json.loads(line), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()
