"""The explorer's sessions: a list by time, and the summaries of one."""

from dataclasses import replace
from datetime import tzinfo

from nicegui import ui

from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import (
    button_link,
    card,
    dim_label,
    draw_pager,
    row,
    show_empty,
    show_title,
    user_time_zone,
)
from memrecall.store import StoredSession, StoredSummary
from memrecall.types import format_minute

PAGE_SIZE = 30
_SUMMARY_LEVELS = ("turns", "chunks", "session")  # from the lowest


@register_page("/explorer/sessions", "sessions")
async def sessions(page: Page) -> None:
    """Show a user's sessions, the one with the latest message first."""
    if not await draw_explorer_head(page):
        return
    scope, zone = await page.scope(), await user_time_zone(page)
    stored = await page.library.store.session_list(scope).page(PAGE_SIZE, page.query.get("cursor"))
    with card():
        if not stored.items:
            show_empty(page.text("no_sessions"))
        with ui.element("div").classes("mr-list"):
            for item in stored.items:
                _draw_session(page, item, zone)
        draw_pager(page, stored.next_cursor)


def _draw_session(page: Page, item: StoredSession, zone: tzinfo) -> None:
    with ui.element("div").classes("mr-item"):
        title = item.session_name or item.opening or item.session_id
        ui.link(title, page.user_link("/explorer/session", id=item.session_id))
        if not item.status:
            ui.label(page.text("ended")).classes("mr-badge")
        dim_label(page.text("messages_count", count=f"{item.messages:,}"))
        dim_label(format_minute(item.last_time, zone))
        dim_label(f"{item.session_id} · {page.text('of_agent', agent=item.agent_id)}")


@register_page("/explorer/session", "session")
async def session(page: Page) -> None:
    """Show the summaries of one session, the highest level first."""
    scope = await page.scope(page.query.get("id") or "–")
    store = page.library.store
    item = await store.owners.get_session(
        scope.user_id, str(scope.session_id), agent_id=scope.agent_id
    )
    ui.link(page.text("sessions"), page.user_link("/explorer/sessions"))
    show_title(item["session_name"] or item["session_id"])
    with row():
        target = page.user_link("/explorer", session=item["session_id"])
        button_link(page.text("its_messages"), target, "forum")
        created = format_minute(item["create_time"], await user_time_zone(page))
        agent = page.text("of_agent", agent=item["agent_id"])
        dim_label(f"{agent} · {page.text('stored_at', time=created)}")
    summaries = await store.session_state(replace(scope, agent_id=item["agent_id"])).summaries()
    if not summaries:
        with card(page.text("summaries")):
            show_empty(page.text("no_summaries"))
    for level, name in reversed(list(enumerate(_SUMMARY_LEVELS))):
        layer = [summary for summary in summaries if summary.level == level]
        if layer:
            with card(page.text(f"level_{name}")):
                for summary in layer:
                    _draw_summary(page, summary)


def _draw_summary(page: Page, summary: StoredSummary) -> None:
    with ui.element("div").classes("mr-evidence"):
        ui.label(summary.text).classes("mr-text")
        positions = {"first": summary.first_sequence_no, "last": summary.last_sequence_no}
        made_by = page.term("made_by", summary.made_by)
        dim_label(page.text("summary_of", **positions, by=made_by))
