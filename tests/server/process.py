"""`memrecall serve` as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 100.0  # seconds for whatever must come to an end, the start of a process included
NO_PAGES = {"MEMRECALL_DASHBOARD": "false"}  # for who asks the API alone: loading them takes long
RUN = "import sys; from memrecall.cli import main; main()"


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """A place where nothing of the user's own settings is seen."""
    homes = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    return {**os.environ, **homes, "MEMRECALL_EMBEDDER": "hash", **variables}


def command(*arguments: object) -> list[str]:
    """A memrecall command line."""
    return [sys.executable, "-c", RUN, *map(str, arguments)]


def run(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@dataclass
class Served:
    """A server that runs."""

    process: subprocess.Popen[str]
    facts: dict[str, Any]
    log: Path

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


@contextmanager
def served(folder: Path, *arguments: object, **variables: str) -> Iterator[Served]:
    """Run a server while the block runs."""
    log = folder / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command("serve", "--port", 0, "--json", *arguments),
            env=environment(folder, **variables),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text("utf-8")
        yield Served(process, json.loads(line), log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()
