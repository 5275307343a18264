"""A memory that was opened before a fork says so in the child, and works on in the parent."""

import asyncio
import json
import os
import select
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.errors import OpenedBeforeFork
from memrecall.memory import Library
from memrecall.workers import DaemonThreadPool

from ..waiting import LIMIT
from .conftest import make_settings

pytestmark = [
    pytest.mark.concurrent,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks"),
]


def run_in_child(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked child; fail if it raises or hangs."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = {"result": work()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    try:
        if not select.select([read], [], [], LIMIT)[0]:
            os.kill(pid, signal.SIGKILL)
        data = os.read(read, 1_000_000)
    finally:
        os.close(read)
        os.waitpid(pid, 0)
    assert data, "the child hangs or was killed"
    answer = json.loads(data)
    assert "result" in answer, answer["error"]
    return answer["result"]


def refuse(use: Callable[[], object]) -> str:
    with pytest.raises(OpenedBeforeFork, match="opened before a fork") as caught:
        use()
    return caught.value.hint


def test_memory_of_the_parent_is_refused_and_a_new_one_works(location: str) -> None:
    settings = make_settings(location)
    with Memory(settings=settings, user_id="ann") as memory:
        memory.add("tea of the parent", infer=False)

        def work() -> list[str]:
            hint = refuse(lambda: memory.search("tea"))
            memory.close()  # does nothing: the parent goes on
            with Memory(settings=settings, user_id="ann") as own:
                own.add("tea of the child", infer=False)
            return [hint]

        assert run_in_child(work) == ["Open it after the fork, in each worker process"]
        memory.add("tea of the parent again", infer=False)
        assert len(memory.get_all()["results"]) == 3


def test_async_memory_library_and_threads_of_the_parent_are_refused(tmp_path: Path) -> None:
    settings = make_settings(str(tmp_path / "m.db"))

    async def open_both() -> tuple[AsyncMemory, Library]:
        memory, library = AsyncMemory(settings=settings), await Library.open(settings)
        await memory.add("tea", "ann", infer=False)
        return memory, library

    memory, library = asyncio.run(open_both())
    unused, pool = AsyncMemory(settings=settings), DaemonThreadPool(1)

    def work() -> int:
        refuse(lambda: asyncio.run(memory.search("tea", "ann")))
        refuse(lambda: asyncio.run(library.stats()))
        refuse(lambda: pool.submit(int))
        return len(asyncio.run(unused.search("tea", "ann"))["results"])

    assert run_in_child(work) == 1
