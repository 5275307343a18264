"""`POST /rpc`: the memory tools as JSON-RPC 2.0, under the keys of the service."""

from fastapi import APIRouter, Request, Response

from memrecall.scope import Permission
from memrecall.server.auth import Principal
from memrecall.server.http.service import Asked, Service
from memrecall.server.http.wire import MEDIA_TYPE
from memrecall.server.rpc import answer
from memrecall.server.tools import ToolService, dispatcher, report_bug

# Its messages are described by JSON-RPC and docs/rpc.md: OpenAPI has no words for them.
router = APIRouter(tags=["tools"], include_in_schema=False)


@router.post("/rpc")
async def rpc(request: Request, asked: Asked) -> Response:
    """Answer a message, a batch, or (with 204 and nothing) notifications alone."""
    desk = desk_of(asked.service, asked.principal)
    dispatch = dispatcher(desk, trusted=False)
    reply = await answer(await request.body(), dispatch, report_bug)
    if reply is None:
        return Response(status_code=204)
    return Response(reply, media_type=MEDIA_TYPE)


def desk_of(service: Service, principal: Principal) -> ToolService:
    """The tools as a key may use them."""
    return ToolService(
        service.library,
        principal.agent_id,
        may_write=not principal.read_only,
        may_change_knowledge=Permission.KNOWLEDGE in principal.permissions,
        is_operator=Permission.OPERATOR in principal.permissions,
    )
