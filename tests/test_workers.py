"""Threads that serve until their owner ends them."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from memrecall.workers import Workers

from .waiting import LIMIT

pytestmark = pytest.mark.concurrent

ROOT = Path(__file__).parents[1]


def test_results_and_failures_come_back() -> None:
    workers = Workers(2)
    assert workers.submit(pow, 2, 5).result(LIMIT) == 32
    with pytest.raises(ZeroDivisionError):
        workers.submit(lambda: 1 // 0).result(LIMIT)
    assert list(workers.map(str, range(5))) == ["0", "1", "2", "3", "4"]
    workers.shutdown()
    with pytest.raises(RuntimeError):
        workers.submit(pow, 2, 5)


def test_no_more_threads_than_allowed_and_no_more_than_needed() -> None:
    workers = Workers(3, "few")
    for _ in range(20):
        workers.submit(int).result(LIMIT)
        assert workers._idle.acquire(timeout=LIMIT)  # the thread is free again
        workers._idle.release()
    assert len(named("few")) == 1
    gate = threading.Event()
    waiting: list[Future[bool]] = [workers.submit(gate.wait, LIMIT) for _ in range(9)]
    assert len(named("few")) == 3
    gate.set()
    assert all(future.result(LIMIT) for future in waiting)
    workers.shutdown()
    assert named("few") == []


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


def test_what_is_cancelled_before_its_turn_is_not_done() -> None:
    workers, gate = Workers(1), threading.Event()
    done: list[int] = []
    first = workers.submit(gate.wait, LIMIT)
    second = workers.submit(done.append, 1)
    assert second.cancel()
    gate.set()
    first.result(LIMIT)
    workers.shutdown()
    assert done == []


async def test_an_event_loop_takes_them_as_its_own() -> None:
    loop = asyncio.new_event_loop()
    workers = Workers(2, "looped")

    def work() -> str:
        loop.set_default_executor(workers)
        return loop.run_until_complete(
            asyncio.wait_for(asyncio.to_thread(lambda: threading.current_thread().name), LIMIT)
        )

    thread = threading.Thread(target=lambda: names.append(work()))
    names: list[str] = []
    thread.start()
    await asyncio.to_thread(thread.join, LIMIT)
    assert names[0].startswith("looped-")
    loop.close()
    workers.shutdown()


ENDING = """
import threading
from memrecall.workers import Workers
workers = Workers(1, ready=True)
def at_the_end():
    threading.main_thread().join()
    print(workers.submit(lambda: "done").result(60), flush=True)
    workers.shutdown()
threading.Thread(target=at_the_end).start()
"""


def test_they_serve_after_the_main_thread_is_over() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ENDING],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
