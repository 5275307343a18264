"""`stats`, `reindex`, `scan`, `sweep`, `compact`, `backup`, `restore`, `doctor` and `db`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

EXIT_UNHEALTHY = 1
_MAX_LISTED = 20

database_commands = options.CommandGroup(
    help="Distribute a PostgreSQL database by user, and show where its rows are."
)


def sweep_command(
    shared: options.SharedOptions,
    user: options.MaybeUser = None,
    all_users: Annotated[bool, Option("--all-users", help="Sweep all users.")] = False,
    agent: options.Agent = None,
    older: Annotated[
        float | None, Option("--older-than", help="Days since the last write or update.")
    ] = None,
    not_recalled: Annotated[
        float | None, Option(help="Days since a search last returned it.")
    ] = None,
    superseded: Annotated[float | None, Option(help="Days since it was superseded.")] = None,
    most: Annotated[int | None, Option(help="Keep at most this many memories per user.")] = None,
    expired: Annotated[
        bool, Option("--expired/--keep-expired", help="Delete expired memories.")
    ] = True,
    duplicates: Annotated[
        bool, Option("--duplicates/--keep-duplicates", help="Delete duplicates.")
    ] = True,
    purge: Annotated[bool, Option("--purge", help="Erase permanently, no undo.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: options.Yes = False,
) -> None:
    """Delete memories by policy, after a preview and a confirmation.

    Pinned memories are kept. With --json nothing is deleted without --yes.
    """
    from memrecall.memory import Policy

    if (user is None) != all_users:
        raise InvalidArgument(
            "exactly one of --user and --all-users is required",
            hint="Give --user U, or --all-users",
        )
    policy = Policy(
        older_than_days=older,
        not_recalled_days=not_recalled,
        superseded_days=superseded,
        expired=expired,
        duplicates=duplicates,
        most_memories=most,
    )
    target = {"user_id": user, "agent_id": agent, "all_users": all_users, "purge": purge}
    result = _sweep(policy, target, shared, dry_run=True)
    if not shared.json:
        _print_preview(result)
    if result["found"] and not dry_run and (yes or not shared.json):
        if not yes:
            question = "Erase them permanently?" if purge else "Delete them?"
            typer.confirm(question, abort=True, err=True)
        result = _sweep(policy, target, shared, dry_run=False)
        if not shared.json:
            removed = output.count_noun(result["removed"], "memory")
            output.console().print(f"{removed} deleted")
    if shared.json:
        output.print_json(result)


def _sweep(
    policy: Any, target: dict[str, Any], shared: options.SharedOptions, *, dry_run: bool
) -> Any:
    return shared.with_memory(lambda memory: memory.sweep(policy, dry_run=dry_run, **target))


def _print_preview(result: dict[str, Any]) -> None:
    terminal = output.console()
    for reason, number in sorted(result["reasons"].items()):
        terminal.print(f"{output.escape(reason):<16} {number:,}")
    items = result.get("results", [])
    for item in items[:_MAX_LISTED]:
        terminal.print(f"[dim]{output.escape(item['id'])}  {output.escape(item['reason'])}[/dim]")
    if len(items) > _MAX_LISTED:
        hidden = result["found"] - _MAX_LISTED
        terminal.print(f"[dim]… and {hidden:,} more: --json lists them[/dim]")
    users = f" of {output.count_noun(result['users'], 'user')}" if "users" in result else ""
    terminal.print(f"{output.count_noun(result['found'], 'memory')}{users} would be deleted")


def stats(shared: options.ReadingOptions, user: options.MaybeUser = None) -> None:
    """Count the stored rows of one user or of all users."""
    facts = dict(shared.of_user(user).with_library(lambda library: library.stats(user)))
    texts = {
        name.replace("_", " "): f"{value:,}" if isinstance(value, int) else str(value or "none")
        for name, value in facts.items()
    }
    shared.print_page(facts, (f"{name:<18} {output.escape(text)}" for name, text in texts.items()))


def reindex(shared: options.SharedOptions) -> None:
    """Update derived data: search text, and vectors of the configured embedder.

    It can be interrupted; the next run continues. Rows that are not embedded yet are found by
    keywords.
    """

    async def run(library: Any) -> dict[str, Any]:
        from memrecall.memory import Reindexer

        reindexer = Reindexer(library)
        with output.show_progress("reindexing", await reindexer.count(), unit="rows") as advance:
            return dict(await reindexer.run(advance))

    result = shared.with_library(run)
    text = f"{result['embedded']} rows embedded with {result['model']}"
    if result["analysed"]:
        text += f", search text of {result['analysed']} rows updated"
    shared.print_outcome(text, result)


def scan_command(
    shared: options.SharedOptions,
    apply: Annotated[
        bool, Option("--apply", help="Do what the setting `privacy` says; there is no undo.")
    ] = False,
) -> None:
    """Count the secrets and personal data that are stored, by kind and user; none is shown.

    --apply redacts and tags them in messages, memories, history and derived data.
    """
    is_shown = output.console(errors=True).is_terminal
    result = shared.with_library(lambda library: library.scan(is_shown, apply=apply))
    agents = {f"agent {agent}": kinds for agent, kinds in result["agents"].items()}
    lines = [
        f"{output.escape(owner)}  {output.list_counts(kinds)}"
        for owner, kinds in (result["users"] | agents).items()
    ]
    outcome = "changed" if apply else "would be changed by --apply"
    tables = output.list_counts(result["tables"], ": ")
    lines.append(f"{result['rows']:,} rows read, {result['changed']:,} {outcome}{tables}")
    shared.print_outcome("\n".join(lines), result)


def compact(shared: options.SharedOptions) -> None:
    """Free the space of erased rows. On SQLite writers wait until the file is rewritten."""

    async def run(library: Any) -> dict[str, Any]:
        before = await library.stats()
        await library.store.database.compact()
        sizes = {"before": before, "after": await library.stats()}
        return {name: facts.get("bytes_on_disk") for name, facts in sizes.items()}

    result = shared.with_library(run)
    change = f": {result['before']:,} bytes, now {result['after']:,}" if result["after"] else ""
    shared.print_outcome(f"compacted{change}", result)


def backup_command(
    file: Annotated[Path, Argument(help="A new file.")], shared: options.SharedOptions
) -> None:
    """Back up the whole database to one file, also while it is served, and verify the file.

    It can be searched as it is: --db FILE --read-only.
    """
    from memrecall.store.backup.database import backup_database, count_rows

    async def run(library: Any) -> dict[str, int]:
        rows = await count_rows(library.store.database)
        with output.show_progress("backing up", rows, unit="rows") as advance:
            return await backup_database(library.store, file, advance)

    rows = shared.with_library(run)
    size = file.stat().st_size
    text = f"{sum(rows.values()):,} rows in {output.escape(str(file))}, {size:,} bytes, verified"
    fields = {"file": str(file), "bytes": size, "rows": rows, "verified": True}
    shared.print_outcome(text, fields)


def restore_command(
    file: Annotated[Path, Argument(help="A file that `memrecall backup` wrote.")],
    shared: options.SharedOptions,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace everything that the database has.")
    ] = False,
) -> None:
    """Restore a backup into an empty database of any kind, completely or not at all."""
    from memrecall.store.backup.database import restore_database, verify_backup

    async def run(library: Any) -> dict[str, int]:
        with output.show_progress("restoring", total, unit="rows") as advance:
            return await restore_database(library.store, file, advance, overwrite=overwrite)

    if not file.is_file():
        raise InvalidArgument(f"there is no backup {file}", hint="Check the path")
    total = asyncio.run(verify_backup(file))  # before a database is created for it
    rows = shared.with_library(run, create=True)
    text = f"{sum(rows.values()):,} rows restored from {output.escape(str(file))}"
    shared.print_outcome(text, {"file": str(file), "rows": rows})


def doctor(
    shared: options.ReadingOptions,
    quick: Annotated[
        bool, Option("--quick", help="Load no embedder, call no local model.")
    ] = False,
    model: Annotated[bool, Option("--model", help="Send the model three short requests.")] = False,
    deep: Annotated[bool, Option("--deep", help="Read every row and every index.")] = False,
) -> None:
    """Check installation and database; show changed settings. Exit code 1: a check failed.

    --json has all settings.
    """
    from memrecall.library.diagnosis import LOCAL_PORTS, diagnose

    arguments = {"db": shared.db, "read_only": shared.read_only or None}
    ports = {} if quick else LOCAL_PORTS
    work = diagnose(arguments, load_embedder=not quick, ask_model=model, deep=deep, ports=ports)
    diagnosis = asyncio.run(work)
    lines = []
    for finding in diagnosis.findings:
        status = "[green]ok[/green]  " if finding.is_ok else "[red]bad[/red] "
        status = "[yellow]warn[/yellow]" if finding.is_warning else status
        lines.append(f"{status} {finding.subject:<12} {output.escape(finding.message)}")
    changed = diagnosis.changed_settings()
    lines.append("\n[bold]settings[/bold]" + ("" if changed else "  all have their defaults"))
    for name in changed:
        value, origin = output.escape(str(diagnosis.settings[name])), diagnosis.origins[name]
        lines.append(f"     {name:<18} {value} [dim]({origin})[/dim]")
    shared.print_page(diagnosis.as_dict(), lines)
    if not diagnosis.is_ok:
        raise typer.Exit(EXIT_UNHEALTHY)


@database_commands.command("distribute")
def distribute_command(
    shared: options.SharedOptions,
    shards: Annotated[int | None, Option(help="Shards per table; 32 if it is new.")] = None,
) -> None:
    """Distribute the tables over a Citus cluster by user.

    It can be interrupted; the next run continues. Restart the service afterwards.
    """
    from memrecall.store.database import distribution

    with output.spinner("distributing"):
        tables = shared.with_library(
            lambda library: distribution.distribute(library.store.database, shards)
        )
    text = f"{output.count_noun(len(tables), 'table')} distributed"
    shared.print_outcome(text, {"tables": tables})


@database_commands.command("status")
def show_status(shared: options.SharedOptions) -> None:
    """Show the nodes of the database with their shards and bytes."""
    from memrecall.store.database import distribution

    status = shared.with_library(lambda library: distribution.read_status(library.store.database))
    lines = [] if status.is_distributed else ["not distributed"]
    if status.missing_tables:
        missing = ", ".join(status.missing_tables)
        hint = "run `memrecall db distribute` to continue"
        lines.append(f"[red]partly distributed[/red], without {missing}: {hint}")
    for node in status.nodes:
        role = "coordinator" if node.is_coordinator else "worker"
        state = "ok" if node.is_active and node.is_reachable else "[red]unreachable[/red]"
        size = f"{node.shards:>5} shards {node.bytes:>16,} bytes"
        lines.append(f"{output.escape(node.name):<24} {role:<12} {size}  {state}")
    shared.print_page(status.as_dict(), lines)
