"""`memrecall serve` in a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.databases import Place
from benchmarks.load import Client, Connection

REPOSITORY = Path(__file__).resolve().parent.parent
_COMMAND = "from memrecall.cli import main; main()"
_SETTINGS = {
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "local",
    "MEMRECALL_MODEL": "",
    # All clients of a benchmark share a key and an address.
    "MEMRECALL_KEY_RATE": "0",
    "MEMRECALL_ADDRESS_RATE": "0",
}


@dataclass(frozen=True, slots=True)
class Service:
    """A running service and a key for its users."""

    url: str
    process: psutil.Process
    key: str

    def processes(self) -> list[psutil.Process]:
        """Return the server and its worker processes."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu(self) -> float:
        """Return the CPU time of all processes in seconds."""
        times = [process.cpu_times() for process in self.processes()]
        return float(sum(used.user + used.system for used in times))

    def megabytes(self) -> float:
        """Return the memory of all processes."""
        return float(sum(process.memory_info().rss for process in self.processes()) / 1e6)

    @asynccontextmanager
    async def clients(
        self, requests: Sequence[Sequence[bytes]], count: int
    ) -> AsyncIterator[list[Client]]:
        """Yield clients with one connection each, which send one of the lists of requests each."""
        connections = [await Connection.open(self.url) for _ in range(count)]

        def client(number: int, connection: Connection) -> Client:
            own = requests[number % len(requests)]

            async def ask(question: int) -> None:
                await connection.ask(own[question % len(own)])

            return ask

        try:
            yield [client(*numbered) for numbered in enumerate(connections)]
        finally:
            for connection in connections:
                await connection.close()


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the source of memrecall."""

    folder: Path = REPOSITORY

    async def create_key(self, place: Place, grant: str = "--all-users") -> str:
        """Create a key for all users, or with another grant."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _COMMAND),
            *("keys", "create", "--db", place.location, grant, "--json"),
            env=self._environment(place),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, f"no key was created: {errors.decode()[-2000:]}"
        return str(json.loads(output)["key"])

    def _environment(self, place: Place, **variables: str) -> dict[str, str]:
        own = {"PYTHONPATH": str(self.folder), "MEMRECALL_CACHE_DIR": str(place.folder)}
        return {**os.environ, **_SETTINGS, **own, **variables}

    @asynccontextmanager
    async def serving(self, place: Place, **variables: str) -> AsyncIterator[Service]:
        """Start a server process on a database with a key."""
        key = await self.create_key(place)
        log = place.folder / "server.log"
        with log.open("w") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _COMMAND, "serve"),
                *("--db", place.location, "--port", "0", "--json"),
                env=self._environment(place, **variables),
                cwd=self.folder,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert process.stdout is not None
            line = await process.stdout.readline()
            assert line, log.read_text("utf-8")
            yield Service(json.loads(line)["url"], psutil.Process(process.pid), key)
        finally:
            process.terminate()
            await process.wait()
