"""MCP over standard input and output."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from pydantic import ValidationError

from memrecall.agent.tools.context import ToolContext
from memrecall.server.mcp.context import RequestContext
from memrecall.server.mcp.server import McpHandlers
from memrecall.server.rpc.codec import Code, Params, RpcError, answer
from memrecall.server.rpc.methods import report_bug
from memrecall.server.rpc.stdio import StdioStreams, run_until_signal


async def serve_stdio(make_context: Callable[..., ToolContext]) -> None:
    """Serve one client until the input ends or a signal arrives, which ends recalls at once.

    `make_context(request=…)` returns the context of a request.
    """

    async def context_of(request: RequestContext) -> ToolContext:
        return make_context(request=request)

    streams = StdioStreams()
    try:
        await run_until_signal(_serve(McpHandlers(context_of).make_server(), streams))
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
                reply = await answer(line, _refuse, report_bug)
                if reply is not None:
                    await self._streams.write_line(reply)
            else:
                yield line.decode()


async def _refuse(method: str, params: Params) -> None:
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
