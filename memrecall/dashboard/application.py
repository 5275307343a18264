"""The NiceGUI application: setup, security headers, startup and shutdown.

Pages may load from this host only. NiceGUI compiles its components in the browser, so the content
security policy must allow `unsafe-eval`, and it sets inline styles. Scripts need a nonce that is
new for every page, so scripts injected into a page do not run.
"""

import gc
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fastapi import FastAPI
from nicegui import Client, app, ui
from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall.dashboard import pages
from memrecall.dashboard.auth import (
    ASSETS,
    MISSING,
    PREFERENCES,
    SIGN_IN,
    SIGN_OUT,
    SOCKET,
    SignInMiddleware,
)
from memrecall.server.auth import Authenticator, SignInCode
from memrecall.server.errors import log_bug

_AUTH_PATHS = frozenset({SIGN_IN, SIGN_OUT, PREFERENCES})
_GC_THRESHOLDS = (10_000, 20, 50)
_FAVICON = Path(__file__).with_name("favicon.svg")
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, our own forms would send no origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def create_dashboard(authenticator: Authenticator, code: SignInCode | None = None) -> ASGIApp:
    """Return the dashboard of one service; `code` signs one browser in."""
    return SignInMiddleware(_add_security_headers(_pages()), authenticator, code)


def is_dashboard_path(path: str) -> bool:
    """Return True if the dashboard serves a path; the API serves all others."""
    _pages()  # registers them
    routes = Client.page_routes.values()
    return path.startswith((ASSETS, SOCKET)) or path in _AUTH_PATHS or path in routes


def expects_page(scope: Scope) -> bool:
    """Return True if a request is for a page, as of a browser's address bar."""
    is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_read and b"text/html" in dict(scope["headers"]).get(b"accept", b"")


@asynccontextmanager
async def run_dashboard() -> AsyncIterator[None]:
    """Run NiceGUI's lifespan, which the server does not, while the block runs."""
    parent = _pages()
    async with parent.router.lifespan_context(parent):
        # Every page creates and drops thousands of objects in cycles. Scanning what was loaded so
        # far again and again would block requests for half a second.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        yield


@cache
def _pages() -> FastAPI:
    """Return the pages, which all services share: each request carries its service."""
    for module in iter_modules(pages.__path__):
        import_module(f"memrecall.dashboard.pages.{module.name}")
    parent = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.config.socket_io_js_transports = ["websocket"]
    # The bar has no name for screen readers; slow pages show their own progress.
    app.config.quasar_config["loadingBar"]["skipHijack"] = True
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


def _add_security_headers(dashboard: ASGIApp) -> ASGIApp:
    """Return the pages with their policy, compressed; other addresses show that they have none."""

    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        is_http = scope["type"] == "http"
        await dashboard(scope, receive, _PolicyWriter(send).send if is_http else send)

    compressed = GZipMiddleware(plain, minimum_size=1000, compresslevel=4)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if not is_dashboard_path(scope["path"]):
            scope["state"]["missing_path"] = scope["path"]
            scope = {**scope, "path": MISSING, "raw_path": MISSING.encode()}
        await compressed(scope, receive, send)

    return serve


class _PolicyWriter:
    """Adds headers to a response; buffers an HTML page to add the nonce to its scripts."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._head: Message | None = None
        self._html = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            for name, value in _HEADERS.items():
                headers[name] = value
            headers["Content-Security-Policy"] = _POLICY.format(nonce=self._nonce)
            if headers.get("content-type", "").startswith("text/html"):
                self._head = message
                return
        elif self._head is not None and message["type"] == "http.response.body":
            self._html += message.get("body", b"")
            if message.get("more_body", False):
                return
            # User content is escaped in the page, so every `<script` is one of NiceGUI's own tags.
            tag = f'<script nonce="{self._nonce}"'.encode()
            message = {**message, "body": self._html.replace(b"<script", tag)}
            headers = MutableHeaders(raw=self._head["headers"])
            headers["content-length"] = str(len(message["body"]))
            await self._send(self._head)
        await self._send(message)
