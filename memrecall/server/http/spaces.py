"""Spaces: their members and log, and the promotion of memories."""

from typing import Annotated, Generic, TypeVar

from fastapi import Query, Response
from pydantic import BaseModel, Field

from memrecall.scope import SPACE_PREFIX, SpaceRole
from memrecall.server.http.context import Context
from memrecall.server.http.models import ListLimit, PathId, RequestModel
from memrecall.server.http.openapi import ADMIN, CONTRIBUTOR, READER, OperationRouter
from memrecall.server.http.responses import JsonResponse
from memrecall.store.spaces import Invitation, Space
from memrecall.types import NAME_LENGTH, CleanText, Id

router = OperationRouter("spaces", "/v1/spaces")
invitations = OperationRouter("spaces", "/v1/invitations")

Item = TypeVar("Item")
_Name = Annotated[CleanText, Field(max_length=NAME_LENGTH)]
Row = dict[str, str | int | None]


class NewSpace(RequestModel):
    """A space to create; 409 if its id is taken."""

    space_id: Id
    name: _Name = ""
    description: Annotated[CleanText, Field(max_length=1_000)] = ""


class SpaceName(RequestModel):
    """The name of a space, which confirms its deletion; in the query or the body."""

    name: _Name = ""


class MemberRequest(RequestModel):
    """The role of a member, and the name that others see."""

    role: SpaceRole
    name: _Name | None = None


class MemoryReference(RequestModel):
    """A memory of the caller to promote, or a copy in the space to demote."""

    memory_id: Id


class AuditQuery(RequestModel):
    """A page of the log; `after` is the last `entry_id` of the previous page."""

    limit: ListLimit = 100
    after: Id | None = None


class Results(BaseModel, Generic[Item]):
    """A list of results."""

    results: list[Item]


_NO_NAME = SpaceName()


@router.operation("GET", "", Results[Space])
async def list_spaces(context: Context) -> Response:
    """List the spaces of the caller: of their user, and of the key itself."""
    scope = context.principal.member_scope()
    spaces: dict[str, Space] = {}
    for member in (scope.user_id, str(scope.member)):  # the role of the key counts
        for space in await context.library.store.spaces.list_of(member):
            spaces[space.space_id] = space
    return JsonResponse({"results": [spaces[name].as_dict() for name in sorted(spaces)]})


@router.operation("POST", "", Space)
async def create_space(body: NewSpace, context: Context) -> Response:
    """Create a space, whose first admin is the user of the request, or the key without one."""
    context.principal.require_write()
    admin = context.principal.member_scope().user_id
    space = await context.library.store.spaces.create(**body.model_dump(), admin=admin)
    return JsonResponse(space.as_dict())


@router.operation("GET", "/{space_id}", Space, READER)
async def read_space(space_id: PathId, context: Context) -> Response:
    """Read the name, the description and the caller's role."""
    return JsonResponse(await (await context.memory(SPACE_PREFIX + space_id)).space_info())


@router.operation("DELETE", "/{space_id}", dict[str, int], ADMIN)
async def delete_space(
    space_id: PathId,
    query: Annotated[SpaceName, Query()],
    context: Context,
    body: SpaceName = _NO_NAME,
) -> Response:
    """Erase a space with everything in it, and return the counts of erased rows."""
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    return JsonResponse(await memory.delete_space(name=query.name or body.name))


@router.operation("GET", "/{space_id}/members", Results[Row], READER)
async def list_members(space_id: PathId, context: Context) -> Response:
    """List the users and keys that can see the space, oldest first; for admins the invited too."""
    memory = await context.memory(SPACE_PREFIX + space_id)
    return JsonResponse({"results": await memory.members()})


@router.operation("PUT", "/{space_id}/members/{member}", Row, ADMIN)
async def set_member(
    space_id: PathId, member: PathId, body: MemberRequest, context: Context
) -> Response:
    """Invite a user, or change the role or name of a member.

    A key, as `key:` and its id, is added at once; so is a user by an operator's key for all users.
    """
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    invite = not context.principal.is_admin
    return JsonResponse(await memory.set_member(member, body.role, name=body.name, invite=invite))


@router.operation("DELETE", "/{space_id}/members/{member}", Row, READER)
async def remove_member(space_id: PathId, member: PathId, context: Context) -> Response:
    """Remove a member, leave, or withdraw an invitation; what they wrote stays.

    409 for the last admin.
    """
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    await memory.remove_member(member)
    return JsonResponse({"member": member, "event": "REMOVE"})


@router.operation("POST", "/{space_id}/promote", Row, CONTRIBUTOR, operation_id="promote_memory")
async def promote_to_space(space_id: PathId, body: MemoryReference, context: Context) -> Response:
    """Copy a memory of the caller to the space, with its messages; again: the same copy."""
    memory = await context.promoting_memory(space_id)
    return JsonResponse(await memory.promote(body.memory_id, space_id))


@router.operation("POST", "/{space_id}/demote", Row, CONTRIBUTOR)
async def demote_memory(space_id: PathId, body: MemoryReference, context: Context) -> Response:
    """Erase a copy that the caller promoted."""
    memory = await context.promoting_memory(space_id)
    return JsonResponse(await memory.demote(body.memory_id, space_id))


@router.operation("GET", "/{space_id}/audit", Results[Row], READER)
async def read_space_audit(
    space_id: PathId, query: Annotated[AuditQuery, Query()], context: Context
) -> Response:
    """Read who changed what in the space, the latest first, without contents."""
    memory = await context.memory(SPACE_PREFIX + space_id)
    return JsonResponse({"results": await memory.audit(limit=query.limit, after=query.after)})


@invitations.operation("GET", "", Results[Invitation])
async def list_invitations(context: Context) -> Response:
    """List the spaces that the user of the request is invited to."""
    return JsonResponse({"results": await (await context.memory()).invitations()})


@invitations.operation("POST", "/{space_id}/accept", Space)
async def accept_invitation(space_id: PathId, context: Context) -> Response:
    """Join the space, with the role of the invitation."""
    memory = await context.writable_memory(None)
    return JsonResponse(await memory.accept_invitation(space_id))


@invitations.operation("POST", "/{space_id}/decline", Row)
async def decline_invitation(space_id: PathId, context: Context) -> Response:
    """Decline to join the space; its admins see that in its log."""
    memory = await context.writable_memory(None)
    await memory.decline_invitation(space_id)
    return JsonResponse({"space_id": space_id, "event": "DECLINE"})
