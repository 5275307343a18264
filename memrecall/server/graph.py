"""The knowledge graph, and a session as a prompt is told of it."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from memrecall.server.memory_answers import GraphAnswer, SessionStateAnswer
from memrecall.server.memory_requests import GraphQuery, StateQuery
from memrecall.server.openapi import documented
from memrecall.server.service import Asked
from memrecall.server.wire import Json, StrictRoute

router = APIRouter(prefix="/v1", tags=["memories"], route_class=StrictRoute)


@router.get("/graph", **documented("read_graph", GraphAnswer, 400, 404))
async def read_graph(query: Annotated[GraphQuery, Query()], asked: Asked) -> Response:
    """Read the relations around an entity, the shortest ways to another, or the entities."""
    memory = await asked.own_memory(query.user_id, query.agent_id)
    told = await memory.graph(
        query.entity,
        to=query.to,
        depth=query.depth,
        as_of=query.as_of,
        limit=query.limit,
        cursor=query.cursor,
    )
    return Json(told)


@router.get("/state", **documented("read_state", SessionStateAnswer, 400, 404))
async def read_state(query: Annotated[StateQuery, Query()], asked: Asked) -> Response:
    """Read a session within a number of tokens, for a prompt: summaries, then its last words."""
    memory = await asked.own_memory(query.user_id, query.agent_id)
    return Json(await memory.state(query.max_tokens, session_id=query.session_id))
