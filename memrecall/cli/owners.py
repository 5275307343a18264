"""`agents`, `users` and `sessions`: list, disable, end, erase."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from memrecall.cli import options, output

_ACTIVE = {0: "off", 1: "on"}

After = Annotated[str, typer.Option("--after", help="Go on after this id.")]
Limit = Annotated[int, typer.Option("--limit", help="How many.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
AgentId = Annotated[str, typer.Argument(help="The agent's id.")]
UserId = Annotated[str, typer.Argument(help="The user's id.")]
SessionId = Annotated[str, typer.Argument(help="The session's id.")]

agents = typer.Typer(help="Agents: list, disable, enable, erase.")
users = typer.Typer(help="Users: list, disable, enable, time zone, erase.")
sessions = typer.Typer(help="Sessions: list, end, erase.")


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.add_typer(agents, name="agents")
    app.add_typer(users, name="users")
    app.add_typer(sessions, name="sessions")


async def _with_library(db: str | None, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async with await options.open_library(db) as library:
        return await work(library)


def _list(found: Any, key: str, json: bool) -> None:
    if json:
        output.print_json({"items": list(found.items), "next_after": found.next_after})
        return
    for item in found.items:
        made = output.short_time(item["create_time"])
        state = _ACTIVE[item["status"]]
        output.console().print(f"{output.escape(item[key]):<32} {state:<4} [dim]since {made}[/dim]")
    if not found.items:
        output.console().print("none")
    if found.next_after:
        output.console().print(f"[dim]more: --after {output.escape(found.next_after)}[/dim]")


def _done(said: str, json: bool, **facts: Any) -> None:
    if json:
        output.print_json(facts)
    else:
        output.console().print(said)


def _confirm(what: str, yes: bool) -> None:
    if not yes:
        typer.confirm(f"Erase {what}? This cannot be undone", abort=True, err=True)


@agents.command("list")
def list_agents(
    db: options.Db = None, after: After = "", limit: Limit = 100, json: options.Json = False
) -> None:
    """List agents by id."""
    work = _with_library(db, lambda library: library.store.owners.list_agents(after, limit))
    _list(options.run(work), "agent_id", json)


@agents.command("disable")
def disable_agent(agent: AgentId, db: options.Db = None, json: options.Json = False) -> None:
    """Forbid an agent new writes and recalls."""
    _switch("agent", agent, False, db, json)


@agents.command("enable")
def enable_agent(agent: AgentId, db: options.Db = None, json: options.Json = False) -> None:
    """Allow an agent writes and recalls again."""
    _switch("agent", agent, True, db, json)


@agents.command("erase")
def erase_agent(
    agent: AgentId, db: options.Db = None, yes: Yes = False, json: options.Json = False
) -> None:
    """Remove an agent that has nothing left."""
    _confirm(f"agent {agent}", yes)
    options.run(_with_library(db, lambda library: library.store.owners.erase_agent(agent)))
    _done(f"agent {output.escape(agent)} erased", json, agent_id=agent, erased=True)


@users.command("list")
def list_users(
    db: options.Db = None,
    agent: options.Agent = None,
    after: After = "",
    limit: Limit = 100,
    json: options.Json = False,
) -> None:
    """List users by id."""
    work = _with_library(db, lambda library: library.store.owners.list_users(agent, after, limit))
    _list(options.run(work), "user_id", json)


@users.command("disable")
def disable_user(user: UserId, db: options.Db = None, json: options.Json = False) -> None:
    """Forbid a user new writes and recalls."""
    _switch("user", user, False, db, json)


@users.command("enable")
def enable_user(user: UserId, db: options.Db = None, json: options.Json = False) -> None:
    """Allow a user writes and recalls again."""
    _switch("user", user, True, db, json)


@users.command("zone")
def set_zone(
    user: UserId,
    zone: Annotated[str, typer.Argument(help="Like Asia/Shanghai.")],
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Set where a user lives: "yesterday" is read in that time zone."""
    options.run(_with_library(db, lambda library: library.store.owners.set_time_zone(user, zone)))
    said = f"user {output.escape(user)} lives in {output.escape(zone)}"
    _done(said, json, user_id=user, time_zone=zone)


@users.command("erase")
def erase_user(
    user: UserId, db: options.Db = None, yes: Yes = False, json: options.Json = False
) -> None:
    """Remove every row of a user, and what was derived from them."""
    _confirm(f"everything of user {user}", yes)
    erased = options.run(_with_library(db, lambda library: library.erase_user(user)))
    _done(f"erased: {_counts(erased)}", json, user_id=user, **erased.as_dict())


@sessions.command("list")
def list_sessions(
    user: options.User,
    db: options.Db = None,
    after: After = "",
    limit: Limit = 100,
    json: options.Json = False,
) -> None:
    """List a user's sessions by id."""
    work = _with_library(db, lambda library: library.store.owners.list_sessions(user, after, limit))
    _list(options.run(work), "session_id", json)


@sessions.command("end")
def end_session(
    session: SessionId, user: options.User, db: options.Db = None, json: options.Json = False
) -> None:
    """Close a session: its messages stay, new ones are refused."""
    work = _with_library(db, lambda library: library.store.owners.end_session(user, session))
    options.run(work)
    said = f"session {output.escape(session)} has ended"
    _done(said, json, user_id=user, session_id=session, ended=True)


@sessions.command("erase")
def erase_session(
    session: SessionId,
    user: options.User,
    db: options.Db = None,
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """Remove a session with its messages."""
    _confirm(f"session {session} of user {user}", yes)
    erased = options.run(_with_library(db, lambda library: library.erase_session(user, session)))
    facts = {"user_id": user, "session_id": session, **erased.as_dict()}
    _done(f"erased: {_counts(erased)}", json, **facts)


def _switch(kind: str, name: str, enabled: bool, db: str | None, json: bool) -> None:
    def work(library: Any) -> Awaitable[None]:
        owners = library.store.owners
        switch = owners.set_agent_enabled if kind == "agent" else owners.set_user_enabled
        result: Awaitable[None] = switch(name, enabled)
        return result

    options.run(_with_library(db, work))
    state = "enabled" if enabled else "disabled"
    _done(f"{kind} {output.escape(name)} is {state}", json, **{f"{kind}_id": name, state: True})


def _counts(erased: Any) -> str:
    return ", ".join(f"{count} {name}" for name, count in erased.as_dict().items())
