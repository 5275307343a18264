"""`serve`."""

import shlex
from typing import Annotated, Any
from urllib.parse import quote

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

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
        from memrecall.server.logs import log_to_stderr
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
    output.print_json({**facts, "database": listening.place, "try": try_it(listening)})


def _announce(listening: Any) -> None:
    terminal = output.console()
    terminal.print(f"memrecall listens on [bold]{listening.url}[/bold]  (Ctrl-C stops it)")
    terminal.print(f"database  {output.escape(listening.place)}")
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
    if listening.a_user is not None:
        path = f"/v1/users/{quote(listening.a_user, safe='')}/messages?page_size=3"
        return f"curl {shlex.quote(listening.url + path)}{key}"
    body = '{"messages": [{"role": "user", "content": "I do not eat spicy food"}]}'
    url = f"{listening.url}/v1/users/me/messages"
    return f"curl {url}{key} -H 'Content-Type: application/json' -d {shlex.quote(body)}"
