"""All pages for a user with a hundred thousand messages, the first search included."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dashboard import USER, pages, prepare
from tests.server.server_process import run_server

from .conftest import Window, window_on


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database, and the id of one of its recalls."""
    folder = tmp_path_factory.mktemp("large")
    return folder, asyncio.run(prepare(folder, folder / "bench.db", 100_000))


async def wait_for_content(window: Window) -> None:
    await window.page.wait_for_selector("main [role=status]", state="detached")


async def check_first_search(browser: Any, url: str) -> None:
    """Check that the frame comes first, then the progress, then the results."""
    async with window_on(browser, url) as window:
        answer = await window.open(f"/explorer?user={USER}&q=object")
        assert answer.status == 200
        assert "Search messages" in await window.text()
        assert await window.page.locator("article").count() == 0
        await window.page.wait_for_selector("text=/first search: [0-9]+%/")
        await window.page.wait_for_selector("article")
        await wait_for_content(window)
        assert await window.page.locator("[role=alert]").count() == 0


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_pages_work_with_100000_messages(browser: Any, large: tuple[Path, str]) -> None:
    folder, trace_id = large
    # Without a snapshot of the index, which filling the database may have left.
    with run_server(folder, "--db", folder / "bench.db", MEMRECALL_SNAPSHOTS="false") as server:
        await check_first_search(browser, server.url)
        for name, path in pages(trace_id).items():
            async with window_on(browser, server.url) as window:
                answer = await window.open(path)
                await wait_for_content(window)
                assert answer.status == 200, name
                assert await window.page.locator("[role=alert]").count() == 0, name
                assert await window.page.locator("main *").count() < 3_000, name
        async with window_on(browser, server.url) as window:
            await window.open("/?span=day")
            assert "Messages\n100,000" in await window.text()
            await window.open(f"/explorer?user={USER}")
            for _ in range(3):
                await window.page.click("text=Older")
                await window.page.wait_for_selector("text=Newest")
                await window.ready()
