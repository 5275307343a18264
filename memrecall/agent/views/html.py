"""Notebook displays of recall results and traces: self-contained HTML.

Styles are inline, colours are inherited, there is no script and nothing is loaded. Text is escaped
on insertion; only `Html` is not. The text is readable without styles, which some viewers drop.
"""

from collections.abc import Container, Iterable
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
_MAX_LENGTH = 2_000  # characters of one text: notebooks store their output
_CUT = {
    "en": "{ellipsis} ({count:,} characters in all)",
    "zh": "{ellipsis}（共 {count:,} 字，已截短）",
}
_BOX = "max-width:56em;line-height:1.5;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere"
_DIM = "opacity:.65;font-size:.92em"
_QUOTE = "margin:.7em 0;padding:.1em 0 .1em .8em;border-left:3px solid rgba(128,128,128,.4)"


class Html(str):
    """HTML made in this module; any other string is text and escaped on insertion."""

    __slots__ = ()


def _tag(name: str, *parts: str, style: str = "") -> Html:
    """Return an element around parts, which are HTML or text to escape and cut if very long."""
    inner = "".join(part if isinstance(part, Html) else escape(_clip(part)) for part in parts)
    style_attribute = f' style="{style}"' if style else ""
    return Html(f'<{name} dir="auto"{style_attribute}>{inner}</{name}>')


def _clip(text: str) -> str:
    cut = _CUT[language_of(text)].format(ellipsis=ELLIPSIS, count=len(text))
    return truncate_text(text, _MAX_LENGTH, cut)


def _note(text: str) -> Html:
    return _tag("div", text, style=_DIM)


def result_html(result: "RecallResult") -> str:
    """Return a result as HTML: confidence, summary, evidence, and the folded steps."""
    viewer = RecallViewer(result.language)
    view = viewer.view_result(result)
    steps = _steps(viewer, result.trace.events, without=("call", "start", "handoff"))
    confidence = f"{viewer.say('confidence')} {view.confidence:.2f} · {view.handed_off}"
    parts = [
        _tag("div", _tag("strong", view.request)),
        _tag("div", confidence),
        _tag("div", view.summary),
        *([_tag("div", _tag("em", f"? {view.question}"))] if view.question else []),
        *map(_note, view.times),
        *map(_item, view.evidence),
        *(_tag("div", f"⚠ {text}") for text in (view.problem, *view.remarks) if text),
        _folded(" · ".join([viewer.say("steps"), *view.cost, result.model]), *steps),
    ]
    return str(_tag("div", *parts, style=_BOX))


def trace_html(trace: "Trace") -> str:
    """Return a trace as HTML: its events in order, with tool results folded."""
    started = format_minute(trace.started_at, trace_time_zone(trace))
    steps = _steps(RecallViewer(trace.start.language), trace.events)
    return str(_tag("div", _note(f"{started} · {trace.trace_id}"), *steps, style=_BOX))


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
            return _tag("div", f"⚠ {view.title}", f": {view.text}" if view.text else "")
        case "thought" | "text":
            return _tag("div", _tag("em", view.text))
        case "tool" | "handoff":
            facts = (view.subject, options, view.outcome, view.text)
            head = [_tag("strong", view.title), " ", " · ".join(filter(None, facts))]
            return _folded(_tag("span", *head), *map(_item, view.items))
    return _tag("div", view.title, _note(options))


def _folded(head: str, *parts: str) -> Html:
    return _tag("details", _tag("summary", head, style=f"{_DIM};cursor:pointer"), *parts)


def _item(item: ItemView) -> Html:
    score = [] if item.score is None else [f"{item.score:.2f}"]
    head = " · ".join(["", item.time, item.key, *score])
    return _tag(
        "div",
        _tag("div", _tag("strong", item.label), _tag("span", head, style=_DIM)),
        *map(_neighbor, item.before),
        _tag("div", item.text),
        *map(_neighbor, item.after),
        *map(_note, item.notes),
        style=_QUOTE,
    )


def _neighbor(item: ItemView) -> Html:
    return _note(f"{item.label}: {single_line(item.text, _MAX_NEIGHBOR)}")
