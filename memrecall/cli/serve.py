"""`serve`."""

import shlex
from typing import Annotated, Any
from urllib.parse import quote

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument


def register_rpc(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("rpc")(rpc)


Workspaces = Annotated[
    str | None,
    typer.Option("--workspaces", help="Folder of workspaces (beside the database)."),
]
Backups = Annotated[
    str | None, typer.Option("--backups", help="Folder of backups (beside the database).")
]


def rpc(
    db: options.Db = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Whose knowledge base (default).")
    ] = None,
    workspaces: Workspaces = None,
    backups: Backups = None,
) -> None:
    """Serve the memory tools as JSON-RPC 2.0 on standard input and output, a message a line.

    Whoever can write to the input is an operator: every tool is theirs.
    """
    folders = {"workspaces_dir": workspaces, "backups_dir": backups}
    options.run(_serve_rpc(db, agent, folders))


async def _serve_rpc(db: str | None, agent: str | None, folders: dict[str, str | None]) -> None:
    from memrecall.memory import Library
    from memrecall.server.rpc.stdio import StdioServer
    from memrecall.server.runner import log_to_stderr
    from memrecall.server.tools import ToolService, dispatcher
    from memrecall.settings import load_settings

    log_to_stderr()
    settings = load_settings({"db": db, **folders}).settings
    async with await Library.open(settings) as library:
        desk = ToolService(library, agent)
        await desk.recover()
        await StdioServer(dispatcher(desk, trusted=True)).run()


def register_mcp(app: typer.Typer) -> None:
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
    options.run(_serve_mcp(arguments, user, agent, frozenset(granted), rights))


async def _serve_mcp(
    arguments: dict[str, str | None],
    user: str,
    agent: str | None,
    permissions: frozenset[Any],
    rights: dict[str, bool],
) -> None:
    from memrecall.memory import Library, client_of
    from memrecall.scope import Scope
    from memrecall.server.runner import log_to_stderr
    from memrecall.server.tools import ToolService
    from memrecall.settings import load_settings

    guest_class, serve_stdio = _load_mcp()
    log_to_stderr()
    settings = load_settings(arguments).settings
    scope = Scope(user, agent, permissions=permissions)
    client = client_of(settings)
    try:
        async with await Library.open(settings) as library:
            desk = ToolService(library, agent, **rights)
            if desk.is_operator:
                await desk.recover()
            await serve_stdio(guest_class(desk, scope, client, trusted=True))
    finally:
        if client is not None:
            await client.close()


def _load_mcp() -> tuple[Any, Any]:
    try:
        from memrecall.server.mcp.server import serve_stdio
        from memrecall.server.mcp.tools import Guest
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise InvalidArgument(
            f"MCP needs {error.name}, which is not installed", hint="pip install 'memrecall[mcp]'"
        ) from None
    return Guest, serve_stdio


_EXTRA = ("fastapi", "prometheus_client", "starlette", "uvicorn")


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("serve")(serve)


def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen (127.0.0.1).", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help="0: any free one (8765).", show_default=False
        ),
    ] = None,
    telemetry: Annotated[
        bool | None,
        typer.Option("--telemetry", help="Send OpenTelemetry spans, as OTEL_* say."),
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Serve messages, search and recall over HTTP, until Ctrl-C.

    Requests carry a key (`memrecall keys create`). As long as there is none, the service is open
    to this machine, and to no other.
    """
    from memrecall.settings import load_settings

    arguments = {"host": host, "port": port or None, "db": db, "telemetry": telemetry}
    settings = load_settings(arguments).settings
    if port == 0:
        from dataclasses import replace

        settings = replace(settings, port=0)
    run_server, log_to_stderr = _load()
    log_to_stderr()
    run_server(settings, _announce_json if json else _announce)


def _load() -> tuple[Any, Any]:
    try:
        from memrecall.server import run_server
        from memrecall.server.runner import log_to_stderr
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise InvalidArgument(
            f"the service needs {error.name}, which is not installed",
            hint="pip install 'memrecall[server]'",
        ) from None
    return run_server, log_to_stderr


def _announce_json(listening: Any) -> None:
    facts = {"url": listening.url, "docs": f"{listening.url}/docs", "open": listening.is_open}
    facts["dashboard"] = f"{listening.url}/" if listening.has_dashboard else None
    output.print_json({**facts, "database": listening.database, "try": try_it(listening)})


def _announce(listening: Any) -> None:
    terminal = output.console()
    terminal.print(f"memrecall listens on [bold]{listening.url}[/bold]  (Ctrl-C stops it)")
    terminal.print(f"database  {output.escape(listening.database)}")
    terminal.print(f"docs      {listening.url}/docs")
    if listening.has_dashboard:
        terminal.print(f"dashboard {listening.url}/")
    typer.echo(f"try       {try_it(listening)}")
    if listening.is_open:
        terminal.print(
            "[bold red]OPEN[/bold red]: there is no key, so every program on this machine can read"
            " and write everybody's data.\n          `memrecall keys create --user USER` makes a"
            " key and closes the service at once."
        )


def try_it(listening: Any) -> str:
    """A command that works as it stands; where there are keys, with one of them for KEY."""
    key = "" if listening.is_open else ' -H "Authorization: Bearer KEY"'
    if listening.sample_user is not None:
        path = f"/v1/users/{quote(listening.sample_user, safe='')}/messages?page_size=3"
        return f"curl {shlex.quote(listening.url + path)}{key}"
    body = '{"messages": [{"role": "user", "content": "I do not eat spicy food"}]}'
    url = f"{listening.url}/v1/users/me/messages"
    return f"curl {url}{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
