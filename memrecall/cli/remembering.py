"""`memories`: what the Memory class does, from the command line."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.cli.with_memory import AsOf, read_object, run_with_memory
from memrecall.errors import NotFound

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
