"""The MCP server: tools, resources and prompts, contexts of callers, standard input and output.

Resources are a user's memories and recalls as JSON, long ones in parts.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import to_json, to_jsonable_python

from memrecall import __version__
from memrecall.agent import Recaller, RecallOptions, RecallResult, StopReason
from memrecall.agent.blocks import write_block
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolOutput, excerpt_length
from memrecall.agent.tools.table import Interface, Tool, parse_arguments, tools_for
from memrecall.agent.trace import CallEvent, stream_events
from memrecall.errors import MemrecallError, NotFound, StorageError
from memrecall.memory import Library
from memrecall.memory.ingest import Ingestor
from memrecall.memory.jobs import Processes
from memrecall.memory.recall import make_extractor
from memrecall.model.prompts import load_prompt
from memrecall.scope import Scope
from memrecall.server.rpc import (
    Code,
    Params,
    RpcError,
    StdioStreams,
    answer,
    as_json,
    report_bug,
    run_tool_in_time,
    run_until_signal,
    to_rpc_error,
)
from memrecall.server.tools import PART_LENGTH, find_tool, has_shared_data
from memrecall.store import MemoryQuery, StoredTrace
from memrecall.text_length import single_line, truncate_text
from memrecall.types import Language, MemoryRecord, Origin, format_minute

McpRequest = ServerRequestContext[Any, Any]
ContextOf = Callable[[McpRequest], Awaitable[ToolContext]]
Limiter = Callable[[], AbstractAsyncContextManager[None]]
Guard = Callable[[], Awaitable[None]]

ACTOR = "mcp"

_RESOURCE_NOT_FOUND = -32002  # until 2025-11-25
_RECALL = types.Prompt(
    name="recall",
    title="Recall first",
    description="A question, together with what is remembered about it.",
    arguments=[
        types.PromptArgument(name="query", description="What the user asks.", required=True)
    ],
)
_GUIDE = "recall_before_answering"
_GUIDES = {
    name: types.Prompt(name=name, title=title, description=description)
    for name, title, description in (
        (_GUIDE, "Recall before answering", "How to use the memory in a conversation."),
        (f"{_GUIDE}_zh", "回答前先回忆", "在整段对话中如何使用记忆。"),
    )
}
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
        content = [
            {
                "uri": _memory_uri(record.memory_key),
                **record.model_dump(mode="json"),
                "content": truncate_text(record.content, length),
                "characters": len(record.content),
            }
            for record in page.items
        ]
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


def _trace_part(trace: StoredTrace, offset: int) -> dict[str, Any]:
    """Return a trace with the events from an offset on that fit into one part, at least one."""
    fields = to_jsonable_python(trace)
    events = fields["body"].get("events", [])
    end = offset
    length = 0
    while end < len(events) and (end == offset or length < _TRACE_LENGTH):
        length += len(to_json(events[end]))
        end += 1
    fields["body"]["events"] = events[offset:end]
    uri = f"{_TRACES}/{quote(trace.trace_id, safe='')}"
    return {**fields, "next": f"{uri}?offset={end}" if end < len(events) else None}


def describe_tool(tool: Tool, spaces: Sequence[str] = ()) -> types.Tool:
    """Return a tool of the table as MCP lists it; its argument `space` is one of `spaces`."""
    schema: dict[str, Any] = dict(tool.function_schema("en")["parameters"])
    fields = schema["properties"] = dict(schema["properties"])
    if (space := fields.pop("space", None)) and spaces:
        fields["space"] = {"description": space["description"], "type": "string", "enum": spaces}
    return types.Tool(
        name=tool.name,
        title=tool.title or tool.name,
        description=tool.texts("en").description,
        input_schema=schema,
        output_schema=tool.result_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=None if tool.writes else True,
            destructive_hint=tool.destroys if tool.writes else None,
            open_world_hint=False,
        ),
    )


class McpHandlers:
    """The request handlers of a server; each request has the context of its caller."""

    def __init__(self, context_of: ContextOf) -> None:
        self._context_of = context_of

    def make_server(self, *, can_write: bool = True) -> Server[Any]:
        """Return an SDK server with these handlers, whose instructions fit the rights."""
        server: Server[Any] = Server(
            "memrecall",
            version=__version__,
            title="memrecall",
            instructions=_load_guide("mcp_instructions", "en", can_write),
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
        )
        # The SDK's spans would name the user; memrecall's own do not.
        server.middleware.clear()
        return server

    async def list_tools(
        self, request: McpRequest, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Return the tools that the caller may use, without those for which there are no data."""
        context = await self._context_of(request)
        has_data = await _convert_errors(has_shared_data(context), context)
        return types.ListToolsResult(
            tools=[
                describe_tool(tool, context.bound_spaces(writes=tool.writes))
                for tool in tools_for(Interface.MCP).values()
                if tool.refusal(context) is None and (has_data or tool.needs_user)
            ]
        )

    async def call_tool(
        self, request: McpRequest, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Run a tool. Its errors go to the model, which may correct the call."""
        context = await self._context_of(request)
        tool = find_tool(params.name, Interface.MCP)
        if tool is None or tool.refusal(context) is not None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:100]}")
        try:
            arguments = parse_arguments(tool, params.arguments)
            result = await run_tool_in_time(tool, context, arguments, params.meta)
        except MemrecallError as error:
            message = _message_of(error, context)
            return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
        except Exception as error:  # the SDK would quote the message of a bug
            raise _internal_error(error) from None
        data = as_json(result)
        text = result.as_text() if isinstance(result, ToolOutput) else None
        if text is None:
            text = to_json(data, indent=2).decode()
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=data)

    async def list_resources(
        self, request: McpRequest, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Return a page of the bound user's collections and memories."""
        context = await self._context_of(request)
        cursor = params.cursor if params else None
        resources, cursor = await _convert_errors(list_resources(context, cursor), context)
        return types.ListResourcesResult(resources=resources, next_cursor=cursor)

    async def list_templates(
        self, request: McpRequest, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """Return the URI templates of the resources."""
        context = await self._context_of(request)
        templates = TEMPLATES if context.has_user else []
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        self, request: McpRequest, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Return one resource."""
        context = await self._context_of(request)
        uri = str(params.uri)
        try:
            text = await read_resource(context, uri)
        except NotFound as error:
            is_modern = request.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if is_modern else _RESOURCE_NOT_FOUND
            raise MCPError(code, error.message, {"uri": uri}) from None
        except Exception as error:  # the SDK would quote the message of a bug
            raise _to_mcp_error(error, context) from None
        contents = types.TextResourceContents(uri=uri, mime_type=JSON_TYPE, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def list_prompts(
        self, request: McpRequest, _params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        """Return the prompts, if a user is bound."""
        context = await self._context_of(request)
        prompts = [_RECALL, *_GUIDES.values()]
        return types.ListPromptsResult(prompts=prompts if context.has_user else [])

    async def get_prompt(
        self, request: McpRequest, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Return a prompt: the recalled block and the question, or the usage guide."""
        context = await self._context_of(request)
        if not context.has_user or params.name not in (_RECALL.name, *_GUIDES):
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name[:100]}")
        if params.name in _GUIDES:
            language: Language = "en" if params.name == _GUIDE else "zh"
            guide = _load_guide(_GUIDE, language, context.can_write)
            return _prompt_result(_GUIDES[params.name], guide)
        arguments = params.arguments or {}
        # Clients of earlier versions send `question`.
        query = (arguments.get("query") or arguments.get("question") or "").strip()
        if not query:
            raise MCPError(types.INVALID_PARAMS, "query is missing")
        result = await _convert_errors(context.recall_messages(query), context)
        return _prompt_result(_RECALL, f"{write_block(result)}\n\n{query}")


def _load_guide(name: str, language: Language, can_write: bool) -> str:
    """Return a prompt, without the lines that order what a read-only caller cannot do."""
    writing = [f"`{tool.name}`" for tool in tools_for(Interface.MCP).values() if tool.writes]
    lines = load_prompt(name, language).splitlines()
    return "\n".join(line for line in lines if can_write or not any(w in line for w in writing))


def _prompt_result(prompt: types.Prompt, text: str) -> types.GetPromptResult:
    message = types.PromptMessage(role="user", content=types.TextContent(text=text))
    return types.GetPromptResult(description=prompt.description, messages=[message])


async def _convert_errors(work: Awaitable[Any], context: ToolContext) -> Any:
    """Await some work; its errors become errors of the protocol."""
    try:
        return await work
    except Exception as error:  # the SDK would quote the message of a bug
        raise _to_mcp_error(error, context) from None


def _to_mcp_error(error: Exception, context: ToolContext) -> MCPError:
    if not isinstance(error, MemrecallError):
        return _internal_error(error)
    fault = to_rpc_error(error, trusted=context.is_trusted)
    return MCPError(int(fault.code), _message_of(error, context))


def _message_of(error: MemrecallError, context: ToolContext) -> str:
    fault = to_rpc_error(error, trusted=context.is_trusted)
    return str(fault.data["reason"] if fault.code is Code.INVALID_PARAMS else fault.message)


def _internal_error(error: Exception) -> MCPError:
    data = {"request_id": report_bug(error)}
    return MCPError(types.INTERNAL_ERROR, "Internal error", data)


async def serve_stdio(make_context: Callable[..., ToolContext]) -> None:
    """Serve one client until the input ends or a signal arrives, which ends recalls at once.

    `make_context(request=…)` returns the context of a request.
    """

    async def context_of(request: McpRequest) -> ToolContext:
        return make_context(request=request)

    streams = StdioStreams()
    try:
        can_write = make_context(request=None).can_write
        server = McpHandlers(context_of).make_server(can_write=can_write)
        await run_until_signal(_serve(server, streams))
    except* BrokenPipeError:  # the client has closed its end
        pass
    finally:
        streams.close()


async def _serve(server: Server[Any], streams: StdioStreams) -> None:
    lines: Any = _Requests(streams)
    replies: Any = _Replies(streams)
    async with stdio_server(lines, replies) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


class _Requests:
    """The messages of the input; lines that are none are answered with an error.

    The SDK ignores such lines, and a client would wait for the reply.
    """

    def __init__(self, streams: StdioStreams) -> None:
        self._streams = streams

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._streams.lines():
            try:
                types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                reply = await answer(line, refuse_call, report_bug)
                if reply is not None:
                    await self._streams.write_line(reply)
            else:
                yield line.decode()


async def refuse_call(method: str, params: Params) -> None:
    """Refuse what is valid JSON-RPC, but not MCP: batches and ids that are null."""
    raise RpcError(Code.INVALID_REQUEST)


class _Replies:
    """The output as the SDK writes to it: one line at a time."""

    def __init__(self, streams: StdioStreams) -> None:
        self._streams = streams

    async def write(self, text: str) -> None:
        await self._streams.write_line(text.rstrip("\n").encode())

    async def flush(self) -> None:
        """Do nothing: lines are not buffered."""


def make_context(
    library: Library,
    scope: Scope,
    model_client: Any = None,
    *,
    request: McpRequest | None = None,
    ingestor: Ingestor | None = None,
    has_user: bool = True,
    can_write: bool = True,
    write_spaces: frozenset[str] = frozenset(),
    is_trusted: bool = False,
    limiter: Limiter = nullcontext,
    check: Guard | None = None,
) -> ToolContext:
    """Return the context of one caller; `limiter` limits its recalls.

    `check` raises if the caller has lost access, before each step that is reported to them.

    Recalls report their progress to the caller of `request`. Callers whose contexts share an
    `ingestor` write a user's memories one after the other.
    """
    ingestor = ingestor or make_ingestor(library, model_client)
    options = RecallOptions(keep_traces_days=library.settings.trace_days)
    recaller = Recaller(library, scope, model_client, options)

    async def recall(messages: object, time: str | None = None) -> RecallResult:
        async with limiter():
            result = await _recall(partial(recaller.recall, messages, time=time), request, check)
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result

    return ToolContext(
        library=library,
        scope=scope,
        has_user=has_user,
        can_write=can_write,
        write_spaces=write_spaces,
        is_trusted=is_trusted,
        actor=ACTOR,
        recall=recall,
        remember=partial(ingestor.remember, origin=Origin.ASSISTANT, actor=ACTOR),
    )


def make_ingestor(library: Library, model_client: Any) -> Ingestor:
    """Return the ingestor behind `remember`; the model or the rules decide replacements."""
    extractor = make_extractor(replace(library.settings, model=""), model_client)
    return Ingestor(library, extractor, Processes())


async def _recall(
    run: Callable[..., Awaitable[RecallResult]], request: McpRequest | None, check: Guard | None
) -> RecallResult:
    """Recall; a caller that sent a progress token is told of each tool call."""
    if request is None or (request.meta or {}).get("progress_token") is None:
        return await run()
    steps = 0
    async with aclosing(stream_events(lambda observer: run(observer=observer))) as items:
        async for item in items:
            if check is not None:
                await check()
            if isinstance(item, RecallResult):
                return item
            if isinstance(item, CallEvent):
                steps += 1
                await request.session.report_progress(steps, message=item.tool)
    raise AssertionError("a recall always ends in a result")
