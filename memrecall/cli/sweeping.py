"""`sweep`: forgetting by policy, told before it is done."""

from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

_SHOWN = 20

Days = float | None


def register(app: typer.Typer) -> None:
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
