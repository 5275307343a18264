"""Memberships of spaces, read with the version of a space or under its lock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, bindparam, select

from memrecall.errors import Disabled
from memrecall.scope import TRUSTED, Scope, SpaceRole, qualify_key, space_not_found, space_owner
from memrecall.store.database.statements import Reads, fetch_rows, insert_missing
from memrecall.store.database.tables import EXPIRED_AT, agents, memberships, meta, users
from memrecall.types import MemoryRecord, Message, name_writer

SPACES_FACT = "spaces"
Row = TypeVar("Row", bound=Message | MemoryRecord)

# Before the role of an invitation. Whoever reads grants reads the plain roles alone, so that an
# invitation grants nothing, in earlier versions too.
_INVITED = "invited:"
# A row that no version writes must not fail the requests of its member.
IS_GRANT = memberships.c.role.in_([role.value for role in SpaceRole])
IS_INVITATION = memberships.c.role.in_([_INVITED + role.value for role in SpaceRole])
_OF_MEMBER = (
    IS_GRANT,
    memberships.c.user_id == bindparam("of_owner"),
    memberships.c.member == bindparam("of_member"),
)
_ROLE = select(memberships.c.role).where(*_OF_MEMBER)
_OF_EITHER = memberships.c.member.in_([bindparam("of_member"), bindparam("of_key")])
_NAMES = select(memberships.c.member, memberships.c.name).where(
    memberships.c.user_id == bindparam("of_owner"), IS_GRANT
)
# Every request in a space executes it: one statement for the version and the membership.
_ENTRY = (
    select(
        users.c.epoch,
        users.c.version,
        users.c.status,
        users.c.time_zone,
        EXPIRED_AT,
        memberships.c.role,
        memberships.c.member,
        select(agents.c.status)
        .where(agents.c.agent_id == bindparam("of_agent"))
        .scalar_subquery()
        .label("agent_status"),
    )
    .join(memberships, memberships.c.user_id == users.c.user_id)
    .where(users.c.user_id == bindparam("of_owner"), _OF_EITHER, IS_GRANT)
)


def store_role(role: SpaceRole, *, is_invited: bool) -> str:
    """Return a role as it is stored, of a grant or of an invitation."""
    return f"{_INVITED if is_invited else ''}{role.value}"


def role_of_row(stored: str) -> SpaceRole:
    """Return the role of a grant or of an invitation."""
    return SpaceRole(stored.removeprefix(_INVITED))


def enter_space(reads: Reads, scope: Scope, space_id: str) -> tuple[Scope, Any]:
    """Return the scope of a space for a scope's member, and the stored state of the space.

    The member is the scope's key, else its user; NotFound if neither is one. Agents share a space,
    so that its scope has none; who wrote a row is its author.
    """
    if scope.space is not None or TRUSTED in (scope.member, scope.user_id):
        raise space_not_found()
    owner = space_owner(space_id)
    row = read_membership(reads, owner, scope.user_id, scope.agent_id, scope.member)
    inside = replace(
        scope,
        user_id=owner,
        agent_id=None,
        spaces=(),
        member=row.member,
        role=SpaceRole(row.role),
    )
    return inside, row


def read_membership(
    reads: Reads,
    owner: str,
    member: str | None,
    agent_id: str | None = None,
    key: str | None = None,
) -> Any:
    """Return the state of a space and a member's role, the key's first; NotFound for others."""
    ids = {"of_owner": owner, "of_member": member, "of_agent": agent_id, "of_key": key}
    rows = reads.fetch(_ENTRY, ids)
    if not rows:
        raise space_not_found()
    row = min(rows, key=lambda row: bool(row.member != key))
    is_agent_disabled = row.agent_status is not None and not row.agent_status
    if not row.status or is_agent_disabled:
        disabled = agent_id if row.status else owner
        raise Disabled(f"{disabled!r} is disabled", hint="Ask the operator to enable it")
    return row


def read_by_owner(
    reads: Reads,
    scope: Scope,
    keys: Sequence[str],
    read: Callable[[Scope, list[str]], Sequence[Row]],
) -> list[Row]:
    """Return rows by their keys, of the user and of the spaces that the scope covers."""
    by_space: dict[str | None, list[str]] = {}
    for key in keys:
        space_id, plain = scope.split_key(key)
        by_space.setdefault(space_id, []).append(plain)
    rows: list[Row] = []
    for space_id, plain_keys in by_space.items():
        if space_id is None:
            rows += read(scope.own, plain_keys)
        else:
            inside, _ = enter_space(reads, scope, space_id)
            rows += [qualify_row(row, space_id) for row in read(inside, plain_keys)]
    return rows


def show_writers(reads: Reads, scope: Scope, rows: Sequence[Row]) -> list[Row]:
    """Return rows as shown: in a space, every speaker comes with the member who wrote it.

    Otherwise a writer could pass for another member by giving that name as the speaker.
    """
    if scope.space is None or not any(row.speaker and row.author for row in rows):
        return list(rows)
    names = read_member_names(reads, scope.user_id)
    shown = []
    for row in rows:
        speaker = show_writer(row.speaker, row.author, names)
        shown.append(cast(Row, row.model_copy(update={"speaker": speaker})))
    return shown


def show_writer(speaker: str | None, author: str | None, names: Mapping[str, str]) -> str | None:
    """Return a speaker with the member who wrote it, if that is somebody else."""
    if not speaker or author is None:
        return speaker
    name = names.get(author, author)
    return speaker if speaker in (name, author) else name_writer(speaker, name)


def read_member_names(reads: Reads, owner: str) -> dict[str, str]:
    """Return the names of a space's members by their ids."""
    rows = reads.fetch(_NAMES, {"of_owner": owner})
    return {row.member: row.name or row.member for row in rows}


def qualify_row(row: Row, space_id: str) -> Row:
    """Return a row of a space with the ids that it has outside of the space."""
    qualify = partial(qualify_key, space_id)
    names = ("message_id", "parent_message_id", "memory_key", "supersedes", "superseded_by")
    named = {name: getattr(row, name, None) for name in names}
    values: dict[str, Any] = {name: qualify(key) for name, key in named.items() if key}
    if isinstance(row, MemoryRecord):
        conflicts = tuple(map(qualify, row.provenance.conflicts_with))
        values["source_message_ids"] = tuple(map(qualify, row.source_message_ids))
        values["provenance"] = row.provenance.model_copy(update={"conflicts_with": conflicts})
    return cast(Row, row.model_copy(update=values))


def note_spaces(connection: Connection) -> None:
    """Record that the database has spaces; without any, nothing looks for a user's spaces."""
    if not connection.scalar(select(meta.c.value).where(meta.c.name == SPACES_FACT)):
        insert_missing(connection, meta, [{"name": SPACES_FACT, "value": "yes"}])


def require_member(connection: Connection, scope: Scope, least: SpaceRole) -> SpaceRole:
    """Return the role that a scope's member has now, under the lock of the space.

    Forbidden if it is below `least`, or below what it was when the space was entered.
    """
    if scope.member == TRUSTED:
        return SpaceRole.ADMIN
    ids = {"of_owner": scope.user_id, "of_member": scope.member}
    rows = fetch_rows(connection, _ROLE, ids)
    if not rows:
        raise space_not_found()
    role = SpaceRole(rows[0].role)
    role.require(least)
    if scope.role is not None:
        role.require(scope.role)
    return role
