"""The terminal view of a recall's tool calls: arguments as applied, and results."""

from collections.abc import Callable, Container, Iterator
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memrecall.agent.tools import DETAIL, EXPANSION, HANDOFF, KEYWORDS, SEARCH
from memrecall.agent.trace_events import ResultEvent
from memrecall.cli.output import flatten, truncate, wrap
from memrecall.types import cut_to_minute

Fields = dict[str, Any]

_MAX_NAME_WIDTH = 12
_MAX_ARGUMENT_LENGTH = 300
_MAX_DETAIL_LINES = 3


def call_line(tool: str, arguments: Fields, raw: str = "") -> Text:
    """Return the tool with its main argument; the `raw` arguments if they were invalid."""
    describe = _SUBJECTS.get(tool)
    subject = describe(arguments) if describe and arguments else raw
    return Text.assemble((flatten(tool), "cyan"), " ", flatten(subject)[:_MAX_ARGUMENT_LENGTH])


def difference(arguments: Fields, previous: Fields) -> str:
    """Return the options that changed since the previous search for the same query."""
    if arguments.get("query") != previous.get("query"):
        return ""
    unchanged = set(search_options(previous))
    return ", ".join(text for text in search_options(arguments) if text not in unchanged)


def outcome(event: ResultEvent) -> str:
    """Return a short description of a call's result."""
    output = event.output or {}
    if event.error:
        return f"{event.error}: {output.get('message') or event.text}"
    describe = _OUTCOMES.get(event.tool)
    return describe(output) if describe and output else ""  # large traces lack their outputs


def result_lines(event: ResultEvent, width: int, known_keys: Container[str] = ()) -> list[Text]:
    """Return the hits or the text of a result; hits of `known_keys` are dimmed."""
    output = event.output or {}
    if event.error:
        return []
    if event.tool == SEARCH:
        return [*_hit_lines(output.get("results", []), width, known_keys), *_notes(output, width)]
    if event.tool == DETAIL:
        return list(_detail_lines(output, width))
    return []


def _hit_lines(hits: list[Fields], width: int, known_keys: Container[str]) -> list[Text]:
    """Return hits in columns: score, time, speaker, and the beginning of the text."""
    names = [_speaker(hit) for hit in hits]
    name_width = min(max(map(cell_len, names), default=0), _MAX_NAME_WIDTH)
    lines = []
    for hit, name in zip(hits, names, strict=True):
        line = Text.assemble(
            (f"{hit['relevance_score']:.2f}", score_style(hit["relevance_score"])),
            (f"  {local_minute(hit['created_at'])}  ", "dim"),
            (set_cell_size(name, name_width), "bold"),
            "  ",
            flatten(hit.get("summary") or hit.get("passage") or hit["content_preview"]),
        )
        if hit["memory_key"] in known_keys:
            line.stylize("dim")
        lines.append(truncate(line, width))
    return lines


def score_style(score: float) -> str:
    """Return the colour of a score: green, yellow or red."""
    if score >= 0.6:
        return "green"
    return "yellow" if score >= 0.3 else "red"


def local_minute(moment: str) -> str:
    """Shorten an ISO time to the minute."""
    return flatten(cut_to_minute(moment))


def nearby_line(speaker: str, content: str, width: int) -> Text:
    """Return a neighbouring message as a dimmed line."""
    return truncate(Text(f"  {flatten(speaker)}  {flatten(content)}", "dim"), width)


def mark_lines(lines: list[Text]) -> list[Text]:
    """Add a bar at the left, to set lines apart from their neighbours."""
    return [Text.assemble(("│ ", "cyan"), line) for line in lines]


def _speaker(hit: Fields) -> str:
    return flatten(hit.get("speaker") or hit.get("role") or hit.get("memory_type") or "memory")


def _detail_lines(output: Fields, width: int) -> Iterator[Text]:
    for near in [*output.get("sources", []), *output.get("before", [])]:
        yield nearby_line(near["speaker"], near["content"], width)
    message = Text.assemble((_speaker(output), "bold"), "  ", flatten(output.get("content") or ""))
    lines = wrap(message, width - 2)
    ellipsis = [Text("…", "dim")] if len(lines) > _MAX_DETAIL_LINES else []
    yield from mark_lines([*lines[:_MAX_DETAIL_LINES], *ellipsis])
    for near in output.get("after", []):
        yield nearby_line(near["speaker"], near["content"], width)


def _notes(output: Fields, width: int) -> list[Text]:
    style = "yellow" if output.get("withheld") else "dim"
    return wrap(Text(flatten(output["message"]), style), width) if output.get("message") else []


def search_options(arguments: Fields) -> Iterator[str]:
    """Yield the arguments of a search other than its query; nothing if they were invalid."""
    if not arguments:
        return
    yield arguments["search_mode"]
    yield f"limit {arguments['limit']}"
    yield f"score ≥ {arguments['min_relevance_score']}"
    if "time_range_days" in arguments:
        yield f"last {arguments['time_range_days']} days"
    yield from (
        f"{name} {flatten(arguments[name])}" for name in ("since", "until") if name in arguments
    )
    if "role" in arguments:
        yield f"role {arguments['role']}"
    for name, label in (("keywords", "with"), ("memory_types", "of type")):
        if arguments.get(name):
            yield f"{label} {flatten(' '.join(arguments[name]))}"


def _count_found(output: Fields) -> str:
    total, returned = output["total_found"], len(output.get("results", []))
    return f"{total} found" if total == returned else f"{returned} of {total} found"


def _keywords(output: Fields) -> str:
    words = [f"{word['keyword']} {word['weight']:g}" for word in output.get("keywords", [])]
    return flatten(", ".join(words) or output.get("message") or "no keywords")


def _window(output: Fields) -> str:
    granted = "granted" if output.get("approved") else "refused"
    return f"{granted}: {flatten(output.get('message', ''))}"


_SUBJECTS: dict[str, Callable[[Fields], str]] = {
    SEARCH: lambda arguments: f"“{arguments['query']}”",
    KEYWORDS: lambda arguments: f"“{arguments['query']}”, at most {arguments['max_keywords']}",
    DETAIL: lambda arguments: str(arguments["memory_key"]),
    EXPANSION: lambda arguments: f"{arguments['current_size']} → {arguments['requested_size']}",
    HANDOFF: lambda arguments: ", ".join(arguments["relevant_memory_keys"]) or "nothing",
}
_OUTCOMES: dict[str, Callable[[Fields], str]] = {
    SEARCH: _count_found,
    KEYWORDS: _keywords,
    EXPANSION: _window,
}
