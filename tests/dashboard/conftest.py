"""A sample database, an open and a keyed server, and a browser for all tests of a worker."""

import asyncio
import inspect
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx
import pytest
import pytest_asyncio

from memrecall.memory import Library
from tests.model.openai_server import ModelServer, serve
from tests.server.server_process import ServerProcess, run_server

from .browser import NO_BROWSER, find_browser
from .sample import fill_library, make_keys, sample_settings
from .sample_runs import write_sample_runs

pytest.importorskip("nicegui")
playwright_api = pytest.importorskip("playwright.async_api")

# Opening a page is slow, so tests check as much as possible in one page.
_SLOW = 60_000  # milliseconds, for any condition of a page


_STARTED = {"browser", "open_server", "keyed_server", "model_server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder in the event loop of the browser."""
    dashboard_folder = Path(__file__).parent
    for item in items:
        if dashboard_folder not in item.path.parents:
            continue
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        fixtures = set(getattr(item, "fixturenames", ()))
        if _STARTED & fixtures:
            item.add_marker(pytest.mark.concurrent)
        if "chromium" in fixtures:
            item.add_marker(pytest.mark.browser)


@dataclass
class ProblemRecorder:
    """Records console messages, errors and requests to other hosts of a page."""

    host: str
    problems: list[str] = field(default_factory=list)

    def follow(self, page: Any) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self.host:
            self.problems.append(f"request to {request.url}")


@dataclass
class Window:
    """A page of the browser and the URL of its server."""

    page: Any
    url: str
    watch: ProblemRecorder

    async def open(self, path: str) -> Any:
        """Open a path and wait until the page is ready."""
        response = await self.page.goto(self.url + path)
        await self.ready()
        return response

    async def open_frame(self, path: str) -> Any:
        """Open a path and wait until its frame is connected, filled or not."""
        response = await self.page.goto(self.url + path)
        await self._connected()
        return response

    async def ready(self) -> None:
        """Wait until the page is drawn, connected and filled."""
        await self._connected()
        await self.page.wait_for_selector(".mr-loading", state="detached", timeout=_SLOW)

    async def _connected(self) -> None:
        await self.page.wait_for_selector("main", timeout=_SLOW)
        await self.page.wait_for_function("window.socket?.connected", timeout=_SLOW)

    async def text(self, selector: str = "main") -> str:
        return str(await self.page.inner_text(selector))


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """An HTTP client that stores no cookies and follows no redirects."""
    with httpx.Client(timeout=60, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client:
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield client


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="session")
def sample_database(folder: Path) -> Path:
    """A database with the sample data, which tests copy."""
    location = folder / "sample.db"

    async def work() -> None:
        async with await Library.open(sample_settings(str(location), folder)) as library:
            await fill_library(library)

    asyncio.run(work())
    return location


def _copy(sample_database: Path, folder: Path) -> str:
    folder.mkdir()
    return str(shutil.copy(sample_database, folder / "sample.db"))


async def _make_keys(location: str, folder: Path) -> dict[str, str]:
    async with await Library.open(sample_settings(location, folder)) as library:
        return await make_keys(library)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of the browser; tests are skipped without one."""
    path = find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    return path


@pytest.fixture(scope="session")
def open_server(sample_database: Path, folder: Path, chromium: str) -> Iterator[ServerProcess]:
    """A server without keys."""
    home = folder / "open"
    location = _copy(sample_database, home)
    write_sample_runs(home / "runs")
    with run_server(home, "--db", location, MEMRECALL_DATA_DIR=str(home)) as server:
        yield server


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """A model server with scripted answers."""
    with serve() as running:
        yield running


@pytest.fixture(scope="session")
def keyed_server(
    sample_database: Path, folder: Path, chromium: str, model_server: ModelServer
) -> Iterator[tuple[ServerProcess, dict[str, str]]]:
    """A server with keys and a model, and the keys."""
    home = folder / "keyed"
    location = _copy(sample_database, home)
    keys = asyncio.run(_make_keys(location, home))
    model = {"MEMRECALL_MODEL": "tiny", "MEMRECALL_BASE_URL": model_server.url}
    with run_server(home, "--db", location, MEMRECALL_API_KEY="k", **model) as server:
        yield server, keys


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Any]:
    async with playwright_api.async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        await started.close()


@asynccontextmanager
async def window_on(browser: Any, url: str, **options: Any) -> AsyncIterator[Window]:
    """Open a window without cookies; fail if the page has reported problems."""
    # Contexts without options are reused, so that assets are loaded once.
    idle = _IDLE.setdefault(browser, [])
    context = idle.pop() if idle and not options else None
    if context is None:
        settings = {"viewport": {"width": 1280, "height": 900}, "locale": "en-US", **options}
        context = await browser.new_context(**settings)
    page = await context.new_page()
    page.set_default_timeout(_SLOW)
    window = Window(page, url, ProblemRecorder(urlsplit(url).netloc))
    window.watch.follow(page)
    try:
        yield window
        assert window.watch.problems == []
    finally:
        await page.close()
        await context.clear_cookies()
        if options:
            await context.close()
        else:
            idle.append(context)


_IDLE: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


async def sign_in(window: Window, key: str) -> None:
    """Sign in by sending the form, without loading the page."""
    response = await window.page.request.post(
        f"{window.url}/sign-in", form={"key": key}, max_redirects=0
    )
    assert "refused" not in response.headers["location"]


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Any, open_server: ServerProcess) -> AsyncIterator[Window]:
    """A window on the open server."""
    async with window_on(browser, open_server.url) as open_window:
        yield open_window
