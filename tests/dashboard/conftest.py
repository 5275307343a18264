"""One database, two servers (open, and with keys) and one browser for all tests of a worker."""

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
from tests.server.process import Served, served

from .browser import LEFT_OUT, find_browser
from .sample import fill, make_keys, sample_settings
from .sample_runs import make_runs

pytest.importorskip("nicegui")
playwright_api = pytest.importorskip("playwright.async_api")

# The cost of a page is mostly that of the browser: what can be looked at in one page is.
_SLOW = 60_000  # milliseconds, for whatever must happen in a page


_STARTED = {"browser", "open_server", "keyed", "model_server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests in here share one event loop: the browser lives in it."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if _STARTED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.concurrent)
            # One worker starts the browser and the services for all of them.
            item.add_marker(pytest.mark.xdist_group("dashboard"))


@dataclass
class Watch:
    """What went wrong in a page: messages of the console, errors, requests to other hosts."""

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
    """A page of the browser, and the server it looks at."""

    page: Any
    url: str
    watch: Watch

    async def open(self, path: str) -> Any:
        """Go to a path and wait until it can be used."""
        response = await self.page.goto(self.url + path)
        await self.ready()
        return response

    async def ready(self) -> None:
        """Wait until the page is drawn and connected."""
        await self.page.wait_for_selector("main", timeout=_SLOW)
        await self.page.wait_for_function("window.socket?.connected", timeout=_SLOW)

    async def text(self, selector: str = "main") -> str:
        return str(await self.page.inner_text(selector))


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """A client that is not a browser; it keeps no cookies and follows nothing."""
    with httpx.Client(timeout=60, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as client:
        client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        yield client


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="session")
def filled(folder: Path) -> Path:
    """A database with the sample, which nobody writes to."""
    location = folder / "sample.db"

    async def work() -> None:
        async with await Library.open(sample_settings(str(location), folder)) as library:
            await fill(library)

    asyncio.run(work())
    return location


def _copy(filled: Path, folder: Path) -> str:
    folder.mkdir()
    return str(shutil.copy(filled, folder / "sample.db"))


async def _keys_of(location: str, folder: Path) -> dict[str, str]:
    async with await Library.open(sample_settings(location, folder)) as library:
        return await make_keys(library)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path; without one the tests are left out, and the summary says so."""
    path = find_browser()
    if path is None:
        pytest.skip(LEFT_OUT)
    return path


@pytest.fixture(scope="session")
def open_server(filled: Path, folder: Path, chromium: str) -> Iterator[Served]:
    """A server without keys, with the sample."""
    place = folder / "open"
    location = _copy(filled, place)
    make_runs(place / "runs")
    with served(place, "--db", location, MEMRECALL_RUNS_DIR=str(place / "runs")) as server:
        yield server


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """A model that says what a test tells it to."""
    with serve() as running:
        yield running


@pytest.fixture(scope="session")
def keyed(
    filled: Path, folder: Path, chromium: str, model_server: ModelServer
) -> Iterator[tuple[Served, dict[str, str]]]:
    """A server with keys and a model, and the keys."""
    place = folder / "keyed"
    location = _copy(filled, place)
    keys = asyncio.run(_keys_of(location, place))
    model = {"MEMRECALL_MODEL": "tiny", "MEMRECALL_BASE_URL": model_server.url}
    with served(place, "--db", location, MEMRECALL_API_KEY="k", **model) as server:
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
    """A window with nothing in its cookies; at its end nothing may be wrong."""
    # An ordinary one is used again: what the library's files cost is paid once.
    idle = _IDLE.setdefault(browser, [])
    context = idle.pop() if idle and not options else None
    if context is None:
        given = {"viewport": {"width": 1280, "height": 900}, "locale": "en-US", **options}
        context = await browser.new_context(**given)
    page = await context.new_page()
    page.set_default_timeout(_SLOW)
    window = Window(page, url, Watch(urlsplit(url).netloc))
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
    """Sign in with the form's request, which takes no page load."""
    response = await window.page.request.post(
        f"{window.url}/sign-in", form={"key": key}, max_redirects=0
    )
    assert "refused" not in response.headers["location"]


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Any, open_server: Served) -> AsyncIterator[Window]:
    """A window on the open server."""
    async with window_on(browser, open_server.url) as opened:
        yield opened
