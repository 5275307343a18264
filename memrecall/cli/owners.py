"""`agents`, `users`, `sessions`, `projects` and `keys`: who has data, and who may access it."""

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument

_STATUS = {0: "off", 1: "on"}
_DURATION = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MAX_CHECKED_USERS = 20

RowLimit = Annotated[int, Option("--limit", min=1, max=10_000, help="Rows per page.")]
AgentArgument = Annotated[str, Argument(help="Agent id.")]
UserArgument = Annotated[str, Argument(help="User id.")]
SessionArgument = Annotated[str, Argument(help="Session id.")]

agent_commands = options.CommandGroup(help="List, disable, enable and erase agents.")
user_commands = options.CommandGroup(
    help="List, disable, enable and erase users, and set their time zone."
)
session_commands = options.CommandGroup(help="List, end and erase sessions.")
project_commands = options.CommandGroup(help="List and erase projects.")
key_commands = options.CommandGroup(help="Create, list and revoke keys of the HTTP service.")


def _print_owners(page: Any, key: str, shared: options.SharedOptions) -> None:
    lines = (
        f"{output.escape(item[key]):<32} {_STATUS[item['status']]:<4} "
        f"[dim]since {output.minute_of(item['create_time'])}[/dim]"
        for item in page.items
    )
    fields = {"items": list(page.items), "next_after": page.next_after}
    shared.print_page(fields, lines)


def _confirm(subject: str, yes: bool) -> None:
    if not yes:
        typer.confirm(f"Erase {subject}? This cannot be undone", abort=True, err=True)


def _add_switch(group: options.CommandGroup, kind: str, verb: str, text: str) -> None:
    """Add a command that disables or enables an agent or a user."""
    argument = Argument(metavar=kind.upper(), help=f"{kind.title()} id.")

    @group.command(verb, help=text)
    def switch(name: Annotated[str, argument], shared: options.SharedOptions) -> None:
        setter, is_enabled = f"set_{kind}_enabled", verb == "enable"
        shared.with_library(lambda lib: getattr(lib.store.owners, setter)(name, is_enabled))
        fields = {f"{kind}_id": name, f"{verb}d": True}
        shared.print_outcome(f"{kind} {output.escape(name)} is {verb}d", fields)


for _group, _kind in ((agent_commands, "agent"), (user_commands, "user")):
    _add_switch(_group, _kind, "disable", f"Refuse new writes and recalls of this {_kind}.")
    _add_switch(_group, _kind, "enable", f"Allow writes and recalls of this {_kind} again.")


def _print_erased(shared: options.SharedOptions, erased: dict[str, int], **ids: Any) -> None:
    counts = ", ".join(f"{number} {name}" for name, number in erased.items())
    shared.print_outcome(f"erased: {counts}", {**ids, **erased})


@agent_commands.command("list")
def list_agents(
    shared: options.SharedOptions, after: options.After = "", limit: RowLimit = 100
) -> None:
    """List agents by id."""
    page = shared.with_library(lambda lib: lib.store.owners.list_agents(after, limit))
    _print_owners(page, "agent_id", shared)


@agent_commands.command("erase")
def erase_agent(
    agent: AgentArgument, shared: options.SharedOptions, yes: options.Yes = False
) -> None:
    """Erase an agent that has no data left."""
    _confirm(f"agent {agent}", yes)
    shared.with_library(lambda library: library.store.owners.erase_agent(agent))
    fields = {"agent_id": agent, "erased": True}
    shared.print_outcome(f"agent {output.escape(agent)} erased", fields)


@user_commands.command("list")
def list_users(
    shared: options.SharedOptions,
    agent: options.Agent = None,
    after: options.After = "",
    limit: RowLimit = 100,
) -> None:
    """List users by id."""
    page = shared.with_library(lambda lib: lib.store.owners.list_users(agent, after, limit))
    _print_owners(page, "user_id", shared)


@user_commands.command("zone")
def set_zone(
    user: UserArgument,
    zone: Annotated[str, Argument(help="Time zone, such as Asia/Shanghai.")],
    shared: options.SharedOptions,
) -> None:
    """Set a user's time zone, in which "yesterday" is interpreted."""
    shared.of_user(user).with_library(
        lambda library: library.store.owners.set_time_zone(user, zone)
    )
    text = f"time zone of user {output.escape(user)} is {output.escape(zone)}"
    shared.print_outcome(text, {"user_id": user, "time_zone": zone})


@user_commands.command("erase")
def erase_user(
    user: UserArgument,
    shared: options.SharedOptions,
    yes: options.Yes = False,
    with_contributions: Annotated[
        bool, Option("--with-contributions", help="Also erase what they wrote to spaces.")
    ] = False,
) -> None:
    """Erase all data of a user; what they wrote to spaces stays there under another name."""
    _confirm(f"all data of user {user}", yes)
    erased = shared.of_user(user).with_library(
        lambda library: library.erase_user(user, with_contributions=with_contributions)
    )
    _print_erased(shared, erased.as_dict(), user_id=user)


@session_commands.command("list")
def list_sessions(
    shared: options.UserOptions, after: options.After = "", limit: RowLimit = 100
) -> None:
    """List a user's sessions by id."""
    page = shared.with_library(
        lambda lib: lib.store.owners.list_sessions(shared.user, after, limit)
    )
    _print_owners(page, "session_id", shared)


@session_commands.command("end")
def end_session(session: SessionArgument, shared: options.UserOptions) -> None:
    """End a session: its messages stay, new ones are refused."""
    shared.with_library(lambda library: library.store.owners.end_session(shared.user, session))
    fields = {"user_id": shared.user, "session_id": session, "ended": True}
    shared.print_outcome(f"session {output.escape(session)} has ended", fields)


@session_commands.command("erase")
def erase_session(
    session: SessionArgument, shared: options.UserOptions, yes: options.Yes = False
) -> None:
    """Erase a session with its messages."""
    _confirm(f"session {session} of user {shared.user}", yes)
    erased = shared.with_library(lambda library: library.erase_session(shared.user, session))
    _print_erased(shared, erased.as_dict(), user_id=shared.user, session_id=session)


@project_commands.command("list")
def list_projects(shared: options.UserOptions) -> None:
    """List a user's projects, the latest first."""
    items = shared.with_library(lambda library: library.store.owners.list_projects(shared.user))
    nouns = ("session", "message", "memory")
    lines = []
    for item in items:
        numbers = zip((item.sessions, item.messages, item.memories), nouns, strict=True)
        counts = ", ".join(output.count_noun(*each) for each in numbers)
        lines.append(f"{output.escape(item.project)}  [dim]{counts}[/dim]")
    shared.print_page({"items": [asdict(item) for item in items]}, lines, empty="no projects")


@project_commands.command("erase")
def erase_project(
    project: Annotated[str, Argument(help="A folder, or the name of the project.")],
    shared: options.UserOptions,
    yes: options.Yes = False,
) -> None:
    """Erase the messages and memories of a project; what is known about the user stays."""
    name = options.read_project(project)
    _confirm(f"project {name} of user {shared.user}", yes)
    erased = shared.with_memory(lambda memory: memory.erase_project(name))
    _print_erased(shared, erased, user_id=shared.user, project=name)


@key_commands.command("create")
def create_key(
    shared: options.SharedOptions,
    user: Annotated[
        list[str] | None, Option(help="User that the key gives access to; repeatable.")
    ] = None,
    all_users: Annotated[
        bool, Option("--all-users", help="Give access to all users: for a trusted back end.")
    ] = False,
    agent: options.Agent = None,
    read_only: options.ReadOnly = False,
    allow_sensitive: options.AllowSensitive = False,
    allow_knowledge: options.AllowKnowledge = False,
    operator: Annotated[
        bool,
        Option(
            "--operator", help="Allow metrics, workspaces, dump, backup, restore; needs no user."
        ),
    ] = False,
    expires: Annotated[str | None, Option(help="Lifetime (90m, 12h, 30d, 8w) or end time.")] = None,
    name: Annotated[str, Option(help="Label for listings.")] = "",
    space: Annotated[
        list[str] | None, Option(help="Make the key a member of this space; repeatable.")
    ] = None,
    role: options.SpaceRoleOption = "",
) -> None:
    """Create a key and print it once. Only its hash is stored."""
    from memrecall.scope import KEY_MEMBER, Scope, parse_space_role, space_owner
    from memrecall.store import Grant

    if role and not space:
        raise InvalidArgument("--role is the role in a space", hint="Pass --space too")
    member_role = parse_space_role(role or "reader")
    scopes = [Scope.of_owner(space_owner(space_id)) for space_id in space or ()]
    permissions = options.build_permissions(allow_sensitive, allow_knowledge, operator)
    users = _read_users(user or [], all_users, operator or bool(space))
    grant = Grant(users, agent, read_only, permissions, is_member=bool(space))
    expires_at = read_expiry(expires)

    async def create(library: Any) -> tuple[Any, str, bool, list[str]]:
        store = library.store
        is_first = not await store.keys.exist()
        for scope in scopes:
            await store.spaces.get(scope)  # NotFound, before there is a key
        key, text = await store.keys.create(grant, name=name, expires_at=expires_at)
        for scope in scopes:
            await store.spaces.set_member(scope, f"{KEY_MEMBER}{key.key_id}", member_role, name)
        checked = sorted(grant.users or ())[:_MAX_CHECKED_USERS]
        unknown = [user_id for user_id in checked if await store.feed(user_id).version() is None]
        return key, text, is_first, unknown

    key, text, is_first, unknown_users = shared.with_library(create, create=True)
    if shared.json:
        output.print_json({"key": text, **key.as_dict()})
        return
    typer.echo(text)
    _explain_key(key, is_first, unknown_users)


def _explain_key(key: Any, is_first: bool, unknown_users: list[str]) -> None:
    terminal, key_id = output.console(errors=True), key.key_id
    terminal.print(f"[dim]{_describe_key(key)}. It is not shown again.[/dim]")
    terminal.print(f"[dim]Its id is {key_id}: `memrecall keys revoke {key_id}` revokes it.[/dim]")
    if is_first:
        terminal.print(
            "This is the first key. Until now the service was open to every program on this"
            " machine; from now on every request needs a key."
        )
    if unknown_users:
        names = output.escape(", ".join(unknown_users))
        terminal.print(f"[yellow]warning[/yellow]: nothing is stored yet for {names}")


def _read_users(names: list[str], all_users: bool, operator: bool) -> frozenset[str] | None:
    if names and all_users:
        raise InvalidArgument("--user and --all-users are mutually exclusive", hint="Drop one")
    if not names and not all_users and not operator:
        raise InvalidArgument(
            "the key would give access to nothing",
            hint="Give --user, --all-users, --space or --operator",
        )
    return None if all_users else frozenset(names)


def read_expiry(text: str | None) -> datetime | None:
    """Parse `--expires`: a duration from now, or a time."""
    if text is None:
        return None
    duration = _DURATION.fullmatch(text.strip())
    if duration is None:
        try:
            return options.read_time("--expires", text)
        except InvalidArgument as error:
            raise InvalidArgument(
                error.message, hint="Write 90m, 12h, 30d or 8w, or a time: 2027-01-26T10:47:00Z"
            ) from None
    try:
        return datetime.now(UTC) + timedelta(**{_UNITS[duration[2]]: int(duration[1])})
    except OverflowError:
        raise InvalidArgument(f"--expires {text} is too far in the future") from None


@key_commands.command("list")
def list_keys(
    shared: options.SharedOptions, after: options.After = "", limit: RowLimit = 100
) -> None:
    """List keys, oldest first, revoked and expired ones included."""
    page = shared.with_library(lambda library: library.store.keys.list(after, limit))
    lines = (
        f"{key.key_id}  [dim]{output.minute_of(key.created_at)}[/dim]  {_describe_key(key)}"
        for key in page.items
    )
    items = [key.as_dict() for key in page.items]
    shared.print_page({"items": items, "next_after": page.next_after}, lines)


@key_commands.command("revoke")
def revoke_key(
    key: Annotated[str, Argument(help="The key's id, mr_<id>, or the whole key.")],
    shared: options.SharedOptions,
) -> None:
    """Revoke a key permanently, with immediate effect."""
    revoked = shared.with_library(lambda library: library.store.keys.revoke(key))
    shared.print_outcome(f"key {revoked.key_id} is revoked", revoked.as_dict())


def _describe_key(key: Any) -> str:
    if key.users is None:
        names = "all users"
    elif not key.users:
        names = "no user"
    else:
        names = ", ".join(sorted(key.users)[:3]) + (" …" if len(key.users) > 3 else "")
    parts = [output.escape(names)]
    if key.agent_id:
        parts.append(f"agent {output.escape(key.agent_id)}")
    parts.append("read only" if key.read_only else "read and write")
    parts.extend(sorted(key.permissions))
    if key.revoked_at:
        parts.append(f"revoked {output.minute_of(key.revoked_at)}")
    elif key.expires_at:
        verb = "expired" if key.expires_at <= datetime.now(UTC) else "until"
        parts.append(f"{verb} {output.minute_of(key.expires_at)}")
    label = f"{output.escape(key.name)}: " if key.name else ""
    return label + "; ".join(parts)
