"""`connect`, `disconnect` and `hook`: memory for coding assistants."""

import asyncio
import getpass
import json as json_module
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import output
from memrecall.cli.messages import import_plan
from memrecall.cli.options import Agent, AllProjects, Db, Json, SharedOptions, Yes, read_since
from memrecall.errors import InvalidArgument, NotFound, install_command
from memrecall.integrations.hooks.bindings import (
    BLOCK_CHARACTERS,
    DEADLINE,
    Binding,
    HookError,
)
from memrecall.integrations.hooks.client import is_local
from memrecall.integrations.hooks.client import main as run_hook
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.settings import Settings, config_folder, load_settings

if TYPE_CHECKING:
    from memrecall.importers.plan import ImportPlan
    from memrecall.integrations.hooks.installation import Installation
    from memrecall.integrations.hooks.settings_files import SettingsChange


ClientNames = Annotated[
    list[str] | None,
    Option("--client", help=f"{', '.join(CLIENTS)}; repeatable.", show_default=False),
]
Project = Annotated[
    Path | None,
    Option("--project", help="Only for this folder; default: for the user.", show_default=False),
]
Every = Annotated[bool, Option("--all", help="All supported clients, found or not.")]
Login = Annotated[
    str | None,
    Option("--user", envvar="MEMRECALL_USER", help="User id; default: your login."),
]
Url = Annotated[str | None, Option("--url", help="Address of the service; '': none.")]
KeyFile = Annotated[Path | None, Option("--key-file", help="File with the service's key.")]
CreateKey = Annotated[
    bool, Option("--create-key", help="Create a key of the service for this user.")
]
AllowRemote = Annotated[bool, Option("--allow-remote", help="Allow a service on another machine.")]
Deadline = Annotated[float, Option(min=0.1, max=60, help="Seconds for a prompt.")]
Characters = Annotated[int, Option(min=500, max=50_000, help="Size of the recalled block.")]
Capture = Annotated[bool, Option(help="Store what is said.")]
Recall = Annotated[bool, Option(help="Recall for prompts.")]
RedactPattern = Annotated[
    list[str] | None,
    Option("--redact-pattern", help="Mask what matches this regular expression; repeatable."),
]
Mcp = Annotated[bool, Option(help="Add the MCP server where the client has one.")]
Past = Annotated[
    bool | None, Option("--import/--no-import", help="Import past sessions; default: ask.")
]
StatusOption = Annotated[bool, Option("--status", help="Show what was recalled and stored.")]
DryRun = Annotated[bool, Option("--dry-run", help="Show the changes as diffs and write nothing.")]

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound
_START_SECONDS = 60.0
_SINCE = "90d"


def connect(
    client: ClientNames = None,
    every: Every = False,
    project: Project = None,
    user: Login = None,
    agent: Agent = None,
    all_projects: AllProjects = False,
    db: Db = None,
    url: Url = None,
    key_file: KeyFile = None,
    create_key: CreateKey = False,
    allow_remote: AllowRemote = False,
    deadline: Deadline = DEADLINE,
    characters: Characters = BLOCK_CHARACTERS,
    capture: Capture = True,
    recall: Recall = True,
    redact_pattern: RedactPattern = None,
    mcp: Mcp = True,
    past: Past = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    status: StatusOption = False,
    json: Json = False,
) -> None:
    """Give coding assistants a memory: recall for every prompt, store every turn, no model calls.

    Finds the clients on this machine, shows what changes in their settings, and asks once.
    """
    from memrecall.integrations.hooks.installation import find_clients, locate

    if status:
        print_activity(project, json=json)
        return
    names = client or (list(CLIENTS) if every else find_clients())
    if not names:
        raise NotFound("no coding assistant was found", hint=f"Use --client {', '.join(CLIENTS)}")
    targets = [locate(name, project) for name in names]
    settings = load_settings({"db": db}).settings
    common = Binding(
        client="",
        user=getpass.getuser() if user is None else user,
        agent=agent,
        all_projects=all_projects,
        url=_service_url(settings) if url is None else url,
        key=_read_key(key_file),
        allow_remote=allow_remote,
        # With its whole path, because a hook runs in another folder.
        db=settings.db if "://" in settings.db else str(Path(settings.db).expanduser().absolute()),
        deadline=deadline,
        characters=characters,
        capture=capture,
        recall=recall,
        redact_patterns=tuple(redact_pattern or ()),
        mcp=mcp and find_spec("mcp") is not None,
    )
    if not (common.url and not is_local(common.url)) and find_spec("uvicorn") is None:
        raise InvalidArgument(
            "hooks need the packages of a service", hint=install_command("server")
        )
    if mcp and not common.mcp:
        typer.echo(f"note: no MCP server, as mcp is missing: {install_command('mcp')}", err=True)
    bindings = [_bind(target, common, create_key=create_key) for target in targets]
    plans = [target.plan(bound) for target, bound in zip(targets, bindings, strict=True)]
    may_import = not dry_run and (past or (past is None and not yes))
    sessions = _plan_sessions(targets, common) if may_import else None
    _confirm("Connect", targets, plans, sessions, dry_run=dry_run, yes=yes, json=json)
    if not dry_run:
        for target, bound in zip(targets, bindings, strict=True):
            # The rest is checked first: a failed installation leaves no key behind.
            target.install(bound._replace(key=_create_key(bound)) if create_key else bound)
        _start(targets[0].binding_path, bindings[0])
    notes = [target.client.note for target in targets]
    _print_outcome("connect", targets, plans, notes, dry_run=dry_run, json=json)
    if sessions is not None:
        import_plan(sessions, SharedOptions(db=common.db, json=json))
    elif past and not dry_run:
        typer.echo("no past sessions to import", err=True)


def disconnect(
    client: ClientNames = None,
    every: Annotated[bool, Option("--all", help="Projects too.")] = False,
    project: Project = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Undo `memrecall connect`: every other byte of the clients' settings stays."""
    from memrecall.integrations.hooks.helper import stop_helper
    from memrecall.integrations.hooks.installation import installed, locate

    if client:
        targets = [locate(name, project) for name in client]
    else:
        folder = None if project is None else Path(os.path.realpath(project))
        targets = [each for each in installed() if every or each.project == folder]
    plans = [target.plan_removal() for target in targets]
    _confirm("Disconnect", targets, plans, dry_run=dry_run, yes=yes, json=json)
    notes = ["; ".join(target.leftovers()) for target in targets]
    if not dry_run:
        for target in targets:
            target.remove()
        if targets and not installed():
            stop_helper(str(targets[0].binding_path))
    _print_outcome("disconnect", targets, plans, notes, dry_run=dry_run, json=json)


def _bind(target: "Installation", common: Binding, *, create_key: bool) -> Binding:
    """Return the binding of one client; what an earlier one had is kept."""
    known = target.read()
    binding = common._replace(
        client=target.client.name,
        workspace=None if target.project is None else str(target.project),
        mcp=common.mcp or bool(known and known.mcp),
    )
    key = "new" if create_key else binding.key or target.known_key(binding)
    return binding._replace(key=key)


def _confirm(
    action: str,
    targets: list["Installation"],
    plans: list[list["SettingsChange"]],
    sessions: "ImportPlan | None" = None,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Show the changes as diffs, and ask once whether to write them and to import sessions."""
    changes = [change for plan in plans for change in plan if not change.is_empty]
    if json:
        if not (yes or dry_run):
            raise InvalidArgument("--json asks nothing", hint="Add --yes or --dry-run")
        return
    if dry_run or not yes:
        for change in changes:
            typer.echo(change.diff(), nl=False)
    titles = ", ".join(target.client.title for target in targets)
    parts = [f"{action} {titles}"] if changes else []
    if sessions is not None:
        count = output.count_noun(sessions.survey.messages, "message")
        parts.append(f"import {count} of the last 90 days (--no-import leaves them out)")
    if parts and not (dry_run or yes):
        typer.confirm(f"{' and '.join(parts)}?", abort=True, err=True)


def _print_outcome(
    action: str,
    targets: list["Installation"],
    plans: list[list["SettingsChange"]],
    notes: list[str],
    *,
    dry_run: bool,
    json: bool,
) -> None:
    items: list[dict[str, Any]] = [
        {
            "client": target.client.name,
            "settings_file": str(target.settings_path),
            "binding": str(target.binding_path),
            "changed": any(not change.is_empty for change in plan),
            "files": [str(change.path) for change in plan if not change.is_empty],
            "injects": target.client.can_inject,
            "diff": "".join(change.diff() for change in plan),
            "note": note,
        }
        for target, plan, note in zip(targets, plans, notes, strict=True)
    ]
    if json:
        output.print_json({"action": action, "dry_run": dry_run, "items": items})
        return
    for item in items:
        files = ", ".join(item["files"]) or item["settings_file"]
        if dry_run or not item["changed"]:
            state = "would be changed" if item["changed"] else "stays as it is"
            typer.echo(f"{item['client']}: {files} {state}")
        else:
            typer.echo(f"{action}ed {item['client']}: {files}")
        if item["note"]:
            typer.echo(f"note: {item['note']}")
    if not items:
        typer.echo("no client is connected")


def _plan_sessions(targets: list["Installation"], common: Binding) -> "ImportPlan | None":
    """Read the past sessions of those clients that keep them in a known form, if there are any."""
    from memrecall.importers.past_sessions import CLIENTS_WITH_SESSIONS, plan_past_sessions

    clients = [each.client.name for each in targets if each.client.name in CLIENTS_WITH_SESSIONS]
    project = targets[0].project
    with output.spinner("reading past sessions"):
        plan = plan_past_sessions(
            common.user,
            clients,
            since=read_since(_SINCE),
            project=None if project is None else str(project),
            agent=common.agent,
        )
    return plan if plan.survey.entries else None


def _start(path: Path, binding: Binding) -> None:
    """Start the helper, so that the first prompt need not wait for it."""
    from memrecall.integrations.hooks.helper import warm_helper

    if binding.url and not is_local(binding.url):
        return
    try:
        with output.spinner("loading the embedder"):
            warm_helper(str(path), binding, _START_SECONDS)
    except HookError as error:
        typer.echo(f"warning: {error}", err=True)


def _service_url(settings: Settings) -> str:
    """Return the address under which this machine reaches the service of the settings."""
    host = "127.0.0.1" if settings.host in _ALL_ADDRESSES else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def _read_key(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read {file}: {error}") from None


def _create_key(binding: Binding) -> str:
    from memrecall.memory import Library
    from memrecall.store import Grant

    async def create() -> str:
        settings = load_settings({"db": binding.db}).settings
        async with await Library.open(settings) as library:
            grant = Grant(frozenset({binding.user}), agent_id=binding.agent)
            _, text = await library.store.keys.create(grant, name=f"hooks of {binding.client}")
            return text

    return asyncio.run(create())


_COLUMNS = (14, 8, 40, 10, 8, 8)
_SUMMED = ("recalled", "tokens", "model_calls", "stored", "milliseconds")


def hook(
    event: Annotated[str, Argument(help="Event of the client, such as UserPromptSubmit.")],
    config: Annotated[Path, Option(help="File that `memrecall connect` has written.")],
) -> None:
    """Handle an event of a client, whose JSON is read from standard input.

    Clients run this command. It prints the recalled memories in the client's format, or nothing; an
    error is a line in hooks.log in the folder of the file.
    """
    run_hook([event, "--config", str(config)])


def print_activity(project: Path | None, *, json: bool) -> None:
    """Print what the clients have recalled and stored, and which are not connected."""
    from memrecall.integrations.hooks.installation import installed, locate

    targets = {each.binding_path: each for each in installed()}
    for client in CLIENTS.values():
        target = locate(client.name, None)
        targets.setdefault(target.binding_path, target)
    if project is not None:
        folder = Path(os.path.realpath(project))
        targets = {path: each for path, each in targets.items() if each.project in (None, folder)}
    activity = _read_activity(config_folder() / "hooks" / "hooks.log")
    rows = [
        (target.describe(), activity.get(path.name, _Activity()))
        for path, target in targets.items()
    ]
    if json:
        items = [{**row, "activity": vars(done), "receipt": done.sentence()} for row, done in rows]
        output.print_json({"items": items})
        return
    _print_row("client", "events", "last event", "recalled", "stored", "errors")
    for row, done in rows:
        last = f"{done.last_event} {output.minute_of(done.last_time)}" if done.events else "-"
        if not row["installed"]:
            last = "not connected"
        _print_row(row["client"], done.events, last, done.recalled, done.stored, done.errors)
        where = f"in {row['project']}" if row["project"] else ""
        pending = f"{row['pending']} pending" if row.get("pending") else ""
        receipt = done.sentence() if done.events else ""
        for note in filter(None, (where, receipt, pending, done.last_problem)):
            typer.echo(f"  {note}")


def _print_row(*cells: object) -> None:
    line = " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
    typer.echo(line.rstrip())


@dataclass
class _Activity:
    """The events of one binding: their number, the last one, and sums of what they did."""

    events: int = 0
    last_event: str = ""
    last_time: str = ""
    recalled: int = 0
    tokens: int = 0
    model_calls: int = 0
    stored: int = 0
    milliseconds: int = 0
    errors: int = 0
    last_problem: str = ""

    def add(self, line: dict[str, Any]) -> None:
        """Count a line of the log."""
        if "problem" in line:
            self.errors += 1
            self.last_problem = str(line["problem"])
        if "problem" in line or "milliseconds" in line:  # not what a later event has delivered
            self.events += 1
            self.last_event, self.last_time = str(line["event"]), str(line["time"])
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + int(line.get(name, 0)))

    def sentence(self) -> str:
        """Return what the events have added, and what they cost."""
        average = round(self.milliseconds / max(self.events - self.errors, 1))
        return (
            f"recalled {output.count_noun(self.recalled, 'memory')}, {self.tokens:,} tokens added,"
            f" {self.model_calls:,} model calls, {average:,} ms an event"
        )


def _read_activity(log: Path) -> dict[str, _Activity]:
    """Return the activity by the name of the binding's file, of the log and the one before it."""
    activity: dict[str, _Activity] = {}
    for line in _read_lines(log.with_name(f"{log.name}.1"), log):
        activity.setdefault(str(line.get("binding")), _Activity()).add(line)
    return activity


def _read_lines(*files: Path) -> Iterator[dict[str, Any]]:
    for file in files:
        try:
            text = file.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            try:
                fields = json_module.loads(line)
            except ValueError:  # cut off by a full disk
                continue
            if isinstance(fields, dict) and {"event", "time"} <= fields.keys():
                yield fields
