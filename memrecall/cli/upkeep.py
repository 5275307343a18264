"""`stats`, `reindex` and `doctor`."""

from typing import Annotated, Any

import typer

from memrecall.cli import options, output

EXIT_UNWELL = 1


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("stats")(stats)
    app.command("reindex")(reindex)
    app.command("doctor")(doctor)


def stats(
    db: options.Db = None, user: options.MaybeUser = None, json: options.Json = False
) -> None:
    """Count what is stored, of one user or of all."""
    facts = options.run(_stats(db, user))
    if json:
        output.print_json(facts)
        return
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else output.escape(str(value or "none"))
        output.console().print(f"{name.replace('_', ' '):<18} {shown}")


async def _stats(db: str | None, user: str | None) -> dict[str, Any]:
    async with await options.open_library(db) as library:
        facts = await library.stats(user)
        return dict(facts)


def reindex(db: options.Db = None, json: options.Json = False) -> None:
    """Bring derived data up to date: search text, and vectors of the configured embedder.

    Can be stopped at any time; the next run goes on where this one ended. From its start the
    database belongs to the configured embedder; rows not yet embedded are found by their words.
    """
    done = options.run(_reindex(db))
    if json:
        output.print_json(done)
        return
    said = f"{done['embedded']} rows embedded with {done['model']}"
    if done["analysed"]:
        said += f", {done['analysed']} analysed anew"
    output.console().print(said)


async def _reindex(db: str | None) -> dict[str, Any]:
    from memrecall.memory import Reindexer

    async with await options.open_library(db) as library:
        work = Reindexer(library)
        with output.progress_bar("reindexing", await work.count(), unit="rows") as advance:
            return dict(await work.run(advance))


def doctor(
    db: options.Db = None,
    json: options.Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Do not load the embedder.")] = False,
) -> None:
    """Show what is in force and what is wrong. Exit code 1 if something is."""
    from memrecall.memory.doctor import examine

    diagnosis = options.run(examine({"db": db}, load_embedder=not quick))
    if json:
        output.print_json(diagnosis.as_dict())
    else:
        _print_diagnosis(diagnosis)
    if not diagnosis.well:
        raise typer.Exit(EXIT_UNWELL)


def _print_diagnosis(diagnosis: Any) -> None:
    terminal = output.console()
    for finding in diagnosis.findings:
        mark = "[green]ok[/green]  " if finding.well else "[red]bad[/red] "
        terminal.print(f"{mark} {finding.subject:<12} {output.escape(finding.said)}")
    terminal.print("\n[bold]settings[/bold]")
    for name, value in diagnosis.settings.items():
        origin = diagnosis.origins.get(name, "default")
        terminal.print(f"     {name:<18} {output.escape(str(value))} [dim]({origin})[/dim]")
