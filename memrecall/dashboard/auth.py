"""The dashboard's own door: who looks, by which cookie, and what a browser may do with a page.

Pages and their websocket are for whoever signed in with a key, or for anybody at this machine as
long as the database has no key. Nothing but what is listed here reaches the user interface.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Literal, cast
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from memrecall.dashboard.csp import guarded
from memrecall.server.auth import Doorkeeper, Principal
from memrecall.server.errors import Problem, Refused

Language = Literal["en", "zh"]
Theme = Literal["auto", "light", "dark"]

SESSION = "memrecall_session"
LANGUAGE = "memrecall_language"
THEME = "memrecall_theme"
CHOICES: dict[str, tuple[str, ...]] = {LANGUAGE: ("en", "zh"), THEME: ("auto", "light", "dark")}
_YEAR = 365 * 24 * 3600

Headers = Mapping[bytes, bytes]


def read_cookies(headers: Headers) -> dict[str, str]:
    """The cookies of a request; none if they cannot be read."""
    jar = SimpleCookie()
    try:
        jar.load(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}


def put_cookie(
    response: Response, headers: Headers, name: str, value: str, seconds: int = _YEAR
) -> None:
    """Let a response set a cookie."""
    response.set_cookie(
        name,
        value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=is_encrypted(headers),
    )


def is_encrypted(headers: Headers) -> bool:
    """Whether a proxy says that the browser speaks to it over TLS. A liar only harms itself."""
    return headers.get(b"x-forwarded-proto", b"") == b"https"


def language_of(headers: Headers) -> Language:
    """The language that was chosen, else the first of the browser's that there is."""
    chosen = read_cookies(headers).get(LANGUAGE)
    if chosen in CHOICES[LANGUAGE]:
        return cast(Language, chosen)
    accepted = headers.get(b"accept-language", b"").decode("latin-1").lower()
    ranked = sorted(map(_ranked, accepted.split(",")), key=lambda item: -item[0])
    for _, name in ranked:
        if name in CHOICES[LANGUAGE]:
            return cast(Language, name)
    return "en"


def _ranked(part: str) -> tuple[float, str]:
    name, _, weight = part.strip().partition(";q=")
    try:
        return float(weight or 1), name.partition("-")[0]
    except ValueError:
        return 0.0, ""


def theme_of(headers: Headers) -> Theme:
    """The theme that was chosen; `auto` is the system's."""
    chosen = read_cookies(headers).get(THEME)
    return cast(Theme, chosen) if chosen in CHOICES[THEME] else "auto"


SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class _Session:
    key_id: str
    until: float


class Sessions:
    """Tokens that stand for keys, for some hours. A key that is revoked opens nothing any more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the oldest first

    def begin(self, key_id: str) -> str:
        """A new token for a key."""
        self._drop_old()
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = _Session(key_id, self._clock() + SESSION_SECONDS)
        return token

    def key_of(self, token: str) -> str | None:
        """The id of the key that a token stands for; None if it stands for none."""
        session = self._open.get(_digest(token))
        return session.key_id if session and session.until > self._clock() else None

    def end(self, token: str) -> None:
        """Forget a token."""
        self._open.pop(_digest(token), None)

    def _drop_old(self) -> None:
        now = self._clock()
        while self._open:
            oldest = next(iter(self._open.values()))
            if oldest.until > now and len(self._open) < MOST_SESSIONS:
                return
            self._open.popitem(last=False)


def _digest(token: str) -> str:
    """What is kept of a token; to look one up takes no time that tells of its characters."""
    return hashlib.sha256(token.encode()).hexdigest()


SIGN_IN, SIGN_OUT, PREFERENCES = "/sign-in", "/sign-out", "/preferences"
ASSETS, SOCKET = "/_nicegui/", "/_nicegui_ws/"
_OWN_SITE = (b"none", b"same-origin")
_LARGEST_FORM = 4096
_SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser: what it sent, and what it is let in by."""

    doorkeeper: Doorkeeper
    sessions: Sessions
    headers: Mapping[bytes, bytes]
    client: tuple[str, int] | None

    @property
    def token(self) -> str:
        """The token of the cookie; empty without one."""
        return read_cookies(self.headers).get(SESSION, "")

    async def admit(self) -> Principal:
        """Who it is, asked of the database each time: revoked means now."""
        key_id = self.sessions.key_of(self.token)
        return await self.doorkeeper.admit_visitor(key_id, self.headers, self.client)


class SignIn:
    """Admits browsers to the pages below it."""

    def __init__(self, pages: ASGIApp, doorkeeper: Doorkeeper) -> None:
        self._pages = guarded(pages)
        self._doorkeeper = doorkeeper
        self._sessions = Sessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one websocket."""
        headers = dict(scope["headers"])
        visitor = Visitor(self._doorkeeper, self._sessions, headers, scope.get("client"))
        scope["state"]["visitor"] = visitor
        if scope["type"] == "websocket":
            await self._connect(visitor, scope, receive, send)
            return
        request = Request(scope, receive)
        response = await self._answer(request, visitor)
        if response is None:
            await self._pages(scope, receive, send)
        else:
            await response(scope, receive, send)

    async def _answer(self, request: Request, visitor: Visitor) -> Response | None:
        """What the door itself answers; None: the pages do."""
        path = request.url.path
        if request.method == "POST" and path in (SIGN_IN, SIGN_OUT):
            _require_own_page(visitor.headers)
            return await (self._sign_in if path == SIGN_IN else self._sign_out)(request, visitor)
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                Problem("INVALID_ARGUMENT", "this page takes GET", status=405, headers=_ALLOW)
            )
        if path == PREFERENCES:
            return _prefer(request, visitor)
        if path.startswith(SOCKET):  # long polling: the pages use websockets
            raise Refused(Problem("NOT_FOUND", "there is no such page"))
        if path.startswith(ASSETS) or path == SIGN_IN:
            return None
        try:
            request.scope["state"]["principal"] = await visitor.admit()
        except Refused as refused:
            if refused.problem.code != "UNAUTHENTICATED":
                raise
            return _to_sign_in(request)
        return None

    async def _sign_in(self, request: Request, visitor: Visitor) -> Response:
        form = await _read_form(request)
        target = local_path(form.get("next", "/"))
        key = await self._doorkeeper.find_key(form.get("key", "").strip())
        if key is None:
            url = f"{SIGN_IN}?refused=1&next={quote(target, safe='')}"
            return RedirectResponse(url, _SEE_OTHER)
        response = RedirectResponse(target, _SEE_OTHER)
        token = self._sessions.begin(key.key_id)
        put_cookie(response, visitor.headers, SESSION, token, SESSION_SECONDS)
        return response

    async def _sign_out(self, _request: Request, visitor: Visitor) -> Response:
        self._sessions.end(visitor.token)
        response = RedirectResponse(SIGN_IN, _SEE_OTHER)
        put_cookie(response, visitor.headers, SESSION, "", 0)
        return response

    async def _connect(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a page's websocket through: from our own page, and with the page's own cookie."""
        asked = parse_qs(scope["query_string"].decode("latin-1"))
        if not _is_own_origin(visitor.headers) or not _fits_page(visitor, asked.get("client_id")):
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._pages(scope, receive, send)


_ALLOW = {"Allow": "GET"}


def _fits_page(visitor: Visitor, named: list[str] | None) -> bool:
    """Whether the page that a websocket names was given to the same browser."""
    from nicegui import Client

    page = Client.instances.get(named[0]) if named else None
    if page is None:
        return False
    of_page: Visitor = page.request.scope["state"]["visitor"]
    return of_page.token == visitor.token


def _is_own_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request was sent by a page of this very host."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    return origin in (b"http://" + host, b"https://" + host)


def _require_own_page(headers: Mapping[bytes, bytes]) -> None:
    fetched_by = headers.get(b"sec-fetch-site", b"same-origin")
    if fetched_by not in _OWN_SITE or (b"origin" in headers and not _is_own_origin(headers)):
        raise Refused(Problem("PERMISSION_DENIED", "the request was sent by another site"))


async def _read_form(request: Request) -> dict[str, str]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            raise Refused(Problem("INVALID_ARGUMENT", "the form is too large", status=413))
    fields = parse_qs(body.decode("latin-1"), encoding="utf-8", max_num_fields=10)
    return {name: values[0] for name, values in fields.items()}


def _to_sign_in(request: Request) -> Response:
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{SIGN_IN}?next={quote(here, safe='')}", _SEE_OTHER)


def _prefer(request: Request, visitor: Visitor) -> Response:
    """Keep a choice of language or theme, and go back."""
    asked = request.query_params
    response = RedirectResponse(local_path(asked.get("next", "/")), _SEE_OTHER)
    for name, choices in CHOICES.items():
        chosen = asked.get(name.removeprefix("memrecall_"), "")
        if chosen in choices:
            put_cookie(response, visitor.headers, name, chosen)
    return response


def local_path(target: str) -> str:
    """A path of this site; anything else becomes the first page."""
    is_local = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_local and target.isprintable() else "/"
