"""All tools as MCP has them: the ten memory tools, and those of one user's memories."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp_types import Tool as ToolCard
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from memrecall.agent import Recaller, RecallOptions, RecallResult
from memrecall.agent.outcome import StopReason
from memrecall.agent.prompt_view import write_block
from memrecall.errors import Disabled, NotFound, StorageError
from memrecall.library.caches import Caches
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import Hit, SearchRequest
from memrecall.server.mcp import models
from memrecall.server.tools import TOOLS, Tool, ToolService, call
from memrecall.server.tools.registry import read_params
from memrecall.types import NewMemory, Origin, format_time

Gate = Callable[[], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Guest:
    """One caller, for one request or one connection."""

    desk: ToolService
    scope: Scope | None  # None: no user is bound, so no user's tools
    model_client: Any = None
    caches: Caches | None = None
    gate: Gate = nullcontext
    trusted: bool = False  # hears of the world's faults in full

    @property
    def library(self) -> Library:
        """The library that is asked."""
        return self.desk.library

    def user(self) -> Scope:
        """The bound user's data."""
        if self.scope is None:
            raise Disabled("no user is bound", hint="Use a key of one user, or name it in a header")
        return self.scope

    def require_writing(self) -> None:
        """Refuse who may only read."""
        if not self.desk.may_write:
            raise Disabled("this key may only read")

    async def recall(self, question: str) -> RecallResult:
        """What a question refers to; counted and limited like every recall."""
        options = RecallOptions(keep_traces_days=self.library.settings.trace_days)
        recaller = Recaller(
            self.library, self.user(), self.model_client, options, caches=self.caches
        )
        async with self.gate():
            result = await recaller.recall(question)
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result


ACTOR = "mcp"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A result: the data, and what a model reads if that is something else."""

    data: dict[str, Any]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool with its card, who is offered it, and what it does."""

    card: ToolCard
    is_offered: Callable[[Guest], bool]
    run: Callable[[Guest, dict[str, Any]], Awaitable[ToolOutput]]


async def _recall(guest: Guest, given: models.RecallParams) -> ToolOutput:
    result = await guest.recall(given.question)
    reply = models.RecallReply(
        summary=result.handoff.search_summary,
        confidence=result.confidence,
        abstained=result.abstained,
        memories=[
            models.McpEvidence(
                memory_key=memory.memory_key,
                kind=memory.kind,
                content=memory.content,
                summary=memory.summary,
                speaker=memory.speaker,
                said_at=format_time(memory.ts),
                relevance_score=memory.relevance_score,
            )
            for memory in result.memories
        ],
        follow_up_question=result.handoff.follow_up_question,
    )
    return ToolOutput(reply.model_dump(mode="json"), write_block(result))


async def _search_messages(guest: Guest, given: models.MessageSearchParams) -> ToolOutput:
    request = SearchRequest(given.query, limit=given.limit, kind="message")
    page = await guest.library.search(guest.user(), request)
    found = models.MessageHits(
        messages=[_found(hit) for hit in page.results], total_found=page.total_found
    )
    return ToolOutput(found.model_dump(mode="json"))


async def _remember(guest: Guest, given: models.RememberParams) -> ToolOutput:
    guest.require_writing()
    memory = NewMemory(content=given.content, summary=given.summary)
    # A model calls this: what it writes is trusted as what an assistant says.
    written = await guest.library.add_memories(
        guest.user(), [memory], origin=Origin.ASSISTANT, actor=ACTOR
    )
    return ToolOutput({"memory_key": written.ids[0]})


async def _forget(guest: Guest, given: models.ForgetParams) -> ToolOutput:
    guest.require_writing()
    changes = guest.library.store.changes(guest.user())
    if not await changes.delete([given.memory_key], actor=ACTOR, reason="asked to forget"):
        raise NotFound(f"there is no memory {given.memory_key!r}")
    return ToolOutput({"memory_key": given.memory_key})


def _found(hit: Hit) -> models.McpMessage:
    return models.McpMessage(
        message_id=hit.key,
        role=hit.role or "",
        speaker=hit.speaker,
        content=hit.content,
        said_at=format_time(hit.ts),
        session_id=hit.session_id,
        relevance_score=round(hit.score, 4),
    )


@dataclass(frozen=True, slots=True)
class _UserTool:
    """A row of the table of a user's tools."""

    name: str
    title: str
    description: str
    params: type[BaseModel]
    result: type[BaseModel]
    run: Callable[[Guest, Any], Awaitable[ToolOutput]]
    writes: bool = False
    destroys: bool = False


_USER_TOOLS = (
    _UserTool(
        "recall",
        "Recall",
        "Find what the user refers to in earlier conversations and memories: who, what, when, with"
        " the evidence and a confidence. Use it before answering anything that depends on the"
        " past. If it abstains, say that you do not know.",
        models.RecallParams,
        models.RecallReply,
        _recall,
    ),
    _UserTool(
        "search_messages",
        "Search messages",
        "Search what was said in earlier conversations, by words and by meaning.",
        models.MessageSearchParams,
        models.MessageHits,
        _search_messages,
    ),
    _UserTool(
        "remember",
        "Remember",
        "Keep something about this user for later conversations. Only facts that will matter"
        " again; nothing the user wants kept out.",
        models.RememberParams,
        models.McpMemory,
        _remember,
        writes=True,
    ),
    _UserTool(
        "forget",
        "Forget",
        "Hide a memory of this user, for instance because it is wrong. It can be undone by the"
        " operator until it is purged.",
        models.ForgetParams,
        models.Forgotten,
        _forget,
        writes=True,
        destroys=True,
    ),
)


def _card(tool: Tool | _UserTool) -> ToolCard:
    return ToolCard(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.params.model_json_schema(),
        output_schema=tool.result.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=tool.destroys,
            idempotent_hint=not tool.writes,
            open_world_hint=False,
        ),
    )


async def _run_shared(tool: Tool, guest: Guest, params: dict[str, Any]) -> ToolOutput:
    return ToolOutput(await call(guest.desk, tool, params))


async def _run_own(tool: _UserTool, guest: Guest, params: dict[str, Any]) -> ToolOutput:
    return await tool.run(guest, read_params(tool, params))


def _is_offered(tool: _UserTool, guest: Guest) -> bool:
    return guest.scope is not None and (guest.desk.may_write or not tool.writes)


def _is_shared(tool: Tool, guest: Guest) -> bool:
    return tool.may(guest.desk)


ALL_TOOLS: dict[str, McpTool] = {
    **{
        tool.name: McpTool(_card(tool), partial(_is_offered, tool), partial(_run_own, tool))
        for tool in _USER_TOOLS
    },
    **{
        tool.name: McpTool(_card(tool), partial(_is_shared, tool), partial(_run_shared, tool))
        for tool in TOOLS.values()
    },
}
