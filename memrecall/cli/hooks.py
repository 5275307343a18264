"""`memrecall hooks` and `memrecall hook`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli.options import Agent, Db, Json, User
from memrecall.cli.output import print_json
from memrecall.errors import InvalidArgument
from memrecall.integrations.hooks.bindings import (
    BLOCK_CHARACTERS,
    DEADLINE,
    MIN_CONFIDENCE,
    Binding,
    RecalledPrompts,
)
from memrecall.integrations.hooks.client import main as run_hook
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.settings import Settings, load_settings

if TYPE_CHECKING:
    from memrecall.integrations.hooks.installation import Installation

ClientName = Annotated[str, Argument(help=f"{', '.join(CLIENTS)}.", show_default=False)]
Project = Annotated[
    Path | None,
    Option("--project", help="Only for this folder; default: for the user.", show_default=False),
]
Url = Annotated[
    str | None, Option("--url", help="Address of the service; '': none.", show_default=False)
]
KeyFile = Annotated[
    Path | None, Option("--key-file", help="File with the service's key.", show_default=False)
]
CreateKey = Annotated[
    bool, Option("--create-key", help="Create a key of the service for this user.")
]
AllowRemote = Annotated[bool, Option("--allow-remote", help="Allow a service on another machine.")]
Deadline = Annotated[float, Option(min=0.1, max=60, help="Seconds for an event.")]
Characters = Annotated[int, Option(min=500, max=50_000, help="Size of the recalled block.")]
MinConfidence = Annotated[float, Option(min=0, max=1, help="Recall nothing below this confidence.")]
Capture = Annotated[bool, Option(help="Store what is said.")]
Recall = Annotated[bool, Option(help="Recall for prompts.")]
WhenOption = Annotated[
    RecalledPrompts, Option(help="always: also for greetings, thanks and code without a question.")
]
RedactOption = Annotated[bool, Option(help="Mask keys, tokens and passwords.")]
RedactPattern = Annotated[
    list[str] | None,
    Option("--redact-pattern", help="Mask what matches this regular expression; repeatable."),
]
DryRun = Annotated[bool, Option("--dry-run", help="Show the change as a diff and write nothing.")]

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 -- compared, not bound

hook_commands = typer.Typer(
    help="Let a coding assistant recall and store by itself, through its hooks."
)


def hook(
    event: Annotated[str, Argument(help="Event of the client, such as UserPromptSubmit.")],
    config: Annotated[Path, Option(help="File that `memrecall hooks install` has written.")],
    payload: Annotated[
        str | None, Argument(help="JSON of clients that do not use standard input.")
    ] = None,
) -> None:
    """Handle an event of a client, whose JSON is read from standard input.

    Clients run this command. It prints the recalled memories in the client's format, or nothing; an
    error is a line in hooks.log in the folder of the file.
    """
    run_hook([event, "--config", str(config), *([payload] if payload else [])])


@hook_commands.command()
def install(
    client: ClientName,
    user: User,
    agent: Agent = None,
    project: Project = None,
    db: Db = None,
    url: Url = None,
    key_file: KeyFile = None,
    create_key: CreateKey = False,
    allow_remote: AllowRemote = False,
    deadline: Deadline = DEADLINE,
    characters: Characters = BLOCK_CHARACTERS,
    min_confidence: MinConfidence = MIN_CONFIDENCE,
    capture: Capture = True,
    recall: Recall = True,
    when: WhenOption = "auto",
    redact: RedactOption = True,
    redact_pattern: RedactPattern = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write the hooks of memrecall into a client's settings; everything else in them stays."""
    target = _locate(client, project)
    settings = load_settings({"db": db}).settings
    binding = Binding(
        client=client,
        user=user,
        agent=agent,
        workspace=None if target.project is None else str(target.project),
        url=_service_url(settings) if url is None else url,
        allow_remote=allow_remote,
        db=_absolute(settings.db),
        deadline=deadline,
        characters=characters,
        min_confidence=min_confidence,
        capture=capture,
        recall=recall,
        when=when,
        redact=redact,
        redact_patterns=tuple(redact_pattern or ()),
    )
    binding = binding._replace(key=_read_key(key_file) or target.known_key(binding))
    if create_key:
        # The rest is checked first: a failed installation leaves no key behind.
        target.plan(binding._replace(key="new"))
        binding = binding._replace(key="new" if dry_run else _create_key(binding))
    change = target.plan(binding) if dry_run else target.install(binding)
    _print_change("install", target, change, dry_run=dry_run, json=json)


@hook_commands.command()
def uninstall(
    client: ClientName,
    project: Project = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove the hooks of memrecall from a client's settings; everything else in them stays."""
    target = _locate(client, project)
    change = target.plan_removal() if dry_run else target.remove()
    _print_change("uninstall", target, change, dry_run=dry_run, json=json)


@hook_commands.command()
def status(project: Project = None, json: Json = False) -> None:
    """Show for each client whether the hooks are installed, for whom, and what is pending."""
    projects = [None] if project is None else [None, project]
    rows = [
        _locate(client.name, each).describe()
        for client in CLIENTS.values()
        for each in projects
        if each is None or client.project_file
    ]
    if json:
        print_json({"items": rows})
        return
    for row in rows:
        typer.echo(_describe(row))


def _locate(client: str, project: Path | None) -> "Installation":
    from memrecall.integrations.hooks.installation import locate  # not needed for --help

    return locate(client, project)


def _print_change(
    action: str, target: "Installation", change: Any, *, dry_run: bool, json: bool
) -> None:
    text = target.diff(change)
    is_new = action == "install"
    if json:
        fields = {
            "action": action,
            "client": target.client.name,
            "settings_file": str(target.settings_path),
            "binding": str(target.binding_path),
            "changed": not change.is_empty,
            "dry_run": dry_run,
            "injects": target.client.can_inject,
            "diff": text,
            "note": target.client.note if is_new else "",
        }
        print_json(fields)
        return
    if dry_run:
        typer.echo(text or f"{target.settings_path} stays as it is", nl=not text)
        return
    if change.is_empty and not is_new:
        typer.echo(f"nothing to remove: {target.settings_path} has no hooks of memrecall")
        return
    state = "installed in" if is_new else "removed from"
    typer.echo(
        f"hooks {state} {target.settings_path}" + (" (no change)" if change.is_empty else "")
    )
    if is_new:
        typer.echo(f"binding  {target.binding_path}")
    if is_new and target.client.note:
        typer.echo(f"note     {target.client.note}")


def _describe(row: dict[str, Any]) -> str:
    place = row["project"] or "user"
    if not row["installed"]:
        return f"{row['client']:<13} {place}: not installed"
    effects = [name for name in ("capture", "recall") if row[name]]
    if not row["injects"]:
        effects = [name for name in effects if name != "recall"]
    pending = f"; {row['pending']} pending" if row["pending"] else ""
    return f"{row['client']:<13} {place}: {' and '.join(effects)} for {row['user']}{pending}"


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


def _absolute(db: str) -> str:
    """Return a database with its whole path, because a hook runs in another folder."""
    return db if "://" in db else str(Path(db).expanduser().absolute())


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
