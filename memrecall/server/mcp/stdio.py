"""MCP over standard input and output: for one user, on this machine."""

from typing import Any

from mcp.server.stdio import stdio_server

from memrecall.server.mcp.guest import Guest
from memrecall.server.mcp.server import McpFace


async def serve_stdio(guest: Guest) -> None:
    """Serve one client until the input ends."""

    async def the_guest(_context: Any) -> Guest:
        return guest

    server = McpFace(the_guest).server()
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
