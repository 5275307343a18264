"""Options that many commands share, and how a command gets its library."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer

from memrecall.errors import InvalidArgument

Result = TypeVar("Result")

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="Database: a file, or a sqlite:// or postgresql+asyncpg:// URL.",
        show_default=False,
    ),
]
User = Annotated[str, typer.Option("--user", help="Whose rows.", show_default=False)]
MaybeUser = Annotated[
    str | None, typer.Option("--user", help="Whose rows; all users without it.", show_default=False)
]
Agent = Annotated[str | None, typer.Option("--agent", help="Only what this agent has to do with.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Since = Annotated[
    str | None, typer.Option("--since", help="From this time on (2026-01-26T10:47:00Z).")
]
Until = Annotated[str | None, typer.Option("--until", help="Before this time.")]
RoleName = Annotated[
    str | None, typer.Option("--role", help="user, assistant, system, tool or other.")
]
Session = Annotated[str | None, typer.Option("--session", help="Only this session.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on after an earlier page.")]


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine to its end."""
    return asyncio.run(work)


def open_library(db: str | None, *, create: bool = False) -> Any:
    """A coroutine for the library of `--db`. Only commands that write make a database."""
    from memrecall.memory import Library
    from memrecall.settings import load_settings

    return Library.open(load_settings({"db": db}).settings, create=create)


def read_time(name: str, value: str | None) -> datetime | None:
    """The time given with an option."""
    from memrecall.types import parse_time

    return None if value is None else parse_time(value, name)


def read_role(value: str | None) -> Any:
    """The role given with `--role`."""
    from memrecall.types import Role

    if value is None:
        return None
    try:
        return Role(value)
    except ValueError:
        raise InvalidArgument(
            f"role {value!r} is not known", hint=f"Use {', '.join(Role)}"
        ) from None
