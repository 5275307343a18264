"""The pages of one recall: trace, feedback, live view, comparison, and a form to repeat it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from memrecall.agent.trace import Trace
from memrecall.agent.trace_events import HandoffEvent, ResultEvent
from memrecall.budget import Limits
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.trace_view import (
    draw_facts,
    draw_handoff,
    draw_trace,
    key_link,
    stop_text,
)
from memrecall.dashboard.widgets import (
    button_link,
    card,
    dim_label,
    format_duration,
    row,
    show_title,
    user_time_zone,
)
from memrecall.errors import MemrecallError, NotFound, describe_validation_error
from memrecall.server.errors import RequestError, problem_from_error
from memrecall.server.http.chat_models import RecallLimits, RecallRequest
from memrecall.server.http.context import LiveRecall
from memrecall.server.http.recall import RecallHandler
from memrecall.store import Feedback, StoredTrace
from memrecall.text_length import truncate_text
from memrecall.types import format_minute

_DEFAULTS = Limits()
_LIMITS = ("iterations", "model_calls", "tool_calls", "seconds")
POLL_SECONDS = 0.25
MAX_HITS = 50
_TEXTS = ("content_preview", "content", "summary")


def draw_form(page: Page, earlier: StoredTrace | None) -> None:
    """Draw the form that starts a recall and opens its live view."""
    question = ui.input(page.text("question"), value=earlier.query if earlier else "")
    question.props("outlined dense").classes("full-width")
    fields: dict[str, Any] = {}
    with ui.expansion(page.text("settings"), icon="tune").classes("mr-expansion") as settings:
        settings.props("dense")
        with ui.element("div").classes("mr-form"):
            for name in _LIMITS:
                fields[name] = ui.number(
                    page.text(f"limit_{name}"), value=getattr(_DEFAULTS, name), min=0
                ).props("outlined dense")
            languages = {"": page.text("automatic"), "en": "English", "zh": "中文"}
            fields["language"] = ui.select(languages, value="", label=page.text("answer_language"))
            fields["language"].props("outlined dense")
            fields["as_of"] = ui.input(page.text("as_of")).props("outlined dense")
            fields["as_of"].props["placeholder"] = "2026-01-31T12:00:00Z"
    settings.value = earlier is not None

    async def start() -> None:
        await _start(page, question.value, {name: field.value for name, field in fields.items()})

    question.on("keydown.enter", start)
    with row():
        ui.button(page.text("recall_start"), icon="play_arrow", on_click=start).props("unelevated")


async def _start(page: Page, question: str, settings: dict[str, Any]) -> None:
    try:
        request = _create_request(question, settings)
    except ValidationError as error:
        ui.notify(describe_validation_error(error), type="warning")
        return
    scope = await page.scope()
    live = page.service.live.start(scope, question)
    handler = RecallHandler(await page.request_context(), scope, request, live)
    background_tasks.create(_run(handler, live), name="recall")
    ui.navigate.to(page.user_link("/recalls/live", id=live.live_id))


def _create_request(question: str, settings: dict[str, Any]) -> RecallRequest:
    counts = {name: int(settings[name]) for name in _LIMITS[:-1] if settings[name] is not None}
    seconds = None if settings["seconds"] is None else float(settings["seconds"])
    return RecallRequest(
        query=question,
        limits=RecallLimits(**counts, seconds=seconds),
        language=settings["language"] or None,
        as_of=settings["as_of"] or None,
    )


async def _run(handler: RecallHandler, live: LiveRecall) -> None:
    """Run a recall to its end, even if its page is closed; record why it failed."""
    try:
        async with aclosing(handler.events()) as events:
            async for _ in events:
                pass
    except (MemrecallError, RequestError) as error:
        live.problem = problem_from_error(error).message


@register_page("/recalls/trace", "recall")
async def trace(page: Page) -> None:
    """Show one recall."""
    stored, zone = await _read_trace(page, "id"), await user_time_zone(page)
    with row():
        ui.link(page.text("recalls"), page.user_link("/recalls"))
        dim_label(f"{page.user} · {format_minute(stored.created_at, zone)} · {stored.trace_id}")
    show_title(stored.query or stored.trace_id)
    _draw_actions(page, stored)
    draw_facts(page, stored.body)
    draw_handoff(page, stored.body, zone)
    await FeedbackPanel(page, stored).draw()
    _draw_steps(page, stored)


async def _read_trace(page: Page, name: str) -> StoredTrace:
    traces = page.library.store.traces(await page.scope())
    return await traces.get(page.query.get(name, ""))


def _draw_steps(page: Page, stored: StoredTrace) -> None:
    draw_trace(page, list(Trace.from_dict(stored.body["trace"]).events))


def _draw_actions(page: Page, stored: StoredTrace) -> None:
    def download() -> None:
        text = json.dumps(stored.body, ensure_ascii=False, indent=2)
        ui.download.content(text, f"{stored.trace_id}.json", "application/json")

    with row():
        ui.button(page.text("download"), icon="download", on_click=download).props("outline")
        panel = ui.expansion(page.text("recall_again"), icon="replay").classes("mr-expansion")
    with panel:
        draw_form(page, stored)


@register_page("/recalls/compare", "compare")
async def compare(page: Page) -> None:
    """Show two recalls side by side, of one user or of two, and what differs."""
    users = (page.user, page.query.get("other", "") or page.user)
    pages = [replace(page, query={**page.query, "user": user}) for user in users]
    traces = [await _read_trace(own, name) for own, name in zip(pages, ("a", "b"), strict=True)]
    with row():
        ui.link(page.text("recalls"), page.link("/recalls"))
    show_title(page.text("compare"))
    _draw_differences(pages, traces)
    with ui.element("div").classes("mr-columns"):
        for own, stored in zip(pages, traces, strict=True):
            with ui.element("div"):
                await _draw_column(own, stored)


async def _draw_column(page: Page, stored: StoredTrace) -> None:
    zone = await user_time_zone(page)
    with card():
        target = page.user_link("/recalls/trace", id=stored.trace_id)
        ui.link(stored.query or stored.trace_id, target)
        time = format_minute(stored.created_at, zone)
        dim_label(f"{page.user} · {time} · {stored.trace_id}")
        draw_facts(page, stored.body)
    draw_handoff(page, stored.body, zone)
    _draw_steps(page, stored)


def _draw_differences(pages: Sequence[Page], traces: Sequence[StoredTrace]) -> None:
    """Draw the facts that differ, and the evidence that only one of the recalls handed off."""
    page = pages[0]
    before, after = (_list_facts(page, stored) for stored in traces)
    first, second = (_list_evidence(stored.body) for stored in traces)
    with card(page.text("differences")):
        with ui.element("div").classes("mr-list"):
            for name, value in before.items():
                if value != after[name]:
                    with ui.element("div").classes("mr-item"):
                        ui.label(page.text(name)).classes("mr-grow")
                        ui.label(f"{value} → {after[name]}").classes("mr-text")
        for own, name, evidence, other in (
            (pages[0], "only_first", first, second),
            (pages[1], "only_second", second, first),
        ):
            keys = [key for key in evidence if key not in other]
            dim_label(page.text(name, count=len(keys)))
            for key in keys:
                text = truncate_text(evidence[key]["content"] or key, 200)
                target = key_link(own, key, evidence[key]["kind"])
                ui.link(text, target).classes("mr-text mr-small")


def _list_facts(page: Page, stored: StoredTrace) -> dict[str, str]:
    """Return what can differ between two recalls, by the name of its text."""
    return {
        "question": stored.query,
        "confidence": f"{stored.confidence:.0%}",
        "stop_reason": stop_text(page, stored.stop_reason),
        "windows": ", ".join(map(str, stored.body["windows"])),
        "model_calls": str(stored.model_calls),
        "tool_calls": str(stored.tool_calls),
        "took": format_duration(stored.seconds),
        "model": stored.model,
    }


def _list_evidence(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {memory["memory_key"]: memory for memory in body["memories"]}


@register_page("/recalls/live", "running")
async def live(page: Page) -> None:
    """Show a running recall, and at its end a link to the stored one."""
    running = page.service.live.find(await page.scope(), page.query.get("id", ""))
    if running is None:
        raise NotFound("there is no such running recall")
    show_title(running.query)
    LiveView(page, running).start()


class LiveView:
    """Redraws a recall whenever it has new events."""

    def __init__(self, page: Page, live: LiveRecall) -> None:
        self._page = page
        self._live = live
        self._status = ui.label(page.text("running")).props("role=status")
        self._container = ui.element("div").classes("mr-list").style("gap: 16px")
        self._timer: ui.timer | None = None
        self._drawn_events = -1

    def start(self) -> None:
        """Draw the recall now, and poll it until its end."""
        self._poll()
        if not self._live.has_ended:
            self._timer = ui.timer(POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        live = self._live
        if len(live.events) != self._drawn_events:
            self._drawn_events = len(live.events)
            self._container.clear()
            with self._container:
                draw_trace(self._page, live.events)
        if live.has_ended:
            self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        page, live = self._page, self._live
        # A recall of a chat turn has no result here, but its trace is in the list.
        if live.result is None and not (live.events and isinstance(live.events[-1], HandoffEvent)):
            self._status.set_text(live.problem or page.text("recall_failed"))
            return
        self._status.set_text(page.text("finished"))
        target = page.user_link("/recalls")
        if live.result is not None:
            target = page.user_link("/recalls/trace", id=live.result.trace.trace_id)
        with self._container:
            button_link(page.text("show_recall"), target, "manage_search")


class FeedbackPanel:
    """Shows and changes the feedback on one recall."""

    def __init__(self, page: Page, stored: StoredTrace) -> None:
        self._page = page
        self._stored = stored
        self._hits = dict(_list_hits(stored.body))
        self._boxes: dict[str, ui.checkbox] = {}

    async def draw(self) -> None:
        """Draw the panel."""
        with card(self._page.text("feedback")):
            self._container = ui.element("div").classes("mr-list mr-details")
        await self._refresh()

    async def _refresh(self) -> None:
        key = (self._page.user, self._stored.trace_id)
        feedback = (await self._page.library.store.feedback_list.get_many([key])).get(key)
        self._container.clear()
        with self._container:
            self._draw_verdict(feedback)
            self._draw_hits(feedback)
            self._draw_buttons(feedback)

    def _draw_verdict(self, feedback: Feedback | None) -> None:
        with row():
            for is_right, name in ((True, "thumb_up"), (False, "thumb_down")):
                is_current = feedback is not None and feedback.is_right == is_right
                button = ui.button(
                    self._page.text(name),
                    icon=name,
                    on_click=lambda is_right=is_right: self._judge(feedback, is_right),
                )
                button.props("unelevated" if is_current else "outline")
                button.props["aria-pressed"] = "true" if is_current else "false"
            if feedback is not None and feedback.in_evaluation:
                ui.label(self._page.text("in_evaluation")).classes("mr-badge mr-good")

    def _draw_hits(self, feedback: Feedback | None) -> None:
        selected = self._handed_off if feedback is None else feedback.evidence
        dim_label(self._page.text("choose_right"))
        self._boxes = {}
        for key in dict.fromkeys((*self._hits, *selected)):
            text = truncate_text(self._hits.get(key) or key, 200)
            box = ui.checkbox(text, value=key in selected).props("dense").classes("mr-text")
            self._boxes[key] = box
        self._other = ui.input(self._page.text("other_key")).props("outlined dense")

    def _draw_buttons(self, feedback: Feedback | None) -> None:
        text, is_labelled = self._page.text, feedback is not None and feedback.in_evaluation

        async def save(in_evaluation: bool) -> None:
            await self._save(self._selected, feedback, in_evaluation)

        with row():
            ui.button(text("save_choice"), on_click=lambda: save(is_labelled)).props("outline")
            if is_labelled:
                remove = ui.button(text("leave_evaluation"), on_click=lambda: save(False))
                remove.props("outline")
            else:
                add = ui.button(text("add_evaluation"), on_click=lambda: save(True))
                add.props("unelevated icon=playlist_add")
            if feedback is not None:
                ui.button(text("remove_feedback"), on_click=self._remove).props("flat")
        dim_label(text("evaluation_hint"))

    @property
    def _handed_off(self) -> tuple[str, ...]:
        memories = self._stored.body["memories"]
        return tuple(memory["memory_key"] for memory in memories if _is_stored(memory))

    @property
    def _selected(self) -> tuple[str, ...]:
        keys = [key for key, box in self._boxes.items() if box.value]
        other = (self._other.value or "").strip()
        return (*keys, other) if other else tuple(keys)

    async def _judge(self, feedback: Feedback | None, is_right: bool) -> None:
        """Store a thumb; what a wrong recall handed off is not the right evidence."""
        evidence = self._handed_off if is_right else ()
        if feedback is not None and feedback.is_right == is_right:
            evidence = self._selected
        in_evaluation = feedback is not None and feedback.in_evaluation
        await self._write(is_right, evidence, in_evaluation)

    async def _save(
        self, evidence: tuple[str, ...], feedback: Feedback | None, in_evaluation: bool
    ) -> None:
        is_right = set(evidence) == set(self._handed_off)
        if feedback is not None:
            is_right = feedback.is_right
        await self._write(is_right, evidence, in_evaluation)

    async def _write(self, is_right: bool, evidence: tuple[str, ...], in_evaluation: bool) -> None:
        page = self._page
        writer = page.library.store.feedback(await page.writable_scope())
        await writer.set(
            self._stored.trace_id,
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
        await writer.remove(self._stored.trace_id)
        await self._refresh()


def _list_hits(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys and texts of what was handed off and then of all that was found."""
    events = Trace.from_dict(body["trace"]).events
    outputs = [event.output or {} for event in events if isinstance(event, ResultEvent)]
    found = [item for output in outputs for item in output.get("results") or ()]
    hits: dict[str, str] = {}
    for item in (*body["memories"], *found):
        if isinstance(item, Mapping) and item.get("memory_key") and _is_stored(item):
            text = next(filter(None, (item.get(name) for name in _TEXTS)), "")
            hits.setdefault(str(item["memory_key"]), str(text))
    yield from list(hits.items())[:MAX_HITS]


def _is_stored(item: Mapping[str, Any]) -> bool:
    """Return True for a message or memory of the user; knowledge is no evidence of a question."""
    return item.get("kind") != "knowledge"
