"""The tools that look at everything: status, dump, search."""

import asyncio
from collections import Counter
from typing import Any

from memrecall.errors import MemrecallError, RunError
from memrecall.server.tools.desk import ToolService
from memrecall.server.tools.models import (
    MOST_RESULTS,
    Dump,
    DumpParams,
    NoParams,
    SearchParams,
    Status,
    ToolHit,
    ToolHits,
)
from memrecall.store import KnowledgeEntry
from memrecall.store.workspaces import ReadLimits, search_files, show_files

_DUMPED_ENTRIES = 2_000
_DUMPED_BYTES = 4 * 1024 * 1024
_PAGE = 200


async def get_status(desk: ToolService, _params: NoParams) -> Status:
    """Look whether everything works."""
    kb, spaces = await _kb_status(desk), await _workspace_status(desk)
    fine = kb == "loaded" and spaces != "unavailable"
    return Status.model_validate(
        {"status": "ok" if fine else "degraded", "kb_status": kb, "workspace_status": spaces}
    )


async def _kb_status(desk: ToolService) -> str:
    try:
        await desk.knowledge.page(limit=1)
    except RunError:
        return "unloaded"
    return "loaded"


async def _workspace_status(desk: ToolService) -> str:
    if not await asyncio.to_thread(desk.root.is_dir):
        return "clean"  # a look makes no folder
    try:
        names = await desk.in_workspaces(lambda spaces: spaces.names())
    except MemrecallError:
        return "unavailable"
    return "active" if names else "clean"


async def dump(desk: ToolService, params: DumpParams) -> Dump:
    """Export a level, as far as there is room."""
    left_out: Counter[str] = Counter()
    parts: dict[str, Any] = {}
    if params.level != "workspace":
        parts["kb"] = await _dump_knowledge(desk, left_out)
    if params.level != "kb":
        reading = await desk.in_workspaces(lambda spaces: show_files(spaces, ReadLimits()))
        parts["workspace"] = reading.files
        left_out.update(reading.left_out)
    data = parts if params.level == "all" else parts[params.level]
    return Dump(data=data, left_out=dict(left_out) or None)


async def _dump_knowledge(desk: ToolService, left_out: Counter[str]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    room = _DUMPED_BYTES
    after = ""
    while len(shown) < _DUMPED_ENTRIES and room > 0:
        page = await desk.knowledge.page(after, _PAGE)
        for entry in page:
            room -= len(entry.content.encode()) + len(entry.summary.encode())
            if room <= 0 or len(shown) >= _DUMPED_ENTRIES:
                break
            shown[entry.knowledge_key] = _value(entry)
        if len(page) < _PAGE:
            break
        after = page[-1].knowledge_key
    missing = await desk.knowledge.count() - len(shown)
    if missing > 0:
        left_out["entries"] = missing
    return shown


async def search(desk: ToolService, params: SearchParams) -> ToolHits:
    """Look for words in the knowledge base and in the files of workspaces."""
    hits: list[ToolHit] = []
    left_out: dict[str, int] = {}
    if params.level != "workspace":
        found = await desk.knowledge.search(params.query, MOST_RESULTS)
        hits += [
            ToolHit(source="kb", key=entry.knowledge_key, value=_value(entry)) for entry, _ in found
        ]
    if params.level != "kb":
        reading = await desk.in_workspaces(
            lambda spaces: search_files(spaces, params.query, ReadLimits())
        )
        hits += [
            ToolHit(
                source="workspace", key=hit.key, value={"line": hit.line, "snippet": hit.snippet}
            )
            for hit in reading.hits
        ]
        left_out = reading.left_out
    return ToolHits(results=hits, left_out=left_out or None)


def _value(entry: KnowledgeEntry) -> dict[str, Any]:
    return {"content": entry.content, "summary": entry.summary, "tags": entry.tags}
