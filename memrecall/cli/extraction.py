"""`extract`: let the model read stored messages."""

from typing import Annotated, Any

import typer
from typer import Option

from memrecall.cli import options, output
from memrecall.cli.messages import EXIT_PARTIAL


def extract_command(
    shared: options.UserProjectOptions,
    agent: options.Agent = None,
    session: options.Session = None,
    since: Annotated[str | None, Option(help="Only said from a time on, or in 30d.")] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Count only; send nothing.")] = False,
    listing: Annotated[bool, Option("--list", help="List the user's runs.")] = False,
    undo: Annotated[
        str | None, Option("--undo", metavar="RUN", help="Take back what a run stored.")
    ] = None,
    yes: options.Yes = False,
) -> None:
    """Let the model read the stored messages that none has read, as after an import.

    Says first how many messages and about how many tokens it sends. Run it again to continue after
    an interruption.

    Exit code 0: all messages were read; 1: some could not be read, and are read the next time.
    """
    if listing or undo is not None:
        _manage_runs(shared, undo, yes=yes)
        return

    def confirm(counts: dict[str, Any]) -> None:
        typer.echo(_describe(counts), err=True)
        if not yes:
            typer.confirm("Send them to the model?", abort=True, err=True)

    report = shared.with_memory(
        lambda memory: memory.extract_stored(
            session_id=session,
            since=options.read_since(since),
            dry_run=dry_run,
            confirm=confirm,
            progress=True,
        ),
        agent,
    )
    if dry_run or report["run"] is None:
        text = _describe(report) if report["messages"] else "no messages to read"
        shared.print_outcome(text, report)
        return
    read = output.count_noun(report["read"], "message")
    events = ", ".join(f"{report[name]:,} {name}" for name in ("added", "updated", "ended"))
    shared.print_outcome(f"{read} read; memories: {events}; run {report['run']}", report)
    errors = output.console(errors=True)
    for problem in report["problems"]:
        errors.print(f"[yellow]{output.escape(problem)}[/yellow]")
    if report["unread"]:
        left = output.count_noun(report["unread"], "message")
        errors.print(f"[red]{left} not read[/red]; run it again to continue")
        raise typer.Exit(EXIT_PARTIAL)


def _describe(counts: dict[str, Any]) -> str:
    messages = output.count_noun(counts["messages"], "message")
    calls = output.count_noun(counts["calls"], "call")
    return f"{messages} to read: {calls} of the model, about {counts['tokens']:,} tokens"


def _manage_runs(shared: options.SharedOptions, run: str | None, *, yes: bool) -> None:
    """List a user's runs, or take one back."""
    if run is None:
        runs = shared.with_memory(lambda memory: memory.extractions())
        lines = [f"{r['run']}  {output.count_noun(r['messages'], 'message')}" for r in runs]
        shared.print_page({"items": runs}, lines, empty="no runs")
        return
    if not yes:
        typer.confirm(f"Take back the memories of {run}?", abort=True, err=True)
    result = shared.with_memory(lambda memory: memory.undo_extraction(run))
    memories = output.count_noun(result["memories"], "memory")
    messages = output.count_noun(result["messages"], "message")
    shared.print_outcome(f"{memories} changed back; {messages} unread again", result)
