"""The service tools: workspaces, status, dump, search, backup and restore.

Docstrings of the models are part of the JSON schemas that clients read.
"""

from collections import Counter
from typing import Any, Literal

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.knowledge import MAX_RESULTS
from memrecall.agent.tools.models import StrictInput, ToolOutput
from memrecall.errors import Disabled, MemrecallError, RunError
from memrecall.scope import Permission
from memrecall.store import KnowledgeEntry
from memrecall.store.workspaces import ReadLimits, search_files, show_files
from memrecall.text.privacy import SENSITIVE_DATA

DUMP_ENTRIES = 2_000
_DUMP_BYTES = 4 * 1024 * 1024
_PAGE = 200
_SETTLE_SECONDS = 5.0  # for vectors of entries that were just written

Level = Literal["kb", "workspace", "all"]


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
    path = await context.in_workspaces(lambda workspaces: workspaces.create(params.task_id))
    return Workspace(path=str(path))


async def cleanup(context: ToolContext, params: TaskParams) -> Cleaned:
    """Remove a workspace."""
    path = await context.in_workspaces(lambda workspaces: workspaces.remove(params.task_id))
    return Cleaned(path=str(path))


class Status(ToolOutput):
    """The state of the knowledge base and of the workspaces."""

    status: Literal["ok", "degraded"]
    kb_status: Literal["loaded", "unloaded"]
    workspace_status: Literal["clean", "active", "unavailable"]


async def get_status(context: ToolContext, _params: NoParams) -> Status:
    """Return whether the knowledge base and the workspaces can be used."""
    knowledge = await _knowledge_status(context)
    workspaces = await _workspace_status(context)
    is_ok = knowledge == "loaded" and workspaces != "unavailable"
    return Status(
        status="ok" if is_ok else "degraded", kb_status=knowledge, workspace_status=workspaces
    )


async def _knowledge_status(context: ToolContext) -> Literal["loaded", "unloaded"]:
    try:
        await context.knowledge.page(limit=1)
    except RunError:
        return "unloaded"
    return "loaded"


async def _workspace_status(context: ToolContext) -> Literal["clean", "active", "unavailable"]:
    try:
        return "active" if await context.workspace_names() else "clean"
    except MemrecallError:
        return "unavailable"


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
        reading = await context.in_workspaces(
            lambda workspaces: show_files(workspaces, ReadLimits())
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
        reading = await context.in_workspaces(
            lambda workspaces: search_files(workspaces, params.query, ReadLimits())
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
    path = await (await context.open_backups()).backup()
    return BackedUp(message="Backup successful.", backup_path=str(path))


async def restore(context: ToolContext, params: RestoreParams) -> Restored:
    """Replace the knowledge base and the workspaces with the contents of a backup."""
    vectors = context.library.vectors
    await vectors.settle(_SETTLE_SECONDS)  # Their writes would count as changes meanwhile.
    former = await (await context.open_backups()).restore(params.backup_path)
    vectors.expect({}, entries=1)
    message = f"从 {params.backup_path} 恢复成功"  # the wording of the specification
    return Restored(message=message, former_state=str(former))
