"""A recall as a notebook shows it: HTML that stands alone, and what every way of showing shares.

Styles are inline, colours are inherited or work on light and dark, there is no script and nothing
is loaded. Text is escaped where it is put in: only what `_tag` made is taken as HTML.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memrecall.agent.trace import EventKind, Trace, TraceEvent

if TYPE_CHECKING:
    from memrecall.agent.result import Nearby, RecalledMemory, RecallResult, ResolvedTime

Fields = dict[str, Any]

_LONGEST = 2_000  # characters of one text: a notebook keeps what it shows
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
    "cut": ("characters in all", "字，已截短"),
}

_BOX = "max-width:56em;line-height:1.5;text-align:left"
_DIM = "opacity:.65;font-size:.92em"
_LINE = "margin:.15em 0"
_TEXT = "margin:.15em 0;white-space:pre-wrap;overflow-wrap:anywhere"
_QUOTE = "margin:.7em 0;padding:.1em 0 .1em .8em;border-left:3px solid rgba(128,128,128,.4)"
_CODE = "font-family:ui-monospace,monospace;font-size:.88em"
_CELL = "padding:.1em .8em .1em 0;vertical-align:top;text-align:left"
_GREEN, _AMBER, _RED = "#2f9e5c", "#b8861b", "#cb5248"


def result_html(result: "RecallResult") -> str:
    """A recall: how sure it is, what it says, the evidence, and behind a fold how it came about."""
    say = _labels(result.language)
    zone = zone_of(result.trace.events)
    handoff = result.handoff
    asked = next((e.data["asked"] for e in result.trace.events if "asked" in e.data), "")
    summary = own_words(handoff.search_summary, [memory.content for memory in result.memories])
    parts = [
        _tag("div", _short(asked, say), style=f"{_TEXT};font-weight:600"),
        _confidence(result, say),
        _tag("div", _short(summary, say), style=_TEXT),
        *_times(result.times, zone, say("understood")),
        *([_question(handoff.follow_up_question, say)] if handoff.follow_up_question else []),
        *(_evidence(memory, zone, say) for memory in result.memories),
        *_remarks(result, say),
        _tag(
            "details",
            _tag(
                "summary", say("steps"), " · ", _cost(result, say), style=f"{_DIM};cursor:pointer"
            ),
            _events(result.trace.events[:-1], say),  # the last is the handoff, told above
            style="margin-top:.7em",
        ),
    ]
    return str(_tag("div", *parts, style=_BOX))


def trace_html(trace: Trace) -> str:
    """The events of a recall in order; what tools brought is behind folds."""
    language = next((e.data["language"] for e in trace.events if "language" in e.data), "en")
    say = _labels(language)
    asked = next((e.data["asked"] for e in trace.events if "asked" in e.data), "")
    started = f"{trace.started_at.astimezone(zone_of(trace.events)):%Y-%m-%d %H:%M}"
    head = _tag("div", _short(asked, say), style=f"{_TEXT};font-weight:600")
    about = _tag("div", f"{started} · {trace.trace_id}", style=_DIM)
    return str(_tag("div", head, about, _events(trace.events, say), style=_BOX))


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
    known = [start for text in quoted if (start := _squeeze(text)[:_SAME])]
    kept = [
        line
        for line in summary.split("\n")
        if not (line.startswith("- ") and any(start in _squeeze(line) for start in known))
    ]
    return "\n".join(kept).strip()


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    return f"{moment:%Y-%m-%d}" if _is_midnight(moment) else f"{moment:%Y-%m-%d %H:%M}"


def _is_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


class _Html(str):
    """HTML made here. A plain string is text, and escaped where it is put in."""

    __slots__ = ()


Say = Callable[[str], str]


def _tag(name: str, *parts: str, style: str = "") -> _Html:
    inner = "".join(part if isinstance(part, _Html) else escape(part) for part in parts)
    styled = f' style="{escape(style)}"' if style else ""
    return _Html(f'<{name} dir="auto"{styled}>{inner}</{name}>')


def _labels(language: str) -> Say:
    return lambda name: _LABELS[name][language == "zh"]


def _short(text: str, say: Say) -> str:
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}… ({len(text):,} {say('cut')})"


def _confidence(result: "RecallResult", say: Say) -> _Html:
    share = min(max(result.confidence, 0.0), 1.0)
    colour = _colour(share)
    width = f"width:{round(share * 100)}%;height:100%;background:{colour};border-radius:3px"
    track = "display:inline-block;width:9em;height:.45em;border-radius:3px;overflow:hidden"
    track += ";background:rgba(128,128,128,.25);vertical-align:middle;margin:0 .6em"
    nothing = [" · ", say("nothing")] if result.abstained else []
    return _tag(
        "div",
        say("confidence"),
        _tag("span", _tag("span", style=f"display:block;{width}"), style=track),
        _tag("span", f"{share:.2f}", style=f"color:{colour};font-weight:600"),
        *nothing,
        style=_LINE,
    )


def _colour(share: float) -> str:
    if share >= 0.6:
        return _GREEN
    return _AMBER if share >= 0.3 else _RED


def _question(question: str, say: Say) -> _Html:
    return _tag("div", f"{say('question')}: ", _tag("em", question), style=_TEXT)


def _evidence(memory: "RecalledMemory", zone: tzinfo, say: Say) -> _Html:
    who = memory.speaker or memory.role or memory.memory_type
    score = [] if memory.relevance_score is None else [f" · {memory.relevance_score:.2f}"]
    said = f"{memory.ts.astimezone(zone):%Y-%m-%d %H:%M}"
    head = _tag("span", f" · {said} · {memory.memory_key}", *score, style=_DIM)
    return _tag(
        "div",
        _tag("div", _tag("strong", who), head, style=_LINE),
        *map(_nearby, [*memory.sources, *memory.before]),
        _tag("div", _short(memory.content, say), style=_TEXT),
        *map(_nearby, memory.after),
        *_times(memory.times, zone, "→"),
        style=_QUOTE,
    )


def _nearby(near: "Nearby") -> _Html:
    return _aside(near.speaker, near.content)


def _aside(speaker: str, content: str) -> _Html:
    return _tag("div", f"{speaker}: {_squeeze(content)[:200]}", style=f"{_LINE};{_DIM}")


def _times(times: Sequence["ResolvedTime"], zone: tzinfo, label: str) -> list[_Html]:
    told = " · ".join(f"{time.words} = {tell_time(time, zone)}" for time in times)
    return [_tag("div", f"{label} {told}", style=f"{_LINE};{_DIM}")] if told else []


def _remarks(result: "RecallResult", say: Say) -> list[_Html]:
    told = [say("unjudged")] if result.memories and not result.judged else []
    told += [f"{result.withheld} {say('withheld')}"] if result.withheld else []
    told += [f"{say('dropped')}: {', '.join(result.keys_dropped)}"] if result.keys_dropped else []
    told += [result.problem] if result.problem else []
    return [_warning(said) for said in [*told, *result.degraded]]


def _warning(*parts: str) -> _Html:
    return _tag("div", *parts, style=f"{_TEXT};color:{_AMBER}")


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


def _events(events: Iterable[TraceEvent], say: Say) -> _Html:
    drawn = (_DRAWN[event.kind](event, say) for event in events)
    return _tag("div", *(html for html in drawn if html is not None), style="margin:.4em 0")


def _iteration(event: TraceEvent, say: Say) -> _Html:
    said = f"{say('iteration')} {event.iteration}{' 轮' if say('window') == '窗口' else ''}"
    shown = f"{event.data['shown']} {say('shown')} ({say('window')} {event.data['window']})"
    line = "margin:.6em 0 .2em;border-bottom:1px solid rgba(128,128,128,.3)"
    return _tag("div", f"{said} · {shown}", style=f"{line};{_DIM}")


def _model(event: TraceEvent, say: Say) -> _Html | None:
    failed = event.data.get("failed")
    return _warning(f"{say('failed')}: {failed}") if failed else None


def _thought(event: TraceEvent, say: Say) -> _Html:
    return _tag("div", _short(event.data["text"], say), style=f"{_TEXT};font-style:italic")


def _result(event: TraceEvent, say: Say) -> _Html:
    data = event.data
    output: Fields = data.get("output") or {}
    arguments = " · ".join(f"{name} {_brief(value)}" for name, value in _arguments(data))
    head = [_tag("strong", data["tool"], style=_CODE), " ", arguments]
    head += [" → ", f"{output['total_found']} {say('found')}"] if "total_found" in output else []
    if data.get("error"):
        head += [_tag("span", f" {data['error']}", style=f"color:{_AMBER}")]
    folded = _tag("summary", *head, style="cursor:pointer;overflow-wrap:anywhere")
    return _tag("details", folded, *_brought(data, output, say), style="margin:.15em 0 .15em 1em")


def _brought(data: Fields, output: Fields, say: Say) -> Iterable[_Html]:
    """What a call brought: hits as a table, a content between its neighbours, else its words."""
    if output.get("results"):
        yield _tag("table", *map(_row, output["results"]), style="border-collapse:collapse")
    if output.get("content"):
        yield from map(_told, [*output.get("sources", []), *output.get("before", [])])
        yield _tag("div", _short(output["content"], say), style=_TEXT)
        yield from map(_told, output.get("after", []))
    message = output.get("message") or ("" if output else data.get("text", ""))
    if message:
        yield _tag("div", _short(message, say), style=f"{_TEXT};{_DIM}")


def _told(near: Fields) -> _Html:
    return _aside(near["speaker"], near["content"])


def _arguments(data: Fields) -> Iterable[tuple[str, Any]]:
    arguments: Fields = data.get("arguments") or {}
    if data["tool"] == "handoff":  # what else it has follows as the handoff itself
        arguments = {name: arguments[name] for name in _TOLD_OF_HANDOFF if name in arguments}
    return arguments.items()


def _brief(value: object) -> str:
    told = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return told if len(told) <= 200 else f"{told[:200]}…"


def _row(hit: Fields) -> _Html:
    score = hit["relevance_score"]
    who = hit.get("speaker") or hit.get("role") or hit.get("memory_type") or ""
    said = hit.get("summary") or hit.get("passage") or hit["content_preview"]
    when = hit["created_at"][:16].replace("T", " ")
    return _tag(
        "tr",
        _tag("td", f"{score:.2f}", style=f"{_CELL};color:{_colour(score)}"),
        _tag("td", when, style=f"{_CELL};{_DIM};white-space:nowrap"),
        _tag("td", _tag("strong", who), style=f"{_CELL};white-space:nowrap"),
        _tag("td", _squeeze(said), style=f"{_CELL};overflow-wrap:anywhere"),
    )


def _handoff(event: TraceEvent, say: Say) -> _Html:
    data = event.data
    keys = ", ".join(data["keys"]) or say("nothing")
    told = f"{say('handoff')} ({data['stop_reason']}) · {data['confidence']:.2f} · {keys}"
    parts = [_tag("div", told, style=f"{_LINE};font-weight:600")]
    parts += [_question(data["question"], say)] if data.get("question") else []
    return _tag("div", *parts, _tag("div", _short(data["summary"], say), style=_TEXT))


def _warned(label: str) -> Callable[[TraceEvent, Say], _Html]:
    def draw(event: TraceEvent, say: Say) -> _Html:
        data = event.data
        told = data.get("text") or data.get("problem") or ""
        return _warning(f"{say(label)} ({data['reason']})", f": {told}" if told else "")

    return draw


def _nothing(event: TraceEvent, say: Say) -> None:
    del event, say  # told elsewhere: the start in the head, a call with its result


_DRAWN: dict[EventKind, Callable[[TraceEvent, Say], _Html | None]] = {
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
