"""A memory that was made before a fork works in the child and in the parent."""

import asyncio
import json
import multiprocessing
import os
import select
import signal
import sqlite3
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.memory import Library
from memrecall.workers import DaemonThreadPool

from ..waiting import LIMIT
from .conftest import make_settings

pytestmark = [
    pytest.mark.concurrent,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks"),
]


class Child:
    """A forked process that runs a function and sends its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                answer = {"result": work()}
            except BaseException:
                answer = {"error": traceback.format_exc()}
            os.write(write, json.dumps(answer).encode())
            os._exit(0)
        os.close(write)

    def result(self) -> Any:
        """Return the result; fail if the child raises or hangs."""
        try:
            ready, _, _ = select.select([self._read], [], [], LIMIT)
            if not ready:
                os.kill(self._pid, signal.SIGKILL)
            data = os.read(self._read, 1_000_000)
        finally:
            os.close(self._read)
            os.waitpid(self._pid, 0)
        assert data, "the child hangs or was killed"
        answer = json.loads(data)
        assert "result" in answer, answer["error"]
        return answer["result"]


def _list(memory: Memory) -> list[str]:
    return sorted(item["memory"] for item in memory.get_all("ann")["results"])


def test_parent_and_child_share_a_memory(location: str) -> None:
    """The child waited for ever for a thread that only its parent had."""
    with Memory(settings=make_settings(location)) as memory:
        memory.add("tea of the parent", "ann", infer=False)
        assert memory.search("tea", "ann")["results"]
        bound = memory.bind(user_id="ann")

        def work() -> list[Any]:
            bound.add("tea of the child", infer=False)
            memory.add("I live in Paris.", "ann")
            job = memory.add("I like jazz.", "ann", background=True)
            memory.job(job["job_id"], wait=True)
            found = [item["memory"] for item in memory.search("tea", "ann")["results"]]
            lines = len(list(memory.export("ann")))
            memory.close()
            return [sorted(found), lines > 3]

        child = Child(work)
        memory.add("tea of the parent again", "ann", infer=False)
        found, exported = child.result()
        assert {"tea of the parent", "tea of the child"} <= set(found)
        assert exported
        assert {"tea of the child", "User lives in Paris."} <= set(_list(memory))
        assert len(memory.search("tea", "ann", threshold=0.01)["results"]) >= 3


def test_child_keeps_its_writes_when_the_parent_closes(tmp_path: Path) -> None:
    """SQLite deleted the log that the child was writing to, because the child had no locks."""
    file = str(tmp_path / "m.db")
    memory = Memory(settings=make_settings(file), user_id="ann")
    memory.add("first", infer=False)
    list(memory.export())  # opens a connection of the pool for streams too
    ready, go = os.pipe(), os.pipe()

    def work() -> int:
        memory.add("second", infer=False)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        memory.add("third", infer=False)
        return len(_list(memory))

    child = Child(work)
    assert select.select([ready[0]], [], [], LIMIT)[0]
    memory.close()
    with sqlite3.connect(file) as other:
        other.execute("UPDATE memories SET pinned = pinned")
    other.close()
    os.write(go[1], b"x")
    assert child.result() == 3
    for end in (*ready, *go):
        os.close(end)
    with Memory(settings=make_settings(file), user_id="ann") as again:
        assert _list(again) == ["first", "second", "third"]


def test_forks_while_other_threads_write(tmp_path: Path) -> None:
    """What other threads are doing at that moment is not inherited half done."""
    stopping = threading.Event()
    with Memory(settings=make_settings(str(tmp_path / "m.db"))) as memory:
        counts = [0, 0]

        def write(number: int) -> None:
            while not stopping.is_set():
                memory.add(f"note {number} {counts[number]}", "ann", infer=False)
                memory.search("note", "ann", limit=3)
                counts[number] += 1

        threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(4):
                child = Child(lambda: memory.add("of a child", "ann", infer=False)["stored"])
                assert child.result() == 1
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
        texts = [item["memory"] for item in memory.get_all("ann", limit=1000)["results"]]
    assert sum(text == "of a child" for text in texts) == 4
    assert sum(text.startswith("note") for text in texts) == min(sum(counts), 996)


def _add_in_background(memory: Memory) -> None:
    memory.add("I live in Paris.", "ann", background=True)


def test_process_of_multiprocessing_closes_its_memory(tmp_path: Path) -> None:
    with Memory(settings=make_settings(str(tmp_path / "m.db"))) as memory:
        memory.add("tea", "ann", infer=False)
        process = multiprocessing.get_context("fork").Process(
            target=_add_in_background, args=(memory,)
        )
        process.start()
        process.join(LIMIT)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0
        assert "User lives in Paris." in _list(memory)


def test_closed_and_unused_memories_stay_so(tmp_path: Path) -> None:
    closed = Memory(settings=make_settings(str(tmp_path / "a.db")))
    closed.close()
    with Memory(settings=make_settings(str(tmp_path / "b.db"))) as unused:

        def work() -> list[str]:
            unused.close()
            problems = []
            for memory in (closed, unused):
                try:
                    memory.get_all("ann")
                except ValueError as error:
                    problems.append(str(error))
            return [*problems, *(thread.name for thread in threading.enumerate())]

        result = Child(work).result()
    assert [text for text in result if "closed" in text] == result[:2]
    assert "memrecall" not in result


def test_async_memory_and_library(tmp_path: Path) -> None:
    settings = make_settings(str(tmp_path / "m.db"))

    async def open_both() -> tuple[AsyncMemory, AsyncMemory]:
        library = await Library.open(settings)
        memories = AsyncMemory(settings=settings), AsyncMemory(library=library)
        for memory in memories:
            await memory.add("tea", "ann", infer=False)
            await memory.search("tea", "ann")
        return memories

    memories = asyncio.run(open_both())

    async def use() -> int:
        for memory in memories:
            await memory.add("tea of the child", "ann", infer=False)
        return len((await memories[1].search("tea", "ann"))["results"])

    assert Child(lambda: asyncio.run(use())).result() == 4


def test_thread_pool_starts_again() -> None:
    pool = DaemonThreadPool(2)
    assert pool.submit(pow, 2, 5).result(LIMIT) == 32
    assert Child(lambda: pool.submit(pow, 3, 2).result(LIMIT)).result() == 9
    assert pool.submit(pow, 2, 3).result(LIMIT) == 8
    pool.shutdown()
