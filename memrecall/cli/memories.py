"""The `memories` commands."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, NotFound
from memrecall.text_length import single_line

MemoryId = Annotated[str, Argument(help="Memory id.")]
FilterOption = Annotated[
    str | None, Option("--filter", help="""Filter on fields and metadata: '{"topic": "tea"}'.""")
]
Metadata = Annotated[str, Option("--metadata", help="A JSON object.")]
Sensitive = Annotated[
    bool, Option("--sensitive", help="Mark as sensitive: hidden without the permission.")
]

Sources = Annotated[
    bool,
    Option("--sources/--keep-sources", help="Also the messages that it comes from (default)."),
]
KindsOption = Annotated[str, Option(help="memories, messages or all.")]

_MAX_QUOTE = 200  # characters of a source
_ONE = "Options of one memory that is stored as it is"
_TRUNCATED = "[yellow]longer than 100 KB: the content was truncated[/yellow]"

memory_commands = options.CommandGroup(help="Add, list, search, update and delete memories.")


def _store_memory(
    fields: dict[str, Any], own: Any, space: str | None
) -> Callable[[Any], Awaitable[Any]]:
    from pydantic import ValidationError

    from memrecall.errors import describe_validation_error
    from memrecall.types import NewMemory, Origin

    try:
        memory = NewMemory(**fields)
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None

    async def store(library: Any) -> dict[str, Any]:
        scope = own if space is None else await library.store.spaces.enter(own, space)
        outcome = await library.add_memories(
            scope, [memory], origin=Origin.USER, actor="command line"
        )
        record = await library.store.memories(scope).get(outcome.ids[0])
        item = {
            "id": record.memory_key,
            "memory": record.summary or record.content,
            "event": "ADD" if outcome.stored else "NONE",
            "truncated": record.truncated,
        }
        kinds = [list(kinds) for kinds in outcome.redacted if kinds]
        return {"results": [item], "problems": [], **({"redacted": kinds} if kinds else {})}

    return store


def _read_keyword(text: str) -> dict[str, Any]:
    word, separator, weight = text.rpartition("=")
    if not separator:
        return {"keyword": text}
    try:
        return {"keyword": word, "weight": float(weight)}
    except ValueError:
        raise InvalidArgument(
            f"the weight of keyword {text!r} is not a number", hint="Write it like tea=0.8"
        ) from None


@memory_commands.command("add")
def add(
    text: Annotated[str, Argument(help="The user's message; - reads standard input.")],
    shared: options.UserProjectOptions,
    agent: Annotated[str | None, Option(help="Agent that the message was sent to.")] = None,
    session: options.CurrentSession = None,
    space: Annotated[str | None, Option(help="Write to this space of the user.")] = None,
    metadata: Metadata = "{}",
    sensitive: Sensitive = False,
    as_is: Annotated[
        bool, Option("--as-is", help="Store the text as one memory.", rich_help_panel=_ONE)
    ] = False,
    key: Annotated[str | None, Option(help="Memory key.", rich_help_panel=_ONE)] = None,
    summary: Annotated[str, Option(help="One-line summary.", rich_help_panel=_ONE)] = "",
    memory_type: Annotated[
        str | None, Option("--type", help="Memory type.", rich_help_panel=_ONE)
    ] = None,
    keyword: Annotated[
        list[str] | None, Option(help="word or word=0.8; repeatable.", rich_help_panel=_ONE)
    ] = None,
    source: Annotated[
        list[str] | None, Option(help="Source message id; repeatable.", rich_help_panel=_ONE)
    ] = None,
    valid_from: Annotated[
        str | None, Option(help="Start of its validity.", rich_help_panel=_ONE)
    ] = None,
    valid_to: Annotated[
        str | None, Option(help="End of its validity.", rich_help_panel=_ONE)
    ] = None,
) -> None:
    """Store a user's message and, with a model, its facts; or one memory as it is."""
    content = sys.stdin.read() if text == "-" else text
    extra = options.read_object("--metadata", metadata)
    described = {
        "memory_key": key,
        "summary": summary,
        "memory_type": memory_type,
        "keywords": tuple(map(_read_keyword, keyword or ())),
        "source_message_ids": tuple(source or ()),
        "valid_from": options.read_time("--valid-from", valid_from),
        "valid_to": options.read_time("--valid-to", valid_to),
    }
    described = {name: value for name, value in described.items() if value}
    if as_is or described:
        fields = {"content": content, "metadata": extra, "sensitive": sensitive, **described}
        scope = shared.scope(agent, session, sensitive=True)
        result = shared.with_library(_store_memory(fields, scope, space), create=True)
    else:
        result = shared.with_memory(
            lambda memory: (memory if space is None else memory.space(space)).add(
                content, session_id=session, metadata=extra, sensitive=sensitive
            ),
            agent,
            create=space is None,
        )
    shared.print_page(result, _addition_lines(result))


def _addition_lines(result: dict[str, Any]) -> Iterator[str]:
    for item in result["results"]:
        previous = item.get("previous_memory")
        replaced = f" [dim]replaces {output.escape(previous)}[/dim]" if previous else ""
        yield (
            f"[bold]{item['event']:<6}[/bold] {output.preview(item['memory'])}{replaced}"
            f"  [dim]{output.escape(item['id'])}[/dim]"
        )
        if item.get("truncated"):
            yield _TRUNCATED
    if not result["results"]:
        yield output.escape(result.get("message") or "stored; no new facts in it")
    for problem in result["problems"]:
        yield f"[yellow]{output.escape(problem)}[/yellow]"
    if kinds := Counter(chain.from_iterable(result.get("redacted", ()))):
        yield output.list_counts(kinds, "[yellow]redacted[/yellow]: ")


def _read_filter(text: str | None) -> dict[str, Any] | None:
    return None if text is None else options.read_object("--filter", text)


def _describe_memory(item: dict[str, Any]) -> str:
    """Return a memory as a line of a list."""
    score = f"[bold]{item['score']:.2f}[/bold] " if "score" in item else ""
    labels = [item["memory_type"], *(name for name in ("pinned", "truncated") if item.get(name))]
    if item.get("valid_to"):
        labels.append(f"until {item['valid_to'][:10]}")
    labels += _conflict_labels(item)
    if item.get("space"):
        from memrecall.search.results import describe_origin

        labels.append(describe_origin(item["space"], item["author"], item["created_at"]))
    if source := item.get("source"):
        labels.append(f"from: {single_line(source['text'], _MAX_QUOTE)}")
    created = output.minute_of(item["created_at"])
    return (
        f"{score}[dim]{created}[/dim] {output.preview(item['memory'])}  "
        f"[dim]{output.escape(', '.join(labels))}  {output.escape(item['id'])}[/dim]"
    )


def _conflict_labels(item: dict[str, Any]) -> list[str]:
    """Return what a claim of another origin conflicts with."""
    return [
        f"claim of {item['origin']}, conflicts with {conflict['id']}: "
        f"{single_line(conflict.get('memory') or '', _MAX_QUOTE)}"
        for conflict in item.get("conflicts_with", ())
    ]


@memory_commands.command("list")
def list_command(
    shared: options.UserReadingOptions,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: FilterOption = None,
    as_of: options.AsOfOption = None,
    superseded: Annotated[
        bool, Option("--superseded", help="Include superseded memories.")
    ] = False,
    deleted: Annotated[bool, Option("--deleted", help="List what is deleted instead.")] = False,
    kinds: KindsOption = "memories",
    allow_sensitive: options.AllowSensitive = False,
    limit: Annotated[int, Option(min=1, max=1000, help="Memories per page, at most 1000.")] = 50,
    cursor: options.CursorOption = None,
) -> None:
    """List memories, newest first, or messages."""
    page = shared.with_memory(
        lambda memory: memory.get_all(
            session_id=session,
            filters=_read_filter(filter_),
            limit=limit,
            cursor=cursor,
            as_of=as_of,
            superseded=superseded,
            deleted=deleted,
            kinds=kinds,
        ),
        agent,
        sensitive=allow_sensitive,
    )
    empty = "no messages" if kinds.startswith("message") else "no memories"
    if count := page.get("kept_messages"):
        kept = f"{output.count_noun(count, 'message')} {'is' if count == 1 else 'are'} kept"
        empty = f"{empty}; {kept}: list them with --kinds messages"
    shared.print_page(page, map(_describe_memory, page["results"]), empty=empty)


@memory_commands.command("search")
def search_memories(
    query: Annotated[str, Argument(help="What to search for.")],
    shared: options.UserSpacesOptions,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: FilterOption = None,
    as_of: options.AsOfOption = None,
    time: options.TimeOption = None,
    threshold: Annotated[float, Option("--min-score", help="Lowest score to show.")] = 0.0,
    rerank: Annotated[
        bool, Option("--rerank/--no-rerank", help="Use the full ranking (default).")
    ] = True,
    kinds: KindsOption = "all",
    allow_sensitive: options.AllowSensitive = False,
    limit: Annotated[int, Option(min=1, max=200, help="Number of results, at most 200.")] = 10,
) -> None:
    """Search memories and messages, best match first."""
    result = shared.with_memory(
        lambda memory: memory.search(
            query,
            session_id=session,
            filters=_read_filter(filter_),
            as_of=as_of,
            time=time,
            threshold=threshold,
            rerank=rerank,
            kinds=kinds,
            limit=limit,
        ),
        agent,
        sensitive=allow_sensitive,
    )
    empty = output.escape(result["message"]) or "no results"
    shared.print_page(result, map(_describe_memory, result["results"]), empty=empty)


@memory_commands.command("show")
def show(memory_id: MemoryId, shared: options.UserReadingOptions) -> None:
    """Show one memory with all its fields."""
    item = shared.with_spaces(lambda memory: memory.get(memory_id))
    if item is None:
        raise NotFound(f"there is no memory {memory_id!r}", hint="Check the id and the user")
    shown = {**item, "conflicts_with": "; ".join(_conflict_labels(item))}
    filled = {name: value for name, value in shown.items() if value not in (None, "", [], {})}
    lines = (f"{name:<18} {output.escape(str(value))}" for name, value in filled.items())
    shared.print_page(item, lines)


@memory_commands.command("history")
def history(memory_id: MemoryId, shared: options.UserReadingOptions) -> None:
    """Show a memory's change history, oldest first."""
    changes = shared.with_spaces(lambda memory: memory.history(memory_id))
    lines = []
    for change in changes:
        old, new = change["old_memory"], change["new_memory"]
        text = f"{old} → {new}" if old and new and old != new else new or old
        reason = f" ({change['reason']})" if change["reason"] else ""
        quotes = [single_line(message["text"], _MAX_QUOTE) for message in change["said"]]
        said = "".join(f", from: {quote}" for quote in quotes)
        undone = " [dim]undone[/dim]" if change["undone"] else ""
        lines.append(
            f"[dim]{output.minute_of(change['created_at'])}[/dim] {change['event']:<6} "
            f"{output.escape(text)}{output.escape(reason)} "
            f"[dim]by {output.escape(change['actor_id'])}{output.escape(said)}[/dim]{undone}"
        )
    shared.print_page({"results": changes}, lines)


@memory_commands.command("update")
def update(
    memory_id: MemoryId,
    shared: options.UserOptions,
    text: Annotated[str | None, Option(help="New text.")] = None,
    pinned: Annotated[
        bool | None, Option("--pin/--unpin", help="Sweeps keep pinned memories.")
    ] = None,
    metadata: Annotated[str | None, Option(help="A JSON object.")] = None,
) -> None:
    """Update a memory in place. Its history keeps the previous text."""
    extra = None if metadata is None else options.read_object("--metadata", metadata)
    values = {"content": text, "pinned": pinned, "metadata": extra}
    changes = {name: value for name, value in values.items() if value is not None}
    result = shared.with_spaces(lambda memory: memory.update(memory_id, **changes))
    shared.print_outcome(f"updated: {output.escape(result['memory'])}", result)


@memory_commands.command("delete")
@memory_commands.command("forget", hidden=True)
def delete(memory_id: MemoryId, shared: options.UserOptions, sources: Sources = True) -> None:
    """Hide a memory with its messages, or a message; `memrecall memories undo` restores all."""
    result = shared.with_spaces(lambda memory: memory.delete(memory_id, sources=sources))
    text = f"{output.escape(memory_id)} {result['message']}{_count_others(result)}"
    shared.print_outcome(text, result)


def _count_others(result: dict[str, Any]) -> str:
    """Return how many memories and messages were removed with one."""
    nouns = {"memories": "memory", "messages": "message"}
    counts = [output.count_noun(len(result[n]), noun) for n, noun in nouns.items() if result[n]]
    return f", with {' and '.join(counts)}" if counts else ""


@memory_commands.command("undo")
def undo(memory_id: MemoryId, shared: options.UserOptions) -> None:
    """Undo the last change of a memory, or the deletion of a message."""
    result = shared.with_spaces(lambda memory: memory.undo(memory_id))
    shared.print_outcome(f"last change of {output.escape(memory_id)} undone", result)


@memory_commands.command("purge")
def purge(
    memory_id: MemoryId,
    shared: options.UserOptions,
    sources: Sources = True,
    yes: options.Yes = False,
) -> None:
    """Erase a memory with its messages, or a message, and all that quotes it permanently."""
    if not yes:
        too = " and its messages" if sources else ""
        typer.confirm(f"Erase {memory_id}{too} permanently?", abort=True, err=True)
    result = shared.with_spaces(lambda memory: memory.purge(memory_id, sources=sources))
    erased = f"{output.escape(memory_id)} erased" if result["purged"] else "nothing to erase"
    shared.print_outcome(f"{erased}{_count_others(result)}", result)


@memory_commands.command("delete-all")
def delete_all(
    shared: options.UserOptions,
    agent: options.Agent = None,
    session: options.Session = None,
    filter_: FilterOption = None,
    kinds: KindsOption = "all",
    sources: Sources = True,
    dry_run: Annotated[bool, Option("--dry-run", help="Only count.")] = False,
    yes: options.Yes = False,
) -> None:
    """Hide all memories and messages of a user that match the filters, after a confirmation."""
    filters = _read_filter(filter_)

    def run(*, dry: bool) -> Any:
        return shared.with_memory(
            lambda memory: memory.delete_all(
                session_id=session, filters=filters, dry_run=dry, kinds=kinds, sources=sources
            ),
            agent,
        )

    result = run(dry=True)
    if result["found"] and not dry_run:
        if not yes:
            counts = [
                output.count_noun(result["memories"], "memory"),
                output.count_noun(result["messages"], "message"),
            ]
            question = f"Delete {' and '.join(counts)} of {shared.user}?"
            typer.confirm(question, abort=True, err=True)
        result = run(dry=False)
    shared.print_outcome(result["message"], result)
