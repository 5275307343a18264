"""Searches of a SQLite file share a thread; beside a long one there is a second."""

import asyncio

import pytest

from memrecall.store.database import engine


@pytest.mark.parametrize(("longest", "most"), [(60.0, 1), (0.0, 2)])
async def test_second_search_begins_beside_a_long_one(
    monkeypatch: pytest.MonkeyPatch, longest: float, most: int
) -> None:
    monkeypatch.setattr(engine, "_SHORT_SEARCH", longest)
    threads, begun, is_over = engine.ReaderThreads(), list[int](), asyncio.Event()

    async def search(number: int) -> None:
        async with threads.turn():
            begun.append(number)
            await is_over.wait()

    searches = [asyncio.create_task(search(number)) for number in range(4)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == list(range(most))
    is_over.set()
    await asyncio.gather(*searches)
    assert begun == list(range(4))
