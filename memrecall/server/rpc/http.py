"""`POST /rpc`: the memory tools as JSON-RPC 2.0, authenticated by key."""

from fastapi import APIRouter, Request, Response

from memrecall.scope import Permission
from memrecall.server.auth import Principal
from memrecall.server.http.context import Context, Service
from memrecall.server.http.payloads import MEDIA_TYPE
from memrecall.server.rpc import answer
from memrecall.server.tools import ToolService, dispatcher, report_bug

# JSON-RPC and docs/rpc.md describe its messages: OpenAPI cannot.
router = APIRouter(tags=["tools"], include_in_schema=False)


@router.post("/rpc")
async def rpc(request: Request, context: Context) -> Response:
    """Answer a call or a batch; 204 without a body if it has notifications only."""
    tools = bind_tools(context.service, context.principal)
    dispatch = dispatcher(tools, trusted=False)
    reply = await answer(await request.body(), dispatch, report_bug)
    if reply is None:
        return Response(status_code=204)
    return Response(reply, media_type=MEDIA_TYPE)


def bind_tools(service: Service, principal: Principal) -> ToolService:
    """Return the tools with the permissions of a key."""
    return ToolService(
        service.library,
        principal.agent_id,
        may_write=not principal.read_only,
        may_change_knowledge=Permission.KNOWLEDGE in principal.permissions,
        is_operator=Permission.OPERATOR in principal.permissions,
    )
