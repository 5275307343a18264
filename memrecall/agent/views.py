"""The views of a recall: steps and result as plain data, in English or Chinese, and as HTML.

The terminal, notebooks and the dashboard render the same data. The HTML of notebooks is
self-contained: styles are inline, colours are inherited, there is no script and nothing is loaded.
Text is escaped on insertion; only `Html` is not. It is readable without styles, which some viewers
drop.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memrecall.agent.tools import DETAIL, EXPANSION, HANDOFF, KEYWORDS, SEARCH
from memrecall.agent.trace import (
    CallEvent,
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
from memrecall.text.language import fill_phrase, language_of, read_phrases
from memrecall.text_length import ELLIPSIS, single_line, truncate_text
from memrecall.types import Language, cut_to_minute, format_minute, to_zone

if TYPE_CHECKING:  # they show themselves with this module
    from memrecall.agent.result import RecalledMemory, RecallResult, ResolvedTime, Trace

_Arguments = Mapping[str, Any]

_QUOTATION_LENGTH = 24  # characters that make a line of a summary a quotation
_PHRASES = read_phrases(Path(__file__).with_name("views.json"))

# The label of each count of a recall's usage; a count of 0 is not shown.
_COUNTS = {"model_calls": "model_calls", "steps": "rule_steps", "tool_calls": "tool_calls"}
_SUBJECTS: dict[str, Callable[[_Arguments], str]] = {
    SEARCH: lambda arguments: f"“{arguments['query']}”",
    KEYWORDS: lambda arguments: f"“{arguments['query']}”, at most {arguments['max_keywords']}",
    DETAIL: lambda arguments: str(arguments["memory_key"]),
    EXPANSION: lambda arguments: f"{arguments['current_size']} → {arguments['requested_size']}",
    HANDOFF: lambda arguments: ", ".join(arguments["relevant_memory_keys"]) or "[]",
}
_MAX_NEIGHBOR = 200  # characters
_MAX_LENGTH = 2_000  # characters of one text: notebooks store their output
_CUT = {
    "en": "{ellipsis} ({count:,} characters in all)",
    "zh": "{ellipsis}（共 {count:,} 字，已截短）",
}
_BOX = "max-width:56em;line-height:1.5;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere"
_DIM = "opacity:.65;font-size:.92em"
_QUOTE = "margin:.7em 0;padding:.1em 0 .1em .8em;border-left:3px solid rgba(128,128,128,.4)"


@dataclass(frozen=True, slots=True)
class ItemView:
    """A memory or message, with the messages around it."""

    key: str
    kind: str | None
    label: str  # the speaker, else the role or type
    time: str
    text: str
    score: float | None = None
    before: Sequence["ItemView"] = ()
    after: Sequence["ItemView"] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class StepView:
    """One step: a title, and the parts that a step of its kind has."""

    kind: str  # start, iteration, model, tool, thought, text, warning or handoff
    title: str
    subject: str = ""  # the main argument of a call
    options: Sequence[str] = ()  # the other arguments
    outcome: str = ""
    text: str = ""
    items: Sequence[ItemView] = ()
    has_failed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ResultView:
    """The handoff with its evidence, remarks and cost."""

    request: str
    confidence: float
    handed_off: str
    summary: str
    question: str
    times: Sequence[str]
    evidence: Sequence[ItemView]
    problem: str
    remarks: Sequence[str]
    cost: Sequence[str]


class RecallViewer:
    """Turns the events and the result of a recall into views."""

    def __init__(self, language: str) -> None:
        self._language: Language = "zh" if language == "zh" else "en"
        self._raw_arguments: dict[str, str] = {}  # by call id, as the model wrote them

    def say(self, name: str, /, **values: Any) -> str:
        """Return a phrase; `n` decides between singular and plural."""
        n = values.get("n")
        if isinstance(n, int):
            values |= {"n": f"{n:,}", "s": "" if n == 1 else "s", "ies": "y" if n == 1 else "ies"}
        return fill_phrase(_PHRASES, self._language, name, **values)

    def view_event(self, event: TraceEvent) -> StepView:
        """Return the view of an event."""
        match event:
            case StartEvent():
                given = [self.say("given", n=event.given)] if event.given > 1 else []
                facts = [event.model, cut_to_minute(event.now), *given]
                return StepView("start", event.asked, options=facts)
            case IterationEvent():
                title = self.say("iteration", number=event.iteration, n=event.shown)
                is_full = event.shown == event.window
                title += "" if is_full else self.say("window_of", size=event.window)
                return StepView("iteration", title)
            case ModelEvent():
                return self._view_model_call(event)
            case CallEvent():
                self._raw_arguments[event.id] = event.arguments
                return StepView("tool", event.tool, event.arguments)
            case ResultEvent():
                return self._view_tool_call(event)
            case ThoughtEvent() | TextEvent():
                kind = event.kind.value
                return StepView(kind, self.say(kind), text=event.text)
            case SteerEvent():
                return StepView("warning", self.say("steer", reason=event.reason), text=event.text)
            case FallbackEvent() | StopEvent():
                title = self.say(event.kind.value, reason=event.reason)
                return StepView("warning", title, text=event.problem or event.reason)
            case HandoffEvent():
                keys, confidence = ", ".join(event.keys), f"{event.confidence:.2f}"
                outcome = f"{event.stop_reason} · {confidence}"
                return StepView("handoff", event.kind.value, keys, (), outcome, event.summary)
        raise AssertionError(event.kind)

    def _view_model_call(self, event: ModelEvent) -> StepView:
        if event.failed:
            title = self.say("model_failed")
            return StepView("warning", title, text=event.failed, has_failed=True)
        is_free = event.tool_choice in ("", "required", "auto")
        facts = [] if event.purpose == "recall" else [event.purpose]
        facts += [] if is_free else [self.say("only", tool=event.tool_choice)]
        if event.prompt_tokens or event.completion_tokens:
            prompt, completion = f"{event.prompt_tokens:,}", f"{event.completion_tokens:,}"
            facts.append(self.say("tokens", prompt=prompt, completion=completion))
        sent = self.say("sent", n=event.characters)
        return StepView("model", self.say("model"), sent, facts, seconds=event.seconds)

    def _view_tool_call(self, event: ResultEvent) -> StepView:
        output, arguments = event.output or {}, event.arguments
        if event.error:
            text = f"{event.error}: {output.get('message') or event.text}"
        else:  # large traces lack their outputs
            text = self._describe_outcome(event.tool, output) if output else ""
        raw = self._raw_arguments.pop(event.id, "")
        items = map(_view_item, output.get("results", ()))
        return StepView(
            "tool",
            event.tool,
            _SUBJECTS[event.tool](arguments) if arguments and event.tool in _SUBJECTS else raw,
            list(_search_options(arguments)) if arguments and event.tool == SEARCH else (),
            text,
            "" if event.error or event.tool != SEARCH else output.get("message") or "",
            [_view_item(output)] if output.get("content") else list(items),
            bool(event.error),
            event.seconds or 0.0,
        )

    def _describe_outcome(self, tool: str, output: _Arguments) -> str:
        """Return what a call has brought, in a few words."""
        if tool == SEARCH:
            total, returned = output["total_found"], len(output.get("results", []))
            if total == returned:
                return self.say("found", n=total)
            return self.say("found_of", n=returned, total=total)
        if tool == KEYWORDS:
            words = [f"{word['keyword']} {word['weight']:g}" for word in output.get("keywords", [])]
            return ", ".join(words) or output.get("message") or self.say("no_keywords")
        if tool == EXPANSION:
            name = "granted" if output.get("approved") else "refused"
            return self.say(name, message=output.get("message", ""))
        return ""

    def view_result(self, result: "RecallResult") -> ResultView:
        """Return the view of a result."""
        zone, handoff = trace_time_zone(result.trace), result.handoff
        contents = [memory.content for memory in result.memories]
        count, certainty = len(handoff.relevant_memory_keys), self.say(result.certainty)
        usage = result.usage
        tokens = int(usage["prompt_tokens"] + usage["completion_tokens"])
        sizes = [str(size) for size, _ in groupby(result.windows)]
        return ResultView(
            request=result.trace.start.asked,
            confidence=min(max(result.confidence, 0.0), 1.0),
            handed_off=self.say("handed_off", certainty=certainty, n=count)
            if count
            else self.say("nothing_handed_off"),
            summary=remove_quotations(handoff.search_summary, contents),
            question=handoff.follow_up_question or "",
            times=_describe_times(result.times, zone),
            evidence=[self._view_evidence(memory, zone) for memory in result.memories],
            problem=result.problem or "",
            remarks=list(self._remarks(result)),
            cost=[
                result.stop_reason.value,
                self.say("window", sizes=" → ".join(sizes)),
                *(self.say(label, n=int(usage[n])) for n, label in _COUNTS.items() if usage.get(n)),
                *([self.say("all_tokens", n=tokens)] if tokens else []),
                f"{usage['seconds']:.1f} s",
            ],
        )

    def _view_evidence(self, memory: "RecalledMemory", zone: tzinfo) -> ItemView:
        notes = [*memory.describe_certainty(self._language).values()]
        if memory.space is not None:
            by = self.say("by", author=memory.author) if memory.author else ""
            day = f"{to_zone(memory.ts, zone):%Y-%m-%d}"
            notes.insert(0, self.say("from_space", space=memory.space, by=by, day=day))
        notes += _describe_times(memory.times, zone)
        if memory.valid_to is not None:
            notes.append(self.say("valid_until", day=f"{to_zone(memory.valid_to, zone):%Y-%m-%d}"))
        if memory.claimed_by is not None:
            keys = ", ".join(memory.conflicts_with)
            notes.append(self.say("claim", origin=memory.claimed_by, keys=keys))
        return replace(_view_item(memory.model_dump(), zone), notes=notes)

    def _remarks(self, result: "RecallResult") -> Iterable[str]:
        if result.memories and not result.judged:
            yield self.say("unjudged")
        if result.has_withheld_contents:
            yield self.say("no_contents")
        if result.withheld:
            yield self.say("withheld", n=result.withheld)
        if result.other_projects:
            yield self.say("other_projects", names=", ".join(result.other_projects))
        if result.keys_dropped:
            yield self.say("dropped", keys=", ".join(result.keys_dropped))
        yield from (self.say("degraded", reason=reason) for reason in result.degraded)


def _view_item(fields: _Arguments, zone: tzinfo = UTC) -> ItemView:
    """Return the view of a search hit, of a tool's memory detail, or of evidence."""
    time = fields.get("created_at") or fields.get("ts") or ""
    texts = (fields.get(name) for name in ("content", "summary", "passage", "content_preview"))
    labels = (fields.get(name) for name in ("speaker", "role", "memory_type"))
    around = {
        name: [_view_item(message, zone) for message in fields.get(name, ())]
        for name in ("sources", "before", "after")
    }
    return ItemView(
        key=str(fields.get("memory_key", "")),
        kind=fields.get("kind"),
        label=next(filter(None, labels), "memory"),
        time=format_minute(time, zone) if isinstance(time, datetime) else cut_to_minute(time),
        text=next(filter(None, texts), ""),
        score=fields.get("probability", fields.get("relevance_score")),
        before=[*around["sources"], *around["before"]],
        after=around["after"],
        notes=[fields["space"]] if fields.get("space") else (),
    )


def _search_options(arguments: _Arguments) -> Iterable[str]:
    """Yield the arguments of a search other than its query."""
    yield arguments["search_mode"]
    yield f"limit {arguments['limit']}"
    yield f"score ≥ {arguments['min_relevance_score']}"
    for name in ("time_range_days", "since", "until", "role", "keywords", "memory_types"):
        if value := arguments.get(name):
            yield f"{name} {' '.join(value) if isinstance(value, list) else value}"


def trace_time_zone(trace: "Trace") -> tzinfo:
    """Return the user's time zone by its name, else by the offset of "now", else UTC."""
    start = trace.start
    if start.time_zone:
        return ZoneInfo(start.time_zone)
    return (start.now and datetime.fromisoformat(start.now).tzinfo) or UTC


def _describe_times(times: Iterable["ResolvedTime"], zone: tzinfo) -> list[str]:
    return [f"{time.words} = {format_resolved_time(time, zone)}" for time in times]


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


def _format_moment(moment: datetime | None) -> str:
    if moment is None:
        return ""
    if _is_midnight(moment):
        return f"{moment:%Y-%m-%d}"
    return format_minute(moment, moment.tzinfo or UTC)


def _is_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


def remove_quotations(summary: str, quoted: Sequence[str]) -> str:
    """Return a summary without the list items that only quote the evidence shown below it."""
    starts = [start for text in quoted if (start := single_line(text)[:_QUOTATION_LENGTH])]
    lines = [
        line
        for line in summary.split("\n")
        if not (line.startswith("- ") and any(start in single_line(line) for start in starts))
    ]
    return "\n".join(lines).strip()


class Html(str):
    """HTML made in this module; any other string is text and escaped on insertion."""

    __slots__ = ()


def _tag(name: str, *parts: str, style: str = "") -> Html:
    """Return an element around parts, which are HTML or text to escape and cut if very long."""
    inner = ""
    for part in parts:
        if isinstance(part, Html):
            inner += part
        else:
            cut = _CUT[language_of(part)].format(ellipsis=ELLIPSIS, count=len(part))
            inner += escape(truncate_text(part, _MAX_LENGTH, cut))
    style_attribute = f' style="{style}"' if style else ""
    return Html(f'<{name} dir="auto"{style_attribute}>{inner}</{name}>')


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
