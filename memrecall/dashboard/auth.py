"""Sign-in, cookies and access control of the dashboard.

Pages and their websockets are for browsers that signed in with a key, or for any local browser as
long as the database has no key. No other path reaches NiceGUI.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qs, quote

from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from memrecall.server.auth import SAME_SITE, Address, Authenticator, Headers, Principal, SignInCode
from memrecall.server.errors import Problem, RequestError, wrong_method
from memrecall.types import Language

Theme = Literal["auto", "light", "dark"]

_SESSION = "memrecall_session"
LANGUAGE = "memrecall_language"
THEME = "memrecall_theme"
_CHOICES: dict[str, tuple[str, ...]] = {LANGUAGE: ("en", "zh"), THEME: ("auto", "light", "dark")}
SIGN_IN, SIGN_OUT, PREFERENCES = "/sign-in", "/sign-out", "/preferences"
MISSING = "/not-found"  # shown at all addresses without a page
ASSETS, SOCKET = "/_nicegui/", "/_nicegui_ws/"
SESSION_SECONDS = 12 * 3600
MAX_SESSIONS = 10_000
SEE_OTHER = 303
_YEAR = 365 * 24 * 3600
_MAX_FORM_BYTES = 4096
_ASSET_TOKENS = 0.1  # a page loads many assets


def read_cookies(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request."""
    return cookie_parser(headers.get(b"cookie", b"").decode("latin-1"))


def set_cookie(
    response: Response, headers: Headers, name: str, value: str, seconds: int = _YEAR
) -> None:
    """Set a cookie that is only sent to this site, over TLS if the browser uses it."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        # Set by a proxy. A client that forges the header only loses its own cookie.
        secure=headers.get(b"x-forwarded-proto", b"") == b"https",
    )


def choose_language(headers: Headers) -> Language:
    """Return the chosen language, or the browser's first supported one."""
    choice = read_cookies(headers).get(LANGUAGE)
    if choice in _CHOICES[LANGUAGE]:
        return cast(Language, choice)
    accepted = headers.get(b"accept-language", b"").decode("latin-1").lower()
    for part in accepted.split(","):  # browsers send them in the order of preference
        name = part.strip()[:2]
        if name in _CHOICES[LANGUAGE]:
            return cast(Language, name)
    return "en"


def choose_theme(headers: Headers) -> Theme:
    """Return the chosen theme; `auto` follows the system."""
    choice = read_cookies(headers).get(THEME)
    return cast(Theme, choice) if choice in _CHOICES[THEME] else "auto"


class BrowserSessions:
    """Session tokens of signed-in browsers. The key is verified again for every request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The id of the key and the end of each session, the oldest first.
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def start(self, key_id: str) -> str:
        """Return a new token for a key."""
        now = self._clock()
        while self._sessions:
            _, oldest_end = next(iter(self._sessions.values()))
            if oldest_end > now and len(self._sessions) < MAX_SESSIONS:
                break
            self._sessions.popitem(last=False)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = (key_id, now + SESSION_SECONDS)
        return token

    def find_key(self, token: str) -> str | None:
        """Return the id of the key of a token; None if the token is unknown or expired."""
        key_id, end = self._sessions.get(_digest(token), (None, 0.0))
        return key_id if end > self._clock() else None

    def end(self, token: str) -> None:
        """Forget a token."""
        self._sessions.pop(_digest(token), None)


def _digest(token: str) -> str:
    # Looking up a digest takes no time that depends on the characters of the token.
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser, identified by its headers and address."""

    authenticator: Authenticator
    sessions: BrowserSessions
    headers: Headers
    client: Address | None

    @property
    def token(self) -> str:
        """The session token of the cookie; empty without one."""
        return read_cookies(self.headers).get(_SESSION, "")

    @property
    def is_signed_in(self) -> bool:
        """True if the browser signed in with a key, which may have been revoked since."""
        return self.sessions.find_key(self.token) is not None

    async def authenticate(self) -> Principal:
        """Return the principal of the browser, or raise RequestError."""
        key_id = self.sessions.find_key(self.token)
        return await self.authenticator.authenticate_browser(key_id, self.headers, self.client)


class SignInMiddleware:
    """Handles sign-in, sign-out and preferences, and authenticates requests for pages."""

    def __init__(
        self, pages: ASGIApp, authenticator: Authenticator, code: SignInCode | None = None
    ) -> None:
        self._pages = pages
        self._authenticator = authenticator
        self._code = code
        self._sessions = BrowserSessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one websocket."""
        headers = dict(scope["headers"])
        browser = Browser(self._authenticator, self._sessions, headers, scope.get("client"))
        scope["state"]["browser"] = browser
        if scope["type"] == "websocket":
            if _may_connect(browser, scope):
                await self._pages(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        response = await self._handle(Request(scope, receive), browser)
        await (response or self._pages)(scope, receive, send)

    async def _handle(self, request: Request, browser: Browser) -> Response | None:
        """Return the response of this middleware; None passes the request to the pages."""
        path = request.url.path
        if request.method == "POST" and path in (SIGN_IN, SIGN_OUT):
            site, headers = browser.headers.get(b"sec-fetch-site", b"same-origin"), browser.headers
            if site not in SAME_SITE or (b"origin" in headers and not _is_same_origin(headers)):
                problem = Problem("PERMISSION_DENIED", "the request was sent by another site")
                raise RequestError(problem)
            return await (self._sign_in if path == SIGN_IN else self._sign_out)(request, browser)
        if request.method not in ("GET", "HEAD"):
            raise RequestError(wrong_method("GET", "page"))
        if path == PREFERENCES:
            return _set_preferences(request, browser)
        if path.startswith(SOCKET):  # long polling, which the pages do not use
            raise RequestError(Problem("NOT_FOUND", "there is no such page"))
        if path.startswith(ASSETS) or path == SIGN_IN:
            if not browser.is_signed_in:
                tokens = 1.0 if path == SIGN_IN else _ASSET_TOKENS
                self._authenticator.admit_stranger(browser.client, tokens)
            is_link = request.method == "GET" and "code" in request.query_params
            return self._sign_in_once(request, browser) if path == SIGN_IN and is_link else None
        try:
            principal = await browser.authenticate()
        except RequestError as error:
            self._authenticator.admit_stranger(browser.client)
            if error.problem.code != "UNAUTHENTICATED":
                raise
            target = path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"{SIGN_IN}?next={quote(target, safe='')}", SEE_OTHER)
        self._authenticator.admit(principal)
        request.scope["state"]["principal"] = principal
        return None

    async def _sign_in(self, request: Request, browser: Browser) -> Response:
        self._authenticator.admit_stranger(browser.client)
        form = await _read_form(request)
        target = local_path(form.get("next", "/"))
        key = await self._authenticator.find_key(form.get("key", "").strip())
        if key is None:
            url = f"{SIGN_IN}?refused=1&next={quote(target, safe='')}"
            return RedirectResponse(url, SEE_OTHER)
        return self._start_session(key.key_id, browser, target)

    def _sign_in_once(self, request: Request, browser: Browser) -> Response:
        """Sign in with the code of a link, which is then used up."""
        code = self._code
        if code is not None and code.matches(request.query_params["code"]):
            self._code = None
            return self._start_session(code.key_id, browser, "/")
        # The browser that used the link may open it again, from its history.
        return RedirectResponse("/" if browser.is_signed_in else f"{SIGN_IN}?used=1", SEE_OTHER)

    def _start_session(self, key_id: str, browser: Browser, target: str) -> Response:
        response = RedirectResponse(target, SEE_OTHER)
        token = self._sessions.start(key_id)
        set_cookie(response, browser.headers, _SESSION, token, SESSION_SECONDS)
        return response

    async def _sign_out(self, _request: Request, browser: Browser) -> Response:
        self._sessions.end(browser.token)
        response = RedirectResponse(SIGN_IN, SEE_OTHER)
        set_cookie(response, browser.headers, _SESSION, "", 0)
        return response


def _may_connect(browser: Browser, scope: Scope) -> bool:
    """Return True if a websocket comes from our page, and from the browser that loaded it."""
    from nicegui import Client

    if not _is_same_origin(browser.headers):
        return False
    client_ids = parse_qs(scope["query_string"].decode("latin-1")).get("client_id")
    client = Client.instances.get(client_ids[0]) if client_ids else None
    if client is None:
        return False
    owner: Browser = client.request.scope["state"]["browser"]
    return owner.token == browser.token


def _is_same_origin(headers: Headers) -> bool:
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    return origin in (b"http://" + host, b"https://" + host)


async def _read_form(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise RequestError(Problem("INVALID_ARGUMENT", "the form is too large", status=413))
    fields = parse_qs(body.decode("latin-1"), encoding="utf-8", max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}


def _set_preferences(request: Request, browser: Browser) -> Response:
    """Store the language or theme in a cookie, and redirect back."""
    query = request.query_params
    response = RedirectResponse(local_path(query.get("next", "/")), SEE_OTHER)
    for name, choices in _CHOICES.items():
        choice = query.get(name.removeprefix("memrecall_"), "")
        if choice in choices:
            set_cookie(response, browser.headers, name, choice)
    return response


def local_path(target: str) -> str:
    """Return a redirect target if it is a path of this site, else `/`."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_local and target.isprintable() else "/"
