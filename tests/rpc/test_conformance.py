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

from ..server.site import opened, serving

ROOT = Path(__file__).parents[2]
BASELINES = Path(__file__).with_name("conformance")
RUNS = [
    ("2025-11-25", ("--spec-version", "2025-11-25")),
    ("2026-07-28", ("--requirements", "2026-07-28")),
]


def node(folder: Path) -> str:
    """A Node that is new enough: the system's, or one that lies beside the suite."""
    beside = sorted(folder.glob("node_modules/node-*/bin/node"))
    for path in (shutil.which("node"), *map(str, beside)):
        if path is None:
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        if int(re.findall(r"\d+", said.stdout)[0]) >= 22:
            return path
    raise AssertionError("the suite wants Node 22 or newer")


@pytest.mark.conformance
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("revision", "options"), RUNS, ids=[run[0] for run in RUNS])
async def test_the_suite(tmp_path: Path, revision: str, options: tuple[str, ...]) -> None:
    folder = ROOT / os.environ["MEMRECALL_CONFORMANCE"]
    suite = folder / "node_modules" / ".bin" / "conformance"
    async with opened(str(tmp_path / "x.db"), tmp_path) as library, serving(library) as site:
        command = [node(folder), str(suite), "server", "--url", f"{site.url}/mcp", *options]
        command += ["--expected-failures", str(BASELINES / f"{revision}.yml")]
        command += ["--output-dir", str(tmp_path / "results")]
        done = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said, _ = await done.communicate()
    assert done.returncode == 0, said.decode()[-8_000:]
