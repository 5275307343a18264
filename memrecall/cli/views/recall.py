"""A recall as a person reads it in a terminal: while it runs, or from its saved trace."""

from datetime import tzinfo
from itertools import groupby
from typing import Any

from rich.text import Text

from memrecall.agent.display import format_resolved_time, remove_quotations, trace_time_zone
from memrecall.agent.result import Nearby, RecalledMemory, RecallResult
from memrecall.agent.trace import (
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
from memrecall.cli.output import bar, count, cut, flat, fold, indent, printable
from memrecall.cli.views import tools as tool_lines

Lines = list[Text]
Fields = dict[str, Any]

_MARGIN = 4
_QUOTED_LINES = 12
_BRIEF_LINES = 4
_WAITING = {
    EventKind.ITERATION: "asking the model",
    EventKind.RESULT: "asking the model",
    EventKind.STEER: "asking the model",
    EventKind.FALLBACK: "going on by rules",
}


def heading(title: str, width: int) -> Text:
    """A line across the terminal with a title in it."""
    rule = "─" * max(width - len(title) - 4, 0)
    return Text.assemble(("── ", "dim"), title, (f" {rule}", "dim"))


class Drawing:
    """Draws one recall: its events in order, then its result.

    `brief` draws a call as one line, and leaves out what the model thought.
    """

    def __init__(self, width: int, *, brief: bool = False) -> None:
        self._width = width
        self._room = width - _MARGIN
        self._brief = brief
        self._turn = 0
        self._called: dict[str, str] = {}  # arguments as the model wrote them, by the call's id
        self._quotable: dict[str, str] = {}  # by key, what results showed of it
        self._searched: Fields = {}  # the arguments of the search before

    def event(self, event: TraceEvent) -> Lines:
        """One event as lines; some need none."""
        match event:
            case StartEvent():
                return self._start(event)
            case IterationEvent():
                return self._iteration(event)
            case ModelEvent():
                return self._model(event)
            case CallEvent():
                # Drawn with its result, which has the arguments after validation.
                self._called[event.id] = event.arguments
            case ResultEvent():
                return self._result(event)
            case HandoffEvent():
                return self._handoff(event)
        return self._remark(event)

    def _remark(self, event: TraceEvent) -> Lines:
        match event:
            case SteerEvent():
                return self._told(f"steered ({event.reason})", event.text)
            case FallbackEvent():
                problem = event.problem or event.reason
                return self._told("the model cannot do it, the rules go on", problem)
            case StopEvent():
                return self._told(f"stopped ({event.reason})", event.problem)
            case ThoughtEvent() if not self._brief:
                thought = Text(printable(event.text).strip(), "italic")
                return self._of_turn(event, fold(thought, self._room))
            case TextEvent() if not self._brief:
                # A line of what the model wrote instead of a call is enough.
                return self._of_turn(event, fold(Text(flat(event.text), "dim"), self._room)[:2])
        return []

    def waiting_for(self, event: TraceEvent) -> str:
        """What is under way after an event, in a few words."""
        if isinstance(event, CallEvent):
            return f"running {flat(event.tool)}"
        return _WAITING.get(event.kind, "")

    def result(self, result: RecallResult) -> Lines:
        """What belongs to no event: the evidence, remarks, and what it took."""
        zone = trace_time_zone(result.trace)
        lines = self._understood(result, zone)
        for number, memory in enumerate(result.memories, 1):
            lines += [Text(), *self._evidence(number, memory, zone)]
        remarks = [line for remark in _remarks(result) for line in fold(remark, self._room)]
        lines += [Text(), *indent(remarks, _MARGIN)] if remarks else []
        foot = fold(Text(_cost(result), "dim"), self._room)
        return [*lines, Text(), *indent(foot, _MARGIN)]

    def _start(self, event: StartEvent) -> Lines:
        asked = fold(Text(printable(event.asked), "bold"), self._room)
        asked = asked[:_BRIEF_LINES] + ([Text("…", "dim")] if len(asked) > _BRIEF_LINES else [])
        lines = indent(asked, _MARGIN, Text(" ?", "bold cyan"))
        if self._brief:
            return lines
        given = f", {event.given} messages given" if event.given > 1 else ""
        about = f"{flat(event.model)}, {tool_lines.local_minute(event.now)}{given}"
        return [*lines, *indent([Text(about, "dim")], _MARGIN)]

    def _iteration(self, event: IterationEvent) -> Lines:
        if self._brief:
            return []
        title = f"iteration {event.iteration}, {count(event.shown, 'message')} shown"
        title += f" (window of {event.window})" if event.shown != event.window else ""
        return [Text(), heading(title, self._width)]

    def _model(self, event: ModelEvent) -> Lines:
        if event.failed:
            return self._told("the model failed", event.failed)
        if self._brief:
            return []
        said = []
        if event.tool_choice not in ("required", "auto"):
            said.append(f"the last answer: only {event.tool_choice} is left")
        if event.prompt_tokens or event.completion_tokens:
            tokens = f"{event.prompt_tokens:,} + {event.completion_tokens:,} tokens"
            said.append(f"{tokens}, {event.seconds:.1f} s")
        if event.purpose != "recall" and said:
            said.insert(0, event.purpose)
        return self._of_turn(event, [Text(", ".join(said), "dim")]) if said else []

    def _result(self, event: ResultEvent) -> Lines:
        known = set(self._quotable)
        self._note(event.output or {})
        written = self._called.pop(event.id, "")
        arguments = event.arguments
        call = tool_lines.call_line(event.tool, arguments, written)
        told = flat(tool_lines.outcome(event))
        style = "yellow" if event.error else "dim"
        if self._brief:
            return self._brief_call(event.tool, arguments, call, Text(told, style))
        lines = indent(fold(call, self._room - 2), 2, Text("▸", "cyan"))
        took = f"{event.seconds:.2f} s" if (event.seconds or 0.0) >= 0.1 else ""
        facts = [tool_lines.options_line(event.tool, arguments), told, took]
        about = Text("; ".join(filter(None, facts)), style)
        below = fold(about, self._room - 2) if about else []
        below += tool_lines.result_lines(event, self._room - 2, known)
        return self._of_turn(event, [*lines, *indent(below, 2)])

    def _brief_call(self, tool: str, arguments: Fields, call: Text, told: Text) -> Lines:
        if tool == "handoff" and not told:
            return []  # what it says follows
        if tool == "search_memories" and arguments:
            again = tool_lines.difference(arguments, self._searched)
            call = Text.assemble((tool, "cyan"), f" again, {again}") if again else call
            self._searched = arguments
        told.truncate(self._room // 2, overflow="ellipsis")
        line = cut(call, self._room - 4 - told.cell_len)
        line = Text.assemble(line, "  ", told) if told else line
        return indent([line], _MARGIN + 2, Text("    ▸", "cyan"))

    def _note(self, output: Fields) -> None:
        """What a result shows, to know it again where a summary quotes it."""
        shown = [output, *output.get("results", []), *output.get("before", [])]
        for item in [*shown, *output.get("after", []), *output.get("sources", [])]:
            text = item.get("content_preview") or item.get("content")
            if item.get("memory_key") and text:
                self._quotable[item["memory_key"]] = text

    def _told(self, what: str, words: str) -> Lines:
        told = Text.assemble((what, "yellow"), (f": {flat(words)}" if words else ""))
        return indent(fold(told, self._room), _MARGIN, Text("  !", "yellow"))

    def _of_turn(self, event: TraceEvent, lines: Lines) -> Lines:
        """The lines, with the turn's number in the margin where it is new."""
        fresh = event.turn != self._turn
        self._turn = event.turn
        return indent(lines, _MARGIN, Text(f"{event.turn:>2}", "dim") if fresh else None)

    def _handoff(self, event: HandoffEvent) -> Lines:
        keys, confidence = event.keys, event.confidence
        style = tool_lines.score_style(confidence)
        found = count(len(keys), "memory").replace("memorys", "memories") if keys else "nothing"
        head = Text.assemble(
            (f"{confidence:.2f} ", style), bar(confidence, style), (f"  {found} handed off", "dim")
        )
        quoted = [self._quotable[key] for key in keys if key in self._quotable]
        words = remove_quotations(event.summary, quoted)
        summary = fold(Text(printable(words)), self._room) if words else []
        lines = [] if self._brief else [Text(), heading("handoff", self._width)]
        lines += indent([head, *summary], _MARGIN)
        if event.question:
            asked = fold(Text(printable(event.question), "cyan"), self._room)
            lines += indent(asked, _MARGIN, Text("  ?", "cyan"))
        return lines

    def _understood(self, result: RecallResult, zone: tzinfo) -> Lines:
        told = [f"{flat(time.words)} = {format_resolved_time(time, zone)}" for time in result.times]
        return indent(fold(Text(", ".join(told), "dim"), self._room), _MARGIN) if told else []

    def _evidence(self, number: int, memory: RecalledMemory, zone: tzinfo) -> Lines:
        who = memory.speaker or memory.role or memory.memory_type
        said = memory.ts.astimezone(zone).strftime("%Y-%m-%d %H:%M")
        head = Text.assemble((flat(who), "bold"), (f"  {said}  {flat(memory.memory_key)}", "dim"))
        if memory.relevance_score is not None:
            head.append(
                f"  {memory.relevance_score:.2f}", tool_lines.score_style(memory.relevance_score)
            )
        lines = [head]
        lines += self._nearby([*memory.sources, *memory.before])
        lines += tool_lines.marked(self._quotation(memory))
        lines += self._nearby(memory.after)
        dates = [
            f"{flat(time.words)} = {format_resolved_time(time, zone)}" for time in memory.times
        ]
        if memory.valid_to is not None:
            dates.append(f"valid until {memory.valid_to.astimezone(zone):%Y-%m-%d}")
        lines += fold(Text(", ".join(dates), "magenta"), self._room) if dates else []
        return indent(lines, _MARGIN, Text(f"{number:>2}", "bold cyan"))

    def _nearby(self, said: list[Nearby]) -> Lines:
        return [tool_lines.nearby_line(near.speaker, near.content, self._room) for near in said]

    def _quotation(self, memory: RecalledMemory) -> Lines:
        most = _BRIEF_LINES if self._brief else _QUOTED_LINES
        lines = fold(Text(printable(memory.content).strip()), self._room - 2)
        if len(lines) <= most:
            return lines
        left = f"… {len(memory.content):,} characters in all; --json shows them"
        return [*lines[:most], Text(left, "dim")]


def _remarks(result: RecallResult) -> list[Text]:
    """What a reader must know beside the evidence."""
    told = []
    if result.memories and not result.judged:
        told.append("not judged: the run ended before the agent could")
    if result.withheld:
        memories = (
            "1 sensitive memory"
            if result.withheld == 1
            else f"{result.withheld} sensitive memories"
        )
        told.append(f"{memories} withheld; --allow-sensitive shows what is marked so")
    if result.keys_dropped:
        keys = flat(", ".join(result.keys_dropped))
        told.append(f"dropped, because this recall never saw them: {keys}")
    told += [f"degraded: {flat(said)}" for said in result.degraded]
    return [Text(said, "yellow") for said in told]


def _cost(result: RecallResult) -> str:
    usage = result.usage
    parts = [
        result.stop_reason.value,
        f"window {' → '.join(str(size) for size, _ in groupby(result.windows))}",
        f"{count(int(usage['model_calls']), 'model call')}",
        f"{count(int(usage['tool_calls']), 'tool call')}",
    ]
    tokens = int(usage["prompt_tokens"] + usage["completion_tokens"])
    parts += [f"{tokens:,} tokens"] if tokens else []
    return ", ".join([*parts, f"{usage['seconds']:.1f} s", result.trace.trace_id])
