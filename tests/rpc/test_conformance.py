"""The protocol's own conformance suite against the real service: `make conformance`.

The baselines beside this file list the checks that cannot pass, each with its reason. A failure
that is not listed fails this test, and so does a listed one that passes.
"""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ..server.http_service import open_library, serve_on_socket

ROOT = Path(__file__).parents[2]
BASELINES = Path(__file__).with_name("conformance")
RUNS = [
    ("2025-11-25", ("--spec-version", "2025-11-25")),
    ("2026-07-28", ("--requirements", "2026-07-28")),
]


def node(folder: Path) -> str:
    """Return the path of a recent Node: the system's, or the one beside the suite."""
    bundled = sorted(folder.glob("node_modules/node-*/bin/node"))
    for path in (shutil.which("node"), *map(str, bundled)):
        if path is None:
            continue
        completed = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        if int(re.findall(r"\d+", completed.stdout)[0]) >= 22:
            return path
    raise AssertionError("the suite wants Node 22 or newer")


@pytest.mark.conformance
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("revision", "options"), RUNS, ids=[run[0] for run in RUNS])
async def test_conformance_suite_passes(
    tmp_path: Path, revision: str, options: tuple[str, ...]
) -> None:
    folder = ROOT / os.environ["MEMRECALL_CONFORMANCE"]
    suite = folder / "node_modules" / ".bin" / "conformance"
    async with (
        open_library(str(tmp_path / "x.db"), tmp_path) as library,
        serve_on_socket(library) as service,
    ):
        command = [node(folder), str(suite), "server", "--url", f"{service.url}/mcp", *options]
        command += ["--expected-failures", str(BASELINES / f"{revision}.yml")]
        command += ["--output-dir", str(tmp_path / "results")]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        completed, _ = await process.communicate()
    assert process.returncode == 0, completed.decode()[-8_000:]
