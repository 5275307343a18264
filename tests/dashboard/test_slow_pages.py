"""Pages that take long: the frame is sent first, and the content follows."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from nicegui import Client, ui

from memrecall.dashboard.application import run_dashboard
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page, Redirect
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from tests.server.http_service import serve_on_socket
from tests.waiting import wait_until

from .conftest import window_on
from .sample import sample_settings

PATH = "/slow"


class SlowPage:
    """A page that waits until a test lets it go on, and then ends as the test says."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.error: Exception | None = None
        self.was_cancelled = False

    async def build(self, _: Page) -> None:
        ui.label("the beginning")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        ui.label("the rest")


SLOW = SlowPage()
register_page(PATH, "overview")(SLOW.build)  # in this process only: other tests start their own


@pytest.fixture
def slow_page() -> SlowPage:
    SLOW.gate, SLOW.error, SLOW.was_cancelled = asyncio.Event(), None, False
    return SLOW


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def url(sample_database: Path, folder: Path) -> AsyncIterator[str]:
    """The address of a server in the process of the tests."""
    async with (
        await Library.open(sample_settings(str(sample_database), folder)) as library,
        run_dashboard(),
        serve_on_socket(library, websockets=True, dashboard=True) as service,
    ):
        yield service.url


async def test_frame_appears_before_the_content(
    browser: Any, url: str, slow_page: SlowPage
) -> None:
    async with window_on(browser, url) as window:
        assert (await window.open_frame(PATH)).status == 200
        assert "Explorer" in await window.text("nav")
        assert await window.text("[role=status]") == "Loading …"
        assert "the beginning" in await window.text()
        assert "the rest" not in await window.text()
        slow_page.gate.set()
        await window.page.wait_for_selector("text=the rest")
        await window.page.wait_for_selector("[role=status]", state="detached")


async def test_late_errors_and_redirects_are_shown(
    browser: Any, url: str, slow_page: SlowPage
) -> None:
    for error, text in (
        (InvalidArgument("the moon is full"), "the moon is full"),
        (RuntimeError("secret"), "Internal error."),
        (Redirect("/nothing"), "Page not found"),
    ):
        slow_page.gate.clear()
        slow_page.error = error
        async with window_on(browser, url) as window:
            await window.open_frame(PATH)
            slow_page.gate.set()
            await window.page.wait_for_selector(f"main :text('{text}')")
            assert await window.page.locator("[role=status]").count() == 0
            window.watch.problems.clear()  # the browser reports the unknown page


async def test_closed_page_stops_its_work(browser: Any, url: str, slow_page: SlowPage) -> None:
    async with window_on(browser, url) as window:
        await window.open_frame(PATH)
        clients = [each for each in Client.instances.values() if each.page.path == PATH]
        max(clients, key=lambda client: client.created).delete()
        await wait_until(lambda: slow_page.was_cancelled)
        window.watch.problems.clear()  # the connection was closed
