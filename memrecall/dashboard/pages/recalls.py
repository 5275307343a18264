"""The recall pages: list, one recall, live view, comparison, and a form to start one."""

import json
from contextlib import aclosing
from datetime import tzinfo
from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from memrecall.agent.trace import Trace
from memrecall.budget import Limits
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.trace_view import HIGH_CONFIDENCE, draw_facts, draw_handoff, draw_trace
from memrecall.dashboard.widgets import (
    PairSelection,
    button_link,
    card,
    dim_label,
    draw_pager,
    format_duration,
    row,
    select_user,
    show_empty,
    show_title,
    user_time_zone,
)
from memrecall.errors import MemrecallError, NotFound, describe_validation_error
from memrecall.server.errors import RequestError, problem_from_error
from memrecall.server.http.chat_models import RecallLimits, RecallRequest
from memrecall.server.http.context import LiveRecall
from memrecall.server.http.recall import RecallHandler
from memrecall.store import StoredTrace, TraceSummary
from memrecall.types import format_minute

PAGE_SIZE = 25
_DEFAULTS = Limits()
_LIMITS = ("iterations", "model_calls", "tool_calls", "seconds")
_POLL_SECONDS = 0.25


@register_page("/recalls", "recalls")
async def recalls(page: Page) -> None:
    """Show a user's recalls, the running ones first."""
    show_title(page.text("recalls"))
    if not await select_user(page):
        return
    scope = await page.scope()
    stored = await page.library.store.traces(scope).page(PAGE_SIZE, page.query.get("cursor"))
    zone = await user_time_zone(page)
    with card(page.text("recall_now")):
        _draw_form(page, None)
    for live in page.service.live.running(scope):
        with card(page.text("running")):
            target = page.user_link("/recalls/live", id=live.live_id)
            ui.link(live.query or live.live_id, target)
    with card():
        if not stored.items:
            show_empty(page.text("no_recalls"))
        selection = PairSelection(page, page.text("choose_two"))
        with ui.element("div").classes("mr-list"):
            for item in stored.items:
                with ui.element("div").classes("mr-item"):
                    selection.draw_checkbox(item.trace_id, page.text("choose_recall"))
                    draw_recall(page, item, zone)
        if len(stored.items) > 1:
            selection.draw_button(
                lambda first, second: page.user_link("/recalls/compare", a=first, b=second)
            )
        draw_pager(page, stored.next_cursor)


def draw_recall(page: Page, item: TraceSummary, zone: tzinfo) -> None:
    """Draw a recall in a list: its query, outcome, cost and time."""
    target = page.user_link("/recalls/trace", id=item.trace_id)
    ui.link(item.query[:200] or item.trace_id, target)
    if item.abstained:
        ui.label(page.text("abstained_short")).classes("mr-badge mr-warn")
    else:
        classes = "mr-good" if item.confidence >= HIGH_CONFIDENCE else "mr-warn"
        ui.label(f"{item.confidence:.0%}").classes(f"mr-badge {classes}")
    counts = {"iterations": item.iterations, "calls": item.tool_calls}
    cost = page.text("cost", took=format_duration(item.seconds), **counts)
    reason = page.term("stop_reason", item.stop_reason)
    dim_label(cost if item.stop_reason == "handoff" else f"{reason} · {cost}")
    dim_label(format_minute(item.created_at, zone))


def _draw_form(page: Page, earlier: StoredTrace | None) -> None:
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
        dim_label(f"{format_minute(stored.created_at, zone)} · {stored.trace_id}")
    show_title(stored.query or stored.trace_id)
    _draw_actions(page, stored)
    draw_facts(page, stored.body)
    _draw_body(page, stored, zone)


async def _read_trace(page: Page, name: str) -> StoredTrace:
    traces = page.library.store.traces(await page.scope())
    return await traces.get(page.query.get(name, ""))


def _draw_body(page: Page, stored: StoredTrace, zone: tzinfo) -> None:
    draw_handoff(page, stored.body, zone)
    draw_trace(page, list(Trace.from_dict(stored.body["trace"]).events))


def _draw_actions(page: Page, stored: StoredTrace) -> None:
    def download() -> None:
        text = json.dumps(stored.body, ensure_ascii=False, indent=2)
        ui.download.content(text, f"{stored.trace_id}.json", "application/json")

    with row():
        ui.button(page.text("download"), icon="download", on_click=download).props("outline")
        panel = ui.expansion(page.text("recall_again"), icon="replay").classes("mr-expansion")
    with panel:
        _draw_form(page, stored)


@register_page("/recalls/compare", "compare")
async def compare(page: Page) -> None:
    """Show two recalls side by side."""
    traces = [await _read_trace(page, name) for name in ("a", "b")]
    zone = await user_time_zone(page)
    show_title(page.text("compare"))
    with ui.element("div").classes("mr-columns"):
        for stored in traces:
            with ui.element("div"):
                with card():
                    target = page.user_link("/recalls/trace", id=stored.trace_id)
                    ui.link(stored.query or stored.trace_id, target)
                    dim_label(f"{format_minute(stored.created_at, zone)} · {stored.trace_id}")
                    draw_facts(page, stored.body)
                _draw_body(page, stored, zone)


@register_page("/recalls/live", "running")
async def live(page: Page) -> None:
    """Show a running recall, and at its end a link to the stored one."""
    running = page.service.live.find(await page.scope(), page.query.get("id", ""))
    if running is None:
        raise NotFound("there is no such running recall")
    show_title(running.query)
    _LiveView(page, running).start()


class _LiveView:
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
            self._timer = ui.timer(_POLL_SECONDS, self._poll)

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
        page, result = self._page, self._live.result
        if result is None:
            self._status.set_text(self._live.problem or page.text("recall_failed"))
            return
        self._status.set_text(page.text("finished"))
        target = page.user_link("/recalls/trace", id=result.trace.trace_id)
        with self._container:
            button_link(page.text("show_recall"), target, "manage_search")
