"""Spaces: data that several users share, their members and roles.

A space is an owner like a user: its rows are stored under `space:` and its id. Members join, leave
and change roles under the lock of the space, which every write to it takes too. Who is invited is
no member until they accept.
"""

import secrets
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert, or_, select, update

from memrecall.errors import Conflict, InvalidArgument, NotFound
from memrecall.scope import (
    DEFAULT_NAME,
    KEY_MEMBER,
    SPACE_PREFIX,
    Scope,
    SpaceRole,
    check_member,
    parse_space_role,
    space_not_found,
    space_of,
    space_owner,
)
from memrecall.store.database.distribution import begin_distributed_changes
from memrecall.store.database.engine import Database
from memrecall.store.database.locks import (
    Locks,
    ensure_agents,
    lock_existing_user,
    lock_users,
    require_enabled,
)
from memrecall.store.database.memberships import (
    IS_GRANT,
    IS_INVITATION,
    SPACES_FACT,
    enter_space,
    note_spaces,
    read_member_names,
    role_of_row,
    store_role,
)
from memrecall.store.database.statements import ConnectionReads, Reads, insert_missing, new_epoch
from memrecall.store.database.tables import (
    audit_log,
    memberships,
    memories,
    messages,
    meta,
    revisions,
    users,
)
from memrecall.store.feed import UserVersion
from memrecall.store.memories.history import AuditEntry, write_entry
from memrecall.types import NewMessage, Role, check_shown_name, check_shown_text, format_time

Result = TypeVar("Result")
Signed = TypeVar("Signed", bound=NewMessage)

SPACE = "space"  # the type of the owners of spaces
_STATUS = select(users.c.status).where(users.c.user_id == bindparam("of_owner"))
_CACHED_SPACES = 256
_LAST = chr(0x10FFFF)
# Where rows of a space name a member.
_NAMING: tuple[tuple[Table, str], ...] = (
    (messages, "author"),
    (memories, "author"),
    (revisions, "actor"),
    (audit_log, "actor"),
    (audit_log, "target"),
    (memberships, "granted_by"),
)


@dataclass(frozen=True, slots=True)
class SpaceMember:
    """A grant: a user or key, and what they may do in a space; or once they accept, if invited."""

    member: str
    role: SpaceRole
    name: str | None
    created_at: datetime
    granted_by: str | None
    is_invited: bool = False

    @property
    def kind(self) -> str:
        """Whether it is a "user" or a "key"."""
        return "key" if self.member.startswith(KEY_MEMBER) else "user"

    def as_dict(self) -> dict[str, Any]:
        """Return the grant, times as text."""
        since = format_time(self.created_at)
        fields = asdict(self) | {"role": self.role.value, "kind": self.kind, "since": since}
        fields["status"] = "invited" if self.is_invited else "member"
        del fields["created_at"], fields["is_invited"]
        return fields


@dataclass(frozen=True, slots=True)
class Space:
    """A space, and the role that the caller has in it."""

    space_id: str
    name: str
    description: str
    created_at: datetime
    role: SpaceRole | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the space, times as text."""
        role = self.role and self.role.value
        return asdict(self) | {"created_at": format_time(self.created_at), "role": role}


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a user is told about a space before they join it."""

    space_id: str
    name: str
    role: SpaceRole
    invited_by: str | None
    invited_at: datetime

    def as_dict(self) -> dict[str, Any]:
        """Return the invitation, times as text."""
        invited_at = format_time(self.invited_at)
        return asdict(self) | {"role": self.role.value, "invited_at": invited_at}


class Spaces:
    """The spaces of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[str, tuple[tuple[str, int] | None, Mapping[str, str]]] = {}

    async def create(self, space_id: str, *, name: str, description: str = "", admin: str) -> Space:
        """Create a space with its first admin; Conflict if the id is taken."""
        owner, now = space_owner(space_id), datetime.now(UTC)
        check_member(admin)
        # The header of spaces separates them with these.
        if not set(":,").isdisjoint(unicodedata.normalize("NFKC", space_id)):
            raise InvalidArgument(f"space {space_id!r} has ':' or ','", hint="Use team-x")
        row = {
            "user_id": owner,
            "agent_id": DEFAULT_NAME,
            "user_name": check_shown_name("name", name) or space_id,
            "user_type": SPACE,
            "profile": {"description": check_shown_text("description", description)},
            "epoch": new_epoch(),
            "create_time": now,
            "update_time": now,
        }
        scope = Scope.of_owner(owner)
        first = SpaceMember(admin, SpaceRole.ADMIN, None, now, None)

        def work(connection: Connection) -> Space:
            if self._database.is_distributed:
                begin_distributed_changes(connection)
            note_spaces(connection)
            ensure_agents(connection, [DEFAULT_NAME], now)
            insert_missing(connection, users, [row])
            lock_users(connection, [owner])
            stored = connection.execute(select(users).where(users.c.user_id == owner)).one()
            if stored.epoch != row["epoch"]:
                raise Conflict(f"the space id {space_id!r} is taken", hint="Choose another id")
            _insert_member(connection, owner, first)
            write_entry(connection, scope, AuditEntry("create", admin, admin), now)
            return _to_space(stored, SpaceRole.ADMIN)

        return await self._database.transact(work)

    async def enter(self, scope: Scope, space_id: str) -> Scope:
        """Return the scope of a space for a member; NotFound if it is none of their spaces.

        Disabled if the user, the agent or the space is; a user without own data is not.
        """
        for row in await self._database.fetch(_STATUS, {"of_owner": scope.user_id}):
            require_enabled("user", scope.user_id, row.status)
        read = partial(enter_space, scope=scope, space_id=space_id)
        inside, _ = await self._database.read_together(read)
        return inside

    async def get(self, scope: Scope) -> Space:
        """Return the space of a scope, with the role of its member."""
        rows = await self._database.fetch(select(users).where(users.c.user_id == scope.user_id))
        if not rows or scope.space is None:
            raise space_not_found()
        return _to_space(rows[0], scope.role)

    async def list_of(self, member: str) -> list[Space]:
        """Return the spaces of a member by id, with the role in each."""
        statement = select(users, memberships.c.role).join(
            memberships, memberships.c.user_id == users.c.user_id
        )
        rows = await self._database.fetch(
            statement.where(memberships.c.member == member, IS_GRANT).order_by(users.c.user_id)
        )
        return [_to_space(row, SpaceRole(row.role)) for row in rows if space_of(row.user_id)]

    async def list_all(self) -> list[Space]:
        """Return all spaces by id, for operators."""
        statement = select(users).where(users.c.user_type == SPACE).order_by(users.c.user_id)
        rows = await self._database.fetch(statement)
        return [_to_space(row, None) for row in rows if space_of(row.user_id) is not None]

    async def members(self, scope: Scope) -> list[SpaceMember]:
        """Return all grants of a scope's space, oldest first."""
        read = partial(_read_members, owner=scope.user_id)
        return await self._database.read_together(read)

    async def invited(self, scope: Scope) -> list[SpaceMember]:
        """Return who is invited to a scope's space, oldest first; none to others than admins."""
        if scope.role is not SpaceRole.ADMIN:
            return []
        read = partial(_read_members, owner=scope.user_id, is_invited=True)
        return await self._database.read_together(read)

    async def invitations_of(self, member: str) -> list[Invitation]:
        """Return the open invitations of a user, by space."""
        columns = [memberships.c[name] for name in ("role", "granted_by", "created_at")]
        statement = select(users.c.user_id, users.c.user_name, *columns).join(
            memberships, memberships.c.user_id == users.c.user_id
        )
        of_member = statement.where(memberships.c.member == member, IS_INVITATION)
        rows = await self._database.fetch(of_member.order_by(users.c.user_id))
        invitations = []
        for row in rows:
            space_id = space_of(row.user_id)
            if space_id is not None:
                name, role = row.user_name or space_id, role_of_row(row.role)
                invitations.append(Invitation(space_id, name, role, row.granted_by, row.created_at))
        return invitations

    async def accept(self, member: str, space_id: str) -> Space:
        """Make an invited user a member; NotFound if they are not invited."""
        return await self._answer(member, space_id, "join")

    async def decline(self, member: str, space_id: str) -> None:
        """End the invitation of a user; NotFound if they are not invited."""
        await self._answer(member, space_id, "decline")

    async def _answer(self, member: str, space_id: str, action: str) -> Space:
        # Read before the space is locked: to others, a disabled space is like an unknown one.
        if space_id not in {each.space_id for each in await self.invitations_of(member)}:
            raise space_not_found()
        scope = Scope.of_owner(space_owner(space_id))

        def work(connection: Connection, locks: Locks) -> Space:
            found = _members_by_id(connection, scope.user_id, is_invited=True).get(member)
            if found is None:  # it was withdrawn in between
                raise space_not_found()
            connection.execute(delete(memberships).where(*_of_member(scope, member)))
            if action == "join":
                grant = replace(found, created_at=locks.now, is_invited=False)
                _insert_member(connection, scope.user_id, grant)
            entry = AuditEntry(action, member, member)
            write_entry(connection, scope, entry, locks.now)
            of_space = select(users).where(users.c.user_id == scope.user_id)
            return _to_space(connection.execute(of_space).one(), found.role)

        return await self._change(scope, work, SpaceRole.ADMIN)

    async def names(self, owner: str, version: UserVersion | None = None) -> Mapping[str, str]:
        """Return the names of a space's members by their ids, cached by the space's version."""
        state = (version.epoch, version.version) if version else None
        cached = self._names.get(owner)
        if cached is None or state is None or cached[0] != state:
            read = partial(read_member_names, owner=owner)
            cached = state, await self._database.read_together(read)
            if len(self._names) >= _CACHED_SPACES:
                self._names.pop(next(iter(self._names)))
            self._names[owner] = cached
        return cached[1]

    async def sign(self, scope: Scope, batch: Sequence[Signed]) -> list[Signed]:
        """Return messages; in a space, the user's own have the member as their speaker."""
        if scope.author is None:
            return list(batch)
        names = await self.names(scope.user_id)
        speaker = {"speaker": names.get(scope.author, scope.author)}
        own = [message.role is Role.USER and message.speaker is None for message in batch]
        return [m.model_copy(update=speaker) if o else m for m, o in zip(batch, own, strict=True)]

    async def set_member(
        self,
        scope: Scope,
        member: str,
        role: SpaceRole | str,
        name: str | None = None,
        *,
        invite: bool = False,
    ) -> SpaceMember:
        """Add a member, or change their role or name; only admins can.

        With `invite`, a user who is not a member is invited: they are one when they accept.
        """
        check_member(member)
        new = parse_space_role(role)
        name = None if name is None else check_shown_name("name", name)

        def work(connection: Connection, locks: Locks) -> SpaceMember:
            members = _members_by_id(connection, scope.user_id)
            old = members.get(member)
            given = name if name is not None or old is None else old.name
            since = locks.now if old is None else old.created_at
            is_same = old is not None and old.role is new
            by = old.granted_by if old and is_same else scope.member
            is_invited = invite and old is None and not member.startswith(KEY_MEMBER)
            stored = SpaceMember(member, new, given, since, by, is_invited)
            if old is not None and old.role is SpaceRole.ADMIN is not new:
                _require_other_admin(members, member)
            connection.execute(delete(memberships).where(*_of_member(scope, member)))
            _insert_member(connection, scope.user_id, stored)
            if not is_same:
                action = "role" if old else "invite" if is_invited else "join"
                self._log(connection, scope, action, member, locks.now)
            return stored

        return await self._change(scope, work, SpaceRole.ADMIN)

    async def remove_member(self, scope: Scope, member: str) -> None:
        """Remove a member, or withdraw an invitation; others than admins only leave themselves."""
        is_self = member == scope.member

        def work(connection: Connection, locks: Locks) -> None:
            members = _members_by_id(connection, scope.user_id)
            invited = _members_by_id(connection, scope.user_id, is_invited=True)
            action = "leave" if is_self else "remove"
            if member in members:
                if members[member].role is SpaceRole.ADMIN:
                    _require_other_admin(members, member)
            elif member in invited:
                action = "withdraw"
            else:
                raise NotFound(f"{member!r} is not a member of this space", hint="List its members")
            connection.execute(delete(memberships).where(*_of_member(scope, member)))
            self._log(connection, scope, action, member, locks.now)

        await self._change(scope, work, SpaceRole.READER if is_self else SpaceRole.ADMIN)

    async def require_name(self, scope: Scope, name: str) -> None:
        """Check that an admin may delete the space, which they name to confirm it."""

        def work(connection: Connection, locks: Locks) -> None:
            of_space = users.c.user_id == scope.user_id
            stored = connection.scalar(select(users.c.user_name).where(of_space))
            if name != stored:
                raise InvalidArgument(
                    f"{name!r} is not the name of this space", hint="Pass its name to delete it"
                )
            self._log(connection, scope, "delete", None, locks.now)

        await self._change(scope, work, SpaceRole.ADMIN)

    async def log(self, scope: Scope, action: str, target: str) -> None:
        """Add an entry to the audit log of a space."""
        await self._change(
            scope,
            lambda connection, locks: self._log(connection, scope, action, target, locks.now),
            SpaceRole.CONTRIBUTOR,
        )

    async def owners_naming(self, ids: Sequence[str]) -> list[str]:
        """Return the owner ids of the spaces that name one of these ids, sorted.

        They may be named as members, invited, inviting or granting, or as authors.
        """
        owners: set[str] = set()
        known = select(meta.c.value).where(meta.c.name == SPACES_FACT)
        if space_of(ids[0]) is not None or not await self._database.fetch(known):
            return []
        for table, column in (
            (memberships, "member"),
            (memberships, "granted_by"),
            (messages, "author"),
            (memories, "author"),
        ):
            is_space = (table.c.user_id > SPACE_PREFIX, table.c.user_id < SPACE_PREFIX + _LAST)
            named = select(table.c.user_id).where(*is_space, table.c[column].in_(ids)).distinct()
            owners |= {row.user_id for row in await self._database.fetch(named)}
        return sorted(owners)

    async def find_written(self, owner: str, authors: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the keys of the memories and of the messages that members wrote to a space."""
        keys: list[list[str]] = []
        for table, key in ((memories, "memory_key"), (messages, "message_id")):
            of_authors = (table.c.user_id == owner, table.c.author.in_(authors))
            rows = await self._database.fetch(select(table.c[key]).where(*of_authors))
            keys.append([row[0] for row in rows])
        return keys[0], keys[1]

    async def remove_user(self, ids: Sequence[str]) -> dict[str, bool]:
        """Take an erased user, known by these ids, out of all spaces; return which are empty now.

        What they wrote stays, under one new name in each space. A space without an admin gets one:
        the member of the highest role who joined first, a user before any key.
        """
        is_empty: dict[str, bool] = {}
        for owner in await self.owners_naming(ids):
            scope = Scope.of_owner(owner)
            work = partial(self._remove_user, scope=scope, ids=ids)
            is_empty[owner] = await self._change(scope, work, SpaceRole.ADMIN)
        return is_empty

    def _remove_user(
        self, connection: Connection, locks: Locks, *, scope: Scope, ids: Sequence[str]
    ) -> bool:
        owner, name = scope.user_id, f"erased-{secrets.token_hex(4)}"
        rest = [m for m in _members_by_id(connection, owner).values() if m.member not in ids]
        others = [member.name or member.member for member in rest]
        # They may have had other names: every name is theirs that is not another member's.
        for table, said in ((messages, [messages.c.role == Role.USER.value]), (memories, [])):
            said += [table.c.author.in_(ids), table.c.speaker.not_in(others)]
            renamed = update(table).where(table.c.user_id == owner, *said)
            connection.execute(renamed.values(speaker=name))
        # Nobody can join at the word of somebody who is gone.
        is_sent = and_(IS_INVITATION, memberships.c.granted_by.in_(ids))
        is_theirs = or_(memberships.c.member.in_(ids), is_sent)
        connection.execute(delete(memberships).where(memberships.c.user_id == owner, is_theirs))
        for table, column in _NAMING:
            of_user = (table.c.user_id == owner, table.c[column].in_(ids))
            connection.execute(update(table).where(*of_user).values({column: name}))
        # Indexes in memory have the old name.
        of_owner = update(users).where(users.c.user_id == owner)
        connection.execute(of_owner.values(epoch=new_epoch()))
        heirs = [m for m in rest if m.kind == "user"] or rest
        if heirs and all(m.role is not SpaceRole.ADMIN for m in heirs):
            heir = max(heirs, key=lambda m: list(SpaceRole).index(m.role))  # the first of them
            admin = update(memberships).where(*_of_member(scope, heir.member))
            connection.execute(admin.values(role=SpaceRole.ADMIN.value))
            self._log(connection, scope, "role", heir.member, locks.now)
        self._log(connection, scope, "erase", name, locks.now)
        return not rest

    async def _change(
        self,
        scope: Scope,
        work: Callable[[Connection, Locks], Result],
        least: SpaceRole,
    ) -> Result:
        """Call `work` under the lock of a space; caches by its version end with the change."""

        def run(connection: Connection) -> Result:
            locks = lock_existing_user(connection, scope, least)
            result = work(connection, locks)
            locks.next_change(scope.user_id)
            locks.save(connection)
            return result

        return await self._database.transact(run)

    @staticmethod
    def _log(
        connection: Connection, scope: Scope, action: str, target: str | None, now: datetime
    ) -> None:
        write_entry(connection, scope, AuditEntry(action, str(scope.member), target), now)


def _require_other_admin(members: Mapping[str, SpaceMember], member: str) -> None:
    others = (m for m in members.values() if m.member != member and m.kind == "user")
    if all(other.role is not SpaceRole.ADMIN for other in others):  # a key may be revoked
        raise Conflict(
            f"{member!r} is the last admin of this space",
            hint="Make another member an admin first, or delete the space",
            reason="last_admin",
        )


def _of_member(scope: Scope, member: str) -> tuple[Any, Any]:
    return memberships.c.user_id == scope.user_id, memberships.c.member == member


def _insert_member(connection: Connection, owner: str, member: SpaceMember) -> None:
    row = asdict(member) | {"user_id": owner}
    is_invited = row.pop("is_invited")
    row["role"] = store_role(member.role, is_invited=is_invited)
    connection.execute(insert(memberships), row)


def _read_members(reads: Reads, owner: str, *, is_invited: bool = False) -> list[SpaceMember]:
    """Return the members of a space, or who is invited to it, oldest first."""
    columns = [memberships.c[name] for name in SpaceMember.__slots__[:-1]]
    kind = IS_INVITATION if is_invited else IS_GRANT
    statement = select(*columns).where(memberships.c.user_id == owner, kind)
    statement = statement.order_by(memberships.c.created_at, memberships.c.member)
    return [
        SpaceMember(**row._asdict() | {"role": role_of_row(row.role), "is_invited": is_invited})
        for row in reads.fetch(statement)
    ]


def _members_by_id(
    connection: Connection, owner: str, *, is_invited: bool = False
) -> dict[str, SpaceMember]:
    members = _read_members(ConnectionReads(connection), owner, is_invited=is_invited)
    return {member.member: member for member in members}


def _to_space(row: Any, role: SpaceRole | None) -> Space:
    description = (row.profile or {}).get("description", "")
    space_id = str(space_of(row.user_id))
    return Space(space_id, row.user_name or space_id, description, row.create_time, role)
