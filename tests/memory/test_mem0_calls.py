"""mem0's documented calls answer in mem0's shapes; the differences that stay are documented."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mem0_calls import (
    DIFFERENCES,
    RECORD,
    compare,
    record_memrecall,
    shape_of,
    unexpected,
)

from ..waiting import PROCESS_LIMIT

ROOT = Path(__file__).parents[2]


def _recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return record


@pytest.mark.concurrent
async def test_answers_have_the_shapes_of_mem0() -> None:
    assert unexpected(compare(_recorded(), await record_memrecall())) == []


@pytest.mark.concurrent
@pytest.mark.skipif(not importlib.util.find_spec("mem0"), reason="the extra `peers` is missing")
def test_record_is_of_the_installed_mem0(tmp_path: Path) -> None:
    file = tmp_path / "calls.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "mem0_calls.py"), "--record", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=PROCESS_LIMIT)
    assert json.loads(file.read_text("utf-8")) == _recorded()


def test_every_difference_is_documented() -> None:
    page = " ".join((ROOT / "docs" / "mem0.md").read_text("utf-8").split())
    assert [reason for reason in DIFFERENCES.values() if reason not in page] == []


def test_a_difference_is_noticed() -> None:
    """The comparison itself must not pass whatever it is given."""
    call = {"answers": {"get": shape_of({"id": "a", "tags": [{"n": 1}, {"n": None}]})}}
    signature = {"parameters": ["query"], "others": False, "coroutine": False}
    mem0 = {
        name: {**call, "signatures": {"search": signature}} for name in ("Memory", "AsyncMemory")
    }
    changed = json.loads(json.dumps(mem0))
    assert compare(mem0, changed) == []
    changed["Memory"]["answers"]["get"] = shape_of({"id": 5, "tags": [{"m": 1}]})
    changed["AsyncMemory"]["signatures"] = {"search": {**signature, "parameters": []}}
    assert compare(mem0, changed) == [
        'get: id: "text" and not "number"',
        "get: tags[].n is missing",
        "AsyncMemory.search does not take query",
    ]
    assert any("no longer differs" in problem for problem in unexpected([]))
