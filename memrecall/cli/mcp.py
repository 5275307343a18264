"""`mcp`."""

from typing import Annotated, Any

import typer

from memrecall.cli import options
from memrecall.cli.rpc import Backups, Workspaces
from memrecall.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("mcp")(mcp)


def mcp(
    user: Annotated[
        str, typer.Option("--user", help="Whose memories the tools see.", show_default=False)
    ],
    db: options.Db = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only what this agent has to do with.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="No writing.")] = False,
    allow_sensitive: Annotated[
        bool, typer.Option("--allow-sensitive", help="Also memories marked as sensitive.")
    ] = False,
    allow_knowledge: Annotated[
        bool, typer.Option("--allow-knowledge", help="May change the knowledge base.")
    ] = False,
    operator: Annotated[
        bool, typer.Option("--operator", help="Also workspaces, dump, backup and restore.")
    ] = False,
    workspaces: Workspaces = None,
    backups: Backups = None,
) -> None:
    """Serve memories and tools to an MCP client on standard input and output.

    A client (Claude Desktop, Cursor, VS Code, …) starts this command; docs/mcp.md has the lines
    for its settings.
    """
    from memrecall.scope import Permission

    granted = {Permission.SENSITIVE} if allow_sensitive else set()
    rights = {
        "may_write": not read_only,
        "may_change_knowledge": allow_knowledge,
        "is_operator": operator,
    }
    arguments = {"db": db, "workspaces_dir": workspaces, "backups_dir": backups}
    options.run(_serve(arguments, user, agent, frozenset(granted), rights))


async def _serve(
    arguments: dict[str, str | None],
    user: str,
    agent: str | None,
    permissions: frozenset[Any],
    rights: dict[str, bool],
) -> None:
    from memrecall.memory import Library, client_of
    from memrecall.scope import Scope
    from memrecall.server.logs import log_to_stderr
    from memrecall.server.tools import ToolDesk
    from memrecall.settings import load_settings

    guest_class, serve_stdio = _load()
    log_to_stderr()
    settings = load_settings(arguments).settings
    scope = Scope(user, agent, permissions=permissions)
    client = client_of(settings)
    try:
        async with await Library.open(settings) as library:
            desk = ToolDesk(library, agent, **rights)
            if desk.is_operator:
                await desk.recover()
            await serve_stdio(guest_class(desk, scope, client, trusted=True))
    finally:
        if client is not None:
            await client.close()


def _load() -> tuple[Any, Any]:
    try:
        from memrecall.server.mcp.guest import Guest
        from memrecall.server.mcp.stdio import serve_stdio
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise InvalidArgument(
            f"MCP needs {error.name}, which is not installed", hint="pip install 'memrecall[mcp]'"
        ) from None
    return Guest, serve_stdio
