"""What the tests of all frameworks share."""

import json
import runpy
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, RecallOptions
from memrecall.memory import Library
from memrecall.model import RecordingClient, ReplayClient
from memrecall.testing import ScriptedClient

from ..agent.recall_helpers import (
    NOW,
    check_clock_and_observer,
    check_date,
    hand_off,
    search,
)
from ..cases import check_each_async

EXAMPLES = Path(__file__).parents[2] / "examples"
LEFT_OUT = (
    "INTEGRATION TESTS LEFT OUT: `make test-integrations` installs the frameworks and runs them"
)
HISTORY = [
    {
        "id": "a1",
        "role": "user",
        "content": "My database config: PostgreSQL on port 5433, pool of 20",
    },
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


AT_NOON = RecallOptions(as_of=NOW)  # a replay needs the time of the recording


def recorded_and_replayed(library: Library, cassette: Path) -> Iterator[AsyncMemory]:
    """Yield the memory of ann twice: its model calls are recorded, then replayed."""
    for client in record_and_replay(cassette):
        yield AsyncMemory(library=library, user_id="ann", model_client=client)


async def check_recall_arguments(
    library: Library, *starts: Callable[..., Awaitable[object]]
) -> None:
    """Check that recalls of a bound memory take `clock`, `as_of` and `observer`."""

    async def check(start: Callable[..., Awaitable[object]]) -> None:
        def run(model_client: ScriptedClient, **arguments: Any) -> Awaitable[object]:
            memory = AsyncMemory(library=library, user_id="ann", model_client=model_client)
            return start(memory, **arguments)

        await check_clock_and_observer(run)
        await check_date(run)

    await check_each_async(starts, check)


def record_and_replay(cassette: Path) -> Iterator[Any]:
    """Yield a client that records a recall, then one that replays it."""
    yield RecordingClient(ScriptedClient([search(), hand_off("a1")]), cassette)
    replay = ReplayClient(cassette)
    yield replay
    replay.assert_exhausted()


def block_keys(block: str) -> list[str]:
    """Return the keys of the memories in a recalled block."""
    lines = [json.loads(line) for line in block.splitlines() if line.startswith("{")]
    return [line["memory_key"] for line in lines if "memory_key" in line]


def answer_keys(answer: str) -> list[str]:
    """Return the keys of the memories in the answer of the tool `recall`."""
    memories: list[dict[str, Any]] = json.loads(answer)["memories"]
    return [memory["memory_key"] for memory in memories]
