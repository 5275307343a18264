"""The view of a recall on pages: steps, handoff and evidence."""

from collections.abc import Sequence
from typing import Any

from nicegui import ui

from memrecall.agent.result import Certainty, RecallResult, StopReason
from memrecall.agent.tools import DETAIL, HANDOFF
from memrecall.agent.trace import (
    CallEvent,
    HandoffEvent,
    IterationTimeline,
    ModelEvent,
    ResultEvent,
    TextEvent,
    ThoughtEvent,
    TimelineStep,
    TraceEvent,
    build_timeline,
)
from memrecall.agent.views import ItemView, RecallViewer, StepView
from memrecall.dashboard.page import WORDS, Page
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    draw_button,
    format_duration,
    row,
    show_empty,
    show_fact,
)
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.scope import space_of
from memrecall.text_length import single_line, truncate_text

_MAX_CHARS = 6_000
_NAME_LENGTH = 60  # characters of each part of a step's name
_FAILURES = frozenset({StopReason.MODEL_FAILED, StopReason.STORAGE_FAILED})
_ICONS = {"model": "psychology", "tool": "build", "note": "chat_bubble_outline", "end": "flag"}


def key_link(page: Page, key: str, kind: str | None) -> str:
    """Return the address of a memory or a message, also of a space's."""
    space, _, plain = (space_of(key) or f"/{key}").partition("/")
    if kind == "message" or (kind is None and not plain.startswith("mem_")):
        return page.user_link("/explorer", space=space, around=plain)
    return page.user_link("/explorer/memory", space=space, key=plain)


def draw_trace(page: Page, events: list[TraceEvent]) -> None:
    """Draw the steps of each iteration, with what they did, their duration and their details."""
    viewer = RecallViewer(page.language)
    views = {id(event): viewer.view_event(event) for event in events}
    calls = [event for event in events if isinstance(event, CallEvent)]
    iterations = build_timeline(events)
    with card(page.text("steps")):
        max_window = max((iteration.window for iteration in iterations), default=1)
        for iteration in iterations:
            _draw_window(page, iteration, max_window)
            for step in iteration.steps:
                view = views[id(step.event)]
                _draw_step(page, step, view, name_step(page, view, step.event, calls))


def _draw_step(page: Page, step: TimelineStep, view: StepView, name: str) -> None:
    """Draw a panel with the details of a step, open if something went wrong."""

    def fill() -> None:
        # Details are drawn when a panel is first opened, because most never are.
        if panel.value and not details.default_slot.children:
            with details:
                _draw_details(page, view)

    duration = page.text("running") if step.is_running else format_duration(step.seconds)
    if step.kind in ("tool", "model"):
        name = f"{name} · {duration}"  # a caption would not be in the name of the button
    icon = "error" if step.has_failed else _ICONS[step.kind]
    panel = ui.expansion(name, icon=icon, value=step.went_wrong)
    panel.classes("mr-expansion mr-failed" if step.has_failed else "mr-expansion")
    panel.props("dense").on_value_change(fill)
    with panel:
        details = ui.element("div").classes("mr-list mr-details")
    fill()


def name_step(page: Page, view: StepView, event: TraceEvent, calls: Sequence[CallEvent]) -> str:
    """Return what a step did, such as "search: spare key, 6 found"."""
    details: list[str] = [view.subject.strip("“”?？"), view.outcome]
    match event:
        case HandoffEvent():
            name, details = "end", [stop_text(page, event.stop_reason), f"{event.confidence:.0%}"]
        case ResultEvent(tool=name, error=None) if name == HANDOFF:
            count = len(event.arguments.get("relevant_memory_keys", ()))
            details = [page.text("one_item" if count == 1 else "items_count", count=count)]
        case ResultEvent(tool=name) if name == DETAIL and view.items:
            details = [view.items[0].text]  # its key says nothing to a reader
        case CallEvent(tool=name) | ResultEvent(tool=name):
            pass
        case ThoughtEvent() | TextEvent():
            name, details = view.title, [single_line(view.text)]
        case ModelEvent(failed=None):
            turn, name = (event.iteration, event.turn), "decide"
            chosen = [call.tool for call in calls if (call.iteration, call.turn) == turn]
            details = [_name_tool(page, tool) for tool in dict.fromkeys(chosen)]
        case _:
            return view.title
    texts = [truncate_text(text, _NAME_LENGTH) for text in details if text]
    comma, colon = page.text("comma"), page.text("colon")
    return colon.join(filter(None, (_name_tool(page, name), comma.join(texts))))


def _name_tool(page: Page, tool: str) -> str:
    """Return what a tool does in one or two words; the tool's name if it is not known."""
    name = f"step_{tool}"
    return page.text(name) if name in WORDS else tool


def _draw_window(page: Page, iteration: IterationTimeline, max_window: int) -> None:
    with ui.element("div").classes("mr-iteration"):
        ui.label(page.text("iteration", number=iteration.iteration))
        dim_label(page.text("window", size=iteration.window, shown=iteration.shown))
        share = 100 * iteration.window / max(max_window, 1)
        ui.element("div").classes("mr-window").style(f"width: {share:.0f}%")


def _draw_details(page: Page, view: StepView) -> None:
    for line in filter(None, (view.subject, ", ".join(view.options), view.outcome)):
        ui.label(truncate_text(line, _MAX_CHARS)).classes("mr-code")
    if view.text:
        style = "mr-text mr-bad" if view.has_failed else "mr-text"
        ui.label(truncate_text(view.text, _MAX_CHARS)).classes(style)
    for item in view.items:
        _draw_item(page, item)


def stop_text(page: Page, reason: str) -> str:
    """Return a stop reason in the language of the page; an unknown one as it is."""
    name = f"stop_{reason}"
    return page.text(name) if name in WORDS else reason


def stop_class(reason: str) -> str:
    """Return the class of a stop reason: a failure looks failed."""
    if reason in _FAILURES:
        return "mr-bad"
    return "" if reason == StopReason.HANDOFF else "mr-warn"


def model_text(page: Page, model: str) -> str:
    """Return the name of a model, or that a recall was made without one."""
    return page.text("no_model") if model == OFFLINE_FAMILY else model


def recall_facts(page: Page, result: RecallResult) -> dict[str, str]:
    """Return the outcome and the cost of a recall, by the names of their texts."""
    usage = result.usage
    return {
        "confidence": f"{result.confidence:.0%}",
        "certainty": RecallViewer(page.language).say(result.certainty),
        "stop_reason": stop_text(page, result.stop_reason),
        "windows": " → ".join(map(str, result.windows)),
        **({"model_calls": str(usage["model_calls"])} if usage["model_calls"] else {}),
        **({"steps": str(usage["steps"])} if usage.get("steps") else {}),
        "tool_calls": str(usage["tool_calls"]),
        "took": format_duration(float(usage["seconds"])),
        "model": model_text(page, result.model),
    }


def draw_facts(page: Page, result: RecallResult) -> None:
    """Draw the outcome and the cost of a recall."""
    certainty = "mr-good" if result.certainty is Certainty.SURE else "mr-warn"
    classes = {"certainty": certainty, "stop_reason": stop_class(result.stop_reason)}
    with row():
        for name, value in recall_facts(page, result).items():
            show_fact(page.text(name), value, classes.get(name, ""))


def draw_handoff(page: Page, result: RecallResult) -> None:
    """Draw the handoff and its evidence, each item linked to its source."""
    view = RecallViewer(page.language).view_result(result)
    texts: list[tuple[str, str]] = [
        (page.text("abstained") if result.abstained else "", "mr-warn"),
        (view.summary, ""),
        (view.question, "mr-warn"),
        (result.handoff.reasoning or "", "mr-dim mr-small"),
        (view.problem, "mr-bad"),
        *((remark, "mr-warn") for remark in view.remarks),
        *((time, "mr-dim mr-small") for time in view.times),
    ]
    with card(page.text("handoff")):
        for text, style in texts:
            if text:
                ui.label(truncate_text(text, _MAX_CHARS)).classes(f"mr-text {style}")
        for item in view.evidence:
            _draw_item(page, item, is_explained=item.kind != "knowledge")
        if not view.evidence:
            show_empty(page.text("no_evidence"))


def _draw_item(page: Page, item: ItemView, *, is_explained: bool = False) -> None:
    with ui.element("div").classes("mr-evidence"):
        for message in item.before:
            _draw_neighbor(page, message)
        text = truncate_text(item.text or item.key, _MAX_CHARS)
        ui.link(text, key_link(page, item.key, item.kind)).classes("mr-text")
        facts: list[Any] = [item.label, item.time]
        if item.score is not None:
            facts.append(page.text("relevance", score=f"{item.score:.2f}"))
        dim_label(" · ".join(filter(None, (*facts, *item.notes))))
        if is_explained or space_of(item.key):
            _draw_why_seen(page, item.key)
        for message in item.after:
            _draw_neighbor(page, message)


def _draw_why_seen(page: Page, key: str) -> None:
    """Draw a button that says by which membership the user can read an item."""

    async def explain() -> None:
        space = (space_of(key) or "").partition("/")[0]
        memory = (await page.memory()).bind(spaces=[space] if space else [])
        (why,) = await memory.why_seen(key)
        why["role"] = page.term("space_role", why.get("role", ""))
        name = "why_granted" if why.get("granted_by") else "why_founder"
        answer.set_text(page.text(name if space else "why_own", **why))
        button.set_visibility(False)

    with row():
        button = draw_button(page, "why_seen", explain, "help_outline", "flat dense size=sm")
        answer = dim_label("").props("aria-live=polite")


def _draw_neighbor(page: Page, item: ItemView) -> None:
    text = f"{item.label}, {item.time}: {truncate_text(item.text, 400)}"
    ui.link(text, key_link(page, item.key, "message")).classes("mr-small mr-dim mr-text")
