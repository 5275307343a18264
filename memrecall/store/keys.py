"""API keys of the service: for which users they are valid, and what they permit.

A key is `mr_<id>_<secret>`. It is looked up by its id; of the secret only a hash is stored. The
secret has 256 random bits, so a plain hash is enough: nobody can guess it.
Keys are revoked, never removed: a database that has ever had one is never open to everybody again.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Permission, check_user_id
from memrecall.store.database.cursors import LARGEST_OWNER_LIST, LIST_SIZE, KeyedPage, require_limit
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import api_key_users, api_keys
from memrecall.types import NAME_LENGTH, check_id, check_text

PREFIX = "mr"
MAX_USERS = 1_000
_ID = re.compile("[0-9a-f]{16}")
_NO_HASH = "0" * 64  # compared with when a key is unknown, so that it takes as long

_JOINED = select(api_keys, api_key_users.c.user_id).outerjoin(
    api_key_users, api_keys.c.key_id == api_key_users.c.key_id
)
# Every request runs it: built once, because building costs as much as running.
_SELECT_BY_ID = _JOINED.where(api_keys.c.key_id.in_(bindparam("of_keys", expanding=True)))
_MOST_TOGETHER = 64  # look-ups
_ORDER = (api_keys.c.created_at, api_keys.c.key_id)
_SELECT_ANY = select(literal(1)).where(exists(select(api_keys.c.key_id)))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key permits: some users, or all of them (None), perhaps through one agent.

    Only an operator's key, which reads the state of the service, and one that is a member of a
    space may have no user.
    """

    users: frozenset[str] | None
    agent_id: str | None = None
    read_only: bool = False
    permissions: frozenset[Permission] = frozenset()
    is_member: InitVar[bool] = False

    def __post_init__(self, is_member: bool) -> None:
        if self.agent_id is not None:
            check_id("agent_id", self.agent_id)
        if self.users is None:
            return
        smallest = 0 if is_member or Permission.OPERATOR in self.permissions else 1
        if not smallest <= len(self.users) <= MAX_USERS:
            raise InvalidArgument(
                f"a key cannot give access to {len(self.users)} users",
                hint=f"Pass 1 to {MAX_USERS} users, or all users",
            )
        for user_id in self.users:
            check_user_id(user_id)


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key; only its holder has the secret."""

    key_id: str
    name: str
    users: frozenset[str] | None  # None: all users; empty: its users were erased
    agent_id: str | None
    read_only: bool
    permissions: frozenset[Permission]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    secret_hash: str = field(repr=False)

    def is_valid(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired at that time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def as_dict(self) -> dict[str, Any]:
        """Return what an operator may see of the key."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "secret_hash"}
        users = None if self.users is None else sorted(self.users)
        return {**fields, "users": users, "permissions": sorted(self.permissions)}


class Keys:
    """The keys of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, grant: Grant, *, name: str = "", expires_at: datetime | None = None
    ) -> tuple[Key, str]:
        """Create a key; return it and its text, which cannot be read again."""
        now = datetime.now(UTC)
        check_text("the name", name)
        if len(name) > NAME_LENGTH:
            raise InvalidArgument(
                f"the name has {len(name)} characters", hint=f"Use at most {NAME_LENGTH}"
            )
        if expires_at is not None and expires_at <= now:
            raise InvalidArgument(
                f"expires_at {expires_at} is in the past", hint="Pass a later time"
            )
        secret = secrets.token_urlsafe(32)
        key = Key(
            **asdict(grant),
            key_id=secrets.token_hex(8),
            name=name,
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
            secret_hash=_hash(secret),
        )
        await self._database.transact(lambda connection: _insert(connection, key))
        return key, f"{PREFIX}_{key.key_id}_{secret}"

    async def verify(self, text: str) -> Key | None:
        """Return the valid key of a text; None if it is unknown, wrong, revoked or expired."""
        prefix, _, rest = text.partition("_")
        key_id, _, secret = rest.partition("_")
        # A malformed text is looked up as well, so that every refusal takes the same time.
        is_plausible = prefix == PREFIX and key_id.isascii() and key_id.isalnum()
        key = await self._find(key_id if is_plausible else "")
        expected = key.secret_hash if key else _NO_HASH
        if not hmac.compare_digest(_hash(secret), expected) or key is None:
            return None
        return key if key.is_valid(datetime.now(UTC)) else None

    async def find_valid(self, key_id: str) -> Key | None:
        """Return the key of a holder who was verified before; None if it is not valid now."""
        key = await self._find(key_id)
        return key if key and key.is_valid(datetime.now(UTC)) else None

    async def exist(self) -> bool:
        """Return whether a key was ever created, valid or not."""
        return bool(await self._database.fetch(_SELECT_ANY))

    async def of_user(self, user_id: str, *, alone: bool = False) -> "list[Key]":
        """Return the valid keys that may act for a user, oldest first.

        With `alone`, those that have no other user, revoked and expired ones too.
        """
        acts = exists().where(
            api_key_users.c.key_id == api_keys.c.key_id, api_key_users.c.user_id == user_id
        )
        statement = select(api_keys.c.key_id).where(or_(api_keys.c.all_users, acts))
        rows = await self._database.fetch(statement.order_by(*_ORDER))
        keys = await _find_together(self._database, [row.key_id for row in rows])
        now = datetime.now(UTC)
        only = frozenset({user_id})
        return [k for k in keys if k and (k.users == only if alone else k.is_valid(now))]

    async def names(self, key_ids: Iterable[str]) -> dict[str, str]:
        """Return the names of keys by their ids, without keys that have none."""
        keys = await _find_together(self._database, list(dict.fromkeys(key_ids)))
        return {key.key_id: key.name for key in keys if key is not None and key.name}

    async def list(self, after: str = "", limit: int = LIST_SIZE) -> KeyedPage[Key]:
        """Return the keys that follow `after`, oldest first, revoked and expired ones too."""
        require_limit("limit", limit, LARGEST_OWNER_LIST)
        statement = select(api_keys.c.key_id).order_by(*_ORDER).limit(limit + 1)
        if after:
            last = await self._require(after)
            created_at = literal(last.created_at, api_keys.c.created_at.type)
            is_later = tuple_(*_ORDER) > tuple_(created_at, literal(last.key_id))
            statement = statement.where(is_later)
        rows = await self._database.fetch(statement)
        ids = [row.key_id for row in rows[:limit]]
        joined = await self._database.fetch(_JOINED.where(api_keys.c.key_id.in_(ids)))
        keys = [_to_key([row for row in joined if row.key_id == key_id]) for key_id in ids]
        return KeyedPage(tuple(keys), ids[-1] if len(rows) > limit else None)

    async def revoke(self, reference: str) -> Key:
        """Revoke a key, named by its id, by `mr_<id>` or by its whole text, and return it."""
        key_id = (await self._require(reference)).key_id
        not_revoked = (api_keys.c.key_id == key_id, api_keys.c.revoked_at.is_(None))
        statement = update(api_keys).where(*not_revoked).values(revoked_at=datetime.now(UTC))
        await self._database.transact(lambda connection: connection.execute(statement))
        return await self._require(key_id)

    async def _require(self, reference: str) -> Key:
        key_id = reference.strip().removeprefix(f"{PREFIX}_").partition("_")[0]
        hint = "`memrecall keys list` shows the ids"
        if not _ID.fullmatch(key_id):  # not repeated, because it may be a secret
            raise NotFound("this is not the id of a key", hint=hint)
        key = await self._find(key_id)
        if key is None:
            raise NotFound(f"there is no key {key_id}", hint=hint)
        return key

    async def _find(self, key_id: str) -> Key | None:
        find_together = self._database.batcher(_find_together, _MOST_TOGETHER)
        return await find_together(key_id)


async def _find_together(database: Database, key_ids: list[str]) -> Sequence[Key | None]:
    """Return the keys that requests ask for at once, in one read that begins after all of them."""
    by_id: dict[str, list[Row[Any]]] = {key_id: [] for key_id in key_ids}
    for row in await database.fetch(_SELECT_BY_ID, {"of_keys": list(by_id)}):
        by_id[row.key_id].append(row)
    keys = {key_id: _to_key(rows) if rows else None for key_id, rows in by_id.items()}
    return [keys[key_id] for key_id in key_ids]


def withdraw_user(connection: Connection, user_id: str) -> int:
    """Remove an erased user from all keys and return how many; revoke those without users."""
    of_user = api_key_users.c.user_id == user_id
    ids = connection.execute(select(api_key_users.c.key_id).where(of_user)).scalars().all()
    if not ids:  # writing no row would need every node of a distributed database, too
        return 0
    connection.execute(delete(api_key_users).where(of_user))
    others = select(api_key_users.c.key_id).where(api_key_users.c.key_id == api_keys.c.key_id)
    without_users = update(api_keys).where(api_keys.c.key_id.in_(ids), ~others.exists())
    connection.execute(without_users.values(name=""))  # it may name the user
    not_revoked = without_users.where(api_keys.c.revoked_at.is_(None))
    connection.execute(not_revoked.values(revoked_at=datetime.now(UTC)))
    return len(ids)


def _insert(connection: Connection, key: Key) -> None:
    row = key.as_dict() | {"all_users": key.users is None, "secret_hash": key.secret_hash}
    del row["users"]
    connection.execute(insert(api_keys), row)
    if key.users:
        owners = [{"key_id": key.key_id, "user_id": user} for user in sorted(key.users)]
        connection.execute(insert(api_key_users), owners)


def _to_key(rows: Sequence[Row[Any]]) -> Key:
    """Return a key from its rows, one for each user."""
    first = rows[0]
    users = frozenset(row.user_id for row in rows if row.user_id is not None)
    # A newer version may have granted permissions that this one does not know.
    known = frozenset(Permission(name) for name in first.permissions if name in list(Permission))
    fields = {name: getattr(first, name) for name in Key.__slots__ if name != "users"}
    return Key(**{**fields, "users": None if first.all_users else users, "permissions": known})


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
