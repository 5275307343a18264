"""Clients of the MCP SDK over HTTP and stdio, for all protocol versions."""

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

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.types import NewMessage, Role

# The tests use no TLS, and loading the certificates costs more than a request.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
Mode = Literal["legacy", "auto", "2026-07-28"]
ENVIRONMENT = {**os.environ, "MEMRECALL_CONFIG": os.devnull, "MEMRECALL_EMBEDDER": "hash"}


@asynccontextmanager
async def over_http(
    url: str, key: str | None, mode: Mode = "auto", **headers: str
) -> AsyncIterator[Client]:
    """Connect a client to the service."""
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with httpx2.AsyncClient(headers=headers, timeout=60, verify=_NO_CERTIFICATES) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@asynccontextmanager
async def over_stdio(folder: Path, *arguments: str, mode: Mode = "auto") -> AsyncIterator[Client]:
    """Start `memrecall mcp` and connect a client to it."""
    command = ["-m", "memrecall", "mcp", "--db", str(folder / "x.db"), *arguments]
    server = StdioServerParameters(command=sys.executable, args=command, env=ENVIRONMENT)
    async with Client(server, mode=mode) as client:
        yield client


async def tool_names(client: Client) -> list[str]:
    """Return the names of the listed tools."""
    return [tool.name for tool in (await client.list_tools()).tools]


async def call_tool(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured result of a successful call, which must equal its text."""
    response = await client.call_tool(tool, arguments)
    (block,) = response.content
    assert block.type == "text"
    assert not response.is_error, block.text
    if tool != "recall":  # the text of recall is written for models
        assert json.loads(block.text) == response.structured_content
    return response.structured_content


async def call_failing_tool(client: Client, tool: str, **arguments: Any) -> str:
    """Return the error text of a failed call."""
    response = await client.call_tool(tool, arguments)
    assert response.is_error
    (block,) = response.content
    assert block.type == "text"
    return block.text


async def add_user_messages(library: Library, user: str, *contents: str) -> None:
    """Add messages of one user."""
    batch = [NewMessage(content=content, role=Role.USER) for content in contents]
    await library.add_messages(Scope(user), batch)


async def add_conversations(library: Library) -> None:
    """Add messages of Ann and Ben."""
    await add_user_messages(library, "ann", "I only drink green tea", "My dog is called Rex")
    await add_user_messages(library, "ben", "Ben hates tea")
