"""What a browser may do with a page: load from here alone, run what carries the page's nonce.

NiceGUI compiles its components in the browser, so that `unsafe-eval` cannot be left out, and it
sets styles in place. Scripts written into a page do not run without the nonce, which is new for
every page.
"""

import secrets

from starlette.datastructures import MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memrecall.server.auth import is_loopback

_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without one, our own forms would not tell theirs
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def guarded(app: ASGIApp) -> ASGIApp:
    """The pages with their policy; compressed for whoever is further away than this machine."""
    plain = _Policy(app)
    compressed = GZipMiddleware(plain, minimum_size=1000, compresslevel=4)

    async def send_fitly(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        is_near = client is not None and is_loopback(client[0])
        await (plain if is_near else compressed)(scope, receive, send)

    return send_fitly


class _Policy:
    """Adds headers, and to every script of a page its nonce."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Marked(send).send)


class _Marked:
    """An answer on its way: an HTML page is held until it is whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._head: Message | None = None
        self._page = b""

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
            self._page += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page(self._head)
            return
        await self._send(message)

    async def _send_page(self, head: Message) -> None:
        # What users wrote is in the page with its `<` escaped: every tag here is the library's own.
        tag = f'<script nonce="{self._nonce}"'.encode()
        page = self._page.replace(b"<script", tag)
        MutableHeaders(raw=head["headers"])["content-length"] = str(len(page))
        await self._send(head)
        await self._send({"type": "http.response.body", "body": page, "more_body": False})
