"""The sessions of a user, and their data as a whole: sweeps, export, import and erasure."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import fields
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from memrecall.memory import AsyncMemory, Policy
from memrecall.scope import Permission, Scope, space_of
from memrecall.server.errors import Problem, RequestError, invalid_field
from memrecall.server.http.context import Context, RequestContext
from memrecall.server.http.models import (
    AgentRequest,
    Digits,
    Flag,
    KindsText,
    PathId,
    RequestModel,
    SessionRequest,
)
from memrecall.server.http.openapi import ADMIN, CONTRIBUTOR, READER, OperationRouter
from memrecall.server.http.responses import (
    LINES_TYPE,
    LINES_TYPES,
    JsonResponse,
    run_while_connected,
)
from memrecall.store import WriteStatus
from memrecall.types import ProjectLabel

log = logging.getLogger("memrecall.server")

router = OperationRouter("users")

MAX_STATE_TOKENS = 100_000
STATE_TOKENS = 1_000
EXPORT_SECONDS = 600.0  # a slow client must not keep a database connection for longer
_CHUNK_BYTES = 64 * 1024
_Days = Annotated[float | None, Field(strict=True, ge=0)]
_LINES_SCHEMA = {"schema": {"type": "string", "format": "binary"}}
_BODY_OF_LINES = {"requestBody": {"required": True, "content": {LINES_TYPES[1]: _LINES_SCHEMA}}}


class ProjectQuery(RequestModel):
    """The part of a user's data that is meant."""

    project: Annotated[ProjectLabel | None, Field(description="Only this project.")] = None


class ExportQuery(ProjectQuery):
    """What is exported."""

    kinds: KindsText = "all"


class ErasureQuery(ProjectQuery):
    """What is erased."""

    with_contributions: Annotated[
        bool, Field(description="Erase what the user wrote to spaces too.")
    ] = False


class StateQuery(SessionRequest):
    """The query parameters of a session's state."""

    max_tokens: Annotated[int, Field(ge=1, le=MAX_STATE_TOKENS), Digits] = STATE_TOKENS


class SummarizeRequest(AgentRequest):
    """How to summarise a session."""

    whole: Annotated[Flag, Field(description="False: only groups of turns that are complete.")] = (
        True
    )


class EndSessionRequest(AgentRequest):
    """How a session ended."""

    success: Annotated[Flag | None, Field(description="Whether it reached its goal.")] = None


class SweepRequest(AgentRequest):
    """A retention policy; null and false disable a rule. _Days count back from now."""

    older_than_days: _Days = None
    not_recalled_days: _Days = None
    superseded_days: _Days = None
    expired: Flag = True
    duplicates: Flag = True
    most_memories: Annotated[int | None, Field(strict=True, ge=0)] = None
    dry_run: Annotated[Flag, Field(description="False: remove what was found.")] = True
    purge: Annotated[Flag, Field(description="Erase permanently instead of hiding.")] = False


class SessionStateAnswer(BaseModel):
    """A session within a token budget: its summaries, then its last messages."""

    text: str
    tokens: int
    messages: int
    summaries: int


class SessionSummary(BaseModel):
    """A summary of a part of a session, or of the whole session."""

    level: Literal["turns", "chunk", "session"]
    number: int
    first_sequence_no: int
    last_sequence_no: int
    text: str
    by: str


class SummarizedSession(BaseModel):
    """All summaries of a session, and how many of them are new."""

    new: int
    results: list[SessionSummary]


class EndedSession(BaseModel):
    """An ended session; `experience` is the id of the memory of what it taught."""

    experience: str | None
    summaries: int
    success: bool | None


class SweptMemory(BaseModel):
    """A memory that a policy removes, and why."""

    id: str
    reason: str


class SweepReport(BaseModel):
    """What a policy removes: `found` memories, of which `removed` were removed now."""

    dry_run: bool
    found: int
    removed: int
    reasons: dict[str, int]
    results: list[SweptMemory]


class ImportedRows(BaseModel):
    """The number of rows of each table, and of messages and memories by what became of them.

    `skipped` names, by table, the rows that were not stored and differ from what is stored;
    `joined` the sessions that took in the messages of a session with the same id.
    """

    rows: dict[str, int]
    statuses: dict[WriteStatus, int]
    skipped: dict[str, list[str]]
    joined: list[str]


class ErasedUser(BaseModel):
    """The number of erased rows of each kind."""

    sessions: int
    messages: int
    memories: int
    vectors: int
    traces: int
    derived: int
    keys: int


class ExportStream(Response):
    """A response of lines, which counts as one of the key's concurrent recalls.

    An error before the first line is an ordinary error response; a later one cuts the response off.
    """

    media_type = LINES_TYPE

    def __init__(
        self, lines: AsyncGenerator[str, None], context: RequestContext, user_id: str
    ) -> None:
        super().__init__()
        self._user_id = user_id
        del self.headers["content-length"]
        self._lines = lines
        self._context = context

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Stream to one client."""
        service = self._context.service
        async with (
            asyncio.timeout(EXPORT_SECONDS),
            service.recall_slot(self._context.principal),
        ):
            await run_while_connected(self._stream(send), receive, service.closing)

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with aclosing(self._lines) as lines:
            async for chunk in self._context.while_valid(_join_lines(lines)):
                await self._context.enter(self._user_id)  # a member may have left the space
                if start:
                    await send(start)
                    start = {}
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@router.operation("GET", "/state", SessionStateAnswer, READER)
async def read_state(query: Annotated[StateQuery, Query()], context: Context) -> Response:
    """Read a session within a token budget, for a prompt: summaries, then its last messages."""
    memory = await context.active_memory(query.user_id, query.agent_id, query.project)
    return JsonResponse(await memory.state(**query.arguments()))


@router.operation("POST", "/sessions/{session_id}/summarize", SummarizedSession, CONTRIBUTOR)
async def summarize_session(
    session_id: PathId, body: SummarizeRequest, context: Context
) -> Response:
    """Summarise a session's messages since the last summary, and return all its summaries.

    Without a model, return one summary of its last messages, which is not stored.
    """
    memory = await context.writable_memory(body.user_id, body.agent_id, body.project)
    async with context.service.recall_slot(context.principal):
        report = await memory.summarize(session_id=session_id, **body.arguments())
    return JsonResponse(report)


@router.operation("POST", "/sessions/{session_id}/end", EndedSession, ADMIN)
async def end_session(session_id: PathId, body: EndSessionRequest, context: Context) -> Response:
    """End a session: its summary becomes a memory, and new messages in it are refused."""
    memory = await context.writable_memory(body.user_id, body.agent_id, body.project)
    async with context.service.recall_slot(context.principal):
        report = await memory.end_session(session_id=session_id, **body.arguments())
    return JsonResponse(report)


@router.operation("POST", "/sweep", SweepReport, ADMIN)
async def sweep_memories(body: SweepRequest, context: Context) -> Response:
    """Find the memories that a retention policy removes; without `dry_run`, remove them."""
    memory = await context.writable_memory(body.user_id, body.agent_id, body.project)
    policy = Policy(**{item.name: getattr(body, item.name) for item in fields(Policy)})
    report = await memory.sweep(policy, dry_run=body.dry_run, purge=body.purge)
    context.log_fields["deleted"] = report["removed"]
    return JsonResponse(report)


@router.operation("GET", "/users/{user_id}/export", None, ADMIN, also=(LINES_TYPE,))
async def export_user(
    user_id: PathId, query: Annotated[ExportQuery, Query()], context: Context
) -> Response:
    """Export all data of a user, or of a project, one JSON object per line, without vectors and
    traces.
    """
    memory = await _whole_user(user_id, context)
    if Permission.SENSITIVE not in context.principal.permissions:
        # An export without some memories would look complete.
        memories = context.library.store.memories(Scope.of_owner(user_id))
        if await memories.has_sensitive():
            message = "the user has sensitive memories: this requires a key with --allow-sensitive"
            raise RequestError(Problem("PERMISSION_DENIED", message, {"reason": "sensitive"}))
    return ExportStream(memory.export(project=query.project, kinds=query.kinds), context, user_id)


@router.operation(
    "POST", "/users/{user_id}/import", ImportedRows, ADMIN, openapi_extra=_BODY_OF_LINES
)
async def import_user(user_id: PathId, request: Request, context: Context) -> Response:
    """Import lines of an export, all or none; rows that exist already stay as they are. A large
    export can be sent in several requests, in its order; as `application/x-ndjson` too.
    """
    context.principal.require_write()
    memory = await _whole_user(user_id, context)
    lines = (await request.body()).split(b"\n")
    context.log_fields["lines"] = len(lines)
    filled = (line for line in lines if line.strip())
    counts = await memory.import_(filled, invite=not context.principal.is_admin)
    names = ("statuses", "skipped", "joined")
    return JsonResponse({"rows": counts, **{name: getattr(counts, name) for name in names}})


@router.operation("DELETE", "/users/{user_id}", ErasedUser, ADMIN)
async def erase_user(
    user_id: PathId, query: Annotated[ErasureQuery, Query()], context: Context
) -> Response:
    """Erase a user for good: all rows, vectors and traces. A key of this user alone is revoked.
    With `project`, only its messages and memories are erased. What they wrote to spaces stays under
    another name by default.
    """
    context.principal.require_write()
    memory = await _whole_user(user_id, context)
    if query.project is not None:
        counts = dict.fromkeys(ErasedUser.model_fields, 0)
        return JsonResponse(counts | await memory.erase_project(query.project))
    if space_of(user_id) is not None:
        raise invalid_field("project", "is required; DELETE /v1/spaces/{space_id} erases a space")
    report = await memory.erase(with_contributions=query.with_contributions)
    # The user's audit log was erased too, so that only the operator's log has the line.
    fields = {"action": "erase_user", "key": context.principal.key_id, "user": user_id}
    log.info("audit", extra={"fields": fields})
    return JsonResponse(report)


async def _whole_user(user_id: str, context: RequestContext) -> AsyncMemory:
    """Return the memory of a user of the key; refuse a key that sees one agent's data only."""
    memory = await context.active_memory(user_id)
    if context.principal.agent_id is not None:
        message = "this key is bound to an agent, but the request covers all agents of the user"
        raise RequestError(Problem("PERMISSION_DENIED", message, {"reason": "agent_key"}))
    return memory


async def _join_lines(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Yield lines in chunks: a response of many small parts takes several times as long."""
    chunk = bytearray()
    async for line in lines:
        chunk += line.encode() + b"\n"
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)
