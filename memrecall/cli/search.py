"""`search` and `graph`: queries over a user's data."""

from collections.abc import Sequence
from typing import Annotated, Any

from typer import Argument, Option

from memrecall.cli import options, output

_PAGE_FIELDS = (
    "total_found",
    "below_threshold",
    "results",
    "message",
    "withheld",
    "unembedded",
    "next_cursor",
    "nearest",
)
_WEAK_SCORE = 0.5  # a hint for the reader, never a filter


def search_command(
    query: Annotated[str, Argument(help="What to search for.")],
    shared: options.UserSpacesOptions,
    mode: Annotated[str, Option(help="keyword, semantic or hybrid.")] = "hybrid",
    limit: Annotated[int, Option(min=1, max=200, help="Number of results, at most 200.")] = 10,
    since: options.SinceOption = None,
    until: options.UntilOption = None,
    time: options.TimeOption = None,
    role: options.RoleOption = None,
    kind: Annotated[str | None, Option(help="message or memory.")] = None,
    memory_type: Annotated[
        list[str] | None, Option("--type", help="Memory type; repeatable.")
    ] = None,
    session: options.Session = None,
    agent: options.Agent = None,
    keyword: Annotated[
        list[str] | None, Option(help="Require at least one of these words; repeatable.")
    ] = None,
    syntax: Annotated[
        str, Option(help='plain, or query: words, "phrases", AND, OR, NOT, -word, (), a*.')
    ] = "plain",
    min_score: Annotated[float, Option(help="Lowest score to show, 0 to 1.")] = 0.0,
    allow_sensitive: options.AllowSensitive = False,
    now: Annotated[str | None, Option(help='Reference time for "yesterday" and the like.')] = None,
    cursor: options.CursorOption = None,
) -> None:
    """Search a user's messages and memories."""
    from memrecall.search import SearchRequest
    from memrecall.text.query import parse_query, positive_words

    request = SearchRequest(
        query=query,
        mode=mode,  # type: ignore[arg-type]  # checked by SearchRequest, which names the value
        syntax=syntax,  # type: ignore[arg-type]
        limit=limit,
        threshold=min_score,
        since=options.read_time("--since", since),
        until=options.read_time("--until", until),
        time=time,
        role=options.read_role(role),
        kind=kind,  # type: ignore[arg-type]
        memory_types=tuple(memory_type or ()),
        session_id=session,
        keywords=tuple(keyword or ()),
        now=options.read_time("--now", now),
        cursor=cursor,
    )
    scope = shared.scope(agent, sensitive=allow_sensitive)
    page = shared.with_library(lambda library: library.search(scope, request))
    if shared.json:
        output.print_json({name: getattr(page, name) for name in _PAGE_FIELDS})
    else:
        # The words to highlight, without the operators and exclusions of a query.
        words = positive_words(parse_query(query)) if syntax == "query" else [query]
        _print_page(page, words)


def _print_page(page: Any, words: Sequence[str]) -> None:
    from memrecall.search.results import origin_fields

    terminal = output.console()
    for number, hit in enumerate(page.results, 1):
        speaker = output.escape(hit.speaker or hit.role or hit.memory_type)
        terminal.print(
            f"[bold]{number:>2}[/bold]  [green]{hit.score:.2f}[/green]  [dim]{hit.kind}[/dim] "
            f"{output.minute_of(hit.ts)}  [bold]{speaker}[/bold]  "
            f"[dim]{output.escape(hit.key)}[/dim]"
        )
        terminal.print(f"    {_passage(hit, words)}")
        for origin in origin_fields(hit).values():
            terminal.print(f"    {output.escape(origin)}")
        parts = {
            "words": hit.why.lexical,
            "meaning": hit.why.semantic,
            "thread": hit.why.thread,
            "neighbours": hit.why.neighbours,
            "time": hit.why.time,
        }
        positive = [f"{name} {value:+.1f}" for name, value in parts.items() if value >= 0.05]
        reasons = ", ".join(positive) or "the other candidates match less"
        terminal.print(f"    [dim]why: {reasons}[/dim]")
    if page.results:
        more = "; --limit shows more" if page.next_cursor else ""
        terminal.print(f"[dim]{len(page.results)} of {page.total_found} found{more}[/dim]")
        if page.results[0].score < _WEAK_SCORE:
            terminal.print(f"no score reaches {_WEAK_SCORE}: the answer may not be stored")
    if page.message:
        terminal.print(output.escape(page.message))


def _passage(hit: Any, words: Sequence[str]) -> str:
    """Return the best passage of a hit, with the query's words highlighted."""
    from memrecall.text.snippets import snippets

    # Control characters, which clean text cannot contain, mark the words until it is escaped.
    start, end = "\x02", "\x03"
    passages = snippets(hit.content or hit.summary, words, limit=1, before=start, after=end)
    text = " ".join(passages).replace("\n", " ")
    pieces = text.replace(end, start).split(start)
    styled = [
        f"[yellow]{output.escape(piece)}[/yellow]" if at % 2 else output.escape(piece)
        for at, piece in enumerate(pieces)
    ]
    return "".join(styled)


def graph_command(
    shared: options.UserReadingOptions,
    entity: Annotated[
        str | None, Argument(help="Entity whose relations to show; default: all entities.")
    ] = None,
    depth: Annotated[int, Option(min=1, max=6, help="Number of steps, at most 6.")] = 1,
    as_of: options.AsOfOption = None,
    limit: Annotated[int, Option(min=1, max=1000, help="Number of rows, at most 1000.")] = 100,
    cursor: options.CursorOption = None,
    agent: options.Agent = None,
) -> None:
    """Show a user's knowledge graph: entities and relations."""
    result = shared.with_memory(
        lambda memory: memory.graph(entity, depth=depth, as_of=as_of, limit=limit, cursor=cursor),
        agent,
        sensitive=False,
    )
    lines = []
    for item in result.get("entities", ()):
        aliases = [name for name in item["aliases"] if name != item["name"]]
        names = f" = {', '.join(aliases)}" if aliases else ""
        lines.append(f"{output.escape(item['name'] + names)} [dim]{item['type']}[/dim]")
    for item in result.get("relations", ()):
        until = f" until {item['valid_to'][:10]}" if item["valid_to"] else ""
        line = f"{item['source']} —{item['relationship']}→ {item['destination']}"
        lines.append(f"{output.escape(line)}[dim]{until}[/dim]")
    shared.print_page(result, lines, empty="nothing found")
