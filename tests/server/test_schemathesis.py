"""Requests that somebody else makes up, from what the OpenAPI document says.

A few of each kind, always the same, among the other tests; many, and others every time, by
`make fuzz`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .fuzzing import MEMORY
from .process import NO_PAGES, run, served
from .recording import EXAMPLE_USER

HERE = Path(__file__).parent
FEW = "6"
EXAMPLES = os.environ.get("MEMRECALL_FUZZ_EXAMPLES", FEW)
SEED = os.environ.get("MEMRECALL_FUZZ_SEED", "1")
SECONDS = 600 if EXAMPLES == FEW else 7_200
# What takes longest, the values of every parameter one by one and calls in a row, `make fuzz` does.
PHASES = "examples,fuzzing" if EXAMPLES == FEW else "examples,coverage,fuzzing,stateful"
WITH_BODIES = (
    "/v1/messages/lexical_search",
    "/v1/messages/semantic_search",
    "/v1/memories",
    "/v1/memories/search",
)
WITHOUT = ("/v1/memories/{memory_id}", "/v1/graph", "/v1/state")


@pytest.mark.timeout(SECONDS + 60)
def test_responses_match_openapi_document(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    run(tmp_path, "add", "likes tea", "--user", EXAMPLE_USER, "--key", MEMORY, "--db", db)
    made = run(tmp_path, "keys", "create", "--user", EXAMPLE_USER, "--operator", "--db", db)
    with served(tmp_path, "--db", db, **NO_PAGES) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(HERE / "schemathesis.toml")),
                *("run", f"{server.url}/openapi.json", "--checks", "all"),
                # What a schema cannot say, a request that fits it may still get wrong: the query
                # language, the characters of an id, a range that ends before it begins.
                *("--exclude-checks", "positive_data_acceptance"),
                *("--phases", PHASES, "--max-examples", EXAMPLES, "--seed", SEED, "--no-shrink"),
                *("-H", f"Authorization: Bearer {made.stdout.strip()}"),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[1]),
                "SCHEMATHESIS_HOOKS": "tests.server.fuzzing",
            },
            cwd=tmp_path,  # it keeps what it found in a folder of its own
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        told = [line[:300] for line in done.stdout.splitlines()[-120:]]
        assert done.returncode == 0, "\n".join(told)
        reached = {
            (line["route"], line["status"]) for line in server.lines() if line["event"] == "request"
        }
    assert not [line for line in reached if line[1] >= 500]
    # It did get through to what it tests, and was refused where it asked for what cannot be.
    assert {(route, 200) for route in (*WITH_BODIES, *WITHOUT)} <= reached
    refused = WITH_BODIES if EXAMPLES == FEW else (*WITH_BODIES, *WITHOUT)
    assert {(route, 400) for route in refused} <= reached
