"""Notebook views of recall results and traces, and formats shared with the other views."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memrecall.agent.tools import HANDOFF
from memrecall.agent.trace_events import (
    FallbackEvent,
    HandoffEvent,
    IterationEvent,
    ModelEvent,
    ResultEvent,
    SteerEvent,
    StopEvent,
    TextEvent,
    ThoughtEvent,
    TraceEvent,
)
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
    table,
    tag,
    warning,
)
from memrecall.text_length import single_line, truncate_text
from memrecall.types import cut_to_minute, format_minute, to_zone

if TYPE_CHECKING:  # they show themselves with this module, which needs them for types only
    from memrecall.agent.result import RecalledMemory, RecallResult, ResolvedTime
    from memrecall.agent.trace import Trace

Fields = dict[str, Any]

_QUOTATION_LENGTH = 24  # characters that make a line of a summary a quotation
_HANDOFF_ARGUMENTS = ("confidence", "relevant_memory_keys")
_LABELS = {
    "confidence": ("confidence", "信心度"),
    "nothing": ("nothing relevant was found", "没有找到相关内容"),
    "question": ("Perhaps ask", "可以询问"),
    "unjudged": ("not judged: the recall ended first", "未经判断：在此之前已停止"),
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
    "steer": ("corrected", "已纠正"),
    "fallback": ("continuing with rules", "改由规则继续"),
    "stop": ("stopped", "已停止"),
    "handoff": ("handoff", "交接"),
}


def result_html(result: "RecallResult") -> str:
    """Return a result as HTML: confidence, summary, evidence, and the folded steps."""
    say = labels(_LABELS, result.language)
    zone = trace_time_zone(result.trace)
    handoff = result.handoff
    contents = [memory.content for memory in result.memories]
    summary = remove_quotations(handoff.search_summary, contents)
    parts = [
        tag("div", clip(result.trace.start.asked, say), style=TITLE),
        _confidence(result, say),
        tag("div", clip(summary, say), style=TEXT),
        *_times(result.times, zone, say("understood")),
        *_question(handoff.follow_up_question, say),
        *(_evidence(memory, zone, say) for memory in result.memories),
        *_remarks(result, say),
        tag(
            "details",
            tag("summary", say("steps"), " · ", _cost(result, say), style=f"{DIM};cursor:pointer"),
            _events(result.trace.events[:-1], say),  # the last is the handoff, shown above
            style="margin-top:.7em",
        ),
    ]
    return str(box(*parts))


def trace_html(trace: "Trace") -> str:
    """Return a trace as HTML: its events in order, with tool results folded."""
    say = labels(_LABELS, trace.start.language)
    started = format_minute(trace.started_at, trace_time_zone(trace))
    head = tag("div", clip(trace.start.asked, say), style=TITLE)
    about = tag("div", f"{started} · {trace.trace_id}", style=DIM)
    return str(box(head, about, _events(trace.events, say)))


def trace_time_zone(trace: "Trace") -> tzinfo:
    """Return the user's time zone by its name, else by the offset of "now", else UTC."""
    start = trace.start
    if start.time_zone:
        return ZoneInfo(start.time_zone)
    return (start.now and datetime.fromisoformat(start.now).tzinfo) or UTC


def format_resolved_time(time: "ResolvedTime", zone: tzinfo) -> str:
    """Return a resolved time in its shortest form: a day, a range of days, or minutes."""
    start = time.start and to_zone(time.start, zone)
    end = time.end and to_zone(time.end, zone)
    if start is None or end is None:
        return f"{_format_moment(start)} – {_format_moment(end)}".strip()
    if _is_midnight(start) and _is_midnight(end):
        last = (end - timedelta(days=1)).date()
        return f"{start:%Y-%m-%d}" if last <= start.date() else f"{start:%Y-%m-%d} – {last}"
    if end - start <= timedelta(minutes=1):
        return _format_moment(start)
    is_same_day = start.date() == end.date()
    return f"{_format_moment(start)} – {f'{end:%H:%M}' if is_same_day else _format_moment(end)}"


def remove_quotations(summary: str, quoted: Sequence[str]) -> str:
    """Return a summary without the list items that only quote the evidence shown below it."""
    starts = [start for text in quoted if (start := single_line(text)[:_QUOTATION_LENGTH])]
    lines = [
        line
        for line in summary.split("\n")
        if not (line.startswith("- ") and any(start in single_line(line) for start in starts))
    ]
    return "\n".join(lines).strip()


def _format_moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return (
        f"{moment:%Y-%m-%d}"
        if _is_midnight(moment)
        else format_minute(moment, moment.tzinfo or UTC)
    )


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


def _question(question: str | None, say: Say) -> list[Html]:
    label = f"{say('question')}: "
    return [tag("div", label, tag("em", question), style=TEXT)] if question else []


def _evidence(memory: "RecalledMemory", zone: tzinfo, say: Say) -> Html:
    speaker = memory.speaker or memory.role or memory.memory_type
    score = [] if memory.relevance_score is None else [f" · {memory.relevance_score:.2f}"]
    moment = format_minute(memory.ts, zone)
    head = tag("span", f" · {moment} · {memory.memory_key}", *score, style=DIM)
    return tag(
        "div",
        tag("div", tag("strong", speaker), head, style=LINE),
        *_context_lines(map(dict, [*memory.sources, *memory.before])),
        tag("div", clip(memory.content, say), style=TEXT),
        *_context_lines(map(dict, memory.after)),
        *_times(memory.times, zone, "→"),
        style=QUOTE,
    )


def _context_lines(messages: Iterable[Fields]) -> Iterable[Html]:
    for message in messages:
        line = f"{message['speaker']}: {single_line(message['content'], 200)}"
        yield tag("div", line, style=f"{LINE};{DIM}")


def _times(times: Sequence["ResolvedTime"], zone: tzinfo, label: str) -> list[Html]:
    text = " · ".join(f"{time.words} = {format_resolved_time(time, zone)}" for time in times)
    return [tag("div", f"{label} {text}", style=f"{LINE};{DIM}")] if text else []


def _remarks(result: "RecallResult", say: Say) -> list[Html]:
    remarks = [say("unjudged")] if result.memories and not result.judged else []
    remarks += [f"{result.withheld} {say('withheld')}"] if result.withheld else []
    if result.keys_dropped:
        remarks.append(f"{say('dropped')}: {', '.join(result.keys_dropped)}")
    remarks += [result.problem] if result.problem else []
    return [warning(remark) for remark in [*remarks, *result.degraded]]


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
    parts = (_event(event, say) for event in events)
    return tag("div", *(part for part in parts if part is not None), style="margin:.4em 0")


def _event(event: TraceEvent, say: Say) -> Html | None:
    """Return the HTML of an event; the start is in the head, a call is shown with its result."""
    match event:
        case IterationEvent():
            return _iteration(event, say)
        case ModelEvent(failed=str(failure)):
            return warning(f"{say('failed')}: {failure}")
        case ThoughtEvent() | TextEvent():
            return tag("div", clip(event.text, say), style=f"{TEXT};font-style:italic")
        case ResultEvent():
            return _result(event, say)
        case SteerEvent():
            return _warning(say("steer"), event.reason, event.text)
        case FallbackEvent() | StopEvent():
            return _warning(say(event.kind.value), event.reason, event.problem)
        case HandoffEvent():
            return _handoff(event, say)
    return None


def _warning(label: str, reason: str, text: str) -> Html:
    return warning(f"{label} ({reason})", f": {text}" if text else "")


def _iteration(event: IterationEvent, say: Say) -> Html:
    title = f"{say('iteration')} {event.iteration}{' 次迭代' if say('window') == '窗口' else ''}"
    window_text = f"{event.shown} {say('shown')} ({say('window')} {event.window})"
    line = "margin:.6em 0 .2em;border-bottom:1px solid rgba(128,128,128,.3)"
    return tag("div", f"{title} · {window_text}", style=f"{line};{DIM}")


def _result(event: ResultEvent, say: Say) -> Html:
    output = event.output or {}
    arguments = " · ".join(
        f"{name} {truncate_text(_plain(value), 200)}" for name, value in _arguments(event)
    )
    head = [tag("strong", event.tool, style=CODE), " ", arguments]
    head += [" → ", f"{output['total_found']} {say('found')}"] if "total_found" in output else []
    if event.error:
        head += [tag("span", f" {event.error}", style=f"color:{AMBER}")]
    summary = tag("summary", *head, style="cursor:pointer;overflow-wrap:anywhere")
    body = _output(output, event.text, say)
    return tag("details", summary, *body, style="margin:.15em 0 .15em 1em")


def _arguments(event: ResultEvent) -> Iterable[tuple[str, Any]]:
    if event.tool != HANDOFF:
        return event.arguments.items()
    # The other arguments follow as the handoff itself.
    return [(name, event.arguments[name]) for name in _HANDOFF_ARGUMENTS if name in event.arguments]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _output(output: Fields, text: str, say: Say) -> Iterable[Html]:
    if output.get("results"):
        yield table(map(_result_row, output["results"]))
    if output.get("content"):
        yield from _context_lines([*output.get("sources", []), *output.get("before", [])])
        yield tag("div", clip(output["content"], say), style=TEXT)
        yield from _context_lines(output.get("after", []))
    message = output.get("message") or ("" if output else text)
    if message:
        yield tag("div", clip(message, say), style=f"{TEXT};{DIM}")


def _result_row(hit: Fields) -> list[Html]:
    speaker = hit.get("speaker") or hit.get("role") or hit.get("memory_type") or ""
    text = hit.get("summary") or hit.get("passage") or hit["content_preview"]
    return [
        score_cell(hit["relevance_score"]),
        cell(cut_to_minute(hit["created_at"]), f"{NARROW};{DIM}"),
        cell(tag("strong", speaker)),
        cell(single_line(text), WIDE),
    ]


def _handoff(event: HandoffEvent, say: Say) -> Html:
    keys = ", ".join(event.keys) or say("nothing")
    title = f"{say('handoff')} ({event.stop_reason}) · {event.confidence:.2f} · {keys}"
    head = tag("div", title, style=f"{LINE};font-weight:600")
    summary = tag("div", clip(event.summary, say), style=TEXT)
    return tag("div", head, *_question(event.question, say), summary)
