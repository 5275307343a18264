"""Memories and traces of the bound user as MCP resources: JSON under `memrecall://`."""

from urllib.parse import quote, unquote

from mcp_types import Resource, ResourceTemplate, TextResourceContents
from pydantic_core import to_json

from memrecall.agent.tools.context import ToolContext
from memrecall.errors import NotFound
from memrecall.store import MemoryQuery

MEDIA_TYPE = "application/json"
_SCHEME = "memrecall://"
MEMORIES, TRACES = f"{_SCHEME}memories", f"{_SCHEME}traces"
_PAGE = 50
_TITLE = 80

TEMPLATES = [
    ResourceTemplate(
        name="memory",
        title="A memory",
        uri_template=f"{MEMORIES}/{{memory_key}}",
        description="One memory: content, summary, validity, and the messages it came from.",
        mime_type=MEDIA_TYPE,
    ),
    ResourceTemplate(
        name="trace",
        title="A trace",
        uri_template=f"{TRACES}/{{trace_id}}",
        description="One recall, step by step: searches, what they found, how it ended.",
        mime_type=MEDIA_TYPE,
    ),
]
_COLLECTIONS = [
    Resource(
        uri=MEMORIES,
        name="memories",
        title="Memories",
        description=f"The latest {_PAGE} memories of the user.",
        mime_type=MEDIA_TYPE,
    ),
    Resource(
        uri=TRACES,
        name="traces",
        title="Traces",
        description=f"The latest {_PAGE} recalls of the user.",
        mime_type=MEDIA_TYPE,
    ),
]


async def list_resources(
    context: ToolContext, cursor: str | None
) -> tuple[list[Resource], str | None]:
    """Return a page of resources and the next cursor: the collections, then the memories."""
    if not context.has_user:
        return [], None
    page = await context.library.store.memories(context.scope).page(
        MemoryQuery(), limit=_PAGE, cursor=cursor
    )
    memories = [
        Resource(
            uri=f"{MEMORIES}/{quote(record.memory_key, safe='')}",
            name=record.memory_key,
            title=(record.summary or record.content)[:_TITLE],
            mime_type=MEDIA_TYPE,
        )
        for record in page.items
    ]
    return [*([] if cursor else _COLLECTIONS), *memories], page.next_cursor


async def read_resource(context: ToolContext, uri: str) -> TextResourceContents:
    """Return one resource; raises NotFound for an unknown URI."""
    return TextResourceContents(uri=uri, mime_type=MEDIA_TYPE, text=await _read(context, uri))


async def _read(context: ToolContext, uri: str) -> str:
    scope, store = context.scope, context.library.store
    kind, slash, name = uri.removeprefix(_SCHEME).partition("/")
    key = unquote(name)
    is_known = (
        uri.startswith(_SCHEME) and kind in ("memories", "traces") and bool(slash) == bool(key)
    )
    if not context.has_user or not is_known:
        raise NotFound(f"there is no resource {uri[:200]!r}")
    if kind == "memories":
        if key:
            return (await store.memories(scope).get(key)).model_dump_json()
        memories = await store.memories(scope).page(MemoryQuery(), limit=_PAGE)
        return to_json(memories.items).decode()
    if key:
        return to_json(await store.traces(scope).get(key)).decode()
    return to_json((await store.traces(scope).page(limit=_PAGE)).items).decode()
