"""A recall as a notebook shows it, and what every way of showing one shares."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memrecall.agent.trace import EventKind, Trace, TraceEvent
from memrecall.text.html import (
    AMBER,
    CODE,
    DIM,
    LINE,
    NARROW,
    QUOTE,
    TEXT,
    TITLE,
    WIDE,
    Html,
    Say,
    box,
    cell,
    clip,
    colour_of,
    labels,
    meter,
    score_cell,
    short_time,
    table,
    tag,
    warning,
)
from memrecall.text_length import single_line, truncate_text

_NOTES = frozenset({EventKind.THOUGHT, EventKind.TEXT, EventKind.STEER, EventKind.FALLBACK})
_ENDS = frozenset({EventKind.STOP, EventKind.HANDOFF})


@dataclass(slots=True)
class TimelineStep:
    """Something that a recall did, from `start` to `end` seconds after its own start."""

    kind: str  # model, tool, note or end
    name: str
    start: float
    end: float
    data: dict[str, Any]
    is_running: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(self.end - self.start, 0.0)

    @property
    def has_failed(self) -> bool:
        """Whether it told an error."""
        return bool(self.data.get("error") or self.data.get("failure"))


@dataclass(slots=True)
class Lane:
    """One iteration: the window it was given, and its steps in order."""

    iteration: int
    window: int = 0
    shown: int = 0
    steps: list[TimelineStep] = field(default_factory=list)


def draw_lanes(events: Iterable[TraceEvent]) -> list[Lane]:
    """The lanes of a trace, also of one that is still being written."""
    lanes: dict[int, Lane] = {}
    calls: dict[str, TimelineStep] = {}
    for event in events:
        lane = lanes.setdefault(event.iteration, Lane(event.iteration))
        if event.kind is EventKind.ITERATION:
            lane.window, lane.shown = event.data["window"], event.data["shown"]
        elif event.kind is EventKind.RESULT and event.data["id"] in calls:
            _finish(calls.pop(event.data["id"]), event)
        elif (step := _step(event)) is not None:
            lane.steps.append(step)
            if event.kind is EventKind.CALL:
                calls[event.data["id"]] = step
    return list(lanes.values())


def _finish(step: TimelineStep, event: TraceEvent) -> None:
    step.end = event.at
    step.data = {**step.data, **event.data}
    step.is_running = False


def _step(event: TraceEvent) -> TimelineStep | None:
    data = event.data
    if event.kind is EventKind.MODEL:
        start = event.at - float(data.get("seconds", 0.0))
        return TimelineStep(
            "model", str(data.get("purpose", "model")), max(start, 0.0), event.at, data
        )
    if event.kind in (EventKind.CALL, EventKind.RESULT):
        is_open = event.kind is EventKind.CALL
        return TimelineStep("tool", data["tool"], event.at, event.at, data, is_running=is_open)
    if event.kind in _NOTES:
        return TimelineStep("note", event.kind.value, event.at, event.at, data)
    if event.kind in _ENDS:
        return TimelineStep("end", event.kind.value, event.at, event.at, data)
    return None


if TYPE_CHECKING:
    from memrecall.agent.result import Nearby, RecalledMemory, RecallResult, ResolvedTime

Fields = dict[str, Any]

_SAME = 24  # characters that make a line of a summary a quotation
_TOLD_OF_HANDOFF = ("confidence", "relevant_memory_keys")
_LABELS = {
    "confidence": ("confidence", "信心度"),
    "nothing": ("nothing that fits was found", "没有找到相关内容"),
    "question": ("Perhaps ask", "可以询问"),
    "unjudged": ("not judged: the run ended before", "未经判断：在此之前已停止"),
    "withheld": ("sensitive memories withheld", "条敏感记忆未显示"),
    "dropped": ("dropped, never seen in this recall", "未交接，本次未见过"),
    "understood": ("understood", "理解为"),
    "steps": ("How it was recalled", "回忆过程"),
    "window": ("window", "窗口"),
    "iteration": ("iteration", "第"),
    "shown": ("shown", "条消息"),
    "found": ("found", "条结果"),
    "model_calls": ("model calls", "次模型调用"),
    "tool_calls": ("tool calls", "次工具调用"),
    "tokens": ("tokens", "个词元"),
    "failed": ("the model failed", "模型出错"),
    "steer": ("steered", "已纠正"),
    "fallback": ("the rules go on", "改由规则继续"),
    "stop": ("stopped", "已停止"),
    "handoff": ("handoff", "交接"),
}


def result_html(result: "RecallResult") -> str:
    """A recall: how sure it is, what it says, the evidence, and behind a fold how it came about."""
    say = labels(_LABELS, result.language)
    zone = zone_of(result.trace.events)
    handoff = result.handoff
    asked = next((e.data["asked"] for e in result.trace.events if "asked" in e.data), "")
    summary = own_words(handoff.search_summary, [memory.content for memory in result.memories])
    parts = [
        tag("div", clip(asked, say), style=TITLE),
        _confidence(result, say),
        tag("div", clip(summary, say), style=TEXT),
        *_times(result.times, zone, say("understood")),
        *([_question(handoff.follow_up_question, say)] if handoff.follow_up_question else []),
        *(_evidence(memory, zone, say) for memory in result.memories),
        *_remarks(result, say),
        tag(
            "details",
            tag("summary", say("steps"), " · ", _cost(result, say), style=f"{DIM};cursor:pointer"),
            _events(result.trace.events[:-1], say),  # the last is the handoff, told above
            style="margin-top:.7em",
        ),
    ]
    return str(box(*parts))


def trace_html(trace: Trace) -> str:
    """The events of a recall in order; what tools brought is behind folds."""
    language = next((e.data["language"] for e in trace.events if "language" in e.data), "en")
    say = labels(_LABELS, language)
    asked = next((e.data["asked"] for e in trace.events if "asked" in e.data), "")
    started = f"{trace.started_at.astimezone(zone_of(trace.events)):%Y-%m-%d %H:%M}"
    head = tag("div", clip(asked, say), style=TITLE)
    about = tag("div", f"{started} · {trace.trace_id}", style=DIM)
    return str(box(head, about, _events(trace.events, say)))


def zone_of(events: Iterable[TraceEvent]) -> tzinfo:
    """The user's time zone as far as a trace tells it: by its name, else as it is at "now"."""
    for event in events:
        if event.kind is EventKind.START:
            if event.data.get("time_zone"):
                return ZoneInfo(event.data["time_zone"])
            return datetime.fromisoformat(event.data["now"]).tzinfo or UTC
    return UTC


def tell_time(time: "ResolvedTime", zone: tzinfo) -> str:
    """A time that words mean, as short as it can be said: a day, some days, minutes."""
    start = time.start and time.start.astimezone(zone)
    end = time.end and time.end.astimezone(zone)
    if start is None or end is None:
        return f"{_moment(start)} – {_moment(end)}".strip()
    if _is_midnight(start) and _is_midnight(end):
        last = (end - timedelta(days=1)).date()
        return f"{start:%Y-%m-%d}" if last <= start.date() else f"{start:%Y-%m-%d} – {last}"
    if end - start <= timedelta(minutes=1):
        return _moment(start)
    same_day = start.date() == end.date()
    return f"{_moment(start)} – {f'{end:%H:%M}' if same_day else _moment(end)}"


def own_words(summary: str, quoted: Sequence[str]) -> str:
    """A summary without the lines that only quote what is shown as evidence anyway."""
    known = [start for text in quoted if (start := single_line(text)[:_SAME])]
    kept = [
        line
        for line in summary.split("\n")
        if not (line.startswith("- ") and any(start in single_line(line) for start in known))
    ]
    return "\n".join(kept).strip()


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return f"{moment:%Y-%m-%d}" if _is_midnight(moment) else f"{moment:%Y-%m-%d %H:%M}"


def _is_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


def _confidence(result: "RecallResult", say: Say) -> Html:
    share = min(max(result.confidence, 0.0), 1.0)
    colour = colour_of(share)
    nothing = [" · ", say("nothing")] if result.abstained else []
    return tag(
        "div",
        say("confidence"),
        meter(share, colour),
        tag("span", f"{share:.2f}", style=f"color:{colour};font-weight:600"),
        *nothing,
        style=LINE,
    )


def _question(question: str, say: Say) -> Html:
    return tag("div", f"{say('question')}: ", tag("em", question), style=TEXT)


def _evidence(memory: "RecalledMemory", zone: tzinfo, say: Say) -> Html:
    who = memory.speaker or memory.role or memory.memory_type
    score = [] if memory.relevance_score is None else [f" · {memory.relevance_score:.2f}"]
    said = f"{memory.ts.astimezone(zone):%Y-%m-%d %H:%M}"
    head = tag("span", f" · {said} · {memory.memory_key}", *score, style=DIM)
    return tag(
        "div",
        tag("div", tag("strong", who), head, style=LINE),
        *map(_nearby, [*memory.sources, *memory.before]),
        tag("div", clip(memory.content, say), style=TEXT),
        *map(_nearby, memory.after),
        *_times(memory.times, zone, "→"),
        style=QUOTE,
    )


def _nearby(near: "Nearby") -> Html:
    return _aside(near.speaker, near.content)


def _aside(speaker: str, content: str) -> Html:
    return tag("div", f"{speaker}: {single_line(content)[:200]}", style=f"{LINE};{DIM}")


def _times(times: Sequence["ResolvedTime"], zone: tzinfo, label: str) -> list[Html]:
    told = " · ".join(f"{time.words} = {tell_time(time, zone)}" for time in times)
    return [tag("div", f"{label} {told}", style=f"{LINE};{DIM}")] if told else []


def _remarks(result: "RecallResult", say: Say) -> list[Html]:
    told = [say("unjudged")] if result.memories and not result.judged else []
    told += [f"{result.withheld} {say('withheld')}"] if result.withheld else []
    told += [f"{say('dropped')}: {', '.join(result.keys_dropped)}"] if result.keys_dropped else []
    told += [result.problem] if result.problem else []
    return [warning(said) for said in [*told, *result.degraded]]


def _cost(result: "RecallResult", say: Say) -> str:
    usage = result.usage
    tokens = int(usage["prompt_tokens"] + usage["completion_tokens"])
    parts = [
        result.stop_reason.value,
        f"{say('window')} {' → '.join(str(size) for size, _ in groupby(result.windows))}",
        f"{usage['model_calls']} {say('model_calls')}",
        f"{usage['tool_calls']} {say('tool_calls')}",
        *([f"{tokens:,} {say('tokens')}"] if tokens else []),
        f"{usage['seconds']:.1f} s",
        result.model,
    ]
    return " · ".join(parts)


def _events(events: Iterable[TraceEvent], say: Say) -> Html:
    drawn = (_DRAWN[event.kind](event, say) for event in events)
    return tag("div", *(html for html in drawn if html is not None), style="margin:.4em 0")


def _iteration(event: TraceEvent, say: Say) -> Html:
    said = f"{say('iteration')} {event.iteration}{' 轮' if say('window') == '窗口' else ''}"
    shown = f"{event.data['shown']} {say('shown')} ({say('window')} {event.data['window']})"
    line = "margin:.6em 0 .2em;border-bottom:1px solid rgba(128,128,128,.3)"
    return tag("div", f"{said} · {shown}", style=f"{line};{DIM}")


def _model(event: TraceEvent, say: Say) -> Html | None:
    failed = event.data.get("failed")
    return warning(f"{say('failed')}: {failed}") if failed else None


def _thought(event: TraceEvent, say: Say) -> Html:
    return tag("div", clip(event.data["text"], say), style=f"{TEXT};font-style:italic")


def _result(event: TraceEvent, say: Say) -> Html:
    data = event.data
    output: Fields = data.get("output") or {}
    arguments = " · ".join(
        f"{name} {truncate_text(_plain(value), 200)}" for name, value in _arguments(data)
    )
    head = [tag("strong", data["tool"], style=CODE), " ", arguments]
    head += [" → ", f"{output['total_found']} {say('found')}"] if "total_found" in output else []
    if data.get("error"):
        head += [tag("span", f" {data['error']}", style=f"color:{AMBER}")]
    folded = tag("summary", *head, style="cursor:pointer;overflow-wrap:anywhere")
    return tag("details", folded, *_brought(data, output, say), style="margin:.15em 0 .15em 1em")


def _brought(data: Fields, output: Fields, say: Say) -> Iterable[Html]:
    """What a call brought: hits as a table, a content between its neighbours, else its words."""
    if output.get("results"):
        yield table(map(_row, output["results"]))
    if output.get("content"):
        yield from map(_told, [*output.get("sources", []), *output.get("before", [])])
        yield tag("div", clip(output["content"], say), style=TEXT)
        yield from map(_told, output.get("after", []))
    message = output.get("message") or ("" if output else data.get("text", ""))
    if message:
        yield tag("div", clip(message, say), style=f"{TEXT};{DIM}")


def _told(near: Fields) -> Html:
    return _aside(near["speaker"], near["content"])


def _arguments(data: Fields) -> Iterable[tuple[str, Any]]:
    arguments: Fields = data.get("arguments") or {}
    if data["tool"] == "handoff":  # what else it has follows as the handoff itself
        arguments = {name: arguments[name] for name in _TOLD_OF_HANDOFF if name in arguments}
    return arguments.items()


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _row(hit: Fields) -> list[Html]:
    who = hit.get("speaker") or hit.get("role") or hit.get("memory_type") or ""
    said = hit.get("summary") or hit.get("passage") or hit["content_preview"]
    return [
        score_cell(hit["relevance_score"]),
        cell(short_time(hit["created_at"]), f"{NARROW};{DIM}"),
        cell(tag("strong", who)),
        cell(single_line(said), WIDE),
    ]


def _handoff(event: TraceEvent, say: Say) -> Html:
    data = event.data
    keys = ", ".join(data["keys"]) or say("nothing")
    told = f"{say('handoff')} ({data['stop_reason']}) · {data['confidence']:.2f} · {keys}"
    parts = [tag("div", told, style=f"{LINE};font-weight:600")]
    parts += [_question(data["question"], say)] if data.get("question") else []
    return tag("div", *parts, tag("div", clip(data["summary"], say), style=TEXT))


def _warned(label: str) -> Callable[[TraceEvent, Say], Html]:
    def draw(event: TraceEvent, say: Say) -> Html:
        data = event.data
        told = data.get("text") or data.get("problem") or ""
        return warning(f"{say(label)} ({data['reason']})", f": {told}" if told else "")

    return draw


def _nothing(event: TraceEvent, say: Say) -> None:
    del event, say  # told elsewhere: the start in the head, a call with its result


_DRAWN: dict[EventKind, Callable[[TraceEvent, Say], Html | None]] = {
    EventKind.START: _nothing,
    EventKind.ITERATION: _iteration,
    EventKind.MODEL: _model,
    EventKind.THOUGHT: _thought,
    EventKind.TEXT: _thought,
    EventKind.CALL: _nothing,
    EventKind.RESULT: _result,
    EventKind.STEER: _warned("steer"),
    EventKind.FALLBACK: _warned("fallback"),
    EventKind.STOP: _warned("stop"),
    EventKind.HANDOFF: _handoff,
}
