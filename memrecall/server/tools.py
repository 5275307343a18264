"""The tools that only JSON-RPC and MCP offer: on what an agent's users share, and MCP's own.

They are the knowledge base, workspaces, backups, and for MCP lists and parts of a user's memories.
Docstrings of the models are part of the JSON schemas that clients read.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field

from memrecall import __version__
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.memories import cut_excerpts
from memrecall.agent.tools.models import (
    StrictInput,
    ToolOutput,
    excerpt_length,
)
from memrecall.agent.tools.table import (
    TOOLS,
    Interface,
    Tool,
    Variant,
    add_tools,
    make_tool,
    tools_for,
)
from memrecall.errors import Disabled, InvalidArgument, MemrecallError, NotFound, RunError
from memrecall.scope import Permission, qualify_key
from memrecall.search import SearchRequest
from memrecall.search.request import Kind
from memrecall.search.results import describe_origin, origin_fields
from memrecall.store import KnowledgeEntry, MemoryQuery, NewKnowledge
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.restore import Backups
from memrecall.store.workspaces import (
    ReadLimits,
    Workspaces,
    retry_while_busy,
    search_files,
    show_files,
)
from memrecall.text.privacy import SENSITIVE_DATA
from memrecall.text.snippets import snippets
from memrecall.text_length import truncate_text
from memrecall.types import format_time
from memrecall.workers import in_process

DUMP_ENTRIES = 2_000
_DUMP_BYTES = 4 * 1024 * 1024
_PAGE = 200
_SETTLE_SECONDS = 5.0  # for vectors of entries that were just written

Level = Literal["kb", "workspace", "all"]
_Result = TypeVar("_Result")


async def has_shared_data(context: ToolContext) -> bool:
    """Return True if there is knowledge or a workspace, or the caller may add knowledge."""
    if context.allows(Permission.KNOWLEDGE) or await context.knowledge.page(limit=1):
        return True
    try:
        return bool(await _workspace_names(context))
    except MemrecallError:  # of the folder; the status tells more
        return True


async def _workspace_names(context: ToolContext) -> list[str]:
    """Return the tasks that have a workspace; creates no folder."""
    if not await asyncio.to_thread(workspaces_root(context).is_dir):
        return []
    return await in_workspaces(context, lambda workspaces: workspaces.names())


def workspaces_root(context: ToolContext) -> Path:
    """Return the folder of the workspaces."""
    return _folder(context, "workspaces")


def _folder(context: ToolContext, name: str) -> Path:
    """Return a folder in the configured one, else next to the SQLite file."""
    store, settings = context.library.store, context.library.settings
    if settings.data_dir:
        return Path(settings.data_dir) / name
    if store.file is not None:
        return store.file.with_name(f"{store.file.name}-{name}")
    return settings.data_folder() / store.facts.database_id / name


async def in_workspaces(context: ToolContext, work: Callable[[Workspaces], _Result]) -> _Result:
    """Run a function on the workspaces in a thread, between backups and restores.

    An interrupted restore is finished or undone first.
    """
    workspaces = await asyncio.to_thread(Workspaces, workspaces_root(context))
    await _backups_with(context, workspaces).recover()
    return await retry_while_busy(lambda: work(workspaces))


async def open_backups(context: ToolContext) -> Backups:
    """Return the backups of the knowledge base and the workspaces."""
    workspaces = await asyncio.to_thread(Workspaces, workspaces_root(context))
    return _backups_with(context, workspaces)


def _backups_with(context: ToolContext, workspaces: Workspaces) -> Backups:
    return Backups(
        context.library.store,
        context.agent_scope,
        workspaces,
        BackupFolder(_folder(context, "backups")),
        software=__version__,
    )


async def recover_backups(context: ToolContext) -> None:
    """Finish or undo an interrupted restore; creates no folder."""
    if await asyncio.to_thread(workspaces_root(context).is_dir):
        await (await open_backups(context)).recover()


class NoParams(StrictInput):
    """Takes no parameters."""


class TaskParams(StrictInput):
    """The id of a task."""

    task_id: str


class Workspace(ToolOutput):
    """The created workspace."""

    path: str


class Cleaned(ToolOutput):
    """The removed workspace."""

    status: Literal["success"] = "success"
    path: str


async def init_workspace(context: ToolContext, params: TaskParams) -> Workspace:
    """Create a workspace."""
    path = await in_workspaces(context, lambda workspaces: workspaces.create(params.task_id))
    return Workspace(path=str(path))


async def cleanup(context: ToolContext, params: TaskParams) -> Cleaned:
    """Remove a workspace."""
    path = await in_workspaces(context, lambda workspaces: workspaces.remove(params.task_id))
    return Cleaned(path=str(path))


class Status(ToolOutput):
    """The state of the knowledge base and of the workspaces."""

    status: Literal["ok", "degraded"]
    kb_status: Literal["loaded", "unloaded"]
    workspace_status: Literal["clean", "active", "unavailable"]


async def get_status(context: ToolContext, _params: NoParams) -> Status:
    """Return whether the knowledge base and the workspaces can be used."""
    knowledge: Literal["loaded", "unloaded"] = "loaded"
    try:
        await context.knowledge.page(limit=1)
    except RunError:
        knowledge = "unloaded"
    workspaces: Literal["clean", "active", "unavailable"] = "clean"
    try:
        if await _workspace_names(context):
            workspaces = "active"
    except MemrecallError:
        workspaces = "unavailable"
    is_ok = knowledge == "loaded" and workspaces != "unavailable"
    return Status(
        status="ok" if is_ok else "degraded", kb_status=knowledge, workspace_status=workspaces
    )


class DumpParams(StrictInput):
    """What to export."""

    level: Level = "all"


class Dump(ToolOutput):
    """The contents of a level, by id and path. `left_out` counts what did not fit."""

    status: Literal["ok"] = "ok"
    data: dict[str, Any]
    left_out: dict[str, int] | None = None


async def dump(context: ToolContext, params: DumpParams) -> Dump:
    """Return the contents of a level, up to a maximum size."""
    left_out: Counter[str] = Counter()
    parts: dict[str, Any] = {}
    if params.level != "workspace":
        parts["kb"] = await _dump_knowledge(context, left_out)
    if params.level != "kb":
        reading = await in_workspaces(
            context, lambda workspaces: show_files(workspaces, ReadLimits())
        )
        parts["workspace"] = reading.files
        left_out.update(reading.left_out)
    data = parts if params.level == "all" else parts[params.level]
    return Dump(data=data, left_out=dict(left_out) or None)


async def _dump_knowledge(context: ToolContext, left_out: Counter[str]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    free_bytes = _DUMP_BYTES
    after = ""
    while len(entries) < DUMP_ENTRIES and free_bytes > 0:
        page = await context.knowledge.page(after, _PAGE)
        for entry in page:
            free_bytes -= len(entry.content.encode()) + len(entry.summary.encode())
            if free_bytes <= 0 or len(entries) >= DUMP_ENTRIES:
                break
            entries[entry.knowledge_key] = _entry_fields(entry)
        if len(page) < _PAGE:
            break
        after = page[-1].knowledge_key
    missing = await context.knowledge.count() - len(entries)
    if missing > 0:
        left_out["entries"] = missing
    return entries


class SearchParams(StrictInput):
    """What to look for, and where."""

    query: str
    level: Level | None = None


class ToolHit(ToolOutput):
    """A match: an entry by its id, or a file by its task and path."""

    source: Literal["kb", "workspace"]
    key: str
    value: dict[str, Any]


class ToolHits(ToolOutput):
    """The matches. `left_out` counts the files that were not searched, by reason."""

    status: Literal["ok"] = "ok"
    results: list[ToolHit]
    left_out: dict[str, int] | None = None


async def search(context: ToolContext, params: SearchParams) -> ToolHits:
    """Search the knowledge base and the files of the workspaces."""
    is_operator = context.allows(Permission.OPERATOR)
    level = params.level or ("all" if is_operator else "kb")
    if level != "kb" and not is_operator:
        raise Disabled(
            "searching workspaces needs the permission `operator`", hint='Use level "kb"'
        )
    hits: list[ToolHit] = []
    left_out: dict[str, int] = {}
    if level != "workspace":
        matches = await context.knowledge.search(params.query, MAX_RESULTS)
        hits += [
            ToolHit(source="kb", key=entry.knowledge_key, value=_entry_fields(entry))
            for entry, _ in matches
        ]
    if level != "kb":
        reading = await in_workspaces(
            context, lambda workspaces: search_files(workspaces, params.query, ReadLimits())
        )
        hits += [
            ToolHit(
                source="workspace", key=hit.key, value={"line": hit.line, "snippet": hit.snippet}
            )
            for hit in reading.hits
        ]
        left_out = reading.left_out
    return ToolHits(results=hits, left_out=left_out or None)


def _entry_fields(entry: KnowledgeEntry) -> dict[str, Any]:
    fields = {"content": entry.content, "summary": entry.summary, "tags": entry.tags}
    labels = entry.metadata.get(SENSITIVE_DATA)
    return {**fields, SENSITIVE_DATA: labels} if labels else fields


class BackedUp(ToolOutput):
    """The created backup."""

    status: Literal["ok"] = "ok"
    message: str
    backup_path: str


class RestoreParams(StrictInput):
    """The path of a backup."""

    backup_path: str


class Restored(ToolOutput):
    """The restored state; `former_state` is a backup of what it replaced."""

    status: Literal["ok"] = "ok"
    message: str
    former_state: str


async def backup(context: ToolContext, _params: NoParams) -> BackedUp:
    """Back up the knowledge base and the workspaces."""
    path = await (await open_backups(context)).backup()
    return BackedUp(message="Backup successful.", backup_path=str(path))


async def restore(context: ToolContext, params: RestoreParams) -> Restored:
    """Replace the knowledge base and the workspaces with the contents of a backup."""
    vectors = context.library.vectors
    await vectors.settle(_SETTLE_SECONDS)  # Their writes would count as changes during the restore.
    former = await (await open_backups(context)).restore(params.backup_path)
    vectors.expect({}, entries=1)
    message = f"从 {params.backup_path} 恢复成功"  # the wording of the specification
    return Restored(message=message, former_state=str(former))


_KNOWLEDGE_ACTOR = "memory tools"
MAX_RESULTS = 100
PART_LENGTH = 8_000


class AddParams(StrictInput):
    """An entry of the knowledge base."""

    content: str
    summary: str
    tags: list[str] = Field(default_factory=list)


class UpdateParams(StrictInput):
    """An entry by its id, and the fields to change."""

    kb_id: str
    content: str | None = None
    summary: str | None = None
    tags: list[str] | None = None


class StoredEntry(ToolOutput):
    """The stored entry."""

    id: str
    summary: str
    redacted: list[str] = Field(default_factory=list)  # the kinds of data that are not stored


class QueryParams(StrictInput):
    """A question to the knowledge base."""

    query: str
    top_k: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 3
    tags: list[str] = Field(default_factory=list)


class EntryMatch(ToolOutput):
    """An entry that was found."""

    id: str
    summary: str
    content: str
    tags: list[str]
    score: float


class EntryMatches(ToolOutput):
    """The best entries, the best first; empty if nothing is relevant."""

    results: list[EntryMatch]
    query: str = Field(default="", exclude=True)


class EntrySnippets(ToolOutput):
    """The best entries, the best first; empty if nothing is relevant."""

    results: list[dict[str, Any]]

    @classmethod
    def from_result(cls, result: EntryMatches) -> Self:
        """Return the entries with passages instead of contents."""
        length = excerpt_length(len(result.results))
        return cls(results=[_shorten(match, result.query, length) for match in result.results])


def _shorten(match: EntryMatch, query: str, length: int) -> dict[str, Any]:
    """Return an entry with the passage that matches; `read_knowledge` returns the rest."""
    is_long = len(match.content) > length
    passages = snippets(match.content, [query], length=length, limit=1, before="", after="")
    return {
        **match.model_dump(exclude={"content"}),
        "snippet": passages[0] if is_long and passages else match.content,
        "truncated": is_long,
    }


class ReadParams(StrictInput):
    """An entry by its id, and where to begin."""

    kb_id: str
    offset: Annotated[int, Field(ge=0)] = 0


class EntryPart(ToolOutput):
    """An entry from an offset on; `next_offset` is null at its end."""

    id: str
    summary: str
    tags: list[str]
    content: str
    characters: int
    next_offset: int | None


class DeleteParams(StrictInput):
    """An entry by its id."""

    kb_id: str


class Deleted(ToolOutput):
    """The deleted entry."""

    status: Literal["success"] = "success"
    id: str


async def add_knowledge(context: ToolContext, params: AddParams) -> StoredEntry:
    """Store an entry in the knowledge base."""
    entry = NewKnowledge(params.content, params.summary, tuple(params.tags), actor=_KNOWLEDGE_ACTOR)
    redacted = context.redacted_kinds(params.content, params.summary, *params.tags)
    key = await context.knowledge.add(entry)
    return StoredEntry(id=key, summary=params.summary, redacted=redacted)


async def update_knowledge(context: ToolContext, params: UpdateParams) -> StoredEntry:
    """Change an entry of the knowledge base."""
    changes = params.model_dump(exclude={"kb_id"}, exclude_none=True)
    if not changes:
        raise InvalidArgument(
            "the update has no fields", hint="Pass at least one of content, summary or tags"
        )
    entry = await context.knowledge.update(params.kb_id, actor=_KNOWLEDGE_ACTOR, **changes)
    texts = (params.content, params.summary, *(params.tags or ()))
    redacted = context.redacted_kinds(*filter(None, texts))
    return StoredEntry(id=entry.knowledge_key, summary=entry.summary, redacted=redacted)


async def query_knowledge(context: ToolContext, params: QueryParams) -> EntryMatches:
    """Return the entries that best match a question."""
    matches = await context.knowledge.search(params.query, params.top_k, params.tags)
    return EntryMatches(
        results=[
            EntryMatch(
                id=entry.knowledge_key,
                summary=entry.summary,
                content=entry.content,
                tags=entry.tags,
                score=score,
            )
            for entry, score in matches
        ],
        query=params.query,
    )


async def read_knowledge(context: ToolContext, params: ReadParams) -> EntryPart:
    """Return a part of an entry."""
    entry = await context.knowledge.get(params.kb_id)
    end = params.offset + PART_LENGTH
    return EntryPart(
        id=entry.knowledge_key,
        summary=entry.summary,
        tags=entry.tags,
        content=entry.content[params.offset : end],
        characters=len(entry.content),
        next_offset=end if end < len(entry.content) else None,
    )


async def delete_knowledge(context: ToolContext, params: DeleteParams) -> Deleted:
    """Delete an entry of the knowledge base."""
    await context.knowledge.delete(params.kb_id)
    return Deleted(id=params.kb_id)


class ListParams(StrictInput):
    """A page of the memories."""

    limit: Annotated[int, Field(ge=1, le=50)] = 20
    cursor: str | None = None
    space: str | None = None


class MemoryList(ToolOutput):
    """The memories that hold now, the newest first; `next_cursor` leads to older ones."""

    memories: list[dict[str, Any]]
    next_cursor: str | None
    kept_messages: int = 0  # counted if there is no memory


async def list_memories(context: ToolContext, params: ListParams) -> MemoryList:
    """Return a page of the memories of the user or a space; long contents are shortened."""
    store, space = context.library.store, params.space
    scope = context.scope.own if space is None else await context.enter(space)
    names = await store.spaces.names(scope.user_id) if space else {}
    page = await store.memories(scope).page(MemoryQuery(), limit=params.limit, cursor=params.cursor)
    length = excerpt_length(len(page.items))
    memories = [
        {
            "memory_key": (
                record.memory_key
                if scope.space is None
                else qualify_key(scope.space, record.memory_key)
            ),
            "memory_type": record.memory_type,
            "content": truncate_text(record.content, length),
            "characters": len(record.content),
            "since": format_time(record.since),
            **({"by": names.get(record.author or "", record.author)} if space else {}),
        }
        for record in page.items
    ]
    kept = 0 if memories or params.cursor else await store.timeline(scope).count()
    return MemoryList(memories=memories, next_cursor=page.next_cursor, kept_messages=kept)


class MessageSearchParams(StrictInput):
    """A search of the messages."""

    query: Annotated[str, Field(min_length=1)]
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    cursor: str | None = None
    time: str | None = None


class MessageHits(ToolOutput):
    """The best messages, the best first; `nearest` is the closest time if `time` has none."""

    messages: list[dict[str, Any]]
    total_found: int
    next_cursor: str | None
    nearest: datetime | None = None


async def search_messages(context: ToolContext, params: MessageSearchParams) -> MessageHits:
    """Search the messages of earlier conversations."""
    request = SearchRequest(**params.model_dump(), kind="message")
    page = await context.library.search(context.scope, request)
    length = excerpt_length(len(page.results))
    contents = [hit.content for hit in page.results]
    total = sum(map(len, contents))
    excerpts = await in_process(total, cut_excerpts, contents, [params.query], length)
    messages = [
        {
            "message_id": hit.key,
            "role": hit.role or "",
            "speaker": hit.speaker,
            "content": excerpt,
            "characters": len(hit.content),
            "said_at": format_time(hit.ts),
            "session_id": hit.session_id,
            "relevance_score": round(hit.score, 2),
            **origin_fields(hit),
        }
        for hit, excerpt in zip(page.results, excerpts, strict=True)
    ]
    names = ("total_found", "next_cursor", "nearest")
    return MessageHits(messages=messages, **{name: getattr(page, name) for name in names})


class ReadMemoryParams(StrictInput):
    """A key, and the offset to read from."""

    memory_key: str
    offset: Annotated[int, Field(ge=0)] = 0


class MemoryPart(ToolOutput):
    """A memory, message or knowledge entry from an offset on; `next_offset` is null at its end."""

    memory_key: str
    kind: Kind
    summary: str
    content: str
    characters: int
    next_offset: int | None
    speaker: str | None
    said_at: str
    valid_to: str | None
    truncated: bool
    space: str | None = None


async def read_memory(context: ToolContext, params: ReadMemoryParams) -> MemoryPart:
    """Return a part of what recall or a search has found."""
    store, scope, key = context.library.store, context.scope, params.memory_key
    fields: dict[str, Any]
    if memories := await store.memories(scope).get_many([key]):
        memory = memories[0]
        valid_to = memory.valid_to and format_time(memory.valid_to)
        fields = memory.model_dump(include={"summary", "content", "speaker", "truncated"})
        fields |= {"kind": "memory", "said_at": format_time(memory.since), "valid_to": valid_to}
    elif messages := await store.timeline(scope).get_many([key]):
        fields = messages[0].model_dump(include={"content", "speaker"})
        fields |= {"kind": "message", "said_at": format_time(messages[0].ts)}
    elif entries := await context.knowledge.get_many([key]):
        fields = {"content": entries[0].content, "summary": entries[0].summary}
        fields |= {"kind": "knowledge", "said_at": format_time(entries[0].updated_at)}
    else:
        raise NotFound(f"there is no memory or message {key[:100]!r}", hint="Use a key from recall")
    if (space := scope.split_key(key)[0]) and fields["kind"] != "knowledge":
        row: Any = (memories or messages)[0]
        names = await store.spaces.names(row.user_id)
        author = names.get(row.author or "", row.author)
        fields["space"] = describe_origin(space, author, fields["said_at"])
    content, end = fields["content"], params.offset + PART_LENGTH
    fields["content"] = content[params.offset : end]
    defaults = {"summary": "", "speaker": None, "valid_to": None, "truncated": False}
    return MemoryPart(
        memory_key=key,
        characters=len(content),
        next_offset=end if end < len(content) else None,
        **(defaults | fields),
    )


_mcp_tool = partial(make_tool, interfaces=frozenset({Interface.MCP}), prompt="service_tools")
_client_tool = partial(
    make_tool,
    interfaces=frozenset({Interface.RPC, Interface.MCP}),
    prompt="service_tools",
    permission=Permission.OPERATOR,
    needs_user=False,
)


def _knowledge_tool(
    handler: Callable[[Any, Any], Awaitable[Any]], name: str, title: str, **options: Any
) -> Tool:
    """Return a tool on knowledge; over MCP it has the name of the handler."""
    options = {"permission": Permission.KNOWLEDGE, **options}
    return _client_tool(handler, name, title=title, mcp_name=handler.__name__, **options)


add_tools(
    _mcp_tool(search_messages, title="Search messages"),
    _mcp_tool(read_memory, title="Read a memory"),
    _mcp_tool(list_memories, title="List memories"),
    _client_tool(init_workspace, "memory_init_workspace", title="Make a workspace", writes=True),
    _knowledge_tool(add_knowledge, "memory_add", "Add knowledge", writes=True),
    _knowledge_tool(update_knowledge, "memory_update", "Change knowledge", writes=True),
    _knowledge_tool(
        query_knowledge,
        "memory_query",
        "Query knowledge",
        permission=None,
        variants={Interface.MCP: Variant(QueryParams, EntrySnippets, "service_tools")},
    ),
    _knowledge_tool(read_knowledge, "memory_read", "Read knowledge", permission=None),
    _knowledge_tool(
        delete_knowledge, "memory_delete", "Delete knowledge", writes=True, destroys=True
    ),
    _client_tool(cleanup, "memory_cleanup", title="Remove a workspace", writes=True, destroys=True),
    _client_tool(get_status, "memory_get_status", title="Status", permission=None),
    _client_tool(dump, "memory_dump", title="Dump"),
    _client_tool(
        search,
        "memory_search",
        mcp_name="search_knowledge_and_files",
        title="Search knowledge and files",
        permission=None,
    ),
    _client_tool(backup, "memory_backup", title="Back up", writes=True),
    _client_tool(restore, "memory_restore", title="Restore", writes=True, destroys=True),
)


def find_tool(name: str, interface: Interface) -> Tool | None:
    """Return a tool of an interface, or None.

    MCP clients of earlier versions call the tools of the knowledge base as JSON-RPC does.
    """
    tools = tools_for(interface)
    tool = TOOLS.get(name)
    return tools.get(name) or (tool and tools.get(tool.mcp_name))
