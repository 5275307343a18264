"""`rpc`."""

from typing import Annotated

import typer

from memrecall.cli import options


def register(app: typer.Typer) -> None:
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
    options.run(_serve(db, agent, folders))


async def _serve(db: str | None, agent: str | None, folders: dict[str, str | None]) -> None:
    from memrecall.memory import Library
    from memrecall.server.logs import log_to_stderr
    from memrecall.server.stdio import StdioServer
    from memrecall.server.tools import ToolDesk, dispatcher
    from memrecall.settings import load_settings

    log_to_stderr()
    settings = load_settings({"db": db, **folders}).settings
    async with await Library.open(settings) as library:
        desk = ToolDesk(library, agent)
        await desk.recover()
        await StdioServer(dispatcher(desk, trusted=True)).run()
