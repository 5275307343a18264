"""What the commands around the Memory class share."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from memrecall.cli import options
from memrecall.errors import InvalidArgument

AsOf = Annotated[str | None, typer.Option("--as-of", help="As things stood at this time.")]


def read_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object given with an option."""
    import json

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"{option} {text!r} is not a JSON object", hint="""Write it like '{"a": 1}'"""
        )
    return found


def run_with_memory(
    work: Callable[[Any], Awaitable[Any]],
    db: str | None,
    user: str,
    agent: str | None = None,
    *,
    sensitive: bool = False,
    create: bool = False,
) -> Any:
    """Do work with the memory of a user."""
    return options.run(_with_memory(work, db, user, agent, sensitive, create))


async def _with_memory(
    work: Callable[[Any], Awaitable[Any]],
    db: str | None,
    user: str,
    agent: str | None,
    sensitive: bool,
    create: bool,
) -> Any:
    from memrecall.memory import AsyncMemory
    from memrecall.scope import Permission

    allowed = [Permission.SENSITIVE] if sensitive else []
    async with (
        await options.open_library(db, create=create) as library,
        AsyncMemory(
            library=library,
            user_id=user,
            agent_id=agent,
            permissions=allowed,
            actor="command line",
        ) as memory,
    ):
        return await work(memory)
