"""`export`, and the import of what it wrote."""

from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument


def register(app: typer.Typer) -> None:
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
