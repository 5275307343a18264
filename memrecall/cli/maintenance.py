"""`stats`, `reindex` and `doctor`."""

from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

_SHOWN = 20

Days = float | None


def register_sweep(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("sweep")(sweep)


def sweep(
    user: options.MaybeUser = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Of everybody.")] = False,
    db: options.Db = None,
    agent: options.Agent = None,
    older: Annotated[
        Days, typer.Option("--older-than", help="Days since it was written or corrected.")
    ] = None,
    not_recalled: Annotated[
        Days, typer.Option("--not-recalled", help="Days since a search has found it.")
    ] = None,
    superseded: Annotated[
        Days, typer.Option("--superseded", help="Days since it ceased to hold.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--most", help="Keep at most so many of a user.")
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired/--keep-expired", help="What has expired goes.")
    ] = True,
    duplicates: Annotated[
        bool, typer.Option("--duplicates/--keep-duplicates", help="What is said twice goes.")
    ] = True,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove for ever instead of hiding.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: options.Json = False,
) -> None:
    """Forget memories by policy. Says what would go, and asks before it does it.

    What is pinned stays. With --json nothing goes without --yes.
    """
    if (user is None) != all_users:
        raise InvalidArgument("whose memories?", hint="Give --user U, or --all-users")
    limits = {
        "older_than_days": older,
        "not_recalled_days": not_recalled,
        "superseded_days": superseded,
        "most_memories": most,
        "expired": expired,
        "duplicates": duplicates,
    }
    told = options.run(_sweep(limits, db, user, agent, purge, dry_run=True))
    if not json:
        _print(told)
    if told["found"] and not dry_run and (yes or not json):
        if not yes:
            what = "Remove them for ever?" if purge else "Hide them?"
            typer.confirm(what, abort=True, err=True)
        told = options.run(_sweep(limits, db, user, agent, purge, dry_run=False))
        if not json:
            output.console().print(f"{output.count(told['removed'], 'memory')} gone")
    if json:
        output.print_json(told)


async def _sweep(
    limits: dict[str, Any],
    db: str | None,
    user: str | None,
    agent: str | None,
    purge: bool,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    from memrecall.memory import AsyncMemory, Policy
    from memrecall.scope import Permission

    policy = Policy(**limits)
    async with (
        await options.open_library(db) as library,
        AsyncMemory(library=library, permissions=[Permission.SENSITIVE]) as memory,
    ):
        return await memory.sweep(
            policy,
            user_id=user,
            agent_id=agent,
            all_users=user is None,
            dry_run=dry_run,
            purge=purge,
        )


def _print(told: dict[str, Any]) -> None:
    terminal = output.console()
    for reason, number in sorted(told["reasons"].items()):
        terminal.print(f"{output.escape(reason):<16} {number:,}")
    for item in told.get("results", [])[:_SHOWN]:
        terminal.print(f"[dim]{output.escape(item['id'])}  {output.escape(item['reason'])}[/dim]")
    if len(told.get("results", [])) > _SHOWN:
        terminal.print(f"[dim]… and {told['found'] - _SHOWN:,} more: --json lists them[/dim]")
    of_users = f" of {output.count(told['users'], 'user')}" if "users" in told else ""
    terminal.print(f"{output.count(told['found'], 'memory')}{of_users} would go")


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
    from memrecall.library.maintenance import diagnose

    diagnosis = options.run(diagnose({"db": db}, load_embedder=not quick))
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
