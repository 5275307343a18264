"""The cookies of the dashboard: strict, for this host alone, unseen by scripts."""

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Literal, cast

from starlette.responses import Response

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
