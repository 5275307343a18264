"""Spaces: their members and log, promotion of memories, and who can see what."""

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from memrecall.scope import SPACE_PREFIX, SpaceRole
from memrecall.server.errors import invalid_field
from memrecall.server.http.context import Context
from memrecall.server.http.memory_models import OwnerQuery
from memrecall.server.http.message_models import Digits, PathId, RequestModel
from memrecall.server.http.openapi import route_options
from memrecall.server.http.responses import JsonResponse, JsonRoute
from memrecall.store.database.cursors import LARGEST_LIST
from memrecall.types import NAME_LENGTH, CleanText, Id

router = APIRouter(prefix="/v1", tags=["spaces"], route_class=JsonRoute)

_Name = Annotated[CleanText, Field(max_length=NAME_LENGTH)]
Item = TypeVar("Item")
Change = dict[str, str | bool]
Entry, Reason = dict[str, str | int | None], dict[str, str | None]
_Owner = Annotated[OwnerQuery, Query()]


class NewSpace(RequestModel):
    """A space to create; its first admin is the caller."""

    space_id: Annotated[Id, Field(description="Such as team-x; 409 if it is taken.")]
    name: _Name = ""
    description: Annotated[CleanText, Field(max_length=1_000)] = ""


class SpaceName(RequestModel):
    """The name of a space, which confirms its deletion."""

    name: _Name | None = None


class MemberRequest(RequestModel):
    """The role of a member, and the name that others see."""

    role: SpaceRole
    name: _Name | None = None


class MemoryReference(RequestModel):
    """A memory: of the caller to promote it, of the space to demote it."""

    memory_id: Id


class AuditQuery(RequestModel):
    """A page of the log; `after` is the last `entry_id` of the previous page."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_LIST), Digits] = 100
    after: Id | None = None


class Results(BaseModel, Generic[Item]):
    """A list, and nothing else."""

    results: list[Item]


class SpaceInfo(BaseModel):
    """A space, and the caller's role in it."""

    space_id: str
    name: str
    description: str
    created_at: datetime
    role: SpaceRole


class SpaceMember(BaseModel):
    """A user or key, their role, and who gave it to them."""

    member: str
    kind: Literal["user", "key"]
    role: SpaceRole
    name: str | None
    since: datetime
    granted_by: str | None


class Visibility(BaseModel):
    """Who can read a memory or message."""

    id: str
    owner: dict[str, str]
    members: list[SpaceMember]
    keys: list[dict[str, str | bool]]


@router.get("/spaces", **route_options("list_spaces", Results[SpaceInfo]))
async def list_spaces(context: Context) -> Response:
    """List the spaces of the caller: of their user, and of the key itself."""
    scope, spaces = context.principal.member_scope(), context.library.store.spaces
    members = dict.fromkeys((scope.user_id, str(scope.member)))  # the role of the key counts
    found = {space.space_id: space for name in members for space in await spaces.list_of(name)}
    return JsonResponse({"results": [found[name].as_dict() for name in sorted(found)]})


@router.post("/spaces", **route_options("create_space", SpaceInfo))
async def create_space(body: NewSpace, context: Context) -> Response:
    """Create a space, whose first admin is the user of the request, or the key without one."""
    context.principal.require_write()
    admin = context.principal.member_scope().user_id
    space = await context.library.store.spaces.create(**body.model_dump(), admin=admin)
    return JsonResponse(space.as_dict())


@router.get("/spaces/{space_id}", **route_options("read_space", SpaceInfo))
async def read_space(space_id: PathId, context: Context) -> Response:
    """Read the name, the description and the caller's role."""
    return JsonResponse(await (await context.memory(SPACE_PREFIX + space_id)).space_info())


@router.delete("/spaces/{space_id}", **route_options("delete_space", dict[str, int]))
async def delete_space(
    space_id: PathId,
    context: Context,
    query: Annotated[SpaceName, Query()],
    body: SpaceName | None = None,
) -> Response:
    """Erase a space with everything in it; `name`, in the query or the body, confirms it."""
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    name = query.name if body is None or body.name is None else body.name
    if name is None:
        raise invalid_field("name", "is required: the name of the space confirms its deletion")
    return JsonResponse(await memory.delete_space(name=name))


@router.get("/spaces/{space_id}/members", **route_options("list_members", Results[SpaceMember]))
async def list_members(space_id: PathId, context: Context) -> Response:
    """List the users and keys that can see the space, with their roles."""
    memory = await context.memory(SPACE_PREFIX + space_id)
    return JsonResponse({"results": await memory.members()})


@router.put("/spaces/{space_id}/members/{member}", **route_options("set_member", SpaceMember))
async def set_member(
    space_id: PathId, member: PathId, body: MemberRequest, context: Context
) -> Response:
    """Add a user, or a key as `key:` and its id; or change their role or name."""
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    return JsonResponse(await memory.set_member(member, body.role, name=body.name))


@router.delete("/spaces/{space_id}/members/{member}", **route_options("remove_member", Change))
async def remove_member(space_id: PathId, member: PathId, context: Context) -> Response:
    """Remove a member, or leave; what they wrote stays. 409 for the last admin."""
    memory = await context.writable_memory(SPACE_PREFIX + space_id)
    await memory.remove_member(member)
    return JsonResponse({"member": member, "event": "REMOVE"})


@router.post("/spaces/{space_id}/promote", **route_options("promote_memory", Change))
async def promote_memory(space_id: PathId, body: MemoryReference, context: Context) -> Response:
    """Copy a memory of the caller to the space, with its messages; again: the same copy."""
    context.principal.require_write()
    await context.enter(SPACE_PREFIX + space_id)
    return JsonResponse(await context.member_memory().promote(body.memory_id, space_id))


@router.post("/spaces/{space_id}/demote", **route_options("demote_memory", Change))
async def demote_memory(space_id: PathId, body: MemoryReference, context: Context) -> Response:
    """Erase a copy that the caller promoted."""
    context.principal.require_write()
    await context.enter(SPACE_PREFIX + space_id)
    return JsonResponse(await context.member_memory().demote(body.memory_id, space_id))


@router.get("/spaces/{space_id}/audit", **route_options("read_space_audit", Results[Entry]))
async def read_space_audit(
    space_id: PathId, query: Annotated[AuditQuery, Query()], context: Context
) -> Response:
    """Read who changed what in the space, without contents."""
    memory = await context.memory(SPACE_PREFIX + space_id)
    return JsonResponse({"results": await memory.audit(limit=query.limit, after=query.after)})


@router.get("/memories/{memory_id}/who_can_see", **route_options("who_can_see", Visibility))
async def who_can_see(memory_id: PathId, query: _Owner, context: Context) -> Response:
    """List who can read a memory or message: the members of its space, or the keys of its user."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.who_can_see(memory_id))


@router.get("/memories/{memory_id}/why_seen", **route_options("why_seen", Results[Reason]))
async def why_seen(memory_id: PathId, query: _Owner, context: Context) -> Response:
    """Explain why the caller can read a memory or message, or the items of a recall (trace id)."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse({"results": await memory.why_seen(memory_id)})
