"""`import`, `messages` and `neighbors`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument


def register_export(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("export")(export)


def export(
    user: options.User,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new file; standard output without it.")
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Write everything of a user as JSON lines, which `memrecall import` takes back."""
    if out is None and json:
        raise InvalidArgument("the lines and the report are both JSON", hint="Add --out FILE")
    lines = options.run(_export(user, out, db))
    if out is None:
        return
    if json:
        output.print_json({"user_id": user, "lines": lines, "file": str(out)})
    else:
        output.console().print(f"{output.count(lines, 'line')} in {output.escape(str(out))}")


async def _export(user: str, out: Path | None, db: str | None) -> int:
    from contextlib import aclosing

    lines = 0
    async with (
        await options.open_library(db) as library,
        aclosing(library.export_user(user)) as rows,
    ):
        row = await anext(rows)  # an unknown user leaves no empty file behind
        with _opened(out) as file:
            while row is not None:
                lines += 1
                _write(file, output.as_json(row))
                row = await anext(rows, None)
    return lines


def _opened(out: Path | None) -> Any:
    """A new file that only its owner can read; never over another one."""
    import os
    from contextlib import nullcontext

    if out is None:
        return nullcontext(None)
    try:
        return os.fdopen(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w")
    except OSError as error:
        raise InvalidArgument(f"cannot write {out}: {error.strerror}") from None


def _write(file: Any, line: str) -> None:
    if file is None:
        typer.echo(line)
    else:
        file.write(line + "\n")


def print_imported(report: Any, json: bool) -> None:
    """Tell what the import of an export did."""
    if json:
        output.print_json(
            {"lines": report.lines, "users": len(report.users), "rows": dict(report.rows)}
        )
        return
    rows = ", ".join(
        f"{count:,} {table}" for table, count in report.rows.items() if count and table != "users"
    )
    of_users = output.count(len(report.users), "user")
    output.console().print(f"an export of {of_users} imported: {rows}")


_BAD_LINES_SHOWN = 20
EXIT_PARTLY = 1
EXIT_NOTHING = 2


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("import")(import_messages)
    app.command("messages")(list_messages)
    app.command("neighbors")(show_neighbors)


def import_messages(
    file: Annotated[Path, typer.Argument(help="A file of JSON lines: messages, or an export.")],
    db: options.Db = None,
    user: Annotated[
        str | None, typer.Option("--user", help="The user of lines that name none.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Import nothing if any line is bad.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Import messages. Bad lines are reported with their number; the good ones go in.

    What `memrecall export` wrote goes in whole, or not at all.
    Exit code 0: all lines are in; 1: some were bad; 2: nothing was imported.
    """
    from memrecall.importers.exports import is_export

    if is_export(file):
        print_imported(options.run(_import_export(file, db, user)), json)
        return
    report, failure = options.run(_import(file, db, user, strict))
    if json:
        output.print_json(_report_fields(report, failure))
    else:
        _print_report(report, failure)
    if report.bad:
        raise typer.Exit(EXIT_NOTHING if report.refused else EXIT_PARTLY)


async def _import(file: Path, db: str | None, user: str | None, strict: bool) -> tuple[Any, str]:
    from memrecall.memory import Importer, check_file, file_size

    size = file_size(file)  # a file that is not there must not leave a new database behind
    if strict and (report := check_file(file, user)).bad:
        return report, ""
    async with await options.open_library(db, create=True) as library:
        with output.progress_bar("importing", size, unit="bytes") as advance:
            importer = Importer(library, default_user=user)
            report = await importer.run(file, strict=strict, progress=advance)
            await library.vectors.settle()
        return report, library.vectors.failure


async def _import_export(file: Path, db: str | None, user: str | None) -> Any:
    from memrecall.importers.exports import import_export

    async with await options.open_library(db, create=True) as library:
        return await import_export(library, file, user)


def _report_fields(report: Any, failure: str) -> dict[str, Any]:
    return {
        "lines": report.lines,
        "stored": report.stored,
        "repeated": report.repeated,
        "users": len(report.users),
        "bad": [{"line": bad.line, "reason": bad.reason} for bad in report.bad],
        "refused": report.refused,
        "not_embedded": failure,
    }


def _print_report(report: Any, failure: str) -> None:
    terminal = output.console()
    if report.refused:
        terminal.print("[red]nothing imported[/red]: --strict, and some lines are bad")
    else:
        again = f", {report.repeated} were there already" if report.repeated else ""
        stored = output.count(report.stored, "message")
        terminal.print(f"{stored} of {output.count(len(report.users), 'user')} imported{again}")
    if failure:
        terminal.print(f"[yellow]found by keywords only for now[/yellow]: {output.escape(failure)}")
    for bad in report.bad[:_BAD_LINES_SHOWN]:
        output.console(errors=True).print(f"line {bad.line}: {output.escape(bad.reason)}")
    hidden = len(report.bad) - _BAD_LINES_SHOWN
    if hidden > 0:
        output.console(errors=True).print(f"… and {hidden} more bad lines; --json lists them all")


def list_messages(
    user: options.User,
    db: options.Db = None,
    since: options.Since = None,
    until: options.Until = None,
    role: options.RoleName = None,
    session: options.Session = None,
    agent: options.Agent = None,
    limit: Annotated[int, typer.Option("--limit", help="Messages a page, at most 200.")] = 50,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """Read a user's messages, the latest first."""
    page, known = options.run(_page(user, db, since, until, role, session, agent, limit, cursor))
    _show(
        page, json, "" if known else f"user {user!r} is not known: nothing is stored under this id"
    )


async def _page(
    user: str,
    db: str | None,
    since: str | None,
    until: str | None,
    role: str | None,
    session: str | None,
    agent: str | None,
    limit: int,
    cursor: str | None,
) -> tuple[Any, bool]:
    from memrecall.scope import Scope
    from memrecall.store import MessageFilter

    wanted = MessageFilter(
        since=options.read_time("--since", since),
        until=options.read_time("--until", until),
        role=options.read_role(role),
        session_id=session,
    )
    async with await options.open_library(db) as library:
        timeline = library.store.timeline(Scope(user, agent))
        page = await timeline.page(wanted, page_size=limit, cursor=cursor)
        known = bool(page.items) or await library.store.feed(user).version() is not None
        return page, known


def show_neighbors(
    message_id: Annotated[str, typer.Argument(help="The message to look around.")],
    user: options.User,
    db: options.Db = None,
    before: Annotated[int, typer.Option("--before", help="Messages before it.")] = 20,
    after: Annotated[int, typer.Option("--after", help="Messages after it.")] = 0,
    agent: options.Agent = None,
    json: options.Json = False,
) -> None:
    """Read what was said around a message, the earliest first."""
    _show(options.run(_neighbors(message_id, user, db, before, after, agent)), json)


async def _neighbors(
    message_id: str, user: str, db: str | None, before: int, after: int, agent: str | None
) -> Any:
    from memrecall.scope import Scope

    async with await options.open_library(db) as library:
        timeline = library.store.timeline(Scope(user, agent))
        return await timeline.neighbors(message_id, before=before, after=after)


def _show(page: Any, json: bool, note: str = "") -> None:
    if json:
        items = [output.message_fields(message) for message in page.items]
        output.print_json({"items": items, "next_cursor": page.next_cursor, "message": note})
        return
    output.print_messages(page.items)
    if not page.items:
        output.console().print(output.escape(note) or "no messages")
    if page.next_cursor:
        output.console().print(f"[dim]more: --cursor {page.next_cursor}[/dim]")
