"""Addresses and keys of servers that memrecall talks to: checked before anything is sent."""

import re
from urllib.parse import urlsplit

from memrecall.errors import InvalidArgument

OPENAI = "https://api.openai.com/v1"


def check_url(url: str) -> str:
    """Return `url` if requests can go there and errors may show it."""
    hint = f"Write it like {OPENAI}"
    if set(url) & set("@?#"):  # where secrets hide: so the value is not shown
        raise InvalidArgument("base_url has a user, a query or a fragment", hint=hint)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidArgument(f"base_url {url!r} is not an HTTP address", hint=hint)
    return url


def check_key(key: str | None) -> str:
    """Return the key if a header can carry it; the HTTP library's own complaint would show it."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise InvalidArgument("api_key has a character that is not printable ASCII")
    return key
