"""A Citus cluster on loopback, built from source: a coordinator and workers that can be killed."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from tests.databases import frozen_processes, run_in_thread

ROOT = Path(__file__).parent.parent.parent
SOURCE = "CITUS_SOURCE"  # the folder with the source archive and its build script
LOCATION = "MEMRECALL_TEST_CITUS"  # the URL of a database on a cluster that runs already
BUILD = ROOT / ".citus"
ACCOUNT = "pgserver"  # PostgreSQL refuses to run as root
# Shared memory survives no kill, so commits are synchronous; the machine never loses power.
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_preload_libraries = 'citus'
max_connections = 200
shared_buffers = 64MB
wal_level = logical
max_prepared_transactions = 200
fsync = off
full_page_writes = off
citus.recover_2pc_interval = 1s
citus.node_connection_timeout = 5s
"""


def find_source() -> Path | None:
    """Return the folder to build Citus from; None if there is none."""
    folder = Path(os.environ.get(SOURCE) or ROOT.parent / "shared" / "citus")
    return folder if (folder / "build.sh").exists() else None


def require_source() -> Path:
    """Return the folder to build Citus from; skip the test if there is none."""
    folder = find_source()
    if folder is None:
        pytest.skip(f"TESTS LEFT OUT: those of a cluster; set {SOURCE} or {LOCATION}")
    return folder


def build(source: Path) -> Path:
    """Return the folder of a PostgreSQL with Citus; the first call compiles it for minutes."""
    command = [str(source / "build.sh"), sys.executable, str(BUILD)]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def find_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Node:
    """One PostgreSQL server of a cluster."""

    def __init__(self, postgresql: Path, folder: Path) -> None:
        self._programs = postgresql / "bin"
        self._folder = folder
        self.port = find_port()
        self._run("initdb", "-N", "-A", "trust", "-U", "postgres")
        with (folder / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}port = {self.port}\n")
        self.start()

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._run("pg_ctl", "-l", str(self._folder / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop the server as an administrator does."""
        self._run("pg_ctl", "-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """End all processes of the server at once, without a checkpoint."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Keep all processes of the server stopped: they accept bytes and answer nothing."""
        postmaster = psutil.Process(int((self._folder / "postmaster.pid").read_text().split()[0]))
        with frozen_processes(postmaster):
            yield

    def is_running(self) -> bool:
        """Return whether the server runs."""
        return (self._folder / "postmaster.pid").exists()

    def location(self, database: str) -> str:
        """Return the location of a database for `Store.open`."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{database}"

    def run(self, database: str, *statements: str) -> list[Any]:
        """Run statements outside any transaction and return the rows of the last."""
        return run_in_thread(self._execute(database, statements))

    async def _execute(self, database: str, statements: tuple[str, ...]) -> list[Any]:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.port, user="postgres", database=database
        )
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._folder), *arguments]
        account: dict[str, Any] = {"user": ACCOUNT} if os.getuid() == 0 else {}
        # Output goes nowhere: the server would keep a pipe open for as long as it runs.
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, cwd=self._folder, **quiet, **account)


class Cluster:
    """A coordinator and workers; a database of the cluster exists on all of them."""

    def __init__(self, postgresql: Path, folder: Path) -> None:
        self._postgresql = postgresql
        self._folder = folder
        self._numbers = count()
        self.coordinator = self.make_node()
        self.workers = [self.make_node(), self.make_node()]

    @property
    def nodes(self) -> list[Node]:
        """All nodes, the coordinator first."""
        return [self.coordinator, *self.workers]

    def make_node(self) -> Node:
        """Start another server, which is not part of any database's cluster yet."""
        folder = self._folder / f"node{next(self._numbers)}"
        folder.mkdir()
        if os.getuid() == 0:
            shutil.chown(folder, ACCOUNT)
        return Node(self._postgresql, folder)

    def create_alone(self) -> str:
        """Create a database with Citus on the coordinator, which knows no other node."""
        name = f"test{next(self._numbers)}"
        self.prepare(self.coordinator, name)
        return name

    def create(self, *, distributable: bool = True) -> str:
        """Create a database and return its name; `distributable` makes all nodes know it."""
        name = f"test{next(self._numbers)}"
        for node in self.nodes if distributable else [self.coordinator]:
            self.prepare(node, name, with_citus=distributable)
        if distributable:
            add = "SELECT citus_add_node('127.0.0.1', {})"
            self.coordinator.run(
                name,
                f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port})",
                *(add.format(worker.port) for worker in self.workers),
            )
        return name

    @staticmethod
    def prepare(node: Node, name: str, *, with_citus: bool = True) -> None:
        """Create a database on one node."""
        node.run("postgres", f"CREATE DATABASE {name}")
        if with_citus:
            node.run(name, "CREATE EXTENSION citus")

    def drop(self, name: str) -> None:
        """Drop a database from all nodes."""
        for node in self.nodes:
            node.run("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def close(self) -> None:
        """Stop all servers."""
        for node in self.nodes:
            if node.is_running():
                node.kill()


@contextmanager
def start_cluster(source: Path) -> Iterator[Cluster]:
    """Start a cluster in a temporary folder, built from source if it is not built yet."""
    postgresql = build(source)
    if os.getuid() == 0 and ACCOUNT not in {entry.pw_name for entry in pwd.getpwall()}:
        subprocess.run(["/usr/sbin/useradd", ACCOUNT], check=True)
    with tempfile.TemporaryDirectory(prefix="mr-citus-") as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(postgresql, Path(folder))
        try:
            yield cluster
        finally:
            cluster.close()
