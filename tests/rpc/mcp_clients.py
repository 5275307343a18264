"""The SDK's own client, over HTTP and over stdio, in both eras of the protocol."""

import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

# Nothing here is encrypted, and reading the certificates costs more than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
Mode = Literal["legacy", "auto", "2026-07-28"]
ENVIRONMENT = {
    **os.environ,
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
}


@asynccontextmanager
async def over_http(
    url: str, key: str | None, mode: Mode = "auto", **headers: str
) -> AsyncIterator[Client]:
    """A client of the service."""
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with httpx2.AsyncClient(headers=headers, timeout=60, verify=_NO_CERTIFICATES) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(folder: Path, *arguments: str, mode: Mode = "auto") -> AsyncIterator[Client]:
    """A client of `memrecall mcp`."""
    command = ["-m", "memrecall", "mcp", "--db", str(folder / "x.db"), *arguments]
    server = StdioServerParameters(command=sys.executable, args=command, env=ENVIRONMENT)
    async with Client(server, mode=mode) as client:
        yield client


async def names(client: Client) -> list[str]:
    """The tools that are offered."""
    return [tool.name for tool in (await client.list_tools()).tools]


async def use(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured result of a tool, which must be no error, and the same as its text."""
    done = await client.call_tool(tool, arguments)
    (block,) = done.content
    assert block.type == "text"
    assert not done.is_error, block.text
    if tool != "recall":  # which has words for models
        assert json.loads(block.text) == done.structured_content
    return done.structured_content


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    """What a model is told of a tool's failure."""
    done = await client.call_tool(tool, arguments)
    assert done.is_error
    (block,) = done.content
    assert block.type == "text"
    return block.text
