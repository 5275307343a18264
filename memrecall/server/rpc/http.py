"""`POST /rpc`: the memory tools as JSON-RPC 2.0, authenticated by key."""

from fastapi import APIRouter, Request, Response

from memrecall.agent.tools.context import NO_USER, ToolContext
from memrecall.scope import Scope
from memrecall.server.auth import Principal
from memrecall.server.http.context import Context, Service
from memrecall.server.http.payloads import MEDIA_TYPE
from memrecall.server.rpc import answer
from memrecall.server.rpc.methods import dispatcher, report_bug

# JSON-RPC and docs/rpc.md describe its messages: OpenAPI cannot.
router = APIRouter(tags=["tools"], include_in_schema=False)


@router.post("/rpc")
async def rpc(request: Request, context: Context) -> Response:
    """Answer a call or a batch; 204 without a body if it has notifications only."""
    dispatch = dispatcher(tool_context(context.service, context.principal))
    reply = await answer(await request.body(), dispatch, report_bug)
    if reply is None:
        return Response(status_code=204)
    return Response(reply, media_type=MEDIA_TYPE)


def tool_context(service: Service, principal: Principal) -> ToolContext:
    """Return the context of the tools within the rights of a key; it has no user."""
    return ToolContext(
        library=service.library,
        scope=Scope(NO_USER, principal.agent_id, permissions=principal.permissions),
        has_user=False,
        can_write=not principal.read_only,
    )
