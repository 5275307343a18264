"""Authentication of requests, and the scopes that a principal may use.

While the database has no key, local callers need none. That is meant for a developer on their own
machine, so a request from another address, through a proxy or from a web page is refused.
"""

import ipaddress
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote_to_bytes, urlsplit

from memrecall.errors import InvalidArgument, NotFound, StorageError
from memrecall.scope import (
    KEY_MEMBER,
    Permission,
    Scope,
    SpaceRole,
    check_user_id,
    space_not_found,
    space_of,
)
from memrecall.server.errors import Problem, RequestError, invalid_field
from memrecall.server.limits import RequestLimiter
from memrecall.store import AuditEntry, Key, Keys, Store
from memrecall.types import check_id

log = logging.getLogger("memrecall.server")

Headers = Mapping[bytes, bytes]
Address = tuple[str, int]

KEY_ACTOR = "key "  # before the id of the key, in the log of changes
LOCAL = "local"  # the key id of local callers without a key, in logs and limits
SAME_SITE = (b"none", b"same-origin")  # typed into the address bar, or sent by one of our pages
# Which of a key's users, and which project: set by trusted code, never by a model.
USER_HEADER = "X-Memrecall-User"
PROJECT_HEADER = "X-Memrecall-Project"
SPACES_HEADER = "X-Memrecall-Spaces"  # that searches and recalls cover too
SCOPE_HEADERS = (USER_HEADER, PROJECT_HEADER, SPACES_HEADER)
MAX_SPACES = 16  # of a request: each is searched
_REVOKED = "the key was revoked or has expired"
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


@dataclass(slots=True)
class AdminReads:
    """The users that an admin's request reads; changes leave entries of their own.

    The key of a back end, which reads for its users, is no admin's: each read would be a write.
    """

    users: set[str] = field(default_factory=set)
    changes: bool = False

    async def log(self, store: Store, actor: str, target: str) -> None:
        """Write to the audit log of each user which kind of data was read."""
        if self.changes:
            self.users.clear()
        for user in sorted(self.users):
            try:
                await store.audit(Scope.of_owner(user)).add(AuditEntry("read", actor, target))
            except StorageError:  # such as a read-only database
                fields = {
                    "action": "read",
                    "key": actor.removeprefix(KEY_ACTOR),
                    "user": user,
                    "target": target,
                }
                log.info("audit", extra={"fields": fields})
        self.users.clear()


def _read_header(headers: Headers, name: str) -> str | None:
    """Return a header, quoted as in a path: a proxy hashes either to the same process."""
    value = headers.get(name.lower().encode())
    try:
        return None if value is None else unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise invalid_field(name, "must be percent-encoded UTF-8, as in a path") from None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller and the users it may act for (None: all users)."""

    key_id: str
    users: frozenset[str] | None
    agent_id: str | None = None
    read_only: bool = False
    permissions: frozenset[Permission] = frozenset()
    named_user: str | None = None  # by a header: the only user of this request
    named_project: str | None = None  # by a header too
    named_spaces: tuple[str, ...] = ()  # by a header too
    entered: Scope | None = None  # the space whose membership was read for this request
    refusal: str = "this key is read-only"  # the answer to a write, if it is
    reads: AdminReads | None = field(default=None, compare=False)  # of the key of an admin

    @classmethod
    def from_key(cls, key: Key) -> "Principal":
        """Return the principal of a key."""
        principal = cls(
            key.key_id,
            key.users,
            agent_id=key.agent_id,
            read_only=key.read_only,
            permissions=key.permissions,
        )
        return replace(principal, reads=AdminReads()) if principal.is_admin else principal

    @property
    def is_admin(self) -> bool:
        """Whether it may act for any user, as an operator on the machine of the database does."""
        return self.users is None and Permission.OPERATOR in self.permissions

    @property
    def actor(self) -> str:
        """The author of changes that histories record."""
        return f"{KEY_ACTOR}{self.key_id}"

    def bind(self, headers: Headers) -> "Principal":
        """Return the principal bound to the user, project and spaces that headers name, if any.

        Raise RequestError if the key may not act for that user, InvalidArgument if it is no id.
        """
        user = _read_header(headers, USER_HEADER)
        if user is not None:
            check_user_id(check_id(USER_HEADER, user))
            if self.users is not None and user not in self.users:
                message = f"the key has no access to the user in the header {USER_HEADER}"
                raise RequestError(Problem("PERMISSION_DENIED", message))
        project = _read_header(headers, PROJECT_HEADER)
        names = [name.strip() for name in (_read_header(headers, SPACES_HEADER) or "").split(",")]
        spaces = tuple(dict.fromkeys(name for name in names if name))  # each once
        if len(spaces) > MAX_SPACES:
            raise invalid_field(SPACES_HEADER, f"names more than {MAX_SPACES} spaces")
        if user is project is None and not spaces:
            return self
        return replace(self, named_user=user, named_project=project, named_spaces=spaces)

    async def enter(self, store: Store, user_id: str, least: SpaceRole | None) -> "Principal":
        """Return the principal inside a space if the id names one, which takes one statement.

        Raise NotFound if it is not a member, Forbidden if its role is below `least`; None: the
        request cannot be made in a space.
        """
        space_id = space_of(user_id)
        if space_id is None:
            return self
        try:
            inside = await store.spaces.enter(self.member_scope(), space_id)
        except InvalidArgument:  # No space has such an id.
            raise space_not_found() from None
        if least is None:
            raise space_not_found()
        inside.require_role(least)
        return replace(self, entered=inside)

    def member_scope(self) -> Scope:
        """Return the scope that enters spaces: as the key if it is a member, else as its user."""
        user = self._bound_user()
        key = f"{KEY_MEMBER}{self.key_id}"
        if user is None and self.key_id == LOCAL:
            raise invalid_field(USER_HEADER, "is required: it names the member of the space")
        return Scope(user or key, self.agent_id, permissions=self.permissions, member=key)

    def scope(
        self, user_id: str, session_id: str | None = None, project: str | None = None
    ) -> Scope:
        """Return the scope of a user; raise NotFound if the key may not act for that user.

        Raise RequestError if a header names another one, or another project. This is the only way
        to a scope in the service; to the scope of a space, only after `enter`.
        """
        is_space = space_of(user_id) is not None
        if not is_space and self.named_user not in (None, user_id):
            raise invalid_field(USER_HEADER, "names another user than the rest of the request")
        if self.named_project is not None and project not in (None, self.named_project):
            raise invalid_field(PROJECT_HEADER, "names another project than the rest")
        if is_space and (self.entered is None or self.entered.user_id != user_id):
            raise space_not_found()
        if not is_space and self.users is not None and user_id not in self.users:
            raise NotFound("the key has no access to this user")
        if self.reads is not None:
            self.reads.users.add(user_id)
        project = project or self.named_project
        if is_space and self.entered is not None:
            return replace(self.entered, session_id=session_id, project=project)
        scope = Scope(user_id, self.agent_id, session_id, self.permissions, project)
        if not self.named_spaces:
            return scope
        return replace(scope, spaces=self.named_spaces, member=f"{KEY_MEMBER}{self.key_id}")

    def resolve_user(self, user_id: str | None) -> str:
        """Return `user_id`, or if it is None the user of the header, or the key's only user."""
        user = user_id if user_id is not None else self._bound_user()
        if user is None:
            raise invalid_field(
                "user_id", "is required, because this key is not bound to a single user"
            )
        return user

    def bound_scope(self) -> Scope | None:
        """Return the scope of the user of the header, else of the key's only user, else None."""
        user = self._bound_user()
        return None if user is None else self.scope(user)

    def _bound_user(self) -> str | None:
        if self.named_user is None and self.users is not None and len(self.users) == 1:
            return next(iter(self.users))
        return self.named_user

    async def require_valid(self, keys: Keys) -> None:
        """Raise UNAUTHENTICATED if the key was revoked or has expired during a stream."""
        if self.key_id != LOCAL and await keys.find_valid(self.key_id) is None:
            raise _unauthenticated(_REVOKED)

    def require_write(self) -> None:
        """Raise PERMISSION_DENIED if the key or the service is read-only."""
        if self.reads is not None:
            self.reads.changes = True
        if self.read_only:
            details = {"reason": "read_only"}
            raise RequestError(Problem("PERMISSION_DENIED", self.refusal, details))

    def require_operator(self) -> None:
        """Raise PERMISSION_DENIED if the key has no operator permission."""
        if Permission.OPERATOR not in self.permissions:
            message = "this requires a key created with --operator"
            details = {"reason": "operator_key"}
            raise RequestError(Problem("PERMISSION_DENIED", message, details))


@dataclass(frozen=True, slots=True)
class SignInCode:
    """A code that signs one browser in with a key, once."""

    key_id: str
    code: str

    @classmethod
    def create(cls, key_id: str) -> "SignInCode":
        """Return a new code for a key."""
        return cls(key_id, secrets.token_urlsafe(24))

    @property
    def path(self) -> str:
        """The path of the link that signs in."""
        return f"/sign-in?code={self.code}"

    def matches(self, text: str) -> bool:
        """Return True if a text is the code, in a time that does not depend on the text."""
        return secrets.compare_digest(self.code.encode(), text.encode())


LOCAL_PRINCIPAL = Principal(LOCAL, None, permissions=frozenset({Permission.OPERATOR}))


class Authenticator:
    """Authenticates requests by key or, while there are no keys, by their local origin.

    Every request reads the key from the database, so that a revocation takes effect at once.
    Callers without a valid key are limited by their address before that, others by their key.
    """

    def __init__(
        self,
        keys: Keys,
        limiter: RequestLimiter,
        *,
        allow_keyless: bool,
        origins: frozenset[str],
        read_only: bool = False,
        private_key: str = "",
    ) -> None:
        self._private_key = private_key
        self._keys = keys
        self._limiter = limiter
        self._read_only = read_only
        self._allow_keyless = allow_keyless
        self._origins = origins

    async def authenticate(self, headers: Headers, client: Address | None) -> Principal:
        """Return the principal of an API request, or raise RequestError."""
        authorization = headers.get(b"authorization")
        self._limiter.admit_stranger(_host_of(client), authorization)
        try:
            if authorization is not None:
                principal = await self._verify_header(authorization.decode("latin-1"))
            else:
                message = "this service requires a key: Authorization: Bearer KEY"
                principal = await self._authenticate_local(headers, client, message)
        except RequestError:
            self.charge_stranger(client)
            raise
        self.admit(principal, authorization)
        return self._restrict(principal)

    def admit_stranger(self, client: Address | None, tokens: float = 1.0) -> None:
        """Count a request that needs no key; raise RequestError if its address sent too many."""
        self._limiter.admit_stranger(_host_of(client))
        self.charge_stranger(client, tokens)

    def charge_stranger(self, client: Address | None, tokens: float = 1.0) -> None:
        """Count a request without a valid key, or as many as `tokens`."""
        self._limiter.charge_stranger(_host_of(client), tokens)

    def admit(self, principal: Principal, credentials: bytes | None = None) -> None:
        """Count a request of a principal; raise RequestError if its key sent too many."""
        if principal.key_id != LOCAL:
            self._limiter.admit_key(principal.key_id, credentials)

    async def authenticate_browser(
        self, key_id: str | None, headers: Headers, client: Address | None
    ) -> Principal:
        """Return the principal of a browser that signed in with a key, or is on this machine."""
        if key_id is None:
            message = "this service requires a key"
            return self._restrict(await self._authenticate_local(headers, client, message))
        key = await self._keys.find_valid(key_id)
        if key is None:
            raise _unauthenticated(_REVOKED)
        return self._restrict(Principal.from_key(key))

    def _restrict(self, principal: Principal) -> Principal:
        if not self._read_only:
            return principal
        return replace(principal, read_only=True, refusal="this service is read-only")

    async def find_key(self, secret: str) -> Key | None:
        """Return the valid key with this secret, if any."""
        return await self._keys.verify(secret)

    async def _verify_header(self, authorization: str) -> Principal:
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise _unauthenticated("the header must be: Authorization: Bearer KEY")
        if self._private_key:
            if not secrets.compare_digest(self._private_key.encode(), secret.strip().encode()):
                raise _unauthenticated("this service has another key")
            return Principal(LOCAL, None)
        key = await self._keys.verify(secret.strip())
        if key is None:
            raise _unauthenticated("the key is unknown, revoked or expired")
        return Principal.from_key(key)

    async def _authenticate_local(
        self, headers: Headers, client: Address | None, message: str
    ) -> Principal:
        if self._private_key or not self._allow_keyless or await self._keys.exist():
            raise _unauthenticated(message)
        self._require_local(headers, client)
        return LOCAL_PRINCIPAL

    def _require_local(self, headers: Headers, client: Address | None) -> None:
        """Raise unless the request was sent from and to this machine, and not by a web page."""
        if client is not None and not is_loopback(client[0]):
            raise _not_local("it was sent from another machine")
        if any(name in headers for name in _FORWARDED):
            raise _not_local("it came through a proxy")
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_loopback(_host_name(host)):
            raise _not_local("its Host header names another machine")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self._origins:
            return
        is_cross_site = headers.get(b"sec-fetch-site", b"none") not in SAME_SITE
        if is_cross_site or origin not in ("", f"http://{host}"):
            raise _not_local("it was sent by a web page")


def is_allowed_origin(headers: Headers, origins: frozenset[str]) -> bool:
    """Return True for a request of no web page, a local page, or a page of allowed origin.

    The Host header alone proves nothing, so any other page must be named in the settings.
    """
    origin = headers.get(b"origin", b"").decode("latin-1")
    if not origin or origin in origins:
        return True
    host = headers.get(b"host", b"").decode("latin-1")
    return is_loopback(_host_name(host)) and origin == f"http://{host}"


def _host_of(client: Address | None) -> str:
    return client[0] if client is not None else ""


def _host_name(host: str) -> str:
    """Return a Host header without its port; empty if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return True if a name or address refers to this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unauthenticated(message: str) -> RequestError:
    headers = {"WWW-Authenticate": 'Bearer realm="memrecall"'}
    return RequestError(Problem("UNAUTHENTICATED", message, headers=headers))


def _not_local(reason: str) -> RequestError:
    message = f"as long as no key exists, only local requests are accepted: {reason}"
    return RequestError(Problem("PERMISSION_DENIED", message))
