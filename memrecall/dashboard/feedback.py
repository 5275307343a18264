"""The feedback on a recall: a thumb, the right messages among the hits, the evaluation set."""

from collections.abc import Iterator, Mapping
from typing import Any

from nicegui import ui

from memrecall.agent.trace import Trace
from memrecall.agent.trace_events import ResultEvent
from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import card, dim_label, row
from memrecall.store import Feedback, StoredTrace
from memrecall.text_length import truncate_text

MAX_HITS = 50
_TEXTS = ("content_preview", "content", "summary")


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
            actor=f"key {(await page.principal()).key_id}",
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
