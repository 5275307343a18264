"""`trace`: recalls that were kept, listed, drawn again, purged."""

import json as json_module
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, NotFound

traces = typer.Typer(help="Traces of recalls: list, show, purge.")

_LONGEST_QUERY = 34  # columns: a line has 79


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.add_typer(traces, name="trace")


@traces.command("show")
def show(
    trace_id: Annotated[str | None, typer.Argument(help="The trace's id.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="Whose recall it was.")] = None,
    db: options.Db = None,
    last: Annotated[bool, typer.Option("--last", help="The user's latest recall.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", help="What `memrecall recall --json` printed.")
    ] = None,
    agent: options.Agent = None,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each call.")] = False,
    json: options.Json = False,
) -> None:
    """Draw a recall that was kept, as it was drawn when it ran."""
    if sum((trace_id is not None, last, file is not None)) != 1:
        raise InvalidArgument("which trace is not clear", hint="Give an id, or --last, or --file")
    if file is not None:
        body, place = read_file(file), str(file)
    elif user is None:
        raise InvalidArgument("whose trace is not said", hint="Give --user")
    else:
        stored = options.run(_get(trace_id, user, agent, db))
        body, place = stored.body, f"trace {stored.trace_id}"
    if json:
        output.print_json(body)
    else:
        draw(read_result(body, place), brief=brief)


async def _get(trace_id: str | None, user: str, agent: str | None, db: str | None) -> Any:
    from memrecall.scope import Scope

    async with await options.open_library(db) as library:
        kept = library.store.traces(Scope(user, agent))
        if trace_id is None:
            page = await kept.page(1)
            if not page.items:
                raise NotFound(
                    f"no recall of user {user!r} was kept", hint="See `memrecall trace list`"
                )
            trace_id = page.items[0].trace_id
        return await kept.get(trace_id)


def read_file(file: Path) -> Any:
    """A result as `--json` printed it."""
    try:
        return json_module.loads(file.read_bytes())
    except OSError as error:
        raise InvalidArgument(f"the file {file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InvalidArgument(
            f"{file} is not JSON", hint="Give what `memrecall recall --json` printed"
        ) from None


def read_result(body: Any, place: str) -> Any:
    """A saved result; what is none is an error that names the first thing that is wrong."""
    from pydantic import ValidationError

    from memrecall.agent import RecallResult, Trace
    from memrecall.types import describe_validation_error

    try:
        return RecallResult.model_validate({**body, "trace": Trace.from_dict(body["trace"])})
    except ValidationError as error:
        problem = describe_validation_error(error)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"its trace is missing or not whole ({error})"
    hint = "Give what `memrecall recall --json` printed"
    raise InvalidArgument(f"{place} is not a recall's result: {problem}", hint=hint)


def draw(result: Any, *, brief: bool = False) -> None:
    """Draw all events of a result, and the result."""
    from memrecall.cli.output import usable_width
    from memrecall.cli.views.recall import Drawing

    terminal = output.console()
    drawing = Drawing(usable_width(terminal.width), brief=brief)
    for event in result.trace.events:
        for line in drawing.event(event):
            terminal.print(line)
    for line in drawing.result(result):
        terminal.print(line)


@traces.command("list")
def list_traces(
    user: options.User,
    db: options.Db = None,
    agent: options.Agent = None,
    limit: Annotated[int, typer.Option("--limit", help="Traces a page, at most 200.")] = 50,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """List a user's recalls, the latest first."""
    page = options.run(_page(user, agent, db, limit, cursor))
    if json:
        from dataclasses import asdict

        items = [asdict(item) for item in page.items]
        output.print_json({"items": items, "next_cursor": page.next_cursor})
        return
    _print_list(page)


async def _page(user: str, agent: str | None, db: str | None, limit: int, cursor: Any) -> Any:
    from memrecall.scope import Scope

    async with await options.open_library(db) as library:
        return await library.store.traces(Scope(user, agent)).page(limit, cursor)


def _print_list(page: Any) -> None:
    from rich.text import Text

    from memrecall.cli.output import cut, flat, padded
    from memrecall.cli.views.tools import score_style

    terminal = output.console()
    for item in page.items:
        asked = cut(Text(flat(item.query)), _LONGEST_QUERY).plain
        terminal.print(
            Text.assemble(
                (f"{output.short_time(item.created_at)}  ", "dim"),
                ("none" if item.abstained else f"{item.confidence:.2f}", _style(item, score_style)),
                f"  {padded(asked, _LONGEST_QUERY)}  ",
                (item.trace_id, "dim"),
            )
        )
    if not page.items:
        terminal.print("none")
    if page.next_cursor:
        terminal.print(f"[dim]more: --cursor {page.next_cursor}[/dim]")


def _style(item: Any, score_style: Any) -> str:
    return "dim" if item.abstained else str(score_style(item.confidence))


@traces.command("purge")
def purge(
    older_than: Annotated[
        int, typer.Option("--older-than", help="Days; older traces go, of all users.")
    ],
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Remove old traces of all users."""
    from memrecall.store.traces import MAX_DAYS

    if not 0 <= older_than <= MAX_DAYS:
        raise InvalidArgument(
            f"--older-than {older_than} is out of range", hint=f"Use 0 to {MAX_DAYS} days"
        )
    before = datetime.now(UTC) - timedelta(days=older_than)
    gone = options.run(_purge(before, db))
    if json:
        output.print_json({"purged": gone, "before": before})
    else:
        output.console().print(f"{output.count(gone, 'trace')} purged")


async def _purge(before: datetime, db: str | None) -> int:
    async with await options.open_library(db) as library:
        with output.busy("purging traces, user by user"):
            return int(await library.store.owners.purge_traces(before))
