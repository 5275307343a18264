"""The resources of MCP: a user's memories and recalls as JSON, long ones in parts."""

from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import mcp_types as types
from pydantic_core import to_json, to_jsonable_python

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.knowledge import PART_LENGTH
from memrecall.agent.tools.models import excerpt_length
from memrecall.errors import NotFound
from memrecall.store import MemoryQuery, StoredTrace
from memrecall.text_length import single_line, truncate_text
from memrecall.types import MemoryRecord, format_minute

JSON_TYPE = "application/json"
_SCHEME = "memrecall"
_MEMORIES, _TRACES = f"{_SCHEME}://memories", f"{_SCHEME}://traces"
_PAGE = 50
_NAME_LENGTH = 60
_TITLE_LENGTH = 200
_TRACE_LENGTH = 4 * PART_LENGTH  # characters of the events in one part of a trace
TEMPLATES = [
    types.ResourceTemplate(
        name="memory",
        title="A memory",
        uri_template=f"{_MEMORIES}/{{memory_key}}{{?offset}}",
        description="One memory: content, summary, validity, and the messages it came from."
        " A long content has more parts: `next` is the URI of the next one.",
        mime_type=JSON_TYPE,
    ),
    types.ResourceTemplate(
        name="trace",
        title="A trace",
        uri_template=f"{_TRACES}/{{trace_id}}{{?offset}}",
        description="One recall, step by step: searches, what they found, how it ended."
        " `next` is the URI of further events.",
        mime_type=JSON_TYPE,
    ),
]
_COLLECTIONS = [
    types.Resource(
        uri=uri, name=title.lower(), title=title, description=description, mime_type=JSON_TYPE
    )
    for uri, title, description in (
        (_MEMORIES, "Memories", f"The latest {_PAGE} memories of the user, long ones shortened."),
        (_TRACES, "Traces", f"The latest {_PAGE} recalls of the user."),
    )
]


async def list_resources(
    context: ToolContext, cursor: str | None
) -> tuple[list[types.Resource], str | None]:
    """Return a page of resources and the next cursor: the collections, then the memories."""
    if not context.has_user:
        return [], None
    page = await context.library.store.memories(context.scope).page(
        MemoryQuery(), limit=_PAGE, cursor=cursor
    )
    memories = [_memory_resource(record) for record in page.items]
    return [*([] if cursor else _COLLECTIONS), *memories], page.next_cursor


def _memory_resource(record: MemoryRecord) -> types.Resource:
    text = record.summary or record.content
    return types.Resource(
        uri=_memory_uri(record.memory_key),
        name=single_line(text, _NAME_LENGTH),
        title=single_line(text, _TITLE_LENGTH),
        description=f"{record.memory_type}, since {format_minute(record.since)}",
        mime_type=JSON_TYPE,
        size=len(record.content.encode()),
    )


def _memory_uri(key: str) -> str:
    return f"{_MEMORIES}/{quote(key, safe='')}"


async def read_resource(context: ToolContext, uri: str) -> str:
    """Return a resource as JSON, or raise NotFound."""
    parts = urlsplit(uri)
    collection, slash, name = f"{parts.netloc}{parts.path}".partition("/")
    key = unquote(name)
    offset = parse_qs(parts.query).get("offset", ["0"])[-1]
    is_known = collection in ("memories", "traces") and bool(slash) == bool(key)
    is_valid = parts.scheme == _SCHEME and is_known and offset.isdecimal()
    if not context.has_user or not is_valid:
        raise NotFound(f"there is no resource {uri[:200]!r}")
    store, scope = context.library.store, context.scope
    content: Any
    if collection == "memories" and key:
        content = _memory_part(await store.memories(scope).get(key), int(offset))
    elif collection == "memories":
        page = await store.memories(scope).page(MemoryQuery(), limit=_PAGE)
        length = excerpt_length(len(page.items))
        content = [_memory_item(record, length) for record in page.items]
    elif key:
        content = _trace_part(await store.traces(scope).get(key), int(offset))
    else:
        content = (await store.traces(scope).page(limit=_PAGE)).items
    return to_json(content).decode()


def _memory_part(record: MemoryRecord, offset: int) -> dict[str, Any]:
    end = offset + PART_LENGTH
    uri = _memory_uri(record.memory_key)
    return {
        **record.model_dump(mode="json"),
        "content": record.content[offset:end],
        "characters": len(record.content),
        "next": f"{uri}?offset={end}" if end < len(record.content) else None,
    }


def _memory_item(record: MemoryRecord, length: int) -> dict[str, Any]:
    return {
        "uri": _memory_uri(record.memory_key),
        **record.model_dump(mode="json"),
        "content": truncate_text(record.content, length),
        "characters": len(record.content),
    }


def _trace_part(trace: StoredTrace, offset: int) -> dict[str, Any]:
    """Return a trace with the events from an offset on that fit into one part, at least one."""
    fields = to_jsonable_python(trace)
    events = fields["body"].get("events", [])
    end, length = offset, 0
    while end < len(events) and (end == offset or length < _TRACE_LENGTH):
        length += len(to_json(events[end]))
        end += 1
    fields["body"]["events"] = events[offset:end]
    uri = f"{_TRACES}/{quote(trace.trace_id, safe='')}"
    return {**fields, "next": f"{uri}?offset={end}" if end < len(events) else None}
