"""`serve`, `rpc` and `mcp`: the service processes."""

import asyncio
import os
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer import Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, requires_extra
from memrecall.logs import log_to_stderr
from memrecall.settings import load_settings

_SERVER_PACKAGES = ("fastapi", "prometheus_client", "starlette", "uvicorn")
_DEMO_HOURS = 12  # that its key is valid, as long as a browser stays signed in
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")

DataDir = Annotated[
    str | None,
    Option("--data-dir", help="Folder of workspaces and backups (default: next to the database)."),
]


def rpc_command(
    db: options.Db = None,
    agent: Annotated[
        str | None, Option(help="Agent whose knowledge base is served (default).")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Serve the memory tools as JSON-RPC 2.0 on stdin and stdout, one message per line.

    The process that writes to stdin is trusted as an operator and may call every method.
    """
    from memrecall.agent.tools.context import ToolContext
    from memrecall.memory import Library
    from memrecall.server.rpc import StdioServer, dispatcher
    from memrecall.server.tools import recover_backups

    log_to_stderr()
    settings = load_settings({"db": db, "data_dir": data_dir}).settings

    async def serve() -> None:
        async with await Library.open(settings) as library:
            context = ToolContext.for_operator(library, agent)
            await recover_backups(context)
            await StdioServer(dispatcher(context)).run()

    asyncio.run(serve())


def mcp(
    user: options.User,
    db: options.Db = None,
    agent: options.Agent = None,
    project: options.ProjectOption = None,
    all_projects: options.AllProjects = False,
    read_only: options.ReadOnly = False,
    allow_sensitive: options.AllowSensitive = False,
    allow_knowledge: options.AllowKnowledge = False,
    space: Annotated[
        list[str] | None, Option(help="Read this space too; team-x:write: also write; repeatable.")
    ] = None,
    operator: Annotated[
        bool, Option("--operator", help="Add workspaces, dump, backup and restore.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Serve memories and tools to an MCP client on stdin and stdout.

    The client (Claude Desktop, Cursor, VS Code, …) starts this command; docs/mcp.md shows its
    configuration.
    """
    from memrecall.scope import Scope, parse_spaces

    arguments = {"db": db, "data_dir": data_dir}
    spaces, writable = parse_spaces(space or ())
    permissions = options.build_permissions(allow_sensitive, allow_knowledge, operator)
    name = options.read_project(project)
    scope = Scope(user, agent, None, permissions, name, all_projects, spaces)
    asyncio.run(_serve_mcp(arguments, scope, can_write=not read_only, write_spaces=writable))


async def _serve_mcp(arguments: dict[str, str | None], scope: Any, **rights: Any) -> None:
    from memrecall.memory import Library, client_of
    from memrecall.scope import Permission

    with requires_extra("memrecall mcp", "mcp", "mcp", "mcp_types"):
        from memrecall.server.mcp.server import make_context, make_ingestor, serve_stdio
        from memrecall.server.tools import recover_backups
    log_to_stderr()
    settings = load_settings(arguments).settings
    client = client_of(settings)
    try:
        async with await Library.open(settings) as library:
            make = partial(
                make_context,
                library,
                scope,
                client,
                ingestor=make_ingestor(library, client),
                is_trusted=True,
                **rights,
            )
            for space_id in scope.spaces:  # a typing error is reported now, not at each call
                await library.store.spaces.enter(scope, space_id)
            if scope.allows(Permission.OPERATOR):
                await recover_backups(make())
            await serve_stdio(make)
    finally:
        if client is not None:
            await client.close()


def serve_command(
    shared: options.ReadingOptions,
    host: Annotated[
        str | None, Option(help="Address to bind (127.0.0.1).", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        Option(min=0, max=65535, help="Port (8765); 0: any free port.", show_default=False),
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, help="Processes that answer requests (1).", show_default=False)
    ] = None,
    demo: Annotated[
        bool,
        Option("--demo", help="Serve sample chats from a temporary database, and open a browser."),
    ] = False,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Whether --demo opens a browser.")
    ] = True,
) -> None:
    """Serve messages, search and recall over HTTP, until Ctrl-C.

    Requests need a key (`memrecall keys create`). As long as no key exists, the service is open to
    this machine and to no other.
    """
    if demo and (shared.db or shared.read_only or (workers or 1) > 1):
        raise InvalidArgument(
            "--demo serves a temporary database in one process",
            hint="Drop --db, --read-only and --workers",
        )
    arguments = {
        "db": shared.db,
        "read_only": shared.read_only or None,
        "host": host,
        "port": port or None,
        "workers": workers,
    }
    settings = load_settings(arguments).settings
    if port == 0:
        settings = replace(settings, port=0)
    of_demo = (" --demo", "dashboard", *_SERVER_PACKAGES, "nicegui")
    option, *needed = of_demo if demo else ("", "server", *_SERVER_PACKAGES)
    with requires_extra(f"memrecall serve{option}", *needed):
        from memrecall.server import run_server

        if demo:
            import memrecall.dashboard.application  # noqa: F401
    log_to_stderr()
    if demo:
        _serve_demo(settings, browser=browser, json=shared.json)
    else:
        announce = (
            _announce_json if shared.json else partial(_announce, read_only=settings.read_only)
        )
        run_server(settings, announce)


def _serve_demo(settings: Any, *, browser: bool, json: bool) -> None:
    """Serve the sample chats from a database that is removed at the end."""
    import threading
    import webbrowser
    from tempfile import TemporaryDirectory

    from memrecall.server import run_server
    from memrecall.server.auth import SignInCode

    with TemporaryDirectory(prefix="memrecall-demo-") as folder:
        settings = replace(
            settings,
            db=f"{folder}/demo.db",
            data_dir=folder,
            read_only=False,
            workers=1,
            dashboard=True,
        )
        with output.spinner("loading the sample data"):
            key_id, key = asyncio.run(_fill_demo(settings))
        code = SignInCode.create(key_id)

        def announce(listening: Any) -> None:
            link = f"{listening.url}{code.path}"
            if json:
                _announce_json(listening, sign_in=link, key=key)
            else:
                _announce(listening, key)
                typer.echo("sample    users lin (中文) and maya (English), removed at the end")
                typer.echo("facts     from a recorded model; with your own: MEMRECALL_MODEL=…")
                typer.echo(f"open      {link}  (signs in once)")
            if browser and _has_display():
                # In a thread: some browsers return only when they are closed.
                threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

        run_server(settings, announce, code)


async def _fill_demo(settings: Any) -> tuple[str, str]:
    """Load the sample; return the id and the text of a key that opens it."""
    from memrecall.dashboard.sample import load_sample
    from memrecall.memory import Library
    from memrecall.scope import Permission
    from memrecall.store import Grant

    async with await Library.open(settings) as library:
        users = await load_sample(library)
        expires_at = datetime.now(UTC) + timedelta(hours=_DEMO_HOURS)
        # An operator's key, because the overview and the evaluations are part of the demo.
        operator = frozenset({Permission.OPERATOR})
        grant = Grant(users, permissions=operator)
        key, text = await library.store.keys.create(grant, name="demo", expires_at=expires_at)
        return key.key_id, text


def _has_display() -> bool:
    """Return True if a person sees this machine's screen; text browsers would fill the terminal."""
    if os.environ.get("CI"):
        return False
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, _DISPLAYS))


def _announce_json(listening: Any, **fields: str) -> None:
    output.print_json(
        {
            "url": listening.url,
            "docs": f"{listening.url}/docs",
            "open": listening.is_open,
            "dashboard": listening.dashboard,
            "database": listening.database,
            "try": example_request(listening, fields.get("key", "KEY")),
            **fields,
        }
    )


def _announce(listening: Any, key: str = "KEY", *, read_only: bool = False) -> None:
    terminal = output.console()
    terminal.print(f"memrecall listens on [bold]{listening.url}[/bold]  (Ctrl-C stops it)")
    terminal.print(f"database  {output.escape(listening.database)}")
    terminal.print(f"docs      {listening.url}/docs")
    if listening.dashboard is not None:
        terminal.print(f"dashboard {listening.dashboard}")
    typer.echo(f"try       {example_request(listening, key)}")
    if read_only:
        terminal.print("read-only: every request that writes is refused")
    if listening.is_open:
        access = "read" if read_only else "read and write"
        terminal.print(
            "[bold red]OPEN[/bold red]: no key exists, so every program on this machine can"
            f" {access} all users' data.\n          `memrecall keys create --user USER` creates a"
            " key and closes the service at once."
        )


def example_request(listening: Any, key: str = "KEY") -> str:
    """Return a curl command that works on a terminal as it is, or with a key in place of KEY.

    Elsewhere `USER` stands for the user: the output may be kept as a log, and logs name no users.
    """
    key = "" if listening.is_open else f' -H "Authorization: Bearer {key}"'
    if listening.sample_user is not None:
        user = quote(listening.sample_user, safe="") if sys.stdout.isatty() else "USER"
        path = f"/v1/users/{user}/messages?page_size=3"
        return f"curl {shlex.quote(listening.url + path)}{key}"
    body = '{"messages": [{"role": "user", "content": "I do not eat spicy food"}]}'
    url = f"{listening.url}/v1/users/me/messages"
    return f"curl {url}{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
