"""Notebook displays of recall results and traces: self-contained HTML.

Styles are inline, colours are inherited or work on light and dark, there is no script and nothing
is loaded. Text is escaped on insertion; only `Html` is not. The text is readable without styles,
which some viewers drop.
"""

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from memrecall.agent.trace_events import TraceEvent
from memrecall.agent.views.recall import ItemView, RecallViewer, StepView, trace_time_zone
from memrecall.text.language import language_of
from memrecall.text_length import ELLIPSIS, single_line, truncate_text
from memrecall.types import format_minute

if TYPE_CHECKING:  # they show themselves with this module
    from memrecall.agent.result import RecallResult
    from memrecall.agent.trace import Trace

_MAX_NEIGHBOR = 200  # characters
BOX = "max-width:56em;line-height:1.5;text-align:left"
DIM = "opacity:.65;font-size:.92em"
LINE = "margin:.15em 0"
TEXT = "margin:.15em 0;white-space:pre-wrap;overflow-wrap:anywhere"
TITLE = f"{TEXT};font-weight:600"
QUOTE = "margin:.7em 0;padding:.1em 0 .1em .8em;border-left:3px solid rgba(128,128,128,.4)"
CODE = "font-family:ui-monospace,monospace;font-size:.88em"
CELL = "padding:.1em .8em .1em 0;vertical-align:top;text-align:left"
NARROW = f"{CELL};white-space:nowrap"
WIDE = f"{CELL};white-space:normal;overflow-wrap:anywhere"
GREEN, AMBER, RED = "#2f9e5c", "#b8861b", "#cb5248"

_MAX_LENGTH = 2_000  # characters of one text: notebooks store their output
_CUT = {
    "en": "{ellipsis} ({count:,} characters in all)",
    "zh": "{ellipsis}（共 {count:,} 字，已截短）",
}


class Html(str):
    """HTML made in this module; any other string is text and escaped on insertion."""

    __slots__ = ()


def tag(name: str, *parts: str, style: str = "") -> Html:
    """Return an element around parts, which are HTML or text to escape."""
    inner = "".join(part if isinstance(part, Html) else escape(part) for part in parts)
    style_attribute = f' style="{escape(style)}"' if style else ""
    return Html(f'<{name} dir="auto"{style_attribute}>{inner}</{name}>')


def box(*parts: str) -> Html:
    """Return the outer element of an object's view."""
    return tag("div", *parts, style=BOX)


def clip(text: str) -> str:
    """Return the text, or the start and length of a very long one."""
    cut = _CUT[language_of(text)].format(ellipsis=ELLIPSIS, count=len(text))
    return truncate_text(text, _MAX_LENGTH, cut)


def colour_of(share: float) -> str:
    """Return green, amber or red for a share between 0 and 1."""
    if share >= 0.6:
        return GREEN
    return AMBER if share >= 0.3 else RED


def meter(share: float, colour: str) -> Html:
    """Return a bar filled to a share."""
    width = f"width:{round(share * 100)}%;height:100%;background:{colour};border-radius:3px"
    track = "display:inline-block;width:9em;height:.45em;border-radius:3px;overflow:hidden"
    track += ";background:rgba(128,128,128,.25);vertical-align:middle;margin:0 .6em"
    return tag("span", tag("span", style=f"display:block;{width}"), style=track)


def warning(*parts: str) -> Html:
    """Return a highlighted warning."""
    return tag("div", *parts, style=f"{TEXT};color:{AMBER}")


def note(*parts: str) -> Html:
    """Return a line of secondary text."""
    return tag("div", *parts, style=f"{LINE};{DIM}")


def folded(head: str, *parts: str) -> Html:
    """Return parts that are shown on a click."""
    return tag("details", tag("summary", head, style=f"{DIM};cursor:pointer"), *parts)


def cell(text: str, style: str = NARROW) -> Html:
    """Return a table cell; long words break only in the wide style."""
    return tag("td", text, style=style)


def score_cell(score: float | None) -> Html:
    """Return a cell with a coloured score, empty if there is none."""
    if score is None:
        return cell("")
    return cell(f"{score:.2f}", f"{NARROW};color:{colour_of(score)}")


def table(rows: Iterable[Sequence[Html]]) -> Html:
    """Return a table of rows."""
    body = (tag("tr", *cells) for cells in rows)
    return tag("table", *body, style="border-collapse:collapse;margin:.3em 0")


def result_html(result: "RecallResult") -> str:
    """Return a result as HTML: confidence, summary, evidence, and the folded steps."""
    viewer = RecallViewer(result.language)
    view = viewer.view_result(result)
    colour = colour_of(view.confidence)
    score = tag("span", f"{view.confidence:.2f}", style=f"color:{colour};font-weight:600")
    warnings = [view.problem, *view.remarks]
    parts = [
        tag("div", clip(view.request), style=TITLE),
        tag(
            "div",
            viewer.say("confidence"),
            meter(view.confidence, colour),
            score,
            f" · {view.handed_off}",
            style=LINE,
        ),
        tag("div", clip(view.summary), style=TEXT),
        *([tag("div", tag("em", f"? {view.question}"), style=TEXT)] if view.question else []),
        *map(note, view.times),
        *map(_item, view.evidence),
        *(warning(text) for text in warnings if text),
        folded(
            " · ".join([viewer.say("steps"), *view.cost, result.model]),
            *_steps(viewer, result.trace.events, without=("call", "start", "handoff")),
        ),
    ]
    return str(box(*parts))


def trace_html(trace: "Trace") -> str:
    """Return a trace as HTML: its events in order, with tool results folded."""
    started = format_minute(trace.started_at, trace_time_zone(trace))
    about = note(f"{started} · {trace.trace_id}")
    return str(box(about, *_steps(RecallViewer(trace.start.language), trace.events)))


def _steps(
    viewer: RecallViewer, events: Iterable[TraceEvent], without: Container[str] = ("call",)
) -> list[Html]:
    """Return the steps in order; a call is shown with its result."""
    views = [(event.kind, viewer.view_event(event)) for event in events]
    return [_step(view) for kind, view in views if kind not in without]


def _step(view: StepView) -> Html:
    options = " · ".join(view.options)
    match view.kind:
        case "warning":
            return warning(view.title, f": {view.text}" if view.text else "")
        case "thought" | "text":
            return tag("div", clip(view.text), style=f"{TEXT};font-style:italic")
        case "tool" | "handoff":
            parts = (view.subject, options, view.outcome, clip(view.text))
            title = tag("strong", view.title, style=CODE)
            head = tag("span", title, " ", clip(" · ".join(filter(None, parts))))
            body = [_item(view.items[0])] if len(view.items) == 1 else []
            return folded(head, *(body or [table(map(_hit, view.items))]))
    style = TITLE if view.kind == "start" else LINE
    return tag("div", clip(view.title), note(options), style=style)


def _hit(item: ItemView) -> list[Html]:
    return [
        score_cell(item.score),
        cell(item.time, f"{NARROW};{DIM}"),
        cell(tag("strong", item.label)),
        cell(single_line(item.text), WIDE),
    ]


def _item(item: ItemView) -> Html:
    score = [] if item.score is None else [f"{item.score:.2f}"]
    head = " · ".join(["", item.time, item.key, *score])
    return tag(
        "div",
        tag("div", tag("strong", item.label), tag("span", head, style=DIM), style=LINE),
        *map(_neighbor, item.before),
        tag("div", clip(item.text), style=TEXT),
        *map(_neighbor, item.after),
        *map(note, item.notes),
        style=QUOTE,
    )


def _neighbor(item: ItemView) -> Html:
    return note(f"{item.label}: {single_line(item.text, _MAX_NEIGHBOR)}")
