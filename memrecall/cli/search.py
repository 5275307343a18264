"""`search`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from memrecall.cli import options, output

_SENSIBLE = 0.5  # not calibrated: a hint for the reader, never a filter


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("search")(search)


def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    user: options.User,
    db: options.Db = None,
    mode: Annotated[str, typer.Option("--mode", help="keyword, semantic or hybrid.")] = "hybrid",
    limit: Annotated[int, typer.Option("--limit", help="Results, at most 200.")] = 10,
    since: options.Since = None,
    until: options.Until = None,
    role: options.RoleName = None,
    kind: Annotated[str | None, typer.Option("--kind", help="message or memory.")] = None,
    memory_type: Annotated[
        list[str] | None, typer.Option("--type", help="Memory type; may be repeated.")
    ] = None,
    session: options.Session = None,
    agent: options.Agent = None,
    keyword: Annotated[
        list[str] | None,
        typer.Option("--keyword", help="At least one of these must be said; may be repeated."),
    ] = None,
    syntax: Annotated[
        str,
        typer.Option("--syntax", help='plain, or query: words, "phrases", AND, OR, NOT, (), a*.'),
    ] = "plain",
    min_score: Annotated[
        float, typer.Option("--min-score", help="Leave out what scores less, 0 to 1.")
    ] = 0.0,
    allow_sensitive: Annotated[
        bool, typer.Option("--allow-sensitive", help="Also find memories marked as sensitive.")
    ] = False,
    now: Annotated[
        str | None, typer.Option("--now", help='The time that "yesterday" is counted from.')
    ] = None,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """Search a user's messages and memories."""
    request = {
        "query": query,
        "mode": mode,
        "syntax": syntax,
        "limit": limit,
        "threshold": min_score,
        "since": options.read_time("--since", since),
        "until": options.read_time("--until", until),
        "role": options.read_role(role),
        "kind": kind,
        "memory_types": tuple(memory_type or ()),
        "session_id": session,
        "keywords": tuple(keyword or ()),
        "now": options.read_time("--now", now),
        "cursor": cursor,
    }
    page = options.run(_search(user, agent, allow_sensitive, db, request))
    if json:
        output.print_json(page_fields(page))
    else:
        print_page(page, _asked_words(query, syntax))


async def _search(
    user: str, agent: str | None, sensitive: bool, db: str | None, request: dict[str, Any]
) -> Any:
    from memrecall.scope import Permission, Scope
    from memrecall.search import SearchRequest

    permissions = frozenset({Permission.SENSITIVE}) if sensitive else frozenset()
    scope = Scope(user, agent, permissions=permissions)
    wanted = SearchRequest(**request)
    async with await options.open_library(db) as library:
        return await library.search(scope, wanted)


def page_fields(page: Any) -> dict[str, Any]:
    """A page as one JSON object."""
    return {
        "total_found": page.total_found,
        "results": [asdict(hit) for hit in page.results],
        "message": page.message,
        "withheld": page.withheld,
        "next_cursor": page.next_cursor,
    }


def _asked_words(query: str, syntax: str) -> list[str]:
    """What to show in colour: not the operators of a query, nor what it excludes."""
    from memrecall.text.query import parse_query, positive_words

    return positive_words(parse_query(query)) if syntax == "query" else [query]


def print_page(page: Any, words: Sequence[str]) -> None:
    """A page as a person reads it: the words first, then why they are there."""
    terminal = output.console()
    for number, hit in enumerate(page.results, 1):
        who = hit.speaker or hit.role or hit.memory_type
        head = f"[bold]{number:>2}[/bold]  [green]{hit.score:.2f}[/green]"
        where = f"{output.short_time(hit.ts)}  [bold]{output.escape(who)}[/bold]"
        terminal.print(
            f"{head}  [dim]{hit.kind}[/dim] {where}  [dim]{output.escape(hit.key)}[/dim]"
        )
        terminal.print(f"    {_passage(hit, words)}")
        terminal.print(f"    [dim]{_reasons(hit.why)}[/dim]")
    if page.results:
        more = "; --limit shows more" if page.next_cursor else ""
        terminal.print(f"[dim]{len(page.results)} of {page.total_found} found{more}[/dim]")
        if page.results[0].score < _SENSIBLE:
            terminal.print(f"nothing reaches {_SENSIBLE}: perhaps never said")
    if page.message:
        terminal.print(output.escape(page.message))


def _passage(hit: Any, words: Sequence[str]) -> str:
    """The part of a hit that answers, with the words that were asked for in colour."""
    from memrecall.text.snippets import snippets

    # Marks that cannot occur in clean text stand in for the colours until it is escaped.
    start, end = "\x02", "\x03"
    found = snippets(hit.content or hit.summary, words, limit=1, before=start, after=end)
    text = " ".join(found).replace("\n", " ")
    pieces = text.replace(end, start).split(start)
    styled = [
        f"[yellow]{output.escape(piece)}[/yellow]" if at % 2 else output.escape(piece)
        for at, piece in enumerate(pieces)
    ]
    return "".join(styled)


def _reasons(why: Any) -> str:
    parts = {
        "words": why.lexical,
        "meaning": why.semantic,
        "neighbours": why.neighbours,
        "time": why.time,
    }
    told = [f"{name} {value:+.1f}" for name, value in parts.items() if value >= 0.05]
    return "why: " + (", ".join(told) or "the rest fits less")
