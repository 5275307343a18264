"""Options shared by many commands, and access to the database they name."""

import asyncio
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from itertools import chain
from typing import Annotated, Any, get_origin, get_type_hints

import typer
from typer import Option

from memrecall.cli import output
from memrecall.errors import InvalidArgument
from memrecall.json_objects import load_json_object
from memrecall.settings import load_settings

Db = Annotated[
    str | None,
    Option(
        "--db",
        help="Database: a file, or a sqlite:// or postgresql+asyncpg:// URL.",
        show_default=False,
    ),
]
User = Annotated[
    str, Option("--user", envvar="MEMRECALL_USER", help="User id.", show_default=False)
]
MaybeUser = Annotated[
    str | None, Option("--user", help="User id; default: all users.", show_default=False)
]
Agent = Annotated[str | None, Option("--agent", help="Restrict to this agent's data.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
SinceOption = Annotated[
    str | None, Option("--since", help="At or after this time (2026-01-26T10:47:00Z).")
]
TimeOption = Annotated[
    str | None, Option("--time", help="Only in a period: last week, 上周, 2026-03.")
]
UntilOption = Annotated[str | None, Option("--until", help="Before this time.")]
RoleOption = Annotated[str | None, Option("--role", help="user, assistant, system, tool or other.")]
Session = Annotated[str | None, Option("--session", help="Restrict to this session.")]
ProjectOption = Annotated[
    str | None,
    Option("--project", help="Restrict to this project: a folder (.), or the name of its remote."),
]
AllProjects = Annotated[
    bool, Option("--all-projects", help="Read other projects too; --project names the own.")
]
CurrentSession = Annotated[
    str | None, Option("--session", help="Session that the message belongs to.")
]
CursorOption = Annotated[str | None, Option("--cursor", help="Continue after an earlier page.")]
After = Annotated[str, Option("--after", help="Continue after this id.")]
AsOfOption = Annotated[str | None, Option("--as-of", help="Show the state at this time.")]
SpaceIds = Annotated[
    list[str] | None, Option("--space", help="Cover this space of the user too; repeatable.")
]
SpaceRoleOption = Annotated[str, Option("--role", help="reader, contributor or admin.")]
Yes = Annotated[bool, Option("--yes", help="Skip the confirmation prompt.")]
ReadOnly = Annotated[bool, Option("--read-only", help="Forbid writes.")]
ReadOnlyDb = Annotated[
    bool, Option("--read-only", help="Open the database read-only; create no file next to it.")
]
AllowKnowledge = Annotated[
    bool, Option("--allow-knowledge", help="Allow changes to the shared knowledge base.")
]
AllowSensitive = Annotated[
    bool, Option("--allow-sensitive", help="Include memories marked as sensitive.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """The options of most commands: their database, and whether they print JSON."""

    db: Db = None
    json: Json = False
    read_only: bool = False
    user: str | None = None
    project: str | None = None
    all_projects: bool = False
    space: list[str] | None = None

    def of_user(self, user: str | None) -> "SharedOptions":
        """Return the options with a user."""
        return replace(self, user=user)

    def scope(
        self, agent: str | None, session: str | None = None, *, sensitive: bool = False
    ) -> Any:
        """Return the scope that a command's options name."""
        from memrecall.scope import Scope

        permissions = build_permissions(sensitive)
        project = read_project(self.project)
        fields = (permissions, project, self.all_projects, tuple(dict.fromkeys(self.space or ())))
        return Scope(str(self.user), agent, session, *fields)

    def open(self, *, create: bool = False) -> Any:
        """Return a coroutine that opens the library; only writing commands `create` it."""
        from memrecall.memory import Library

        arguments = {"db": self.db, "read_only": self.read_only or None}
        return Library.open(load_settings(arguments).settings, create=create)

    def with_library(self, work: Callable[[Any], Awaitable[Any]], *, create: bool = False) -> Any:
        """Open the library, run `work` with it and return the result.

        If the user is unknown but a similar id is stored, print that id on standard error.
        """

        async def call() -> Any:
            async with await self.open(create=create) as library:
                if self.user is not None and not create:
                    await suggest_user(library, self.user)
                return await work(library)

        return asyncio.run(call())

    def with_memory(
        self,
        work: Callable[[Any], Awaitable[Any]],
        agent: str | None = None,
        *,
        sensitive: bool = True,
        create: bool = False,
    ) -> Any:
        """Run `work` with an `AsyncMemory`, bound to the user if one is named."""

        async def call(library: Any) -> Any:
            from memrecall.memory import AsyncMemory

            async with AsyncMemory(
                library=library,
                user_id=self.user,
                agent_id=agent,
                project=read_project(self.project),
                all_projects=self.all_projects,
                spaces=self.space or (),
                permissions=build_permissions(sensitive),
                actor="command line",
            ) as memory:
                return await work(memory)

        return self.with_library(call, create=create)

    def with_spaces(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run `work` with a memory that also covers all spaces of the user."""

        async def call(memory: Any) -> Any:
            spaces = [item["space_id"] for item in await memory.spaces()]
            return await work(memory.bind(spaces=spaces))

        return self.with_memory(call)

    def print_outcome(self, text: str, fields: dict[str, Any]) -> None:
        """Print what a command did: as a line, or its fields as JSON."""
        self.print_page(fields, [text])

    def print_page(self, fields: dict[str, Any], lines: Iterable[Any], empty: str = "none") -> None:
        """Print a listing and the option that continues it, or its fields as JSON."""
        if self.json:
            output.print_json(fields)
            return
        for line in list(lines) or [empty]:
            output.console().print(line)
        for field, option in (("next_cursor", "--cursor"), ("next_after", "--after")):
            if fields.get(field):
                output.console().print(f"[dim]more: {option} {output.escape(fields[field])}[/dim]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions(SharedOptions):
    """The shared options of commands that write nothing."""

    read_only: ReadOnlyDb = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserOptions(SharedOptions):
    """The shared options of commands for one user."""

    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProjectOptions(UserOptions):
    """The shared options of commands for one user and one project."""

    project: ProjectOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserReadingOptions(UserProjectOptions):
    """The shared options of commands for one user that write nothing."""

    read_only: ReadOnlyDb = False
    all_projects: AllProjects = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpacesOptions(UserReadingOptions):
    """The shared options of commands that also read spaces of the user."""

    space: SpaceIds = None


class CommandGroup(typer.Typer):
    """A group of commands; the fields of a dataclass argument are options of the command."""

    def command(self, *arguments: Any, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that registers a command."""
        register = super().command(*arguments, **settings)

        def add(function: Any) -> Any:
            register(_expand_options(function))
            return function

        return add


def _expand_options(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its dataclass arguments as separate arguments."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())
    groups: dict[str, Any] = {
        item.name: item.annotation for item in own if is_dataclass(item.annotation)
    }
    added = {name: _field_parameters(group) for name, group in groups.items()}

    @wraps(function)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            chosen = {item.name: values.pop(item.name) for item in added[name]}
            values[name] = group(**chosen)
        function(**values)

    kept = [item for item in own if item.name not in groups]
    expanded = signature.replace(parameters=[*kept, *chain(*added.values())])
    run.__signature__ = expanded  # type: ignore[attr-defined]  # The parser reads it.
    return run


def _field_parameters(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a dataclass that are options, as parameters of a function."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
        if get_origin(hints[field.name]) is Annotated
    ]


async def suggest_user(library: Any, user: str) -> None:
    """Print the stored user id that is most similar to an unknown one, if there is one."""
    if await library.store.feed(user).version() is not None:
        return
    owners = library.store.owners
    names = [row["user_id"] for row in (await owners.list_users()).items]
    # The list is only its first page, so that a million users do not delay an error.
    names += await owners.find_users(user.lower())
    by_folded = {name.casefold(): name for name in reversed(names)}
    for name in get_close_matches(user.casefold(), by_folded, 1, 0.75):
        typer.echo(f"did you mean --user {by_folded[name]}?", err=True)


def build_permissions(
    sensitive: bool = False, knowledge: bool = False, operator: bool = False
) -> frozenset[Any]:
    """Return the permissions that a command's flags name."""
    from memrecall.scope import Permission

    flags = {
        Permission.SENSITIVE: sensitive,
        Permission.KNOWLEDGE: knowledge,
        Permission.OPERATOR: operator,
    }
    return frozenset(permission for permission, is_set in flags.items() if is_set)


def read_project(value: str | None) -> str | None:
    """Return the project named by an option: a folder's project, else the name itself."""
    from memrecall.importers.projects import find_project

    return find_project(value) if value and os.path.isdir(value) else value


def read_time(name: str, value: str | None) -> datetime | None:
    """Parse the time passed with an option."""
    from memrecall.types import parse_time

    return None if value is None else parse_time(value, name)


def read_since(value: str | None) -> datetime | None:
    """Parse the time passed with `--since`, or an age in days such as 90d."""
    if (age := re.fullmatch(r"(\d{1,5})d", value or "")) is not None:
        return datetime.now(UTC) - timedelta(days=int(age[1]))
    return read_time("--since", value)


def read_role(value: str | None) -> Any:
    """Parse the role passed with `--role`."""
    from memrecall.types import Role

    if value is None:
        return None
    try:
        return Role(value)
    except ValueError:
        raise InvalidArgument(f"unknown role {value!r}", hint=f"Use {', '.join(Role)}") from None


def read_object(option: str, text: str) -> dict[str, Any]:
    """Parse the JSON object passed with an option."""
    value = load_json_object(text)
    if value is None:
        raise InvalidArgument(
            f"{option} {text!r} is not a JSON object", hint="""Write it like '{"a": 1}'"""
        )
    return value


def read_import_options(
    user: str | None, me: str | None, date_order: str | None, zone: str, columns: str | None
) -> Any:
    """Return the options of an import; InvalidArgument names the one that is wrong."""
    from zoneinfo import ZoneInfo

    from memrecall.importers.records import DATE_ORDERS, ReadOptions
    from memrecall.importers.tables import FIELDS
    from memrecall.types import check_time_zone

    order = next((known for known in DATE_ORDERS if known == date_order), None)
    if order is None and date_order is not None:
        raise InvalidArgument(
            f"--date-order {date_order!r} is not an order", hint="Use dmy, mdy or ymd"
        )
    pairs = [pair.partition("=") for pair in (columns or "").split(",") if pair.strip()]
    names = {field.strip(): column.strip() for field, _, column in pairs}
    for field, column in names.items():
        if field not in FIELDS or not column:
            raise InvalidArgument(
                f"--map {columns!r} does not name the column of a field",
                hint=f"Write it like text=body,time=date; the fields are {', '.join(FIELDS)}",
            )
    return ReadOptions(user, me, order, ZoneInfo(check_time_zone(zone)), names)
