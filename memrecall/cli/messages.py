"""`import`, `export`, `extract`, `messages`, `neighbors` and `delete-message`."""

import asyncio
import os
import sys
from contextlib import aclosing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, MemrecallError, NotFound

EXIT_PARTIAL = 1
EXIT_NOTHING = 2
_MAX_BAD_LINES = 20
_SINGULAR = {"aliases": "alias", "feedback": "feedback"}  # of tables not named like sessions
_MOST_NAMES = 5  # of rows that an import did not store, and of sessions that it joined


def import_messages(
    shared: options.SharedOptions,
    file: Annotated[
        Path | None,
        Argument(help="A chat export, notes or messages: file, folder, archive; - reads stdin."),
    ] = None,
    user: Annotated[str | None, Option(help="User of messages that name none.")] = None,
    me: Annotated[str | None, Option(help="The speaker who is the user, in a chat.")] = None,
    file_format: Annotated[str | None, Option("--format", help="Name; else: recognised.")] = None,
    date_order: Annotated[str | None, Option(help="dmy, mdy or ymd; default: recognised.")] = None,
    zone: Annotated[str, Option(help="Time zone of times that have none: Asia/Shanghai.")] = "UTC",
    columns: Annotated[
        str | None, Option("--map", help="Columns of a CSV file: text=body,time=date,speaker=from.")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what it has; store nothing.")] = False,
    strict: Annotated[bool, Option("--strict", help="Import nothing if a line is wrong.")] = False,
    client: Annotated[
        str | None,
        Option(help="Past sessions of a coding assistant: claude-code, codex, gemini or all."),
    ] = None,
    since: Annotated[
        str | None, Option(help="With --client: said from a time on, or in 90d.")
    ] = None,
    project: options.ProjectOption = None,
    listing: Annotated[bool, Option("--list", help="List the user's imports.")] = False,
    undo: Annotated[bool, Option("--undo", help="Take back the last import, or that ID.")] = False,
    yes: options.Yes = False,
) -> None:
    """Import chats. Invalid lines are reported by number; valid lines are stored.

    With --client, reads the transcripts that coding assistants keep on this machine instead. Else
    reads exports of ChatGPT, Claude, Gemini, WhatsApp, WeChat, Telegram, Slack, Discord,
    mail (mbox) and mem0, Markdown notes, chats that were copied as text, messages of OpenAI's form,
    CSV, and memrecall's own JSON lines and exports. Importing a file again adds only what is new.

    Exit code 0: all lines were stored; 1: partly, because some lines were invalid or it stopped
    half way; 2: nothing was imported.
    """
    from memrecall.importers.importer import is_export
    from memrecall.importers.past_sessions import plan_past_sessions
    from memrecall.memory import make_plan, open_source

    if listing or undo:
        if user is None:
            raise InvalidArgument("--list and --undo are about one user", hint="Pass --user U")
        _manage_imports(shared.of_user(user), user, str(file or ""), undo=undo, yes=yes)
        return
    if (file is None) == (client is None):
        raise InvalidArgument("pass either a file or folder, or --client")
    if file is None:
        clients = [client] if client and client != "all" else None
        start = options.read_since(since)
        with output.spinner("reading past sessions"):
            plan = plan_past_sessions(user, clients, since=start, project=project)
        if plan.survey.entries:
            import_plan(plan, shared, dry_run=dry_run, strict=strict)
        else:
            shared.print_outcome("no past sessions to import", plan.survey.describe())
        return
    read_options = options.read_import_options(user, me, date_order, zone, columns)
    with open_source(file) as source:
        if is_export(source):
            _import_export(source.files[0], user, dry_run, shared)
            return
        plan = make_plan(source, read_options, file_format or ("csv" if columns else None))
        import_plan(plan, shared, dry_run=dry_run, strict=strict)


def _manage_imports(
    shared: options.SharedOptions, user: str, import_id: str, *, undo: bool, yes: bool
) -> None:
    """List a user's imports, or take one of them back: without an id the last one."""
    from memrecall.importers.importer import list_imports, undo_import

    imports = shared.with_library(lambda library: list_imports(library, user))
    lines = {
        item["id"]: f"{item['id']}  {output.minute_of(item['time'])}  {item['format']}  "
        f"{output.escape(item['file'])}  {output.count_noun(item['messages'], 'message')}"
        + (f", {output.count_noun(item['memories'], 'memory')}" if item["memories"] else "")
        for item in imports
    }
    if not undo:
        shared.print_page({"items": imports}, lines.values(), empty="no imports")
        return
    if not (import_id or lines):
        shared.print_outcome("no import to take back", {"id": "", "messages": 0, "memories": 0})
        return
    import_id = import_id or next(iter(lines))
    if import_id not in lines:
        raise NotFound(f"{user!r} has no import {import_id!r}", hint="--list shows their ids")
    if not yes:
        typer.confirm(f"Take back {lines[import_id]}?", abort=True, err=True)
    result = shared.with_library(lambda library: undo_import(library, user, import_id))
    _print_removed(result["messages"], result["memories"], result, shared)


def import_plan(
    plan: Any, shared: options.SharedOptions, *, dry_run: bool = False, strict: bool = False
) -> None:
    """Import what a plan has read, or print it, and exit as `import` does."""
    if dry_run:
        _print_preview(plan, json=shared.json)
        return
    plan.require_complete()
    report, problems = asyncio.run(_import(plan, shared, strict))
    if shared.json:
        counts = {**asdict(report), "users": len(report.users)}
        names = ("formats", "skipped", "notes", "projects")
        survey = {name: plan.survey.describe()[name] for name in names}
        output.print_json({**counts, **survey, **problems})
    else:
        _print_report(report, plan, problems)
    _exit_for(report.usable and not report.refused, bool(report.bad or problems["stopped"]))


def _exit_for(is_any_usable: object, is_partial: bool) -> None:
    if not is_any_usable:
        raise typer.Exit(EXIT_NOTHING)
    if is_partial:
        raise typer.Exit(EXIT_PARTIAL)


def _import_export(
    file: Any, user: str | None, dry_run: bool, shared: options.SharedOptions
) -> None:
    from memrecall.importers.importer import import_export, preview_export

    if dry_run:
        _print_export_report(preview_export(file), "export of {}: {}", shared)
        return
    try:
        restored = shared.with_library(
            lambda library: import_export(library, file, user), create=True
        )
    except MemrecallError as error:
        users = error.details.get("imported_users", 0)
        if not users:
            raise
        text = f"[red]stopped[/red]: {output.count_noun(users, 'user')} imported; {error}"
        shared.print_outcome(text, {"users": users, "stopped": str(error)})
        raise typer.Exit(EXIT_PARTIAL) from None
    _print_export_report(restored, "export of {} imported: {}", shared)


async def _import(
    plan: Any, shared: options.SharedOptions, strict: bool
) -> tuple[Any, dict[str, str]]:
    """Return the report, why rows are not embedded, and why the import stopped half way."""
    from memrecall.memory import Importer, ImportReport

    survey = plan.survey
    if strict and survey.bad:
        report = ImportReport(lines=survey.entries, bad=survey.bad, refused=True)
        return report, {"not_embedded": "", "stopped": ""}
    async with await shared.open(create=True) as library:
        importer, stopped = Importer(library), ""
        try:
            with output.show_progress("importing", survey.entries, unit="messages") as advance:
                await importer.run(plan, strict=strict, progress=advance)
                await library.vectors.settle()
        except MemrecallError as error:
            if not importer.report.usable:
                raise
            stopped = str(error)
        except (KeyboardInterrupt, asyncio.CancelledError):
            stored = output.count_noun(importer.report.usable, "message")
            typer.echo(f"{stored} stored so far", err=True)
            raise
        return importer.report, {"not_embedded": library.vectors.failure, "stopped": stopped}


def _print_preview(plan: Any, *, json: bool) -> None:
    survey, needs = plan.survey, [str(error) for error in plan.missing]
    if json:
        output.print_json({**survey.describe(), "needs": needs})
    else:
        terminal = output.console()
        for line in survey.lines():
            terminal.print(output.escape(line))
        for need in needs:
            terminal.print(f"[yellow]still needed[/yellow]: {output.escape(need)}")
        _print_bad(survey.bad, plan)
    _exit_for(survey.messages or survey.memories, bool(survey.bad))


def _print_report(report: Any, plan: Any, problems: dict[str, str]) -> None:
    terminal = output.console()
    if report.refused:
        terminal.print("[red]nothing imported[/red]: --strict, and some lines are invalid")
    else:
        repeated = f", {report.repeated} already stored" if report.repeated else ""
        noun = "memory" if plan.survey.memories and not plan.survey.messages else "message"
        stored = output.count_noun(report.stored, noun)
        users = output.count_noun(len(report.users), "user")
        redacted = output.list_counts(report.redacted, "; [yellow]redacted[/yellow]: ")
        terminal.print(f"{stored} of {users} imported{repeated}{redacted}")
    for line in plan.survey.remarks():
        terminal.print(f"[dim]{output.escape(line)}[/dim]")
    if problems["not_embedded"]:
        reason = output.escape(problems["not_embedded"])
        terminal.print(f"[yellow]not embedded yet, keyword search only[/yellow]: {reason}")
    errors = output.console(errors=True)
    if problems["stopped"]:
        reason = output.escape(problems["stopped"])
        errors.print(f"[red]stopped half way[/red], run it again to continue: {reason}")
    elif not report.usable and not report.refused:
        errors.print("[red]nothing imported[/red]: the file has no usable line")
    _print_bad(report.bad, plan)


def _print_bad(bad_lines: list[Any], plan: Any) -> None:
    errors = output.console(errors=True)
    noun = "line" if set(plan.survey.formats) == {"jsonl"} else "entry"
    for bad in bad_lines[:_MAX_BAD_LINES]:
        place = f"{output.escape(bad.file)}: " if bad.file else ""
        errors.print(f"{place}{noun} {bad.line}: {output.escape(bad.reason)}")
    hidden = len(bad_lines) - _MAX_BAD_LINES
    if hidden > 0:
        errors.print(f"… and {hidden} more invalid lines; --json lists them all")


def _print_export_report(report: Any, text: str, shared: options.SharedOptions) -> None:
    tables = ", ".join(
        _count_rows(rows, table) for table, rows in report.rows.items() if rows and table != "users"
    )
    users = output.count_noun(len(report.users), "user")
    fields = {"lines": report.lines, "users": len(report.users), "rows": {**report.rows}}
    fields |= {"redacted": {**report.redacted}, "import_id": report.import_id}
    redacted = output.list_counts(report.redacted, "; [yellow]redacted[/yellow]: ")
    fields |= {"statuses": {**report.statuses}, "skipped": report.skipped, "joined": report.joined}
    joined = _name_rows("sessions", report.joined, "joined")
    skipped = "".join(
        _name_rows(table, keys, "[yellow]not stored[/yellow]")
        for table, keys in report.skipped.items()
    )
    shared.print_outcome(text.format(users, tables) + joined + skipped + redacted, fields)


def _name_rows(table: str, keys: list[str], outcome: str) -> str:
    """Return what became of some rows of a table, with the first of their keys; "" for none."""
    if not keys:
        return ""
    names = ", ".join(keys[:_MOST_NAMES]) + (", …" if keys[_MOST_NAMES:] else "")
    return f"; {_count_rows(len(keys), table)} {outcome}: {output.escape(names)}"


def _count_rows(number: int, table: str) -> str:
    """Format a number of rows of a table: 1 session, 2 sessions."""
    if number == 1:
        table = f"{table[:-3]}y" if table.endswith("ies") else _SINGULAR.get(table, table[:-1])
    return f"{number:,} {table}"


def export(
    shared: options.UserReadingOptions,
    out: Annotated[Path | None, Option(help="A new file; default: standard output.")] = None,
) -> None:
    """Export all data of a user, or of one project, as JSON lines for `memrecall import`."""
    if out is None and shared.json:
        raise InvalidArgument("--json requires --out", hint="Add --out FILE, or drop --json")

    async def write() -> int:
        lines = 0
        async with (
            await shared.open() as library,
            aclosing(library.export_user(shared.user, shared.scope(None).read_project)) as rows,
        ):
            await options.suggest_user(library, shared.user)
            row = await anext(rows)  # fails before a file is created for an unknown user
            with _create_file(out) as file:
                while row is not None:
                    lines += 1
                    file.write(output.to_json_line(row) + "\n")
                    row = await anext(rows, None)
        return lines

    lines = asyncio.run(write())
    if out is not None:
        text = f"{output.count_noun(lines, 'line')} in {output.escape(str(out))}"
        fields = {"user_id": shared.user, "lines": lines, "file": str(out)}
        shared.print_outcome(text, fields)


def _create_file(out: Path | None) -> Any:
    """Open a new file that only its owner can read, or standard output."""
    if out is None:
        return nullcontext(sys.stdout)
    try:
        return os.fdopen(os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w")
    except OSError as error:
        raise InvalidArgument(f"cannot write {out}: {error.strerror}") from None


def list_messages(
    shared: options.UserReadingOptions,
    since: options.SinceOption = None,
    until: options.UntilOption = None,
    role: options.RoleOption = None,
    session: options.Session = None,
    agent: options.Agent = None,
    limit: Annotated[int, Option(min=1, max=200, help="Messages per page, at most 200.")] = 50,
    cursor: options.CursorOption = None,
) -> None:
    """List a user's messages, newest first."""
    from memrecall.store import MessageFilter

    filters = MessageFilter(
        since=options.read_time("--since", since),
        until=options.read_time("--until", until),
        role=options.read_role(role),
        session_id=session,
    )

    async def read(library: Any) -> tuple[Any, bool]:
        timeline = library.store.timeline(shared.scope(agent))
        page = await timeline.page(filters, page_size=limit, cursor=cursor)
        is_known = bool(page.items) or await library.store.feed(shared.user).version() is not None
        return page, is_known

    page, is_known = shared.with_library(read)
    note = "" if is_known else f"there is no user {shared.user!r}: nothing is stored under this id"
    _print_page(page, shared, note)


def show_neighbors(
    message_id: Annotated[str, Argument(help="Id of the message in the middle.")],
    shared: options.UserReadingOptions,
    before: Annotated[int, Option(help="Number of messages before it.")] = 20,
    after: Annotated[int, Option(help="Number of messages after it.")] = 0,
    agent: options.Agent = None,
) -> None:
    """Show the messages around a message, oldest first."""

    async def read(library: Any) -> Any:
        timeline = library.store.timeline(shared.scope(agent))
        return await timeline.neighbors(message_id, before=before, after=after)

    _print_page(shared.with_library(read), shared)


def delete_command(
    message_id: Annotated[str, Argument(help="Id of the message.")],
    shared: options.UserOptions,
    purge: Annotated[bool, Option("--purge", help="Erase it permanently.")] = False,
    yes: options.Yes = False,
    agent: options.Agent = None,
) -> None:
    """Hide a message, with the memories derived from it alone.

    `memrecall memories undo` restores them. With --purge they are erased.
    """
    if not purge:
        result = shared.with_memory(lambda memory: memory.delete_message(message_id), agent)
        _print_removed(result["deleted"], len(result["memories"]), result, shared, "deleted")
        return
    if not yes:
        item = shared.with_memory(lambda memory: memory.get(message_id), agent)
        if item is None or item["kind"] != "message":
            raise NotFound(f"there is no message {message_id!r}", hint="Check the id and the user")
        typer.confirm(f"Erase message {message_id} permanently?", abort=True, err=True)
    result = shared.with_memory(lambda memory: memory.purge(message_id), agent)
    _print_removed(result["purged"], len(result["memories"]), result, shared)


def _print_removed(
    messages: int,
    memories: int,
    fields: dict[str, Any],
    shared: options.SharedOptions,
    verb: str = "erased",
) -> None:
    text = f"{output.count_noun(messages, 'message')} and "
    shared.print_outcome(f"{text}{output.count_noun(memories, 'memory')} {verb}", fields)


def _print_page(page: Any, shared: options.SharedOptions, note: str = "") -> None:
    lines = (
        f"[dim]{output.minute_of(message.ts)}[/dim] "
        f"[bold]{output.escape(message.speaker or message.role.value)}[/bold]"
        f"  {output.preview(message.content)}  [dim]{output.escape(message.message_id)}[/dim]"
        for message in page.items
    )
    items = [message.model_dump() for message in page.items]
    fields = {"items": items, "next_cursor": page.next_cursor, "message": note}
    shared.print_page(fields, lines, empty=output.escape(note) or "no messages")


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
        _manage_extractions(shared, undo, yes=yes)
        return

    def confirm(counts: dict[str, Any]) -> None:
        typer.echo(_describe_request(counts), err=True)
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
        text = _describe_request(report) if report["messages"] else "no messages to read"
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


def _describe_request(counts: dict[str, Any]) -> str:
    messages = output.count_noun(counts["messages"], "message")
    calls = output.count_noun(counts["calls"], "call")
    return f"{messages} to read: {calls} of the model, about {counts['tokens']:,} tokens"


def _manage_extractions(shared: options.SharedOptions, run: str | None, *, yes: bool) -> None:
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
