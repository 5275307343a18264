"""Requests that schemathesis generates from the OpenAPI document.

CI and `make test-long` send a few requests to each endpoint, `make fuzz` many.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .record_examples import EXAMPLE_USER
from .schemathesis_hooks import MEMORY
from .server_process import WITHOUT_DASHBOARD, run_command, run_server

FOLDER = Path(__file__).parent
FEW = "6"
EXAMPLES = os.environ.get("MEMRECALL_FUZZ_EXAMPLES", FEW)
SEED = os.environ.get("MEMRECALL_FUZZ_SEED", "1")
SECONDS = 600 if EXAMPLES == FEW else 7_200
# The slowest phases, coverage of every parameter and sequences of calls, run in `make fuzz`.
PHASES = "examples,fuzzing" if EXAMPLES == FEW else "examples,coverage,fuzzing,stateful"
UNLIMITED = {"MEMRECALL_KEY_RATE": "0", "MEMRECALL_ADDRESS_RATE": "0"}
WITH_BODIES = (
    "/v1/messages/lexical_search",
    "/v1/messages/semantic_search",
    "/v1/memories",
    "/v1/memories/search",
)
WITHOUT_BODIES = ("/v1/memories/{memory_id}", "/v1/graph", "/v1/state")


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.long
@pytest.mark.concurrent
def test_responses_match_openapi_document(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    run_command(tmp_path, "add", "likes tea", "--user", EXAMPLE_USER, "--key", MEMORY, "--db", db)
    created = run_command(
        tmp_path, "keys", "create", "--user", EXAMPLE_USER, "--operator", "--db", db
    )
    with run_server(tmp_path, "--db", db, **WITHOUT_DASHBOARD, **UNLIMITED) as server:
        completed = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli"),
                *("--config-file", str(FOLDER / "schemathesis.toml")),
                *("run", f"{server.url}/openapi.json", "--checks", "all"),
                # A request that fits the schema may still be invalid: the query language, the
                # characters of an id or a range that ends before its start are not described.
                *("--exclude-checks", "positive_data_acceptance"),
                # Without the user, or the memory, all other requests would be refused.
                *("--exclude-operation-id", "erase_user"),
                *("--exclude-operation-id", "purge_memory"),
                *("--phases", PHASES, "--max-examples", EXAMPLES, "--seed", SEED, "--no-shrink"),
                *("-H", f"Authorization: Bearer {created.stdout.strip()}"),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(FOLDER.parents[1]),
                "SCHEMATHESIS_HOOKS": "tests.server.schemathesis_hooks",
            },
            cwd=tmp_path,  # it writes its cache there
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        output = [line[:300] for line in completed.stdout.splitlines()[-120:]]
        assert completed.returncode == 0, "\n".join(output)
        reached = {
            (line["route"], line["status"])
            for line in server.log_lines()
            if line["event"] == "request"
        }
    assert not [line for line in reached if line[1] >= 500]
    # Some requests were accepted, and invalid ones were refused.
    assert {(route, 200) for route in (*WITH_BODIES, *WITHOUT_BODIES)} <= reached
    with_invalid_requests = WITH_BODIES if EXAMPLES == FEW else (*WITH_BODIES, *WITHOUT_BODIES)
    assert {(route, 400) for route in with_invalid_requests} <= reached
