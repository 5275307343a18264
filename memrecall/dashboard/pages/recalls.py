"""Recalls: the list, one drawn, one while it runs, two side by side, and once more."""

import json
from contextlib import aclosing
from datetime import tzinfo
from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from memrecall.agent.trace import Trace
from memrecall.budget import Limits
from memrecall.dashboard.frame import page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.trace_view import SURE, draw_facts, draw_handoff, draw_trace
from memrecall.dashboard.widgets import (
    button_link,
    card,
    choose_user,
    dim,
    milliseconds,
    moment,
    note,
    pager,
    row,
    title,
    user_zone,
)
from memrecall.errors import MemrecallError, NotFound
from memrecall.server.errors import Refused, problem_of
from memrecall.server.http.message_models import RecallLimits, RecallRequest
from memrecall.server.http.recall import RecallRun
from memrecall.server.live import LiveRecall
from memrecall.store import StoredTrace, TraceSummary

_USUAL = Limits()
_NUMBERS = ("iterations", "model_calls", "tool_calls", "seconds")


def draw_form(visit: Visit, earlier: StoredTrace | None) -> None:
    """Fields for the question and its settings; the button begins the recall and shows it."""
    question = ui.input(visit.say("question"), value=earlier.query if earlier else "")
    question.props("outlined dense").classes("full-width")
    fields: dict[str, Any] = {}
    with ui.expansion(visit.say("settings"), icon="tune").classes("mr-expansion") as settings:
        settings.props("dense")
        with ui.element("div").classes("mr-form"):
            for name in _NUMBERS:
                fields[name] = ui.number(
                    visit.say(f"limit_{name}"), value=getattr(_USUAL, name), min=0
                ).props("outlined dense")
            languages = {"": visit.say("automatic"), "en": "English", "zh": "中文"}
            fields["language"] = ui.select(languages, value="", label=visit.say("answer_language"))
            fields["language"].props("outlined dense")
            fields["as_of"] = ui.input(visit.say("as_of")).props("outlined dense")
            fields["as_of"].props["placeholder"] = "2026-01-31T12:00:00Z"
    settings.value = earlier is not None

    async def begin() -> None:
        await _begin(visit, question.value, {name: field.value for name, field in fields.items()})

    question.on("keydown.enter", begin)
    with row():
        ui.button(visit.say("recall_start"), icon="play_arrow", on_click=begin).props("unelevated")


async def _begin(visit: Visit, question: str, given: dict[str, Any]) -> None:
    try:
        request = _request(question, given)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        named = ".".join(map(str, fault["loc"])) or "query"
        ui.notify(f"{named}: {fault['msg']}", type="warning")
        return
    scope = await visit.scope()
    live = visit.service.live.begin(scope, question)
    run = RecallRun(await visit.asking(), scope, request, live)
    background_tasks.create(_play(run, live), name="recall")
    ui.navigate.to(visit.link("/recalls/live", user=visit.user, id=live.live_id))


def _request(question: str, given: dict[str, Any]) -> RecallRequest:
    whole = {name: int(given[name]) for name in _NUMBERS[:-1] if given[name] is not None}
    seconds = None if given["seconds"] is None else float(given["seconds"])
    return RecallRequest(
        query=question,
        limits=RecallLimits(**whole, seconds=seconds),
        language=given["language"] or None,
        as_of=given["as_of"] or None,
    )


async def _play(run: RecallRun, live: LiveRecall) -> None:
    """Run it to its end, whoever still looks; what goes wrong is told where it is watched."""
    try:
        async with aclosing(run.events()) as events:
            async for _ in events:
                pass
    except Refused as error:
        live.problem = error.problem.message
    except MemrecallError as error:
        live.problem = problem_of(error).message


PAGE_SIZE = 25
_POLL_SECONDS = 0.25


@page("/recalls", "recalls")
async def recalls(visit: Visit) -> None:
    """A user's recalls, those that run first."""
    title(visit.say("recalls"))
    if not await choose_user(visit):
        return
    scope = await visit.scope()
    kept = visit.library.store.traces(scope)
    found = await kept.page(PAGE_SIZE, visit.asked.get("cursor"))
    zone = await user_zone(visit)
    with card(visit.say("recall_now")):
        draw_form(visit, None)
    for live in visit.service.live.running(scope):
        target = visit.link("/recalls/live", user=visit.user, id=live.live_id)
        with card(visit.say("running")):
            ui.link(live.query or live.live_id, target)
    with card():
        if not found.items:
            note(visit.say("no_recalls"))
        chosen: list[str] = []
        with ui.element("div").classes("mr-list"):
            for item in found.items:
                _draw_item(visit, item, zone, chosen)
        if len(found.items) > 1:
            _draw_comparing(visit, chosen)
        pager(visit, found.next_cursor)


def _draw_item(visit: Visit, item: TraceSummary, zone: tzinfo, chosen: list[str]) -> None:
    with ui.element("div").classes("mr-item"):
        box = ui.checkbox(on_change=lambda change: _choose(chosen, item.trace_id, change.value))
        box.props("dense").props["aria-label"] = visit.say("choose_recall")
        target = visit.link("/recalls/trace", user=visit.user, id=item.trace_id)
        ui.link(item.query[:200] or item.trace_id, target)
        draw_outcome(visit, item)
        dim(moment(item.created_at, zone))


def draw_outcome(visit: Visit, item: TraceSummary) -> None:
    """How a recall ended, in a line."""
    if item.abstained:
        ui.label(visit.say("abstained_short")).classes("mr-badge mr-warn")
    else:
        look = "mr-good" if item.confidence >= SURE else "mr-warn"
        ui.label(f"{item.confidence:.0%}").classes(f"mr-badge {look}")
    counts = {"iterations": item.iterations, "calls": item.tool_calls}
    told = visit.say("cost", took=milliseconds(item.seconds), **counts)
    dim(told if item.stop_reason == "handoff" else f"{item.stop_reason} · {told}")


def _choose(chosen: list[str], trace_id: str, is_chosen: bool) -> None:
    if is_chosen:
        chosen.append(trace_id)
    elif trace_id in chosen:
        chosen.remove(trace_id)


def _draw_comparing(visit: Visit, chosen: list[str]) -> None:
    def compare() -> None:
        if len(chosen) != 2:
            ui.notify(visit.say("choose_two"), type="warning")
            return
        first, second = chosen
        ui.navigate.to(visit.link("/recalls/compare", user=visit.user, a=first, b=second))

    ui.button(visit.say("compare_chosen"), icon="compare", on_click=compare).props("outline")


@page("/recalls/trace", "recall")
async def trace(visit: Visit) -> None:
    """One recall."""
    stored, zone = await _get(visit, "id"), await user_zone(visit)
    _draw_head(visit, stored, zone)
    _draw_tools(visit, stored)
    draw_facts(visit, stored.body)
    draw_handoff(visit, stored.body, zone)
    draw_trace(visit, list(Trace.from_dict(stored.body["trace"]).events))


async def _get(visit: Visit, name: str) -> StoredTrace:
    scope = await visit.scope()
    return await visit.library.store.traces(scope).get(visit.asked.get(name, ""))


def _draw_head(visit: Visit, stored: StoredTrace, zone: tzinfo) -> None:
    with row():
        ui.link(visit.say("recalls"), visit.link("/recalls", user=visit.user))
        dim(f"{moment(stored.created_at, zone)} · {stored.trace_id}")
    title(stored.query or stored.trace_id)


def _draw_tools(visit: Visit, stored: StoredTrace) -> None:
    def download() -> None:
        text = json.dumps(stored.body, ensure_ascii=False, indent=2)
        ui.download.content(text, f"{stored.trace_id}.json", "application/json")

    with row():
        ui.button(visit.say("download"), icon="download", on_click=download).props("outline")
        again = ui.expansion(visit.say("recall_again"), icon="replay").classes("mr-expansion")
    with again:
        draw_form(visit, stored)


@page("/recalls/compare", "compare")
async def compare(visit: Visit) -> None:
    """Two recalls side by side."""
    both, zone = [await _get(visit, name) for name in ("a", "b")], await user_zone(visit)
    title(visit.say("compare"))
    with ui.element("div").classes("mr-columns"):
        for stored in both:
            with ui.element("div"):
                with card():
                    target = visit.link("/recalls/trace", user=visit.user, id=stored.trace_id)
                    ui.link(stored.query or stored.trace_id, target)
                    dim(f"{moment(stored.created_at, zone)} · {stored.trace_id}")
                    draw_facts(visit, stored.body)
                draw_handoff(visit, stored.body, zone)
                draw_trace(visit, list(Trace.from_dict(stored.body["trace"]).events))


@page("/recalls/live", "running")
async def live(visit: Visit) -> None:
    """A recall while it runs; at its end, the recall as it was stored."""
    scope = await visit.scope()
    found = visit.service.live.find(scope, visit.asked.get("id", ""))
    if found is None:
        raise NotFound("there is no such recall under way")
    title(found.query)
    state = ui.label(visit.say("running")).props("role=status")
    place = ui.element("div").classes("mr-list").style("gap: 16px")
    _Follower(visit, found, state, place).begin()


class _Follower:
    """Draws a recall anew whenever something has happened in it."""

    def __init__(self, visit: Visit, live: LiveRecall, state: ui.label, place: Any) -> None:
        self._visit = visit
        self._live = live
        self._state = state
        self._place = place
        self._drawn = -1

    def begin(self) -> None:
        """Look now, and then again and again."""
        self._look()
        self._timer = ui.timer(_POLL_SECONDS, self._look)

    def _look(self) -> None:
        live = self._live
        if len(live.events) != self._drawn:
            self._drawn = len(live.events)
            self._place.clear()
            with self._place:
                draw_trace(self._visit, live.events)
        if live.has_ended:
            self._end()

    def _end(self) -> None:
        if hasattr(self, "_timer"):
            self._timer.cancel()
        visit, result = self._visit, self._live.result
        if result is None:
            self._state.set_text(self._live.problem or visit.say("recall_failed"))
            return
        self._state.set_text(visit.say("finished"))
        target = visit.link("/recalls/trace", user=visit.user, id=result.trace.trace_id)
        with self._place:
            button_link(visit.say("show_recall"), target, "manage_search")
