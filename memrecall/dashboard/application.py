"""NiceGUI, set up once for the process: what it serves and how, and its start and end."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path

from fastapi import FastAPI
from nicegui import Client, app, ui

from memrecall.dashboard.auth import ASSETS, PREFERENCES, SIGN_IN, SIGN_OUT, SOCKET, SignIn
from memrecall.server.auth import Doorkeeper
from memrecall.server.http.edge import log_bug

PAGES = (
    "evaluations",
    "graph",
    "memories",
    "messages",
    "overview",
    "recalls",
    "sessions",
    "sign_in",
    "try_it",
)
_OWN_PATHS = frozenset({SIGN_IN, SIGN_OUT, PREFERENCES})
_COLLECTED_AFTER = (10_000, 20, 50)
_FAVICON = Path(__file__).with_name("favicon.svg")


def make_door(doorkeeper: Doorkeeper) -> SignIn:
    """The dashboard of one service."""
    return SignIn(_pages(), doorkeeper)


def is_ours(path: str) -> bool:
    """Whether a path is the dashboard's; all others are the service's."""
    return path.startswith((ASSETS, SOCKET)) or path in _OWN_PATHS or path in _page_paths()


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    """Keep the user interface alive: its lifespan, which the server does not run."""
    parent = _pages()
    async with parent.router.lifespan_context(parent):
        # Every page makes and drops thousands of objects in cycles. What was loaded until now will
        # stay: looking through it again and again would hold up requests for half a second.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECTED_AFTER)
        yield


@cache
def _page_paths() -> frozenset[str]:
    _pages()
    return frozenset(Client.page_routes.values())


@cache
def _pages() -> FastAPI:
    """The pages, which are the same for every service: whose they are, a request says."""
    for name in PAGES:
        import_module(f"memrecall.dashboard.pages.{name}")
    parent = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.config.socket_io_js_transports = ["websocket"]
    app.on_exception(lambda error: log_bug(error, "dashboard"))
    ui.run_with(
        parent,
        title="memrecall",
        favicon=_FAVICON.read_text("utf-8"),
        binding_refresh_interval=None,
        reconnect_timeout=5.0,
        tailwind=False,
        gzip_middleware_factory=None,
        show_welcome_message=False,
    )
    return parent
