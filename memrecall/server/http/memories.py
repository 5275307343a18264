"""The memory API: add, list, search, update, delete, undo and purge; background jobs."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel

from memrecall.memory.ingest import NO_MODEL
from memrecall.server.errors import RESOURCE_NOT_FOUND, Problem, RequestError
from memrecall.server.http.context import Context
from memrecall.server.http.models import (
    Added,
    AddRequest,
    Changed,
    DeleteAllQuery,
    DeletionQuery,
    Extraction,
    ExtractionReport,
    ExtractionRun,
    ExtractStoredRequest,
    FoundMemories,
    ItemQuery,
    MemoryHistory,
    MemoryItem,
    MemoryListQuery,
    MemoryPage,
    MemorySearchRequest,
    MessageItem,
    OwnerQuery,
    PathId,
    RemovalQuery,
    StartedJob,
    UnchangedSince,
    UndoneExtraction,
    UpdatedMemory,
    UpdateRequest,
)
from memrecall.server.http.openapi import ADMIN, CONTRIBUTOR, READER, OperationRouter
from memrecall.server.http.responses import JsonResponse
from memrecall.server.http.spaces import Results, Row

router = OperationRouter("memories")

MAX_JOBS = 20  # running jobs of one user
_STAGES = ("memories", "relations", "checkpoint")
_UNUSABLE = "the model's answer could not be used: the messages are kept, facts were not extracted"


class UndoQuery(OwnerQuery):
    """The owner of a memory, and when it was read."""

    unchanged_since: UnchangedSince = None


class DeletedMemories(BaseModel):
    """The number of memories and messages that were hidden, or with `dry_run` would be."""

    found: int
    deleted: int
    memories: int
    messages: int
    users: int
    dry_run: bool
    message: str


class PurgedMemory(BaseModel):
    """The number of erased memories, or messages of a message's id, and what was erased too."""

    id: str
    purged: int
    memories: list[str]
    messages: list[str]


class Job(StartedJob):
    """Background work: an add or an extraction of stored messages, with its result when it is done,
    or the summaries of a session. An extraction has read so many of its messages.
    """

    kind: Literal["add", "summaries", "extraction"]
    session_id: str | None
    result: Added | ExtractionReport | None
    messages: int | None = None
    read: int | None = None


class JobList(BaseModel):
    """The background work of a user's last day, the latest first."""

    results: list[Job]


_Owner = Annotated[OwnerQuery, Query()]
_Removal = Annotated[RemovalQuery, Query()]


@router.operation("POST", "/memories", Added, CONTRIBUTOR)
async def add_memories(body: AddRequest, context: Context) -> Response:
    """Store messages, extract facts from them and update the memories. With `background` the
    response is sent when the messages are stored, and names a job.
    """
    context.principal.require_write()
    memory = await context.memory(body.user_id, body.agent_id, body.project)
    if body.background and memory.running_jobs() >= MAX_JOBS:
        message = f"this user has {MAX_JOBS} running jobs already; try again"
        problem = Problem("RESOURCE_EXHAUSTED", message, headers={"Retry-After": "2"})
        raise RequestError(problem)
    if body.infer and not body.background:
        async with context.service.recall_slot(context.principal):
            report = await memory.add(**body.arguments())
    else:
        report = await memory.add(**body.arguments())
    context.service.metrics.stored.inc(report["stored"])
    context.log_fields.update(
        messages=len(report["messages"]), problems=len(report.get("problems", ()))
    )
    return JsonResponse(_public_report(dict(report)))


@router.operation("GET", "/memories", MemoryPage, READER)
async def list_memories(query: Annotated[MemoryListQuery, Query()], context: Context) -> Response:
    """List memories that are valid now or were at a time, the latest first; `kinds` lists messages
    too, after the memories. A list without memories says how many messages are kept.
    """
    memory = await context.active_memory(query.user_id, query.agent_id, query.project)
    return JsonResponse(await memory.get_all(**query.arguments()))


@router.operation("DELETE", "/memories", DeletedMemories, ADMIN)
async def delete_memories(query: Annotated[DeleteAllQuery, Query()], context: Context) -> Response:
    """Hide all memories and messages of a user, agent or session that match the filters, and the
    messages that these memories come from; `dry_run` counts them.
    """
    memory = await context.writable_memory(query.user_id, query.agent_id, query.project)
    report = await memory.delete_all(**query.arguments())
    context.log_fields["deleted"] = report["deleted"]
    return JsonResponse(report)


@router.operation("POST", "/memories/search", FoundMemories, READER)
async def search_memories(body: MemorySearchRequest, context: Context) -> Response:
    """Search memories and messages by words and meaning, the best first, with scores up to 1."""
    memory = await context.active_memory(body.user_id, body.agent_id, body.project)
    context.log_fields["query_chars"] = len(body.query)
    results = await memory.search(**body.arguments())
    context.service.metrics.searches.labels("memory").inc()
    return JsonResponse(results)


@router.operation("GET", "/memories/{memory_id}/who_can_see", dict[str, Any], READER)
async def list_viewers(memory_id: PathId, query: _Owner, context: Context) -> Response:
    """List who can read a memory or message: the members of its space, or the keys of its user."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.who_can_see(memory_id))


@router.operation("GET", "/memories/{memory_id}/why_seen", Results[Row], READER)
async def explain_access(memory_id: PathId, query: _Owner, context: Context) -> Response:
    """Explain why the caller can read a memory or message, or the items of a recall (trace id)."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse({"results": await memory.why_seen(memory_id)})


@router.operation("GET", "/memories/{memory_id}", MemoryItem | MessageItem, READER)
async def get_memory(
    memory_id: PathId, query: Annotated[ItemQuery, Query()], context: Context
) -> Response:
    """Read one memory, or a message that a search returned."""
    memory = await context.active_memory(query.user_id, project=query.project)
    item = await memory.get(memory_id, kinds=query.kinds)
    if item is None:
        raise RequestError(RESOURCE_NOT_FOUND)
    return JsonResponse(item)


@router.operation("PATCH", "/memories/{memory_id}", UpdatedMemory, CONTRIBUTOR)
async def update_memory(
    memory_id: PathId, body: UpdateRequest, query: _Owner, context: Context
) -> Response:
    """Update the text or the fields of a memory; its history keeps the previous version."""
    memory = await context.writable_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.update(memory_id, **body.model_dump(exclude_unset=True)))


@router.operation("DELETE", "/memories/{memory_id}", Changed, CONTRIBUTOR)
async def delete_memory(
    memory_id: PathId, query: Annotated[DeletionQuery, Query()], context: Context
) -> Response:
    """Hide a memory and the messages that it comes from, or a message, at once; an undo restores
    all of it until it is purged. What other memories took from a message stays in them.
    """
    memory = await context.writable_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.delete(memory_id, **query.arguments()))


@router.operation("GET", "/memories/{memory_id}/history", MemoryHistory, READER)
async def read_history(memory_id: PathId, query: _Owner, context: Context) -> Response:
    """Read the change history of a memory, the oldest change first; deleted memories included."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse({"results": await memory.history(memory_id)})


@router.operation("POST", "/memories/{memory_id}/undo", Changed, CONTRIBUTOR)
async def undo_memory(
    memory_id: PathId, query: Annotated[UndoQuery, Query()], context: Context
) -> Response:
    """Undo the last change of a memory: an update, supersession, expiry or deletion, with all that
    it hid. Of a message, take its deletion back.
    """
    memory = await context.writable_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.undo(memory_id, **query.arguments()))


@router.operation("POST", "/memories/{memory_id}/purge", PurgedMemory, CONTRIBUTOR)
async def purge_memory(memory_id: PathId, query: _Removal, context: Context) -> Response:
    """Erase a memory and the messages that it comes from permanently, or a message, deleted or not:
    history, vectors and all that quotes it too.
    """
    memory = await context.writable_memory(query.user_id, project=query.project)
    report = await memory.purge(memory_id, sources=query.sources)
    if not report["purged"]:
        raise RequestError(RESOURCE_NOT_FOUND)
    context.log_fields["deleted"] = report["purged"]
    return JsonResponse(report)


@router.operation("POST", "/memories/extract", Extraction, CONTRIBUTOR)
async def extract_stored(body: ExtractStoredRequest, context: Context) -> Response:
    """Let the model read the stored messages that none has read, as after an import, in a job;
    `dry_run` counts them. 409 if one is running. After an interruption, send it again.
    """
    memory = await context.writable_memory(body.user_id, body.agent_id, body.project)
    report = await memory.extract_stored(**body.arguments(), background=True)
    job = {name: report.pop(name) for name in ("job_id", "state") if name in report}
    context.log_fields["messages"] = report["messages"]
    return JsonResponse({**report, "job": job or None})


@router.operation("GET", "/extractions", Results[ExtractionRun], READER)
async def list_extractions(query: _Owner, context: Context) -> Response:
    """List the extractions of a user's stored messages that were not undone, the latest first."""
    memory = await context.active_memory(query.user_id, project=query.project)
    return JsonResponse({"results": await memory.extractions()})


@router.operation("POST", "/extractions/{run}/undo", UndoneExtraction, CONTRIBUTOR)
async def undo_extraction(run: PathId, query: _Owner, context: Context) -> Response:
    """Take back what an extraction of stored messages has changed; its messages become unread."""
    memory = await context.writable_memory(query.user_id, project=query.project)
    return JsonResponse(await memory.undo_extraction(run))


@router.operation("GET", "/jobs", JobList, READER)
async def list_jobs(query: _Owner, context: Context) -> Response:
    """List the background work of a user's last day."""
    jobs = await (await context.active_memory(query.user_id, project=query.project)).jobs()
    return JsonResponse({"results": [_public_job(job) for job in jobs]})


@router.operation("GET", "/jobs/{job_id}", Job, READER)
async def read_job(job_id: PathId, query: _Owner, context: Context) -> Response:
    """Read the state of background work, for a day; a later process goes on with what is left."""
    job = await (await context.active_memory(query.user_id, project=query.project)).job(job_id)
    return JsonResponse(_public_job(job))


def _public_job(job: dict[str, Any]) -> dict[str, Any]:
    kind = job.get("kind", "add")
    result = job.get("result")
    fields = {
        "job_id": job.get("job_id"),
        "state": job.get("state"),
        "session_id": job.get("session_id"),
        "kind": kind,
        "result": None,
    }
    if kind == "add" and result is not None:
        fields["result"] = _public_report(result)
    if kind == "extraction":
        fields |= {"messages": job.get("messages"), "read": job.get("read")}
        if result:
            problems = describe_problems(result["problems"])
            fields["result"] = {**result, "problems": problems}
    return fields


def _public_report(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of an add without the messages of errors."""
    job = None
    if "job_id" in report:
        job = {"job_id": report["job_id"], "state": report["state"]}
    return {
        "results": report.get("results", []),
        "messages": report["messages"],
        "stored": report["stored"],
        "statuses": report.get("statuses", []),  # a job of an earlier version has none
        **{name: report[name] for name in ("message", "redacted") if name in report},
        "relations": report.get("relations", []),
        "problems": describe_problems(report.get("problems", ())),
        "job": job,
    }


def describe_problems(problems: Iterable[str]) -> list[str]:
    """Return which stages failed; the messages of errors are for the operator."""
    stages = (problem.partition(":")[0] for problem in problems)
    texts = (
        stage if stage == NO_MODEL else f"{stage}: failed" if stage in _STAGES else _UNUSABLE
        for stage in stages
    )
    return list(dict.fromkeys(texts))
