"""`memories`: what the Memory class does, from the command line."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, NotFound


def register_add(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("add")(add_memory)


def add_memory(
    content: Annotated[str, typer.Argument(help="What to remember; - reads standard input.")],
    user: options.User,
    db: options.Db = None,
    summary: Annotated[str, typer.Option("--summary", help="In one line.")] = "",
    key: Annotated[str | None, typer.Option("--key", help="Its key; made if not given.")] = None,
    memory_type: Annotated[str, typer.Option("--type", help="Its type.")] = "general",
    keyword: Annotated[
        list[str] | None,
        typer.Option("--keyword", help="word or word=0.8; may be repeated."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Id of a message it came from; may be repeated."),
    ] = None,
    metadata: Annotated[str, typer.Option("--metadata", help="A JSON object.")] = "{}",
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Found only with a permission.")
    ] = False,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", help="True from then on.")
    ] = None,
    valid_to: Annotated[str | None, typer.Option("--valid-to", help="True until then.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Its agent.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Its session.")] = None,
    json: options.Json = False,
) -> None:
    """Store a memory."""
    fields = {
        "content": sys.stdin.read() if content == "-" else content,
        "summary": summary,
        "memory_key": key,
        "memory_type": memory_type,
        "keywords": tuple(map(_keyword, keyword or ())),
        "source_message_ids": tuple(source or ()),
        "metadata": _object(metadata),
        "sensitive": sensitive,
        "valid_from": options.read_time("--valid-from", valid_from),
        "valid_to": options.read_time("--valid-to", valid_to),
    }
    written, record = options.run(_add(fields, user, agent, session, db))
    stored = bool(written.stored)
    if json:
        output.print_json(
            {"memory_key": written.ids[0], "stored": stored, "truncated": record.truncated}
        )
        return
    said = "stored as" if stored else "was there already as"
    output.console().print(f"{said} [bold]{output.escape(written.ids[0])}[/bold]")
    if record.truncated:
        output.console().print("[yellow]longer than 100 KB: the end was cut off[/yellow]")


async def _add(
    fields: dict[str, Any], user: str, agent: str | None, session: str | None, db: str | None
) -> tuple[Any, Any]:
    from pydantic import ValidationError

    from memrecall.scope import Permission, Scope
    from memrecall.types import NewMemory, Origin, describe_validation_error

    try:
        memory = NewMemory(**fields)
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    scope = Scope(user, agent, session, frozenset({Permission.SENSITIVE}))
    async with await options.open_library(db, create=True) as library:
        written = await library.add_memories(
            scope, [memory], origin=Origin.USER, actor="command line"
        )
        record = await library.store.memories(scope).get(written.ids[0])
        return written, record


def _keyword(text: str) -> dict[str, Any]:
    word, separator, weight = text.rpartition("=")
    if not separator:
        return {"keyword": text}
    try:
        return {"keyword": word, "weight": float(weight)}
    except ValueError:
        raise InvalidArgument(
            f"keyword {text!r} has a weight that is no number", hint="Write it like tea=0.8"
        ) from None


def _object(text: str) -> Any:
    import json

    try:
        return json.loads(text)
    except ValueError:
        raise InvalidArgument(
            f"metadata {text!r} is not JSON", hint="""Write it like '{"a": 1}'"""
        ) from None


AsOf = Annotated[str | None, typer.Option("--as-of", help="As things stood at this time.")]


def read_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object given with an option."""
    import json

    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"{option} {text!r} is not a JSON object", hint="""Write it like '{"a": 1}'"""
        )
    return found


def run_with_memory(
    work: Callable[[Any], Awaitable[Any]],
    db: str | None,
    user: str,
    agent: str | None = None,
    *,
    sensitive: bool = False,
    create: bool = False,
) -> Any:
    """Do work with the memory of a user."""
    return options.run(_with_memory(work, db, user, agent, sensitive, create))


async def _with_memory(
    work: Callable[[Any], Awaitable[Any]],
    db: str | None,
    user: str,
    agent: str | None,
    sensitive: bool,
    create: bool,
) -> Any:
    from memrecall.memory import AsyncMemory
    from memrecall.scope import Permission

    allowed = [Permission.SENSITIVE] if sensitive else []
    async with (
        await options.open_library(db, create=create) as library,
        AsyncMemory(
            library=library,
            user_id=user,
            agent_id=agent,
            permissions=allowed,
            actor="command line",
        ) as memory,
    ):
        return await work(memory)


memories = typer.Typer(help="Memories: add, list, search, correct, forget, bring back.")

MemoryId = Annotated[str, typer.Argument(help="The memory's id.")]
Filter = Annotated[
    str | None,
    typer.Option("--filter", help="""On fields and metadata: '{"topic": "tea"}'."""),
]
Sensitive = Annotated[
    bool, typer.Option("--allow-sensitive", help="Also those marked as sensitive.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
OwnSession = Annotated[str | None, typer.Option("--session", help="The session it is said in.")]
OwnAgent = Annotated[str | None, typer.Option("--agent", help="The agent it is said to.")]


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.add_typer(memories, name="memories")


@memories.command("add")
def add(
    text: Annotated[str, typer.Argument(help="What was said; - reads standard input.")],
    user: options.User,
    db: options.Db = None,
    agent: OwnAgent = None,
    session: OwnSession = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Keep it as it is, without looking for facts.")
    ] = False,
    metadata: Annotated[str, typer.Option("--metadata", help="A JSON object.")] = "{}",
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Found only with a permission.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Store what a user said, and the facts in it: added, updated or ended."""
    said = sys.stdin.read() if text == "-" else text
    extra = read_object("--metadata", metadata)

    async def work(memory: Any) -> Any:
        return await memory.add(
            said, session_id=session, metadata=extra, infer=not as_is, sensitive=sensitive
        )

    told = run_with_memory(work, db, user, agent, sensitive=True, create=True)
    if json:
        output.print_json(told)
        return
    for item in told["results"]:
        before = item.get("previous_memory")
        instead = f" [dim]instead of {output.escape(before)}[/dim]" if before else ""
        output.console().print(
            f"[bold]{item['event']:<6}[/bold] {output.escape(item['memory'])}{instead}"
            f"  [dim]{item['id']}[/dim]"
        )
    if not told["results"]:
        output.console().print("stored; there is no new fact in it")
    for problem in told["problems"]:
        output.console().print(f"[yellow]{output.escape(problem)}[/yellow]")


@memories.command("list")
def list_memories(
    user: options.User,
    db: options.Db = None,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: Filter = None,
    as_of: AsOf = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also those that hold no longer.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Those that are hidden instead.")
    ] = False,
    allow_sensitive: Sensitive = False,
    limit: Annotated[int, typer.Option("--limit", help="At most 1000.")] = 50,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """List memories, the latest first."""
    filters = None if filter_ is None else read_object("--filter", filter_)

    async def work(memory: Any) -> Any:
        return await memory.get_all(
            session_id=session,
            filters=filters,
            limit=limit,
            cursor=cursor,
            as_of=as_of,
            superseded=superseded,
            deleted=deleted,
        )

    page = run_with_memory(work, db, user, agent, sensitive=allow_sensitive)
    if json:
        output.print_json(page)
        return
    _print(page["results"])
    if page["next_cursor"]:
        output.console().print(f"[dim]more: --cursor {page['next_cursor']}[/dim]")


@memories.command("search")
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    user: options.User,
    db: options.Db = None,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: Filter = None,
    as_of: AsOf = None,
    threshold: Annotated[float, typer.Option("--min-score", help="Leave out what scores less.")] = (
        0.0
    ),
    rerank: Annotated[
        bool, typer.Option("--rerank/--no-rerank", help="The full ranking, or the plain order.")
    ] = True,
    allow_sensitive: Sensitive = False,
    limit: Annotated[int, typer.Option("--limit", help="At most 200.")] = 10,
    json: options.Json = False,
) -> None:
    """Search memories, the best first."""
    filters = None if filter_ is None else read_object("--filter", filter_)

    async def work(memory: Any) -> Any:
        return await memory.search(
            query,
            session_id=session,
            filters=filters,
            as_of=as_of,
            threshold=threshold,
            rerank=rerank,
            limit=limit,
        )

    found = run_with_memory(work, db, user, agent, sensitive=allow_sensitive)
    if json:
        output.print_json(found)
        return
    _print(found["results"], note=found["message"])


@memories.command("show")
def show(
    memory_id: MemoryId, user: options.User, db: options.Db = None, json: options.Json = False
) -> None:
    """Show one memory with all its fields."""
    item = run_with_memory(lambda memory: memory.get(memory_id), db, user, sensitive=True)
    if item is None:
        raise NotFound(f"there is no memory {memory_id!r}", hint="Check the id and the user")
    if json:
        output.print_json(item)
        return
    for name, value in item.items():
        if value not in (None, "", [], {}):
            output.console().print(f"{name:<18} {output.escape(str(value))}")


@memories.command("history")
def history(
    memory_id: MemoryId, user: options.User, db: options.Db = None, json: options.Json = False
) -> None:
    """Show what became of a memory, from its adding on."""
    steps = run_with_memory(lambda memory: memory.history(memory_id), db, user, sensitive=True)
    if json:
        output.print_json({"results": steps})
        return
    for step in steps:
        text = step["new_memory"] or step["old_memory"]
        why = f" ({step['reason']})" if step["reason"] else ""
        taken_back = " [dim]taken back[/dim]" if step["undone"] else ""
        output.console().print(
            f"[dim]{step['created_at'][:16].replace('T', ' ')}[/dim] {step['event']:<6} "
            f"{output.escape(text)}{output.escape(why)} "
            f"[dim]by {output.escape(step['actor_id'])}[/dim]{taken_back}"
        )


@memories.command("update")
def update(
    memory_id: MemoryId,
    user: options.User,
    text: Annotated[str | None, typer.Option("--text", help="What it says from now on.")] = None,
    pinned: Annotated[
        bool | None, typer.Option("--pin/--unpin", help="No sweep forgets what is pinned.")
    ] = None,
    metadata: Annotated[str | None, typer.Option("--metadata", help="A JSON object.")] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Correct a memory in its place; its history keeps what it said before."""
    extra = None if metadata is None else read_object("--metadata", metadata)
    given = {"content": text, "pinned": pinned, "metadata": extra}
    fields = {name: value for name, value in given.items() if value is not None}
    done = run_with_memory(
        lambda memory: memory.update(memory_id, **fields), db, user, sensitive=True
    )
    _done(f"updated: {output.escape(done['memory'])}", json, done)


@memories.command("delete")
def delete(
    memory_id: MemoryId, user: options.User, db: options.Db = None, json: options.Json = False
) -> None:
    """Hide a memory at once; `memrecall memories undo` brings it back."""
    done = run_with_memory(lambda memory: memory.delete(memory_id), db, user, sensitive=True)
    _done(f"{output.escape(memory_id)} deleted", json, done)


@memories.command("undo")
def undo(
    memory_id: MemoryId, user: options.User, db: options.Db = None, json: options.Json = False
) -> None:
    """Take back the last change of a memory: a correction, a supersession, a deletion."""
    done = run_with_memory(lambda memory: memory.undo(memory_id), db, user, sensitive=True)
    _done(f"the last change of {output.escape(memory_id)} is taken back", json, done)


@memories.command("purge")
def purge(
    memory_id: MemoryId,
    user: options.User,
    yes: Yes = False,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Remove a memory for ever, with its history."""
    if not yes:
        typer.confirm(f"Remove {memory_id} for ever?", abort=True, err=True)
    done = run_with_memory(lambda memory: memory.purge(memory_id), db, user, sensitive=True)
    _done(f"{output.count(done['purged'], 'memory')} removed", json, done)


@memories.command("delete-all")
def delete_all(
    user: options.User,
    db: options.Db = None,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: Filter = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    json: options.Json = False,
) -> None:
    """Hide all memories of a user that pass the filters. Counts, and asks first."""
    filters = None if filter_ is None else read_object("--filter", filter_)

    def all_of(dry: bool) -> Callable[[Any], Awaitable[Any]]:
        return lambda memory: memory.delete_all(session_id=session, filters=filters, dry_run=dry)

    told = run_with_memory(all_of(True), db, user, agent, sensitive=True)
    if told["found"] and not dry_run:
        if not yes:
            typer.confirm(f"Hide {told['found']} of {user}'s memories?", abort=True, err=True)
        told = run_with_memory(all_of(False), db, user, agent, sensitive=True)
    _done(told["message"], json, told)


def _print(items: list[dict[str, Any]], note: str = "") -> None:
    from memrecall.text.snippets import preview

    for item in items:
        score = f"[bold]{item['score']:.2f}[/bold] " if "score" in item else ""
        marks = [item["memory_type"], *(["pinned"] if item["pinned"] else [])]
        if item["valid_to"]:
            marks.append(f"until {item['valid_to'][:10]}")
        said = output.escape(preview(item["memory"], 1_000))
        when = item["created_at"][:16].replace("T", " ")
        about = output.escape(", ".join(marks))
        output.console().print(
            f"{score}[dim]{when}[/dim] {said}  [dim]{about}  {output.escape(item['id'])}[/dim]"
        )
    if not items:
        output.console().print(output.escape(note) or "no memories")


def _done(said: str, json: bool, facts: dict[str, Any]) -> None:
    if json:
        output.print_json(facts)
    else:
        output.console().print(said)
