"""Memberships of spaces, read with the version of a space or under its lock."""

from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import Disabled
from memrecall.scope import (
    KEY_PREFIX,
    TRUSTED,
    Scope,
    SpaceRole,
    space_not_found,
    space_owner,
)
from memrecall.store.database.connections import Reads, fetch_prepared
from memrecall.store.database.memory_tables import memberships
from memrecall.store.database.tables import agents, users

_OF_MEMBER = (
    memberships.c.user_id == bindparam("of_owner"),
    memberships.c.member == bindparam("of_member"),
)
_ROLE = select(memberships.c.role).where(*_OF_MEMBER)
# Every request in a space executes it: one statement for the version and the membership.
_ENTRY = (
    select(
        *(users.c.epoch, users.c.version, users.c.status, users.c.time_zone),
        memberships.c.role,
        select(agents.c.status)
        .where(agents.c.agent_id == bindparam("of_agent"))
        .scalar_subquery()
        .label("agent_status"),
    )
    .join(memberships, memberships.c.user_id == users.c.user_id)
    .where(users.c.user_id == bindparam("of_owner"), *_OF_MEMBER)
)


async def enter_space(reads: Reads, scope: Scope, space_id: str) -> tuple[Scope, Any]:
    """Return the scope of a space for a scope's member, and the stored state of the space.

    NotFound if they are not a member. Agents share a space, so that its scope has none; who wrote
    a row is its author.
    """
    member = scope.member or scope.user_id
    if scope.space is not None or (scope.member is None and member.startswith(KEY_PREFIX)):
        raise space_not_found()
    owner = space_owner(space_id)
    ids = {"of_owner": owner, "of_member": member, "of_agent": scope.agent_id}
    for row in await reads.fetch(_ENTRY, ids):
        if not row.status or not (row.agent_status or row.agent_status is None):
            disabled = scope.agent_id if row.status else space_id
            raise Disabled(f"{disabled!r} is disabled", hint="Ask the operator to enable it")
        role = SpaceRole(row.role)
        inside = replace(scope, user_id=owner, agent_id=None, spaces=(), member=member, role=role)
        return inside, row
    raise space_not_found()


async def require_member(connection: AsyncConnection, scope: Scope, least: SpaceRole) -> SpaceRole:
    """Return the role that a scope's member has now, under the lock of the space.

    Forbidden if it is below `least`, or below what it was when the space was entered.
    """
    if scope.member == TRUSTED:
        return SpaceRole.ADMIN
    ids = {"of_owner": scope.user_id, "of_member": scope.member}
    rows = await fetch_prepared(connection, _ROLE, ids)
    if not rows:
        raise space_not_found()
    role = SpaceRole(rows[0].role)
    role.require(least)
    if scope.role is not None:
        role.require(scope.role)
    return role
