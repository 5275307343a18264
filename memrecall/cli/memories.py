"""`add`."""

import sys
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("add")(add)


def add(
    content: Annotated[str, typer.Argument(help="What to remember; - reads standard input.")],
    user: options.User,
    db: options.Db = None,
    summary: Annotated[str, typer.Option("--summary", help="In one line.")] = "",
    key: Annotated[str | None, typer.Option("--key", help="Its key; made if not given.")] = None,
    memory_type: Annotated[str, typer.Option("--type", help="Its type.")] = "general",
    keyword: Annotated[
        list[str] | None,
        typer.Option("--keyword", help="word or word=0.8; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Id of a message it came from; may be repeated."),
    ] = None,
    metadata: Annotated[str, typer.Option("--metadata", help="A JSON object.")] = "{}",
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Found only with a permission.")
    ] = False,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", help="True from then on.")
    ] = None,
    valid_to: Annotated[str | None, typer.Option("--valid-to", help="True until then.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Its agent.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Its session.")] = None,
    json: options.Json = False,
) -> None:
    """Store a memory."""
    fields = {
        "content": sys.stdin.read() if content == "-" else content,
        "summary": summary,
        "memory_key": key,
        "memory_type": memory_type,
        "keywords": tuple(map(_keyword, keyword or ())),
        "source_message_ids": tuple(source or ()),
        "metadata": _object(metadata),
        "sensitive": sensitive,
        "valid_from": options.read_time("--valid-from", valid_from),
        "valid_to": options.read_time("--valid-to", valid_to),
    }
    written, record = options.run(_add(fields, user, agent, session, db))
    stored = bool(written.stored)
    if json:
        output.print_json(
            {"memory_key": written.ids[0], "stored": stored, "truncated": record.truncated}
        )
        return
    said = "stored as" if stored else "was there already as"
    output.console().print(f"{said} [bold]{output.escape(written.ids[0])}[/bold]")
    if record.truncated:
        output.console().print("[yellow]longer than 100 KB: the end was cut off[/yellow]")


async def _add(
    fields: dict[str, Any], user: str, agent: str | None, session: str | None, db: str | None
) -> tuple[Any, Any]:
    from pydantic import ValidationError

    from memrecall.memory.importing import first_fault
    from memrecall.scope import Permission, Scope
    from memrecall.types import NewMemory, Origin

    try:
        memory = NewMemory(**fields)
    except ValidationError as error:
        raise InvalidArgument(first_fault(error)) from None
    scope = Scope(user, agent, session, frozenset({Permission.SENSITIVE}))
    async with await options.open_library(db, create=True) as library:
        written = await library.add_memories(
            scope, [memory], origin=Origin.USER, actor="command line"
        )
        record = await library.store.memories(scope).get(written.ids[0])
        return written, record


def _keyword(text: str) -> dict[str, Any]:
    word, separator, weight = text.rpartition("=")
    if not separator:
        return {"keyword": text}
    try:
        return {"keyword": word, "weight": float(weight)}
    except ValueError:
        raise InvalidArgument(
            f"keyword {text!r} has a weight that is no number", hint="Write it like tea=0.8"
        ) from None


def _object(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgument(
            f"metadata {text!r} is not JSON", hint="""Write it like '{"a": 1}'"""
        ) from None
