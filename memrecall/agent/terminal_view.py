"""The terminal view of a recall, live or from its stored trace."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memrecall.agent.tools import HANDOFF
from memrecall.agent.trace import CallEvent, EventKind, HandoffEvent, TraceEvent
from memrecall.agent.views import ItemView, RecallViewer, StepView
from memrecall.text.terminal import cut_line, draw_bar, flatten, indent, sanitize, score_style, wrap
from memrecall.types import split_writer

if TYPE_CHECKING:  # it shows itself with this module
    from memrecall.agent.result import RecallResult

_Lines = list[Text]

_MARGIN = 4
_MAX_NAME_WIDTH = 12
_MAX_QUOTE_LINES = 12
_MAX_BRIEF_LINES = 4
_WAITING = {
    EventKind.ITERATION: "asking the model",
    EventKind.RESULT: "asking the model",
    EventKind.STEER: "asking the model",
    EventKind.FALLBACK: "continuing offline",
}


def heading(title: str, width: int) -> Text:
    """Return a rule across the terminal with a title."""
    rule = "─" * max(width - len(title) - 4, 0)
    return Text.assemble(("── ", "dim"), title, (f" {rule}", "dim"))


def render_recall(result: "RecallResult") -> str:
    """Return the steps and the result of a recall as plain text."""
    view = RecallView(80)  # like the command line without a terminal
    lines = [line for event in result.trace.events for line in view.render_event(event)]
    return "\n".join(line.plain.rstrip() for line in [*lines, *view.render_result(result)])


class RecallView:
    """Renders one recall: its events in order, then its result.

    `brief` renders a call as one line and omits the model's reasoning. `withheld_hint` says how to
    see what was withheld.
    """

    def __init__(self, width: int, *, brief: bool = False, withheld_hint: str = "") -> None:
        self._withheld_hint = withheld_hint
        self._width = width
        self._body_width = width - _MARGIN
        self._brief = brief
        self._turn = 0
        self._viewer = RecallViewer("en")
        self._last_call: StepView | None = None

    def render_event(self, event: TraceEvent) -> _Lines:
        """Return the lines of one event; some events have none."""
        view = self._viewer.view_event(event)
        if isinstance(event, CallEvent | HandoffEvent):
            return []  # a call is rendered with its result, the handoff with the recall's result
        match view.kind:
            case "start":
                return self._start(view)
            case "warning":
                return self._warning(view)
            case "tool" if self._brief:
                return self._brief_call(view)
        if self._brief:
            return []
        match view.kind:
            case "iteration":
                return [Text(), heading(view.title, self._width)]
            case "tool":
                lines = self._call(view)
            case "thought":
                lines = wrap(Text(sanitize(view.text).strip(), "italic"), self._body_width)
            case "text":  # the first lines of what the model wrote instead of a call are enough
                lines = wrap(Text(flatten(view.text), "dim"), self._body_width)[:2]
            case _:  # a model call
                facts = [*view.options, f"{view.seconds:.1f} s"] if view.options else []
                lines = self._wrap(", ".join(facts), "dim")
        return self._in_turn(event, lines) if lines else []

    def describe_wait(self, event: TraceEvent) -> str:
        """Return what the recall waits for after an event."""
        if isinstance(event, CallEvent):
            return f"running {flatten(event.tool)}"
        return _WAITING.get(event.kind, "")

    def render_result(self, result: "RecallResult") -> _Lines:
        """Return the handoff, its evidence, remarks and the cost."""
        view = self._viewer.view_result(result)
        style = score_style(view.confidence)
        head = Text.assemble(
            (f"{view.confidence:.2f} ", style),
            draw_bar(view.confidence, style),
            (f"  {view.handed_off}", "dim"),
        )
        lines = [] if self._brief else [Text(), heading("handoff", self._width)]
        lines += indent([head, *self._wrap(view.summary)], _MARGIN)
        lines += indent(self._wrap(view.question, "cyan"), _MARGIN, Text("  ?", "cyan"))
        lines += indent(self._wrap(", ".join(view.times), "dim"), _MARGIN)
        for number, item in enumerate(view.evidence, 1):
            marker = Text(f"{number:>2}", "bold cyan")
            lines += [Text(), *indent(self._item(item, self._quote(item)), _MARGIN, marker)]
        hint = [self._withheld_hint] if result.withheld and self._withheld_hint else []
        remarks = [line for text in (*view.remarks, *hint) for line in self._wrap(text, "yellow")]
        cost = ", ".join([*view.cost, result.trace.trace_id])
        lines += [Text(), *indent(remarks, _MARGIN)] if remarks else []
        return [*lines, Text(), *indent(self._wrap(cost, "dim"), _MARGIN)]

    def _wrap(self, text: str, style: str = "") -> _Lines:
        return wrap(Text(sanitize(text), style), self._body_width) if text else []

    def _start(self, view: StepView) -> _Lines:
        query = self._wrap(view.title, "bold")
        if len(query) > _MAX_BRIEF_LINES:
            query = [*query[:_MAX_BRIEF_LINES], Text("…", "dim")]
        lines = indent(query, _MARGIN, Text(" ?", "bold cyan"))
        about = flatten(", ".join(view.options))
        return lines if self._brief else [*lines, *indent([Text(about, "dim")], _MARGIN)]

    def _warning(self, view: StepView) -> _Lines:
        details = f": {flatten(view.text)}" if view.text else ""
        text = Text.assemble((view.title, "yellow"), details)
        return indent(wrap(text, self._body_width), _MARGIN, Text("  !", "yellow"))

    def _in_turn(self, event: TraceEvent, lines: _Lines) -> _Lines:
        """Indent lines, with the turn's number in the margin if it is new."""
        is_new = event.turn != self._turn
        self._turn = event.turn
        return indent(lines, _MARGIN, Text(f"{event.turn:>2}", "dim") if is_new else None)

    def _call(self, view: StepView) -> _Lines:
        width = self._body_width - 2
        call = Text.assemble((flatten(view.title), "cyan"), f" {flatten(view.subject)[:300]}")
        duration = f"{view.seconds:.2f} s" if view.seconds >= 0.1 else ""
        facts = "; ".join(filter(None, [", ".join(view.options), view.outcome, duration]))
        style = "yellow" if view.has_failed else "dim"
        below = wrap(Text(flatten(facts), style), width) if facts else []
        if len(view.items) == 1 and not view.outcome:
            below += self._item(view.items[0], self._quote(view.items[0])[:_MAX_BRIEF_LINES])
        else:
            below += _hit_lines(view.items, width)
        below += wrap(Text(flatten(view.text), "dim"), width) if view.text else []
        return [*indent(wrap(call, width), 2, Text("▸", "cyan")), *indent(below, 2)]

    def _brief_call(self, view: StepView) -> _Lines:
        if view.title == HANDOFF and not view.has_failed:
            return []  # the result follows
        last, self._last_call = self._last_call, view
        subject = flatten(view.subject)
        if last is not None and (last.title, last.subject) == (view.title, view.subject):
            changes = [option for option in view.options if option not in last.options]
            subject = f"again, {flatten(', '.join(changes))}" if changes else subject
        call = Text.assemble((flatten(view.title), "cyan"), f" {subject}")
        outcome = Text(flatten(view.outcome), "yellow" if view.has_failed else "dim")
        outcome = cut_line(outcome, self._body_width // 2)
        line = cut_line(call, self._body_width - 4 - outcome.cell_len)
        line = Text.assemble(line, "  ", outcome) if outcome else line
        return indent([line], _MARGIN + 2, Text("    ▸", "cyan"))

    def _item(self, item: ItemView, quote: _Lines) -> _Lines:
        """Return a memory between the messages around it."""
        label = f"  {item.time}  {flatten(item.key)}"
        head = Text.assemble((flatten(item.label), "bold"), (label, "dim"))
        if item.score is not None:
            head.append(f"  {item.score:.2f}", score_style(item.score))
        return [
            head,
            *map(self._neighbor, item.before),
            *(Text.assemble(("│ ", "cyan"), line) for line in quote),
            *map(self._neighbor, item.after),
            *self._wrap(flatten(", ".join(item.notes)), "magenta"),
        ]

    def _neighbor(self, item: ItemView) -> Text:
        name = _fit_name(item, self._body_width // 2)
        text = Text(f"  {name}  {flatten(item.text)}", "dim")
        return cut_line(text, self._body_width - 2)

    def _quote(self, item: ItemView) -> _Lines:
        limit = _MAX_BRIEF_LINES if self._brief else _MAX_QUOTE_LINES
        lines = wrap(Text(sanitize(item.text).strip()), self._body_width - 4)
        if len(lines) <= limit:
            return lines
        rest = f"… {len(item.text):,} characters in all; --json shows them"
        return [*lines[:limit], Text(rest, "dim")]


def _fit_name(item: ItemView, width: int) -> str:
    """Return the name of who said an item, cut to a width; who wrote it stays whole."""
    name, writer = split_writer(flatten(item.label))
    return set_cell_size(name, min(cell_len(name), width)).rstrip() + writer


def _hit_lines(items: Iterable[ItemView], width: int) -> _Lines:
    """Return hits in columns: score, time, speaker, and the beginning of the text."""
    hits = list(items)
    names = [_fit_name(item, _MAX_NAME_WIDTH) for item in hits]
    width_of_names = max(map(cell_len, names), default=0)
    return [
        cut_line(
            Text.assemble(
                (f"{item.score or 0:.2f}", score_style(item.score or 0)),
                (f"  {flatten(item.time)}  ", "dim"),
                (set_cell_size(name, width_of_names), "bold"),
                f"  {flatten(item.text)}",
            ),
            width,
        )
        for item, name in zip(hits, names, strict=True)
    ]
