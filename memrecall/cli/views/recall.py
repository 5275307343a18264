"""The terminal view of a recall, live or from its stored trace."""

from datetime import tzinfo
from itertools import groupby
from typing import Any

from rich.text import Text

from memrecall.agent.display import format_resolved_time, remove_quotations, trace_time_zone
from memrecall.agent.result import Nearby, RecalledMemory, RecallResult
from memrecall.agent.tools import HANDOFF, SEARCH
from memrecall.agent.trace_events import (
    CallEvent,
    EventKind,
    FallbackEvent,
    HandoffEvent,
    IterationEvent,
    ModelEvent,
    ResultEvent,
    StartEvent,
    SteerEvent,
    StopEvent,
    TextEvent,
    ThoughtEvent,
    TraceEvent,
)
from memrecall.cli.output import count_noun, draw_bar, flatten, indent, sanitize, truncate, wrap
from memrecall.cli.views import tools as tool_lines
from memrecall.types import format_minute, to_zone

Lines = list[Text]
Fields = dict[str, Any]

_MARGIN = 4
_MAX_QUOTE_LINES = 12
_MAX_BRIEF_LINES = 4
_WAITING = {
    EventKind.ITERATION: "asking the model",
    EventKind.RESULT: "asking the model",
    EventKind.STEER: "asking the model",
    EventKind.FALLBACK: "continuing by rules",
}


def heading(title: str, width: int) -> Text:
    """Return a rule across the terminal with a title."""
    rule = "─" * max(width - len(title) - 4, 0)
    return Text.assemble(("── ", "dim"), title, (f" {rule}", "dim"))


class RecallView:
    """Renders one recall: its events in order, then its result.

    `brief` renders a call as one line and omits the model's reasoning.
    """

    def __init__(self, width: int, *, brief: bool = False) -> None:
        self._width = width
        self._body_width = width - _MARGIN
        self._brief = brief
        self._turn = 0
        self._raw_arguments: dict[str, str] = {}  # by call id, as the model wrote them
        self._seen_texts: dict[str, str] = {}  # by memory key, from results
        self._last_search: Fields = {}  # arguments

    def render_event(self, event: TraceEvent) -> Lines:
        """Return the lines of one event; some events have none."""
        match event:
            case StartEvent():
                return self._start(event)
            case IterationEvent():
                return self._iteration(event)
            case ModelEvent():
                return self._model(event)
            case CallEvent():
                # Rendered with its result, which has the arguments after validation.
                self._raw_arguments[event.id] = event.arguments
            case ResultEvent():
                return self._result(event)
            case HandoffEvent():
                return self._handoff(event)
        return self._remark(event)

    def _remark(self, event: TraceEvent) -> Lines:
        match event:
            case SteerEvent():
                return self._warning(f"corrected ({event.reason})", event.text)
            case FallbackEvent():
                problem = event.problem or event.reason
                return self._warning("the model cannot continue, falling back to rules", problem)
            case StopEvent():
                return self._warning(f"stopped ({event.reason})", event.problem)
            case ThoughtEvent() if not self._brief:
                thought = Text(sanitize(event.text).strip(), "italic")
                return self._in_turn(event, wrap(thought, self._body_width))
            case TextEvent() if not self._brief:
                # The first lines of what the model wrote instead of a call are enough.
                text = Text(flatten(event.text), "dim")
                return self._in_turn(event, wrap(text, self._body_width)[:2])
        return []

    def describe_wait(self, event: TraceEvent) -> str:
        """Return what the recall waits for after an event."""
        if isinstance(event, CallEvent):
            return f"running {flatten(event.tool)}"
        return _WAITING.get(event.kind, "")

    def render_result(self, result: RecallResult) -> Lines:
        """Return what belongs to no event: evidence, remarks and cost."""
        zone = trace_time_zone(result.trace)
        lines = self._times(result, zone)
        for number, memory in enumerate(result.memories, 1):
            lines += [Text(), *self._evidence(number, memory, zone)]
        remarks = [line for remark in _remarks(result) for line in wrap(remark, self._body_width)]
        lines += [Text(), *indent(remarks, _MARGIN)] if remarks else []
        footer = wrap(Text(_cost(result), "dim"), self._body_width)
        return [*lines, Text(), *indent(footer, _MARGIN)]

    def _start(self, event: StartEvent) -> Lines:
        query = wrap(Text(sanitize(event.asked), "bold"), self._body_width)
        if len(query) > _MAX_BRIEF_LINES:
            query = [*query[:_MAX_BRIEF_LINES], Text("…", "dim")]
        lines = indent(query, _MARGIN, Text(" ?", "bold cyan"))
        if self._brief:
            return lines
        messages = f", {event.given} messages passed" if event.given > 1 else ""
        about = f"{flatten(event.model)}, {tool_lines.local_minute(event.now)}{messages}"
        return [*lines, *indent([Text(about, "dim")], _MARGIN)]

    def _iteration(self, event: IterationEvent) -> Lines:
        if self._brief:
            return []
        title = f"iteration {event.iteration}, {count_noun(event.shown, 'message')} shown"
        title += f" (window of {event.window})" if event.shown != event.window else ""
        return [Text(), heading(title, self._width)]

    def _model(self, event: ModelEvent) -> Lines:
        if event.failed:
            return self._warning("the model failed", event.failed)
        if self._brief:
            return []
        facts = []
        if event.tool_choice not in ("required", "auto"):
            facts.append(f"last turn: only {event.tool_choice} is allowed")
        if event.prompt_tokens or event.completion_tokens:
            tokens = f"{event.prompt_tokens:,} + {event.completion_tokens:,} tokens"
            facts.append(f"{tokens}, {event.seconds:.1f} s")
        if event.purpose != "recall" and facts:
            facts.insert(0, event.purpose)
        return self._in_turn(event, [Text(", ".join(facts), "dim")]) if facts else []

    def _result(self, event: ResultEvent) -> Lines:
        known_keys = set(self._seen_texts)
        self._remember_texts(event.output or {})
        raw = self._raw_arguments.pop(event.id, "")
        arguments = event.arguments
        call = tool_lines.call_line(event.tool, arguments, raw)
        outcome = flatten(tool_lines.outcome(event))
        style = "yellow" if event.error else "dim"
        if self._brief:
            return self._brief_call(event.tool, arguments, call, Text(outcome, style))
        lines = indent(wrap(call, self._body_width - 2), 2, Text("▸", "cyan"))
        duration = f"{event.seconds:.2f} s" if (event.seconds or 0.0) >= 0.1 else ""
        options = tool_lines.search_options(arguments) if event.tool == SEARCH else ()
        facts = [", ".join(options), outcome, duration]
        about = Text("; ".join(filter(None, facts)), style)
        below = wrap(about, self._body_width - 2) if about else []
        below += tool_lines.result_lines(event, self._body_width - 2, known_keys)
        return self._in_turn(event, [*lines, *indent(below, 2)])

    def _brief_call(self, tool: str, arguments: Fields, call: Text, outcome: Text) -> Lines:
        if tool == HANDOFF and not outcome:
            return []  # the handoff event follows
        if tool == SEARCH and arguments:
            changes = tool_lines.difference(arguments, self._last_search)
            call = Text.assemble((tool, "cyan"), f" again, {changes}") if changes else call
            self._last_search = arguments
        outcome.truncate(self._body_width // 2, overflow="ellipsis")
        line = truncate(call, self._body_width - 4 - outcome.cell_len)
        line = Text.assemble(line, "  ", outcome) if outcome else line
        return indent([line], _MARGIN + 2, Text("    ▸", "cyan"))

    def _remember_texts(self, output: Fields) -> None:
        """Remember the texts of a result, to recognise them when a summary quotes them."""
        items = [output, *output.get("results", []), *output.get("before", [])]
        for item in [*items, *output.get("after", []), *output.get("sources", [])]:
            text = item.get("content_preview") or item.get("content")
            if item.get("memory_key") and text:
                self._seen_texts[item["memory_key"]] = text

    def _warning(self, title: str, details: str) -> Lines:
        text = Text.assemble((title, "yellow"), (f": {flatten(details)}" if details else ""))
        return indent(wrap(text, self._body_width), _MARGIN, Text("  !", "yellow"))

    def _in_turn(self, event: TraceEvent, lines: Lines) -> Lines:
        """Indent lines, with the turn's number in the margin if it is new."""
        is_new = event.turn != self._turn
        self._turn = event.turn
        return indent(lines, _MARGIN, Text(f"{event.turn:>2}", "dim") if is_new else None)

    def _handoff(self, event: HandoffEvent) -> Lines:
        keys, confidence = event.keys, event.confidence
        style = tool_lines.score_style(confidence)
        summary_count = count_noun(len(keys), "memory") if keys else "nothing"
        head = Text.assemble(
            (f"{confidence:.2f} ", style),
            draw_bar(confidence, style),
            (f"  {summary_count} handed off", "dim"),
        )
        quotes = [self._seen_texts[key] for key in keys if key in self._seen_texts]
        words = remove_quotations(event.summary, quotes)
        summary = wrap(Text(sanitize(words)), self._body_width) if words else []
        lines = [] if self._brief else [Text(), heading("handoff", self._width)]
        lines += indent([head, *summary], _MARGIN)
        if event.question:
            question = wrap(Text(sanitize(event.question), "cyan"), self._body_width)
            lines += indent(question, _MARGIN, Text("  ?", "cyan"))
        return lines

    def _times(self, result: RecallResult, zone: tzinfo) -> Lines:
        times = ", ".join(
            f"{flatten(time.words)} = {format_resolved_time(time, zone)}" for time in result.times
        )
        return indent(wrap(Text(times, "dim"), self._body_width), _MARGIN) if times else []

    def _evidence(self, number: int, memory: RecalledMemory, zone: tzinfo) -> Lines:
        speaker = memory.speaker or memory.role or memory.memory_type
        time = format_minute(memory.ts, zone)
        label = f"  {time}  {flatten(memory.memory_key)}"
        head = Text.assemble((flatten(speaker), "bold"), (label, "dim"))
        if memory.relevance_score is not None:
            head.append(
                f"  {memory.relevance_score:.2f}", tool_lines.score_style(memory.relevance_score)
            )
        lines = [head]
        lines += self._nearby([*memory.sources, *memory.before])
        lines += tool_lines.mark_lines(self._quote(memory))
        lines += self._nearby(memory.after)
        dates = [
            f"{flatten(when.words)} = {format_resolved_time(when, zone)}" for when in memory.times
        ]
        if memory.valid_to is not None:
            dates.append(f"valid until {to_zone(memory.valid_to, zone):%Y-%m-%d}")
        if memory.claimed_by is not None:
            keys = ", ".join(memory.conflicts_with)
            dates.append(f"unconfirmed claim of {memory.claimed_by}, conflicts with {keys}")
        lines += wrap(Text(", ".join(dates), "magenta"), self._body_width) if dates else []
        return indent(lines, _MARGIN, Text(f"{number:>2}", "bold cyan"))

    def _nearby(self, messages: list[Nearby]) -> Lines:
        width = self._body_width
        return [tool_lines.nearby_line(near.speaker, near.content, width) for near in messages]

    def _quote(self, memory: RecalledMemory) -> Lines:
        limit = _MAX_BRIEF_LINES if self._brief else _MAX_QUOTE_LINES
        lines = wrap(Text(sanitize(memory.content).strip()), self._body_width - 2)
        if len(lines) <= limit:
            return lines
        rest = f"… {len(memory.content):,} characters in all; --json shows them"
        return [*lines[:limit], Text(rest, "dim")]


def _remarks(result: RecallResult) -> list[Text]:
    """Return warnings about the result."""
    remarks = []
    if result.memories and not result.judged:
        remarks.append("not judged: the recall ended before the agent could judge the evidence")
    if result.has_withheld_contents:
        remarks.append(
            "contents are not in this trace: the recall could see sensitive memories, "
            "and a trace can be read without that permission"
        )
    if result.withheld:
        memories = count_noun(result.withheld, "sensitive memory")
        remarks.append(f"{memories} withheld; --allow-sensitive includes them")
    if result.keys_dropped:
        keys = flatten(", ".join(result.keys_dropped))
        remarks.append(f"keys dropped, because this recall never saw them: {keys}")
    remarks += [f"degraded: {flatten(reason)}" for reason in result.degraded]
    return [Text(remark, "yellow") for remark in remarks]


def _cost(result: RecallResult) -> str:
    usage = result.usage
    parts = [
        result.stop_reason.value,
        f"window {' → '.join(str(size) for size, _ in groupby(result.windows))}",
        f"{count_noun(int(usage['model_calls']), 'model call')}",
        f"{count_noun(int(usage['tool_calls']), 'tool call')}",
    ]
    tokens = int(usage["prompt_tokens"] + usage["completion_tokens"])
    parts += [f"{tokens:,} tokens"] if tokens else []
    return ", ".join([*parts, f"{usage['seconds']:.1f} s", result.trace.trace_id])
