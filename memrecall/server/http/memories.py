"""The memory API: add, list, search, correct, forget and bring back; background jobs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.convertors import Convertor, register_url_convertor

from memrecall.memory import AsyncMemory
from memrecall.server.errors import NOTHING_THERE, Problem, Refused
from memrecall.server.http.memory_answers import (
    Added,
    Changed,
    DeletedMemories,
    FoundMemories,
    GraphAnswer,
    Job,
    MemoryHistory,
    MemoryItem,
    MemoryPage,
    SessionStateAnswer,
    UpdatedMemory,
)
from memrecall.server.http.memory_requests import (
    AddRequest,
    DeleteAllQuery,
    GraphQuery,
    MemoryListQuery,
    MemorySearchRequest,
    OwnerQuery,
    StateQuery,
    UpdateRequest,
    read_filters,
)
from memrecall.server.http.message_models import PathId
from memrecall.server.http.openapi import documented
from memrecall.server.http.service import Asked
from memrecall.server.http.wire import Json, StrictRoute

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


class _MemoryId(Convertor[str]):
    """An id in a path; what stands there for a verb is none."""

    regex = r"(?!search(?:/|$))[^/]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("memory", _MemoryId())


MOST_JOBS = 20  # of one user, under way
# What failed is told by its stage: the words of a failure are for who runs the service.
_STAGES = ("memories", "relations", "summaries", "checkpoint")
_BY_RULES = "the model's answer could not be used: rules were used instead"


@router.post(
    "/memories",
    **documented("add_memories", Added, 400, 404, 409, 413, 415, 429, 507),
)
async def add_memories(body: AddRequest, asked: Asked) -> Response:
    """Store messages, then find facts in them and bring what is known up to date. With
    `background` the answer comes when the messages are stored, and names a job.
    """
    asked.principal.require_writing()
    memory = asked.memory(body.user_id, body.agent_id)
    if body.background and memory.running_jobs() >= MOST_JOBS:
        message = f"{MOST_JOBS} jobs of this user are under way already; try again"
        raise Refused(Problem("RESOURCE_EXHAUSTED", message, headers={"Retry-After": "2"}))
    if body.infer and not body.background:
        async with asked.service.gate.enter(asked.principal.key_id):
            told = await _add(memory, body)
    else:
        told = await _add(memory, body)
    asked.service.metrics.count_stored(told["stored"])
    asked.notes.update(messages=len(told["messages"]), problems=len(told.get("problems", ())))
    return Json(_shown(told))


@router.get("/memories", **documented("list_memories", MemoryPage, 400, 404))
async def list_memories(query: Annotated[MemoryListQuery, Query()], asked: Asked) -> Response:
    """List memories, the latest first: those that hold now, or held at a time."""
    memory = await asked.own_memory(query.user_id, query.agent_id)
    page = await memory.get_all(
        session_id=query.session_id,
        filters=read_filters(query.filters),
        limit=query.limit,
        cursor=query.cursor,
        as_of=query.as_of,
        superseded=query.superseded,
        deleted=query.deleted,
    )
    return Json(page)


@router.delete("/memories", **documented("delete_memories", DeletedMemories, 400, 404))
async def delete_memories(query: Annotated[DeleteAllQuery, Query()], asked: Asked) -> Response:
    """Hide all memories of a user, agent or session that pass the filters; `dry_run` counts."""
    asked.principal.require_writing()
    memory = await asked.own_memory(query.user_id, query.agent_id)
    done = await memory.delete_all(
        session_id=query.session_id, filters=read_filters(query.filters), dry_run=query.dry_run
    )
    asked.notes["deleted"] = done["deleted"]
    return Json(done)


@router.post("/memories/search", **documented("search_memories", FoundMemories, 400, 404, 413, 415))
async def search_memories(body: MemorySearchRequest, asked: Asked) -> Response:
    """Search memories by words and meaning, the best first, each with a score from 0 to 1."""
    memory = await asked.own_memory(body.user_id, body.agent_id)
    asked.notes["query_chars"] = len(body.query)
    found = await memory.search(
        body.query,
        limit=body.limit,
        filters=body.filters,
        threshold=body.threshold,
        rerank=body.rerank,
        session_id=body.session_id,
        as_of=body.as_of,
        kinds=body.kinds,
    )
    asked.service.metrics.count_search("memory")
    return Json(found)


@router.get("/memories/{memory_id:memory}", **documented("get_memory", MemoryItem, 400, 404))
async def get_memory(
    memory_id: PathId, query: Annotated[OwnerQuery, Query()], asked: Asked
) -> Response:
    """Read one memory."""
    found = await (await asked.own_memory(query.user_id)).get(memory_id)
    if found is None or found["kind"] != "memory":
        raise Refused(NOTHING_THERE)
    return Json(found)


@router.patch(
    "/memories/{memory_id:memory}",
    **documented("update_memory", UpdatedMemory, 400, 404, 413, 415, 507),
)
async def update_memory(
    memory_id: PathId,
    body: UpdateRequest,
    query: Annotated[OwnerQuery, Query()],
    asked: Asked,
) -> Response:
    """Correct a memory in its place: its text or fields; its history keeps what it said before."""
    asked.principal.require_writing()
    memory = await asked.own_memory(query.user_id)
    return Json(await memory.update(memory_id, **body.model_dump(exclude_unset=True)))


@router.delete("/memories/{memory_id:memory}", **documented("delete_memory", Changed, 400, 404))
async def delete_memory(
    memory_id: PathId, query: Annotated[OwnerQuery, Query()], asked: Asked
) -> Response:
    """Hide a memory at once; undoing brings it back until it is purged."""
    asked.principal.require_writing()
    return Json(await (await asked.own_memory(query.user_id)).delete(memory_id))


@router.get(
    "/memories/{memory_id:memory}/history", **documented("read_history", MemoryHistory, 400, 404)
)
async def read_history(
    memory_id: PathId, query: Annotated[OwnerQuery, Query()], asked: Asked
) -> Response:
    """Read what became of a memory, from its adding on; also of a deleted one."""
    steps = await (await asked.own_memory(query.user_id)).history(memory_id)
    return Json({"results": steps})


@router.post(
    "/memories/{memory_id:memory}/undo", **documented("undo_memory", Changed, 400, 404, 409)
)
async def undo_memory(
    memory_id: PathId, query: Annotated[OwnerQuery, Query()], asked: Asked
) -> Response:
    """Take back the last change of a memory: a correction, a supersession or a deletion."""
    asked.principal.require_writing()
    return Json(await (await asked.own_memory(query.user_id)).undo(memory_id))


@router.get("/jobs/{job_id}", **documented("read_job", Job, 400, 404))
async def read_job(job_id: PathId, query: Annotated[OwnerQuery, Query()], asked: Asked) -> Response:
    """Read the state of work that an add began in the background; it ends with the process."""
    told = await (await asked.own_memory(query.user_id)).job(job_id)
    result = told.get("result")
    shown = None if result is None else _shown(result)
    return Json({"job_id": told["job_id"], "state": told["state"], "result": shown})


async def _add(memory: AsyncMemory, body: AddRequest) -> dict[str, Any]:
    return await memory.add(
        body.told(),
        session_id=body.session_id,
        metadata=body.metadata,
        infer=body.infer,
        memory_type=body.memory_type,
        prompt=body.prompt,
        sensitive=body.sensitive,
        expires_at=body.expires_at,
        background=body.background,
    )


def _shown(told: dict[str, Any]) -> dict[str, Any]:
    """What an add tells, without the words of failures."""
    job = {"job_id": told["job_id"], "state": told["state"]} if "job_id" in told else None
    return {
        "results": told.get("results", []),
        "messages": told["messages"],
        "stored": told["stored"],
        "relations": told.get("relations", []),
        "problems": list(dict.fromkeys(map(_say, told.get("problems", ())))),
        "job": job,
    }


def _say(problem: str) -> str:
    stage = problem.partition(":")[0]
    return f"{stage}: could not be made" if stage in _STAGES else _BY_RULES
