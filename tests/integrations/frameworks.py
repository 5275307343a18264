"""What the tests of all frameworks share."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LEFT_OUT = (
    "INTEGRATION TESTS LEFT OUT: `make test-integrations` installs the frameworks and runs them"
)
HISTORY = [
    {"role": "user", "content": "My database config: PostgreSQL on port 5433, pool of 20"},
    {"role": "assistant", "content": "Noted: port 5433 and a pool of 20."},
]
# What the examples quote.
PEANUTS = "我对花生过敏，带花生的菜都不能点。"
SEAT = "On trains I always take a window seat in the quiet coach."
REQUEST = "Set it up like my database config from before"
REQUEST_ZH = "按照我之前的数据库配置来"


def require(package: str) -> None:
    """Skip the calling test module if a framework is not installed."""
    pytest.importorskip(package, reason=LEFT_OUT)


def run_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Run an example and return the lines that it prints."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return [line for line in capsys.readouterr().out.splitlines() if line]


def block_keys(block: str) -> list[str]:
    """Return the keys of the memories in a recalled block."""
    lines = [json.loads(line) for line in block.splitlines() if line.startswith("{")]
    return [line["memory_key"] for line in lines if "memory_key" in line]


def answer_keys(answer: str) -> list[str]:
    """Return the keys of the memories in the answer of the tool `recall`."""
    memories: list[dict[str, Any]] = json.loads(answer)["memories"]
    return [memory["memory_key"] for memory in memories]
