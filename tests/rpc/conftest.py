"""Contexts and services for the tests of the memory tools."""

from collections.abc import AsyncIterator

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.memory import Library

from ..server.http_service import HttpService, serve_on_socket
from .mcp_clients import add_conversations


@pytest.fixture
def context(library: Library) -> ToolContext:
    return ToolContext.for_operator(library)


@pytest.fixture
async def service(sqlite_library: Library) -> AsyncIterator[HttpService]:
    """A service on SQLite with messages of Ann and Ben."""
    async with serve_on_socket(sqlite_library) as running:
        await add_conversations(sqlite_library)
        yield running
