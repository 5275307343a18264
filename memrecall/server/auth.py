"""Who is asking. A key becomes a `Principal`; only a principal gives out scopes.

While the database has no key, local callers need none. That is for a person at their own machine,
so everything that did not begin there is turned away: another address, a proxy, a web page.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from memrecall.errors import NotFound
from memrecall.scope import Permission, Scope
from memrecall.server.errors import Problem, Refused
from memrecall.store import Key, Keys

LOCAL = "local"  # how logs and limits call whoever needs no key
_OWN_SITE = (b"none", b"same-origin")  # typed by a person, or asked for by a page of ours
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, and for which users they may ask (None: all)."""

    key_id: str
    users: frozenset[str] | None
    agent_id: str | None = None
    read_only: bool = False
    permissions: frozenset[Permission] = frozenset()

    @classmethod
    def of(cls, key: Key) -> "Principal":
        """Whoever holds this key."""
        return cls(key.key_id, key.users, key.agent_id, key.read_only, key.permissions)

    def scope(self, user_id: str, session_id: str | None = None) -> Scope:
        """The user's data as this principal may see it. The only way to a scope in the service."""
        if self.users is not None and user_id not in self.users:
            raise NotFound("not this key's user")
        return Scope(user_id, self.agent_id, session_id, self.permissions)

    def one_user(self, named: str | None) -> str:
        """The user that a request names, or the only one that this principal may ask for."""
        if named is not None:
            return named
        if self.users is None or len(self.users) != 1:
            why = "is missing, and this key is not for one user alone"
            fault = {"field": "user_id", "message": why}
            raise Refused(Problem("INVALID_ARGUMENT", f"user_id: {why}", {"fields": [fault]}))
        return next(iter(self.users))

    def require_writing(self) -> None:
        """Refuse a key that may only read."""
        if self.read_only:
            raise Refused(Problem("PERMISSION_DENIED", "this key may only read"))

    def require_operator(self) -> None:
        """Refuse who may not look at the service itself."""
        if Permission.OPERATOR not in self.permissions:
            raise Refused(Problem("PERMISSION_DENIED", "this needs a key made with --operator"))


ANYBODY_HERE = Principal(LOCAL, None, permissions=frozenset({Permission.OPERATOR}))


class Doorkeeper:
    """Tells who a request comes from, or refuses it."""

    def __init__(self, keys: Keys, *, may_be_open: bool, origins: frozenset[str]) -> None:
        self._keys = keys
        self._may_be_open = may_be_open
        self._origins = origins

    async def admit(
        self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None
    ) -> Principal:
        """The principal of a request, asked of the database each time: revoked means now."""
        presented = headers.get(b"authorization")
        if presented is not None:
            return await self._verify(presented.decode("latin-1"))
        if not self._may_be_open or await self._keys.exist():
            raise _unauthenticated("this service needs a key: Authorization: Bearer KEY")
        self._require_local(headers, client)
        return ANYBODY_HERE

    async def admit_visitor(
        self,
        key_id: str | None,
        headers: Mapping[bytes, bytes],
        client: tuple[str, int] | None,
    ) -> Principal:
        """The principal of a browser: of the key that it signed in with, or of this machine."""
        if key_id is not None:
            key = await self._keys.find_valid(key_id)
            if key is None:
                raise _unauthenticated("the key was revoked or has expired")
            return Principal.of(key)
        if not self._may_be_open or await self._keys.exist():
            raise _unauthenticated("this service needs a key")
        self._require_local(headers, client)
        return ANYBODY_HERE

    async def find_key(self, presented: str) -> Key | None:
        """The valid key that a text is, if it is one."""
        return await self._keys.verify(presented)

    async def _verify(self, presented: str) -> Principal:
        scheme, _, text = presented.partition(" ")
        if scheme.lower() != "bearer" or not text.strip():
            raise _unauthenticated("the header must be: Authorization: Bearer KEY")
        key = await self._keys.verify(text.strip())
        if key is None:
            raise _unauthenticated("the key is unknown, revoked or expired")
        return Principal.of(key)

    def _require_local(
        self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None
    ) -> None:
        """Without keys: from this machine, to this machine, and not from a web page."""
        if client is not None and not is_loopback(client[0]):
            raise _not_local("it was sent from another machine")
        if any(name in headers for name in _FORWARDED):
            raise _not_local("it came through a proxy")
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_loopback(_name_of(host)):
            raise _not_local("its Host header names another machine")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self._origins:
            return
        elsewhere = headers.get(b"sec-fetch-site", b"none") not in _OWN_SITE
        if elsewhere or origin not in ("", f"http://{host}"):
            raise _not_local("it was sent by a web page")


def is_own_page(headers: Mapping[bytes, bytes], origins: frozenset[str]) -> bool:
    """Whether a request comes from no web page, or from one that may ask.

    A page of this machine may; any other only if the settings name it, for the name in its Host
    header proves nothing.
    """
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or origin in origins:
        return True
    host = headers.get(b"host", b"").decode("latin-1")
    return is_loopback(_name_of(host)) and origin == f"http://{host}"


def _name_of(host: str) -> str:
    """A Host header without its port; nothing if it cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthenticated(message: str) -> Refused:
    headers = {"WWW-Authenticate": 'Bearer realm="memrecall"'}
    return Refused(Problem("UNAUTHENTICATED", message, headers=headers))


def _not_local(why: str) -> Refused:
    message = f"without keys this service is for local callers, and the request is not: {why}"
    return Refused(Problem("PERMISSION_DENIED", message))
