"""`graph`: a look into a user's knowledge graph."""

from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.cli.memories import AsOf, run_with_memory
from memrecall.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("graph")(graph)


def graph(
    user: options.User,
    entity: Annotated[
        str | None, typer.Argument(help="Its relations; without one, the entities.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="The shortest ways to this one.")] = None,
    depth: Annotated[int | None, typer.Option("--depth", help="Steps, at most 6.")] = None,
    as_of: AsOf = None,
    limit: Annotated[int, typer.Option("--limit", help="At most 1000.")] = 100,
    cursor: options.Cursor = None,
    agent: options.Agent = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Look into a user's knowledge graph."""
    if to is not None and entity is None:
        raise InvalidArgument("a way begins at an entity", hint="Give one before --to")

    async def work(memory: Any) -> Any:
        return await memory.graph(
            entity, to=to, depth=depth, as_of=as_of, limit=limit, cursor=cursor
        )

    told = run_with_memory(work, db, user, agent)
    if json:
        output.print_json(told)
        return
    terminal = output.console()
    for item in told.get("entities", ()):
        others = [name for name in item["aliases"] if name != item["name"]]
        names = f" = {', '.join(others)}" if others else ""
        terminal.print(f"{output.escape(item['name'] + names)} [dim]{item['type']}[/dim]")
    for relation in told.get("relations", ()):
        terminal.print(_relation(relation))
    for way in told.get("paths", ()):
        terminal.print(", ".join(map(_relation, way)))
    if not any(told.get(name) for name in ("entities", "relations", "paths")):
        terminal.print("nothing")
    if told.get("next_cursor"):
        terminal.print(f"[dim]more: --cursor {told['next_cursor']}[/dim]")


def _relation(item: dict[str, Any]) -> str:
    ended = f" until {item['valid_to'][:10]}" if item["valid_to"] else ""
    line = f"{item['source']} —{item['relationship']}→ {item['destination']}"
    return f"{output.escape(line)}[dim]{ended}[/dim]"
