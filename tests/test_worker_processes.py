"""Worker processes: functions of text outside of the event loop, with a deadline."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from memrecall.errors import ModelFailed, QuerySyntaxError, WorkerFailed
from memrecall.workers import (
    LARGE_TEXT,
    SMALL_TEXT,
    WorkerProcesses,
    _WorkerProcess,
    in_process,
    worker_processes,
)

from .waiting import LIMIT, wait_until

pytestmark = pytest.mark.concurrent

ROOT = Path(__file__).parents[1]


def fail_to_parse(text: str) -> None:
    raise QuerySyntaxError(f"cannot read {text}", 3)


def end_process() -> None:
    os._exit(3)


def end_process_once(mark: str) -> int:
    if not os.path.exists(mark):
        Path(mark).touch()
        os._exit(3)
    return os.getpid()


def say_and_sleep(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(LIMIT)


@pytest.fixture
async def processes() -> AsyncIterator[WorkerProcesses]:
    pool = WorkerProcesses(2, [], LIMIT)
    yield pool
    pool.close()


async def test_function_runs_in_another_process(processes: WorkerProcesses) -> None:
    await processes.warm_up()

    assert await processes.run(str.upper, "tea") == "TEA"
    assert await processes.run(os.getpid) != os.getpid()


async def test_another_event_loop_does_not_take_the_processes_from_theirs() -> None:
    """A service loads what it needs by recalls in a loop of its own, while the processes start."""

    async def both() -> list[int]:
        calls = (in_process(LARGE_TEXT, os.getpid) for _ in range(4))  # more than processes
        return await asyncio.gather(*calls)

    async with worker_processes(1, [], LIMIT):
        assert set(await asyncio.to_thread(asyncio.run, both())) == {os.getpid()}
        assert os.getpid() not in await both()


async def test_typed_error_arrives_whole(processes: WorkerProcesses) -> None:
    with pytest.raises(QuerySyntaxError, match="cannot read 茶 at position 3") as caught:
        await processes.run(fail_to_parse, "茶")

    assert caught.value.position == 3


def test_errors_can_be_pickled() -> None:
    original = ModelFailed("no answer", kind="timeout", hint="Wait", user="ann")

    copy = pickle.loads(pickle.dumps(original))  # noqa: S301 -- made here

    assert isinstance(copy, ModelFailed)
    assert (str(copy), copy.kind, copy.details) == (str(original), "timeout", original.details)


async def test_work_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    pool = WorkerProcesses(1, [], 1.0)
    await pool.warm_up()
    try:
        with pytest.raises(WorkerFailed, match="took longer than 1 s"):
            await pool.run(time.sleep, LIMIT)
        assert await pool.run(str.upper, "tea") == "TEA"
    finally:
        pool.close()


async def test_process_that_died_is_replaced(processes: WorkerProcesses, tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="ended its worker process"):
        await processes.run(end_process)

    assert await processes.run(end_process_once, str(tmp_path / "mark")) != os.getpid()


async def test_cancelled_work_ends_its_process(processes: WorkerProcesses, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    task = asyncio.create_task(processes.run(say_and_sleep, str(mark)))
    await wait_until(lambda: mark.exists() and bool(mark.read_text()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not psutil.pid_exists(int(mark.read_text()))


async def test_call_waits_for_a_process_that_starts_and_does_not_end_it() -> None:
    pool = WorkerProcesses(1, [], LIMIT)
    (worker,) = pool._workers
    context, starts, may_start = worker._context, [], threading.Event()

    def start(**options: Any) -> Any:
        starts.append(options["name"])
        may_start.wait(10 * LIMIT)
        return context.Process(**options)

    worker._context = SimpleNamespace(Pipe=context.Pipe, Process=start)
    try:
        warm_up = asyncio.create_task(pool.warm_up())
        await wait_until(lambda: bool(starts))
        call = asyncio.create_task(pool.run(os.getpid))
        await asyncio.sleep(0)
        call.cancel()  # as a readiness check that has waited long enough
        may_start.set()
        await asyncio.wait([call, warm_up])
        assert await pool.run(os.getpid) == worker._process.pid
        assert len(starts) == 1
    finally:
        pool.close()


async def test_large_work_leaves_a_process_for_small_work(
    processes: WorkerProcesses, tmp_path: Path
) -> None:
    marks = [tmp_path / name for name in "ab"]
    large = [
        asyncio.create_task(processes.run(say_and_sleep, str(mark), is_large=True))
        for mark in marks
    ]
    await wait_until(lambda: any(mark.exists() for mark in marks))

    assert await processes.run(str.upper, "tea") == "TEA"
    assert sum(mark.exists() for mark in marks) == 1
    for task in large:
        task.cancel()
    await asyncio.gather(*large, return_exceptions=True)


async def test_long_texts_are_read_in_processes_where_there_are_some() -> None:
    assert await in_process(LARGE_TEXT + 1, os.getpid) == os.getpid()
    async with worker_processes(1, [], LIMIT):
        assert await in_process(SMALL_TEXT, os.getpid) == os.getpid()
        assert await in_process(SMALL_TEXT + 1, os.getpid) != os.getpid()
        assert await in_process(LARGE_TEXT + 1, os.getpid) != os.getpid()
    async with worker_processes(0, [], LIMIT):
        assert await in_process(SMALL_TEXT + 1, os.getpid) == os.getpid()


KILLED_PARENT = """
import asyncio, os, sys
from memrecall.workers import WorkerProcesses

async def main():
    pool = WorkerProcesses(2, [], 60)
    await pool.warm_up()
    print(*[worker._process.pid for worker in pool._workers], flush=True)
    await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(KILLED_PARENT)
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as parent:
        assert parent.stdout is not None
        workers = list(map(int, parent.stdout.readline().split()))
        assert len(workers) == 2
        os.kill(parent.pid, signal.SIGKILL)

    asyncio.run(wait_until(lambda: not any(map(_is_running, workers))))


def _is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_process_that_is_killed_while_it_starts_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("spawn")
    worker = _WorkerProcess(context)
    start = context.Process.start

    def kill_and_start(process: BaseProcess) -> None:
        worker.kill()
        start(process)

    with monkeypatch.context() as patch:
        patch.setattr(context.Process, "start", kill_and_start)
        with pytest.raises(EOFError):
            worker.call(int, ())
    assert worker.call(int, ()) == 0  # in another process
    worker.kill()
    worker.end()
