"""The recalls that the key may see: the list, and one with its steps, evidence and feedback."""

import json
from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import partial
from typing import Any

from nicegui import ui

from memrecall.agent.result import Certainty, RecallResult, StopReason
from memrecall.agent.tools import DETAIL, HANDOFF
from memrecall.agent.trace import (
    CallEvent,
    HandoffEvent,
    ModelEvent,
    ResultEvent,
    TextEvent,
    ThoughtEvent,
    TimelineStep,
    TraceEvent,
    build_timeline,
)
from memrecall.agent.views import ItemView, RecallViewer, StepView, trace_time_zone
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, WORDS, Page, Redirect
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    draw_button,
    draw_list,
    draw_pager,
    form_select,
    format_duration,
    row,
    search_form,
    show_empty,
    show_fact,
    show_title,
    user_time_zone,
)
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.scope import space_of
from memrecall.store import (
    TraceQuery,
    TraceSummary,
)
from memrecall.text_length import single_line, truncate_text
from memrecall.types import format_minute

_ABSTAINED = {"yes": True, "no": False}
_MAX_HITS = 50  # that the feedback on one recall lists
_MAX_CHARS = 6_000
_NAME_LENGTH = 60  # characters of each part of a step's name
_FAILURES = frozenset({StopReason.MODEL_FAILED, StopReason.STORAGE_FAILED})
_ICONS = {"model": "psychology", "tool": "build", "note": "chat_bubble_outline", "end": "flag"}


@register_page("/recalls", "recalls")
async def show_recalls(page: Page) -> None:
    """Show the recalls of a user or of all."""
    principal, query = await page.principal(), page.query
    if not page.user and principal.users is not None and len(principal.users) == 1:
        raise Redirect(page.link_here(user=next(iter(principal.users))))
    show_title(page.text("recalls"))
    users = principal.users
    if page.user:
        users = frozenset({(await page.scope()).user_id})
    stored = await page.library.store.trace_list.page(
        # Invalid values in the address are ignored.
        TraceQuery(
            text=query.get("q", "").strip(),
            stop_reason=query.get("reason", ""),
            abstained=_ABSTAINED.get(query.get("abstained", "")),
        ),
        ROWS_PER_PAGE,
        query.get("cursor"),
        users=users,
        agent_id=principal.agent_id,
    )
    keys = [(item.user_id, item.trace_id) for item in stored.items]
    feedback = await page.library.store.feedback_list.get_many(keys)
    zone: tzinfo = await user_time_zone(page) if page.user else UTC
    with card():
        _draw_filters(page)
        if not stored.items:
            has_users = bool(await page.find_users())
            reason = "no_recalls" if has_users else "no_users"
            show_empty(page.text("no_recalls_more" if stored.next_cursor else reason))
        for item in draw_list(stored.items):
            draw_recall(page, item, zone, item.user_id)
            if verdict := feedback.get((item.user_id, item.trace_id)):
                name = "thumb_up" if verdict.is_right else "thumb_down"
                icon = ui.icon(name).classes("mr-good" if verdict.is_right else "mr-bad")
                icon.props("role=img").props["aria-label"] = page.text(name)
                if verdict.in_evaluation:
                    ui.label(page.text("in_evaluation")).classes("mr-badge mr-dim")
        draw_pager(page, stored.next_cursor)


def _draw_filters(page: Page) -> None:
    query, text = page.query, page.text
    with search_form(page, "search_questions", "user"):
        reasons = {reason.value: stop_text(page, reason.value) for reason in StopReason}
        reason = query.get("reason", "")
        form_select(text("stop_reason"), "reason", {"": text("any"), **reasons}, reason)
        answers = {"": text("any"), "no": text("answered"), "yes": text("abstained_short")}
        form_select(text("outcome"), "abstained", answers, query.get("abstained", ""))


def draw_recall(page: Page, item: TraceSummary, zone: tzinfo, user: str = "") -> None:
    """Draw a recall in a list: its query, user, outcome, cost and time."""
    target = page.link("/recalls/trace", user=user or page.user, id=item.trace_id)
    ui.link(item.query[:200] or item.trace_id, target)
    if item.abstained:
        ui.label(page.text("abstained_short")).classes("mr-badge mr-warn")
    else:
        is_sure = Certainty.from_probability(item.confidence) is Certainty.SURE
        classes = "mr-good" if is_sure else "mr-warn"
        ui.label(f"{item.confidence:.0%}").classes(f"mr-badge {classes}")
    if item.stop_reason != StopReason.HANDOFF:
        label = ui.label(stop_text(page, item.stop_reason))
        label.classes(f"mr-badge {stop_class(item.stop_reason)}")
    cost = page.text("cost", took=format_duration(item.seconds), calls=item.tool_calls)
    dim_label(" · ".join(filter(None, (cost, model_text(page, item.model)))))
    if user and user != page.user:
        ui.link(user, page.link_here(user=user, cursor=None)).classes("mr-chip mr-end-of-tie")
    dim_label(format_minute(item.created_at, zone))


@register_page("/recalls/trace", "recall")
async def show_recall(page: Page) -> None:
    """Show one recall."""
    traces = page.library.store.traces(await page.scope())
    stored = await traces.get(page.query.get("id", ""))
    result = RecallResult.from_dict(stored.body)
    time = format_minute(stored.created_at, trace_time_zone(result.trace))
    with row():
        ui.link(page.text("recalls"), page.user_link("/recalls"))
        dim_label(f"{page.user} · {time} · {stored.trace_id}")
    show_title(stored.query or stored.trace_id)

    def download() -> None:
        text = json.dumps(stored.body, ensure_ascii=False, indent=2)
        ui.download.content(text, f"{stored.trace_id}.json", "application/json")

    with row():
        draw_button(page, "download", download, "download")
    draw_facts(page, result)
    draw_handoff(page, result)
    _draw_trace(page, list(result.trace.events))
    await _FeedbackPanel(page, result).draw()


class _FeedbackPanel:
    """Shows and changes the feedback on one recall."""

    def __init__(self, page: Page, result: RecallResult) -> None:
        self._page = page
        self._trace_id = result.trace.trace_id
        viewer = RecallViewer("en")
        found = [item for event in result.trace.events for item in viewer.view_event(event).items]
        evidence = viewer.view_result(result).evidence
        # Knowledge is no evidence of a question: it belongs to no user.
        texts, handed_off = (
            {item.key: item.text for item in items if item.kind != "knowledge"}
            for items in ([*evidence, *found, *evidence], evidence)
        )
        self._handed_off = tuple(handed_off)
        self._hits = dict(list(texts.items())[:_MAX_HITS])

    async def draw(self) -> None:
        """Draw the panel."""
        with card(self._page.text("feedback")):
            self._container = ui.element("div").classes("mr-list mr-details")
        await self._refresh()

    async def _refresh(self) -> None:
        page, key = self._page, (self._page.user, self._trace_id)
        self._feedback = (await page.library.store.feedback_list.get_many([key])).get(key)
        feedback, save = self._feedback, self._save
        self._is_labelled = feedback is not None and feedback.in_evaluation
        chosen = self._handed_off if feedback is None else feedback.evidence
        self._container.clear()
        with self._container:
            with row():
                for is_right, name in ((True, "thumb_up"), (False, "thumb_down")):
                    is_current = feedback is not None and feedback.is_right == is_right
                    look = "unelevated" if is_current else "outline"
                    judge = partial(self._judge, is_right)
                    button = draw_button(page, name, judge, name, look)
                    button.props["aria-pressed"] = "true" if is_current else "false"
                if self._is_labelled:
                    ui.label(page.text("in_evaluation")).classes("mr-badge mr-good")
            dim_label(page.text("choose_right"))
            self._boxes: dict[str, ui.checkbox] = {}
            for hit in dict.fromkeys((*self._hits, *chosen)):
                text = truncate_text(self._hits.get(hit) or hit, 200)
                self._boxes[hit] = ui.checkbox(text, value=hit in chosen)
                self._boxes[hit].props("dense").classes("mr-text")
            self._other = ui.input(page.text("other_key")).props("outlined dense")
            with row():
                draw_button(page, "save_choice", partial(save, self._is_labelled))
                if self._is_labelled:
                    draw_button(page, "leave_evaluation", partial(save, False))
                else:
                    add = partial(save, True)
                    draw_button(page, "add_evaluation", add, "playlist_add", "unelevated")
                if feedback is not None:
                    draw_button(page, "remove_feedback", self._remove, look="flat")
            dim_label(page.text("evaluation_hint"))

    @property
    def _selected(self) -> tuple[str, ...]:
        keys = [key for key, box in self._boxes.items() if box.value]
        other = (self._other.value or "").strip()
        return (*keys, other) if other else tuple(keys)

    async def _judge(self, is_right: bool) -> None:
        """Store a thumb; what a wrong recall handed off is not the right evidence."""
        evidence = self._handed_off if is_right else ()
        if self._feedback is not None and self._feedback.is_right == is_right:
            evidence = self._selected
        await self._write(is_right, evidence, self._is_labelled)

    async def _save(self, in_evaluation: bool) -> None:
        evidence = self._selected
        is_right = set(evidence) == set(self._handed_off)
        if self._feedback is not None:
            is_right = self._feedback.is_right
        await self._write(is_right, evidence, in_evaluation)

    async def _write(self, is_right: bool, evidence: tuple[str, ...], in_evaluation: bool) -> None:
        page = self._page
        writer = page.library.store.feedback(await page.writable_scope())
        await writer.set(
            self._trace_id,
            is_right=is_right,
            evidence=evidence,
            in_evaluation=in_evaluation,
            actor=(await page.principal()).actor,
        )
        await self._refresh()
        with self._container:  # the button that was clicked is gone
            ui.notify(page.text("feedback_saved"), type="positive")

    async def _remove(self) -> None:
        writer = self._page.library.store.feedback(await self._page.writable_scope())
        await writer.remove(self._trace_id)
        await self._refresh()


def _key_link(page: Page, key: str, kind: str | None) -> str:
    """Return the address of a memory or a message, also of a space's."""
    space, _, plain = (space_of(key) or f"/{key}").partition("/")
    if kind == "message" or (kind is None and not plain.startswith("mem_")):
        return page.user_link("/explorer", space=space, around=plain)
    return page.user_link("/explorer/memory", space=space, key=plain)


def _draw_trace(page: Page, events: list[TraceEvent]) -> None:
    """Draw the steps of each iteration, with what they did, their duration and their details."""
    viewer = RecallViewer(page.language)
    views = {id(event): viewer.view_event(event) for event in events}
    calls = [event for event in events if isinstance(event, CallEvent)]
    iterations = build_timeline(events)
    with card(page.text("steps")):
        max_window = max((iteration.window for iteration in iterations), default=1)
        for iteration in iterations:
            with ui.element("div").classes("mr-iteration"):
                ui.label(page.text("iteration", number=iteration.iteration))
                dim_label(page.text("window", size=iteration.window, shown=iteration.shown))
                share = 100 * iteration.window / max(max_window, 1)
                ui.element("div").classes("mr-window").style(f"width: {share:.0f}%")
            for step in iteration.steps:
                view = views[id(step.event)]
                _draw_step(page, step, view, _name_step(page, view, step.event, calls))


def _draw_step(page: Page, step: TimelineStep, view: StepView, name: str) -> None:
    """Draw a panel with the details of a step, open if something went wrong."""

    def fill() -> None:
        # Details are drawn when a panel is first opened, because most never are.
        if panel.value and not details.default_slot.children:
            with details:
                for line in filter(None, (view.subject, ", ".join(view.options), view.outcome)):
                    ui.label(truncate_text(line, _MAX_CHARS)).classes("mr-code")
                if view.text:
                    style = "mr-text mr-bad" if view.has_failed else "mr-text"
                    ui.label(truncate_text(view.text, _MAX_CHARS)).classes(style)
                for item in view.items:
                    _draw_item(page, item)

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


def _name_step(page: Page, view: StepView, event: TraceEvent, calls: Sequence[CallEvent]) -> str:
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
        ui.link(text, _key_link(page, item.key, item.kind)).classes("mr-text")
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
    ui.link(text, _key_link(page, item.key, "message")).classes("mr-small mr-dim mr-text")
