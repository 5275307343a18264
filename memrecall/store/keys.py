"""Keys of the service: who may ask, for which users, and what.

A key is `mr_<id>_<secret>`. It is looked up by its id; of the secret only a hash is stored. The
secret has 256 random bits, so that a plain hash is enough: there is nothing to guess.
Keys are revoked, never removed: a database that has ever had one does not fall open again.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, bindparam, delete, exists, insert, literal, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Permission
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import api_key_users, api_keys
from memrecall.types import NAME_LENGTH, check_id, check_text

MARK = "mr"
MOST_USERS = 1_000
LIST_SIZE = 100
_ID = re.compile("[0-9a-f]{16}")
_NO_SECRET = "0" * 64  # what an unknown key is compared with, so that it costs the same

_JOINED = select(api_keys, api_key_users.c.user_id).outerjoin(
    api_key_users, api_keys.c.key_id == api_key_users.c.key_id
)
# Asked at every request: built once, because building costs as much as asking.
_BY_ID = _JOINED.where(api_keys.c.key_id == bindparam("wanted_key"))
_AGE = (api_keys.c.created_at, api_keys.c.key_id)
_ANY = select(literal(1)).where(exists(select(api_keys.c.key_id)))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key allows: one user, several, or (None) all; an agent binds it further.

    Only an operator's key may have no user at all: it looks at the service, not at anybody's data.
    """

    users: frozenset[str] | None
    agent_id: str | None = None
    read_only: bool = False
    permissions: frozenset[Permission] = frozenset()

    def __post_init__(self) -> None:
        if self.agent_id is not None:
            check_id("agent_id", self.agent_id)
        if self.users is None:
            return
        least = 0 if Permission.OPERATOR in self.permissions else 1
        if not least <= len(self.users) <= MOST_USERS:
            raise InvalidArgument(
                f"a key for {len(self.users)} users cannot be made",
                hint=f"Name 1 to {MOST_USERS} users, or all of them",
            )
        for user_id in self.users:
            check_id("user_id", user_id)


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key. Its secret is known to its holder alone."""

    key_id: str
    name: str
    users: frozenset[str] | None  # empty: its users were erased
    agent_id: str | None
    read_only: bool
    permissions: frozenset[Permission]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    secret_hash: str = field(repr=False)

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything at that time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def as_dict(self) -> dict[str, Any]:
        """What an operator may see of it."""
        return {
            "key_id": self.key_id,
            "name": self.name,
            "users": None if self.users is None else sorted(self.users),
            "agent_id": self.agent_id,
            "read_only": self.read_only,
            "permissions": sorted(self.permissions),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "revoked_at": self.revoked_at,
        }


@dataclass(frozen=True, slots=True)
class KeyList:
    """Some keys in the order they were made, and the id to go on after."""

    items: tuple[Key, ...]
    next_after: str | None = None


class Keys:
    """The keys of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, grant: Grant, *, name: str = "", expires_at: datetime | None = None
    ) -> tuple[Key, str]:
        """Make a key; the text beside it is told once and cannot be read again."""
        now = datetime.now(UTC)
        _check_name(name)
        if expires_at is not None and expires_at <= now:
            raise InvalidArgument("the key would have expired already", hint="Name a later time")
        secret = secrets.token_urlsafe(32)
        key = Key(
            key_id=secrets.token_hex(8),
            name=name,
            users=grant.users,
            agent_id=grant.agent_id,
            read_only=grant.read_only,
            permissions=grant.permissions,
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
            secret_hash=_hash(secret),
        )
        await self._database.transact(lambda connection: _insert(connection, key))
        return key, f"{MARK}_{key.key_id}_{secret}"

    async def verify(self, presented: str) -> Key | None:
        """The valid key that this text is; None if it is unknown, wrong, revoked or expired."""
        mark, _, rest = presented.partition("_")
        key_id, _, secret = rest.partition("_")
        # A text of another form is looked up all the same: no answer comes faster than another.
        plausible = mark == MARK and key_id.isascii() and key_id.isalnum()
        known = await self._find(key_id if plausible else "")
        expected = known.secret_hash if known else _NO_SECRET
        if not hmac.compare_digest(_hash(secret), expected) or known is None:
            return None
        return known if known.is_valid(datetime.now(UTC)) else None

    async def find_valid(self, key_id: str) -> Key | None:
        """The key of that id, for who has shown its secret before; None if it opens nothing now."""
        known = await self._find(key_id)
        return known if known and known.is_valid(datetime.now(UTC)) else None

    async def exist(self) -> bool:
        """Whether a key was ever made, valid or not."""
        return bool(await self._database.fetch(_ANY))

    async def list(self, after: str = "", limit: int = LIST_SIZE) -> KeyList:
        """Keys, the oldest first, revoked and expired ones too; `after` names one to go on from."""
        if not 1 <= limit <= 10_000:
            raise InvalidArgument(f"limit {limit} is out of range", hint="Use 1 to 10000")
        ids = select(api_keys.c.key_id).order_by(*_AGE).limit(limit + 1)
        if after:
            last = await self._require(after)
            made = literal(last.created_at, api_keys.c.created_at.type)
            ids = ids.where(tuple_(*_AGE) > tuple_(made, literal(last.key_id)))
        rows = await self._database.fetch(ids)
        wanted = [row.key_id for row in rows[:limit]]
        found = await self._database.fetch(_JOINED.where(api_keys.c.key_id.in_(wanted)))
        keys = {key_id: _to_key([r for r in found if r.key_id == key_id]) for key_id in wanted}
        return KeyList(tuple(keys.values()), wanted[-1] if len(rows) > limit else None)

    async def revoke(self, named: str) -> Key:
        """Close a key for good; one that is closed stays as it is.

        It is named by its id, by `mr_<id>`, or by the whole text that its holder has.
        """
        key_id = (await self._require(named)).key_id
        of_key = api_keys.c.key_id == key_id
        open_still = update(api_keys).where(of_key, api_keys.c.revoked_at.is_(None))
        statement = open_still.values(revoked_at=datetime.now(UTC))
        await self._database.transact(lambda connection: connection.execute(statement))
        return await self._require(key_id)

    async def _require(self, named: str) -> Key:
        key_id = named.strip().removeprefix(f"{MARK}_").partition("_")[0]
        if not _ID.fullmatch(key_id):  # perhaps a secret: it is not repeated
            raise NotFound("that is no key's id", hint="`memrecall keys list` tells the ids")
        key = await self._find(key_id)
        if key is None:
            raise NotFound(f"there is no key {key_id}", hint="`memrecall keys list` tells the ids")
        return key

    async def _find(self, key_id: str) -> Key | None:
        rows = await self._database.fetch(_BY_ID, {"wanted_key": key_id})
        return _to_key(rows) if rows else None


async def withdraw_user(connection: AsyncConnection, user_id: str) -> int:
    """Take an erased user out of all keys; those that open nothing else are revoked, nameless."""
    of_user = api_key_users.c.user_id == user_id
    held = (await connection.execute(select(api_key_users.c.key_id).where(of_user))).scalars().all()
    await connection.execute(delete(api_key_users).where(of_user))
    others = select(api_key_users.c.key_id).where(api_key_users.c.key_id == api_keys.c.key_id)
    emptied = update(api_keys).where(api_keys.c.key_id.in_(held), ~others.exists())
    await connection.execute(emptied.values(name=""))
    still_open = emptied.where(api_keys.c.revoked_at.is_(None))
    await connection.execute(still_open.values(revoked_at=datetime.now(UTC)))
    return len(held)


async def _insert(connection: AsyncConnection, key: Key) -> None:
    row = key.as_dict() | {"all_users": key.users is None, "secret_hash": key.secret_hash}
    del row["users"]
    await connection.execute(insert(api_keys), row)
    if key.users:
        owners = [{"key_id": key.key_id, "user_id": user} for user in sorted(key.users)]
        await connection.execute(insert(api_key_users), owners)


def _to_key(rows: Sequence[Row[Any]]) -> Key:
    """A key from its rows, one for each user."""
    first = rows[0]
    users = frozenset(row.user_id for row in rows if row.user_id is not None)
    return Key(
        key_id=first.key_id,
        name=first.name,
        users=None if first.all_users else users,
        agent_id=first.agent_id,
        read_only=first.read_only,
        permissions=_known(first.permissions),
        created_at=first.created_at,
        expires_at=first.expires_at,
        revoked_at=first.revoked_at,
        secret_hash=first.secret_hash,
    )


def _known(permissions: Iterable[str]) -> frozenset[Permission]:
    """Those that this memrecall knows: what a newer one granted means nothing here."""
    return frozenset(Permission(name) for name in permissions if name in list(Permission))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _check_name(name: str) -> None:
    check_text("the name", name)
    if len(name) > NAME_LENGTH:
        raise InvalidArgument(
            f"the name has {len(name)} characters", hint=f"Use at most {NAME_LENGTH}"
        )
