"""`POST /rpc`: the memory tools as JSON-RPC 2.0, under the keys of the service."""

from fastapi import APIRouter, Request, Response

from memrecall.agent.tools.context import NO_USER, ToolContext
from memrecall.scope import Scope
from memrecall.server.auth import Principal
from memrecall.server.http.service import Asked, Service
from memrecall.server.http.wire import MEDIA_TYPE
from memrecall.server.rpc import answer
from memrecall.server.rpc.methods import dispatcher, report_bug

# Its messages are described by JSON-RPC and docs/rpc.md: OpenAPI has no words for them.
router = APIRouter(tags=["tools"], include_in_schema=False)


@router.post("/rpc")
async def rpc(request: Request, asked: Asked) -> Response:
    """Answer a message, a batch, or (with 204 and nothing) notifications alone."""
    dispatch = dispatcher(tool_context(asked.service, asked.principal))
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
