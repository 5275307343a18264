"""`serve`, `rpc` and `mcp`: the service processes."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer import Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument
from memrecall.telemetry import log_to_stderr

Workspaces = Annotated[
    str | None, Option("--workspaces", help="Folder of workspaces; default: beside the database.")
]
Backups = Annotated[
    str | None, Option("--backups", help="Folder of backups; default: beside the database.")
]


def rpc(
    db: options.Db = None,
    agent: Annotated[
        str | None, Option(help="Agent whose knowledge base is served (default).")
    ] = None,
    workspaces: Workspaces = None,
    backups: Backups = None,
) -> None:
    """Serve the memory tools as JSON-RPC 2.0 on stdin and stdout, one message per line.

    The process that writes to stdin is trusted as an operator and may call every method.
    """
    folders = {"workspaces_dir": workspaces, "backups_dir": backups}
    options.run(_serve_rpc(db, agent, folders))


async def _serve_rpc(db: str | None, agent: str | None, folders: dict[str, str | None]) -> None:
    from memrecall.agent.tools.context import ToolContext
    from memrecall.memory import Library
    from memrecall.server.rpc.methods import dispatcher
    from memrecall.server.rpc.stdio import StdioServer

    log_to_stderr()
    settings = options.read_settings(db=db, **folders)
    async with await Library.open(settings) as library:
        context = ToolContext.for_operator(library, agent)
        await context.recover()
        await StdioServer(dispatcher(context)).run()


def mcp(
    user: Annotated[str, Option(help="User that the tools are bound to.", show_default=False)],
    db: options.Db = None,
    agent: options.Agent = None,
    read_only: options.ReadOnly = False,
    allow_sensitive: options.AllowSensitive = False,
    allow_knowledge: options.AllowKnowledge = False,
    operator: Annotated[
        bool, Option("--operator", help="Add workspaces, dump, backup and restore.")
    ] = False,
    workspaces: Workspaces = None,
    backups: Backups = None,
) -> None:
    """Serve memories and tools to an MCP client on stdin and stdout.

    The client (Claude Desktop, Cursor, VS Code, …) starts this command; docs/mcp.md shows its
    configuration.
    """
    from memrecall.scope import Scope

    arguments = {"db": db, "workspaces_dir": workspaces, "backups_dir": backups}
    permissions = options.build_permissions(allow_sensitive, allow_knowledge, operator)
    scope = Scope(user, agent, permissions=permissions)
    options.run(_serve_mcp(arguments, scope, can_write=not read_only))


async def _serve_mcp(arguments: dict[str, str | None], scope: Any, *, can_write: bool) -> None:
    from memrecall.memory import Library, client_of
    from memrecall.scope import Permission

    with _requires_extra("mcp", ("mcp", "mcp_types")):
        from memrecall.server.mcp.context import make_context, make_ingestor
        from memrecall.server.mcp.server import serve_stdio
    log_to_stderr()
    settings = options.read_settings(**arguments)
    client = client_of(settings)
    try:
        async with await Library.open(settings) as library:
            make = partial(
                make_context,
                library,
                scope,
                client,
                ingestor=make_ingestor(library, client),
                can_write=can_write,
                is_trusted=True,
            )
            if scope.allows(Permission.OPERATOR):
                await make().recover()
            await serve_stdio(make)
    finally:
        if client is not None:
            await client.close()


@contextmanager
def _requires_extra(extra: str, packages: tuple[str, ...]) -> Iterator[None]:
    """Import modules of an extra; if one of its packages is missing, name the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        command = "serve" if extra == "server" else extra
        raise InvalidArgument(
            f"memrecall {command} requires {error.name}, which is not installed",
            hint=f"pip install 'memrecall[{extra}]'",
        ) from None


def serve(
    host: Annotated[
        str | None, Option(help="Address to bind (127.0.0.1).", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, help="Port (8765); 0: any free port.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None,
        Option(min=1, help="Processes that answer requests (1).", show_default=False),
    ] = None,
    telemetry: Annotated[
        bool | None, Option("--telemetry", help="Export OpenTelemetry spans, configured by OTEL_*.")
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Serve messages, search and recall over HTTP, until Ctrl-C.

    Requests need a key (`memrecall keys create`). As long as no key exists, the service is open to
    this machine and to no other.
    """
    arguments = {"host": host, "port": port or None, "workers": workers, "telemetry": telemetry}
    settings = options.read_settings(db=db, **arguments)
    if port == 0:
        settings = replace(settings, port=0)
    with _requires_extra("server", ("fastapi", "prometheus_client", "starlette", "uvicorn")):
        from memrecall.server import run_server
    log_to_stderr()
    run_server(settings, _announce_json if json else _announce)


def _announce_json(listening: Any) -> None:
    dashboard = f"{listening.url}/" if listening.has_dashboard else None
    output.print_json(
        {
            "url": listening.url,
            "docs": f"{listening.url}/docs",
            "open": listening.is_open,
            "dashboard": dashboard,
            "database": listening.database,
            "try": example_request(listening),
        }
    )


def _announce(listening: Any) -> None:
    terminal = output.console()
    terminal.print(f"memrecall listens on [bold]{listening.url}[/bold]  (Ctrl-C stops it)")
    terminal.print(f"database  {output.escape(listening.database)}")
    terminal.print(f"docs      {listening.url}/docs")
    if listening.has_dashboard:
        terminal.print(f"dashboard {listening.url}/")
    typer.echo(f"try       {example_request(listening)}")
    if listening.is_open:
        terminal.print(
            "[bold red]OPEN[/bold red]: no key exists, so every program on this machine can read"
            " and write all users' data.\n          `memrecall keys create --user USER` creates a"
            " key and closes the service at once."
        )


def example_request(listening: Any) -> str:
    """Return a curl command that works as it is, or with a key in place of KEY."""
    key = "" if listening.is_open else ' -H "Authorization: Bearer KEY"'
    if listening.sample_user is not None:
        path = f"/v1/users/{quote(listening.sample_user, safe='')}/messages?page_size=3"
        return f"curl {shlex.quote(listening.url + path)}{key}"
    body = '{"messages": [{"role": "user", "content": "I do not eat spicy food"}]}'
    url = f"{listening.url}/v1/users/me/messages"
    return f"curl {url}{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
