"""The page of one recall with its trace and feedback."""

import json
from functools import partial

from nicegui import ui

from memrecall.agent.result import RecallResult
from memrecall.agent.views import RecallViewer, trace_time_zone
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.trace_view import draw_facts, draw_handoff, draw_trace
from memrecall.dashboard.widgets import card, dim_label, draw_button, row, show_title
from memrecall.store import StoredTrace
from memrecall.text_length import truncate_text
from memrecall.types import format_minute

MAX_HITS = 50


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
    _draw_actions(page, stored)
    draw_facts(page, result)
    draw_handoff(page, result)
    draw_trace(page, list(result.trace.events))
    await FeedbackPanel(page, result).draw()


def _draw_actions(page: Page, stored: StoredTrace) -> None:
    def download() -> None:
        text = json.dumps(stored.body, ensure_ascii=False, indent=2)
        ui.download.content(text, f"{stored.trace_id}.json", "application/json")

    with row():
        draw_button(page, "download", download, "download")


class FeedbackPanel:
    """Shows and changes the feedback on one recall."""

    def __init__(self, page: Page, result: RecallResult) -> None:
        self._page = page
        self._trace_id = result.trace.trace_id
        evidence, found = _list_hits(result)
        self._handed_off = tuple(evidence)
        self._hits = dict(list((evidence | found | evidence).items())[:MAX_HITS])

    async def draw(self) -> None:
        """Draw the panel."""
        with card(self._page.text("feedback")):
            self._container = ui.element("div").classes("mr-list mr-details")
        await self._refresh()

    async def _refresh(self) -> None:
        key = (self._page.user, self._trace_id)
        self._feedback = (await self._page.library.store.feedback_list.get_many([key])).get(key)
        self._container.clear()
        with self._container:
            self._draw_verdict()
            self._draw_hits()
            self._draw_buttons()

    @property
    def _is_labelled(self) -> bool:
        return self._feedback is not None and self._feedback.in_evaluation

    def _draw_verdict(self) -> None:
        with row():
            for is_right, name in ((True, "thumb_up"), (False, "thumb_down")):
                is_current = self._feedback is not None and self._feedback.is_right == is_right
                look = "unelevated" if is_current else "outline"
                judge = partial(self._judge, is_right)
                button = draw_button(self._page, name, judge, name, look)
                button.props["aria-pressed"] = "true" if is_current else "false"
            if self._is_labelled:
                ui.label(self._page.text("in_evaluation")).classes("mr-badge mr-good")

    def _draw_hits(self) -> None:
        chosen = self._handed_off if self._feedback is None else self._feedback.evidence
        dim_label(self._page.text("choose_right"))
        self._boxes = {
            key: ui.checkbox(truncate_text(self._hits.get(key) or key, 200), value=key in chosen)
            for key in dict.fromkeys((*self._hits, *chosen))
        }
        for box in self._boxes.values():
            box.props("dense").classes("mr-text")
        self._other = ui.input(self._page.text("other_key")).props("outlined dense")

    def _draw_buttons(self) -> None:
        page, save = self._page, self._save
        with row():
            draw_button(page, "save_choice", partial(save, self._is_labelled))
            if self._is_labelled:
                draw_button(page, "leave_evaluation", partial(save, False))
            else:
                add = partial(save, True)
                draw_button(page, "add_evaluation", add, "playlist_add", "unelevated")
            if self._feedback is not None:
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


def _list_hits(result: RecallResult) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of what was handed off and of what was found, by key.

    Knowledge is no evidence of a question: it belongs to no user.
    """
    viewer = RecallViewer("en")
    found = [item for event in result.trace.events for item in viewer.view_event(event).items]
    evidence, hits = (
        {item.key: item.text for item in items if item.kind != "knowledge"}
        for items in (viewer.view_result(result).evidence, found)
    )
    return evidence, hits
