"""A tool call of a recall as lines of text: its arguments as applied, and what it brought."""

from collections.abc import Callable, Container, Iterator
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from memrecall.agent.trace import ResultEvent
from memrecall.cli.output import cut, flat, fold, padded

Fields = dict[str, Any]

_WIDEST_NAME = 12
_LONGEST_ARGUMENT = 300
_DETAIL_LINES = 3


def call_line(tool: str, arguments: Fields, written: str = "") -> Text:
    """The call: the tool, and what it was called with in the first place.

    Where the arguments could not be applied, they are shown as they were `written`.
    """
    told = _SUBJECTS.get(tool)
    subject = told(arguments) if told and arguments else written
    return Text.assemble((flat(tool), "cyan"), " ", flat(subject)[:_LONGEST_ARGUMENT])


def options_line(tool: str, arguments: Fields) -> str:
    """What else it was called with."""
    if tool == "search_memories" and arguments:
        return ", ".join(_search_options(arguments))
    return ""


def difference(arguments: Fields, before: Fields) -> str:
    """What a search has that the one before it had not, if both ask for the same."""
    if arguments.get("query") != before.get("query"):
        return ""
    known = set(_search_options(before))
    return ", ".join(told for told in _search_options(arguments) if told not in known)


def outcome(event: ResultEvent) -> str:
    """What the call came to, in a few words."""
    output = event.output or {}
    if event.error:
        return f"{event.error}: {output.get('message') or event.text}"
    told = _OUTCOMES.get(event.tool)
    return told(output) if told and output else ""  # a very large trace is kept without outputs


def result_lines(event: ResultEvent, width: int, known: Container[str] = ()) -> list[Text]:
    """What the call brought, without its outcome; hits that are `known` already are dimmed."""
    output = event.output or {}
    if event.error:
        return []
    if event.tool == "search_memories":
        return [*_hit_lines(output.get("results", []), width, known), *_notes(output, width)]
    if event.tool == "get_memory_detail":
        return list(_detail_lines(output, width))
    return []


def _hit_lines(hits: list[Fields], width: int, known: Container[str]) -> list[Text]:
    """Hits in columns: score, time, speaker, and as much of the text as there is room for."""
    names = [_speaker(hit) for hit in hits]
    room = min(max(map(cell_len, names), default=0), _WIDEST_NAME)
    lines = []
    for hit, name in zip(hits, names, strict=True):
        line = Text.assemble(
            (f"{hit['relevance_score']:.2f}", score_style(hit["relevance_score"])),
            (f"  {local_minute(hit['created_at'])}  ", "dim"),
            (padded(name, room), "bold"),
            "  ",
            flat(hit.get("summary") or hit.get("passage") or hit["content_preview"]),
        )
        if hit["memory_key"] in known:
            line.stylize("dim")
        lines.append(cut(line, width))
    return lines


def score_style(score: float) -> str:
    """Green is likely, yellow is perhaps, red is hardly."""
    if score >= 0.6:
        return "green"
    return "yellow" if score >= 0.3 else "red"


def local_minute(moment: str) -> str:
    """A time of the user's zone, to the minute."""
    return flat(moment[:16].replace("T", " "))


def nearby_line(speaker: str, content: str, width: int) -> Text:
    """What was said just before or after."""
    return cut(Text(f"  {flat(speaker)}  {flat(content)}", "dim"), width)


def marked(lines: list[Text]) -> list[Text]:
    """Lines with a mark at their left, to be told apart from what was said around them."""
    return [Text.assemble(("│ ", "cyan"), line) for line in lines]


def _speaker(hit: Fields) -> str:
    return flat(hit.get("speaker") or hit.get("role") or hit.get("memory_type") or "memory")


def _detail_lines(output: Fields, width: int) -> Iterator[Text]:
    for near in [*output.get("sources", []), *output.get("before", [])]:
        yield nearby_line(near["speaker"], near["content"], width)
    said = Text.assemble((_speaker(output), "bold"), "  ", flat(output.get("content") or ""))
    lines = fold(said, width - 2)
    left = [Text("…", "dim")] if len(lines) > _DETAIL_LINES else []
    yield from marked([*lines[:_DETAIL_LINES], *left])
    for near in output.get("after", []):
        yield nearby_line(near["speaker"], near["content"], width)


def _notes(output: Fields, width: int) -> list[Text]:
    style = "yellow" if output.get("withheld") else "dim"
    return fold(Text(flat(output["message"]), style), width) if output.get("message") else []


def _search_options(arguments: Fields) -> Iterator[str]:
    yield arguments["search_mode"]
    yield f"limit {arguments['limit']}"
    yield f"score ≥ {arguments['min_relevance_score']}"
    if "time_range_days" in arguments:
        yield f"last {arguments['time_range_days']} days"
    yield from (
        f"{name} {flat(arguments[name])}" for name in ("since", "until") if name in arguments
    )
    if "role" in arguments:
        yield f"said by {arguments['role']}"
    for name, shown in (("keywords", "with"), ("memory_types", "of type")):
        if arguments.get(name):
            yield f"{shown} {flat(' '.join(arguments[name]))}"


def _found(output: Fields) -> str:
    total, shown = output["total_found"], len(output.get("results", []))
    return f"{total} found" if total == shown else f"{shown} of {total} found"


def _keywords(output: Fields) -> str:
    words = [f"{word['keyword']} {word['weight']:g}" for word in output.get("keywords", [])]
    return flat(", ".join(words) or output.get("message") or "no keyword")


def _window(output: Fields) -> str:
    granted = "granted" if output.get("approved") else "refused"
    return f"{granted}: {flat(output.get('message', ''))}"


_SUBJECTS: dict[str, Callable[[Fields], str]] = {
    "search_memories": lambda given: f"“{given['query']}”",
    "extract_search_keywords": lambda given: f"“{given['query']}”, at most {given['max_keywords']}",
    "get_memory_detail": lambda given: str(given["memory_key"]),
    "expand_context_window": lambda given: f"{given['current_size']} → {given['requested_size']}",
    "handoff": lambda given: ", ".join(given["relevant_memory_keys"]) or "nothing",
}
_OUTCOMES: dict[str, Callable[[Fields], str]] = {
    "search_memories": _found,
    "extract_search_keywords": _keywords,
    "expand_context_window": _window,
}
