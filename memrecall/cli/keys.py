"""`keys`: make, list and revoke the keys of the service."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

keys = typer.Typer(help="Keys of the HTTP service: create, list, revoke.")

_SPAN = re.compile(r"(\d{1,6})([mhdw])")
_MOST_LOOKED_UP = 20
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.add_typer(keys, name="keys")


@keys.command("create")
def create(
    user: Annotated[
        list[str] | None, typer.Option("--user", help="Whose data it opens; may be repeated.")
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Every user's data: for a trusted back end.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only what this agent has to do with.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="No writing.")] = False,
    allow_sensitive: Annotated[
        bool, typer.Option("--allow-sensitive", help="Also memories marked as sensitive.")
    ] = False,
    allow_knowledge: Annotated[
        bool, typer.Option("--allow-knowledge", help="May change what an agent's users share.")
    ] = False,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator", help="Metrics, workspaces, dump, backup and restore; needs no user."
        ),
    ] = False,
    expires: Annotated[
        str | None, typer.Option("--expires", help="After 90m, 12h, 30d or 8w, or at a time.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What you call it.")] = "",
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Make a key and print it, once: only a hash of it is stored."""
    from memrecall.scope import Permission

    named = (
        (Permission.SENSITIVE, allow_sensitive),
        (Permission.KNOWLEDGE, allow_knowledge),
        (Permission.OPERATOR, operator),
    )
    granted = frozenset(permission for permission, wanted in named if wanted)
    users = _read_users(user or [], all_users, operator)
    made = _create(users, agent, read_only, granted, name, read_expiry(expires), db)
    done = options.run(made)
    if json:
        output.print_json({"key": done.text, **done.key.as_dict()})
        return
    typer.echo(done.text)
    _explain(done)


def _explain(made: "_Made") -> None:
    """What a person should know of a new key, beside the key itself."""
    terminal, key_id = output.console(errors=True), made.key.key_id
    terminal.print(f"[dim]{_describe(made.key)}. It is not shown again.[/dim]")
    terminal.print(f"[dim]Its id is {key_id}: `memrecall keys revoke {key_id}` closes it.[/dim]")
    if made.is_first:
        terminal.print(
            "It is the first key: until now the service was open to every program on this machine;"
            " from now on every request needs a key."
        )
    if made.strangers:
        named = output.escape(", ".join(made.strangers))
        terminal.print(f"[yellow]warning[/yellow]: nothing is stored yet for {named}")


async def _create(
    users: frozenset[str] | None,
    agent: str | None,
    read_only: bool,
    permissions: frozenset[Any],
    name: str,
    expires_at: datetime | None,
    db: str | None,
) -> "_Made":
    from memrecall.store import Grant

    grant = Grant(users, agent, read_only, permissions)
    async with await options.open_library(db, create=True) as library:
        store = library.store
        is_first = not await store.keys.exist()
        key, text = await store.keys.create(grant, name=name, expires_at=expires_at)
        named = sorted(users or ())[:_MOST_LOOKED_UP]
        strangers = [user for user in named if await store.feed(user).version() is None]
        return _Made(key, text, is_first, strangers)


@dataclass(frozen=True, slots=True)
class _Made:
    """A new key, its text, and what its maker may not know."""

    key: Any
    text: str
    is_first: bool
    strangers: list[str]  # users of it who have nothing stored


def _read_users(users: list[str], all_users: bool, operator: bool) -> frozenset[str] | None:
    if users and all_users:
        raise InvalidArgument("--user and --all-users exclude each other")
    if not users and not all_users and not operator:
        raise InvalidArgument("the key is for nobody", hint="Give --user or --all-users")
    return None if all_users else frozenset(users)


def read_expiry(text: str | None) -> datetime | None:
    """The time that `--expires` means: a span from now on, or a time."""
    if text is None:
        return None
    span = _SPAN.fullmatch(text.strip())
    if span is None:
        try:
            return options.read_time("--expires", text)
        except InvalidArgument as error:
            raise InvalidArgument(
                error.message, hint="Write 90m, 12h, 30d or 8w, or a time: 2027-01-26T10:47:00Z"
            ) from None
    try:
        return datetime.now(UTC) + timedelta(**{_UNITS[span[2]]: int(span[1])})
    except OverflowError:
        raise InvalidArgument(f"--expires {text} lies too far ahead") from None


@keys.command("list")
def list_keys(
    db: options.Db = None,
    after: Annotated[str, typer.Option("--after", help="Go on after this id.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="How many.")] = 100,
    json: options.Json = False,
) -> None:
    """List keys, the oldest first, revoked and expired ones too."""

    async def work() -> Any:
        async with await options.open_library(db) as library:
            return await library.store.keys.list(after, limit)

    found = options.run(work())
    if json:
        items = [key.as_dict() for key in found.items]
        output.print_json({"items": items, "next_after": found.next_after})
        return
    for key in found.items:
        made = output.short_time(key.created_at)
        output.console().print(f"{key.key_id}  [dim]{made}[/dim]  {_describe(key)}")
    if not found.items:
        output.console().print("none")
    if found.next_after:
        output.console().print(f"[dim]more: --after {output.escape(found.next_after)}[/dim]")


@keys.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, mr_<id>, or the whole key.")],
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Close a key for good, at once."""

    async def work() -> Any:
        async with await options.open_library(db) as library:
            return await library.store.keys.revoke(key)

    done = options.run(work())
    if json:
        output.print_json(done.as_dict())
    else:
        output.console().print(f"key {done.key_id} is revoked")


def _describe(key: Any) -> str:
    """A key in a few words."""
    if key.users is None:
        whose = "all users"
    elif not key.users:
        whose = "no user"
    else:
        whose = ", ".join(sorted(key.users)[:3]) + (" …" if len(key.users) > 3 else "")
    parts = [output.escape(whose)]
    if key.agent_id:
        parts.append(f"agent {output.escape(key.agent_id)}")
    parts.append("read only" if key.read_only else "read and write")
    parts.extend(sorted(key.permissions))
    if key.revoked_at:
        parts.append(f"revoked {output.short_time(key.revoked_at)}")
    elif key.expires_at:
        until = "expired" if key.expires_at <= datetime.now(UTC) else "until"
        parts.append(f"{until} {output.short_time(key.expires_at)}")
    called = f"{output.escape(key.name)}: " if key.name else ""
    return called + "; ".join(parts)
