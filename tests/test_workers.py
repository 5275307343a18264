"""Daemon threads, and work that cancellation does not interrupt."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

from memrecall.timing import CallBatcher
from memrecall.workers import DaemonThreadPool, run_to_completion

from .waiting import LIMIT

pytestmark = pytest.mark.concurrent

ROOT = Path(__file__).parents[1]


def test_submit_returns_results_and_raises_errors() -> None:
    pool = DaemonThreadPool(2)
    assert pool.submit(pow, 2, 5).result(LIMIT) == 32
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(LIMIT)
    assert list(pool.map(str, range(5))) == ["0", "1", "2", "3", "4"]
    pool.shutdown()
    with pytest.raises(RuntimeError):
        pool.submit(pow, 2, 5)


def test_pool_starts_only_needed_threads_up_to_its_size() -> None:
    pool = DaemonThreadPool(3, "few")
    for _ in range(20):
        pool.submit(int).result(LIMIT)
        assert pool._idle.acquire(timeout=LIMIT)  # the thread is free again
        pool._idle.release()
    assert len(threads_named("few")) == 1
    gate = threading.Event()
    futures: list[Future[bool]] = [pool.submit(gate.wait, LIMIT) for _ in range(9)]
    assert len(threads_named("few")) == 3
    gate.set()
    assert all(future.result(LIMIT) for future in futures)
    pool.shutdown()
    assert threads_named("few") == []


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


def test_cancelled_job_does_not_run() -> None:
    pool, gate = DaemonThreadPool(1), threading.Event()
    calls: list[int] = []
    first = pool.submit(gate.wait, LIMIT)
    assert pool.submit(calls.append, 1).cancel()
    gate.set()
    first.result(LIMIT)
    pool.shutdown()
    assert calls == []


async def test_event_loop_accepts_the_pool_as_executor() -> None:
    loop = asyncio.new_event_loop()
    pool = DaemonThreadPool(2, "looped")

    def work() -> str:
        loop.set_default_executor(pool)
        return loop.run_until_complete(
            asyncio.wait_for(asyncio.to_thread(lambda: threading.current_thread().name), LIMIT)
        )

    thread = threading.Thread(target=lambda: names.append(work()))
    names: list[str] = []
    thread.start()
    await asyncio.to_thread(thread.join, LIMIT)
    assert names[0].startswith("looped-")
    loop.close()
    pool.shutdown()


SHUTDOWN_SCRIPT = """
import threading
from memrecall.workers import DaemonThreadPool
pool = DaemonThreadPool(1, prestart=True)
def work_after_main():
    threading.main_thread().join()
    print(pool.submit(lambda: "done").result(60), flush=True)
    pool.shutdown()
threading.Thread(target=work_after_main).start()
"""


def test_pool_works_after_the_main_thread_has_ended() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", SHUTDOWN_SCRIPT],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "done\n", "")


async def test_cancelled_caller_waits_until_the_work_is_complete() -> None:
    events: list[str] = []
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        events.append("complete")

    caller = asyncio.create_task(run_to_completion(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert events == ["complete"]


async def test_completed_work_returns_its_result_and_its_error() -> None:
    async def divide(number: int) -> float:
        return 1 / number

    assert await run_to_completion(divide(2)) == 0.5
    with pytest.raises(ZeroDivisionError):
        await run_to_completion(divide(0))


class TestCallBatcher:
    async def test_calls_that_wait_are_done_together(self) -> None:
        groups: list[list[int]] = []
        gate = asyncio.Event()

        async def double(items: list[int]) -> list[int]:
            groups.append(items)
            await gate.wait()
            return [2 * item for item in items]

        batcher = CallBatcher(double, 3)
        calls = [asyncio.create_task(batcher(number)) for number in range(5)]
        await asyncio.sleep(0)
        late = asyncio.create_task(batcher(5))
        await asyncio.sleep(0)
        gate.set()

        assert await asyncio.gather(*calls, late) == [0, 2, 4, 6, 8, 10]
        assert groups == [[0, 1, 2], [3, 4, 5]]

    async def test_error_reaches_its_caller_alone(self) -> None:
        async def invert(items: list[int]) -> list[float | BaseException]:
            return [1 / item if item else ZeroDivisionError() for item in items]

        batcher = CallBatcher(invert, 9)
        outcomes = await asyncio.gather(*map(batcher, (1, 0, 2)), return_exceptions=True)

        assert outcomes[::2] == [1, 0.5]
        assert isinstance(outcomes[1], ZeroDivisionError)

    async def test_failing_work_fails_all_its_callers_and_not_the_next(self) -> None:
        async def work(items: list[str]) -> list[str]:
            if "bad" in items:
                raise LookupError
            return items

        batcher = CallBatcher(work, 9)
        outcomes = await asyncio.gather(*map(batcher, ("good", "bad")), return_exceptions=True)

        assert [type(outcome) for outcome in outcomes] == [LookupError, LookupError]
        assert await batcher("good") == "good"

    async def test_cancelled_caller_leaves_the_others_their_results(self) -> None:
        gate = asyncio.Event()

        async def work(items: list[int]) -> list[int]:
            await gate.wait()
            return items

        batcher = CallBatcher(work, 9)
        calls = [asyncio.create_task(batcher(number)) for number in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        gate.set()

        assert await asyncio.gather(*calls[1:]) == [1, 2]
        assert calls[0].cancelled()
        assert await batcher(7) == 7

    def test_event_loops_may_follow_each_other(self) -> None:
        is_stuck = True

        async def work(items: list[int]) -> list[int]:
            if is_stuck:
                await asyncio.Event().wait()
            return items

        async def give_up(batcher: CallBatcher[int, int]) -> None:
            asyncio.create_task(batcher(1)).add_done_callback(lambda task: None)
            await asyncio.sleep(0)

        batcher = CallBatcher(work, 1)
        asyncio.run(give_up(batcher))  # ends with work in progress
        is_stuck = False
        for number in range(3):
            assert asyncio.run(asyncio.wait_for(batcher(number), LIMIT)) == number

    async def test_calls_in_direct_succession_are_all_done(self) -> None:
        async def work(items: list[int]) -> list[int]:
            return items

        batcher = CallBatcher(work, 1)
        async with asyncio.timeout(LIMIT):
            assert [await batcher(number) for number in range(5)] == [0, 1, 2, 3, 4]
