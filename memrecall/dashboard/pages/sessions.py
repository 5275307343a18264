"""The explorer's sessions, and the layered summaries of one."""

from dataclasses import replace
from typing import Any

from nicegui import ui

from memrecall.dashboard.frame import draw_tabs, page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.widgets import (
    button_link,
    card,
    dim,
    moment,
    note,
    row,
    title,
    user_zone,
)
from memrecall.store import StoredSummary

PAGE_SIZE = 30
_LEVELS = ("turns", "chunks", "session")  # from the lowest


@page("/explorer/sessions", "sessions")
async def sessions(visit: Visit) -> None:
    """A user's sessions by their ids."""
    if not await draw_tabs(visit):
        return
    scope, zone = await visit.scope(), await user_zone(visit)
    after = visit.asked.get("after", "")
    found = await visit.library.store.owners.list_sessions(
        scope.user_id, after, PAGE_SIZE, agent_id=scope.agent_id
    )
    with card():
        if not found.items:
            note(visit.say("no_sessions"))
        with ui.element("div").classes("mr-list"):
            for item in found.items:
                _draw_session(visit, item, zone)
        if found.next_after:
            button_link(visit.say("more"), visit.link_here(after=found.next_after), "chevron_right")


def _draw_session(visit: Visit, item: dict[str, Any], zone: Any) -> None:
    with ui.element("div").classes("mr-item"):
        name = item["session_name"] or item["session_id"]
        target = visit.link("/explorer/session", user=visit.user, id=item["session_id"])
        ui.link(name, target)
        dim(visit.say("messages_count", count=item["last_sequence_no"]))
        if not item["status"]:
            ui.label(visit.say("ended")).classes("mr-badge")
        dim(
            f"{visit.say('of_agent', agent=item['agent_id'])} · {moment(item['create_time'], zone)}"
        )


@page("/explorer/session", "session")
async def session(visit: Visit) -> None:
    """One session: its summaries, the uppermost first."""
    scope = await visit.scope(visit.asked.get("id") or "–")
    item = await visit.library.store.owners.get_session(
        scope.user_id, str(scope.session_id), agent_id=scope.agent_id
    )
    zone = await user_zone(visit)
    ui.link(visit.say("sessions"), visit.link("/explorer/sessions", user=visit.user))
    title(item["session_name"] or item["session_id"])
    with row():
        target = visit.link("/explorer", user=visit.user, session=item["session_id"])
        button_link(visit.say("its_messages"), target, "forum")
        dim(
            f"{visit.say('of_agent', agent=item['agent_id'])} · {moment(item['create_time'], zone)}"
        )
    of_its_agent = replace(scope, agent_id=item["agent_id"])
    kept = await visit.library.store.session_state(of_its_agent).summaries()
    if not kept:
        with card(visit.say("summaries")):
            note(visit.say("no_summaries"))
    for level, name in reversed(list(enumerate(_LEVELS))):
        layer = [summary for summary in kept if summary.level == level]
        if layer:
            with card(visit.say(f"level_{name}")):
                for summary in layer:
                    _draw_summary(visit, summary)


def _draw_summary(visit: Visit, summary: StoredSummary) -> None:
    with ui.element("div").classes("mr-evidence"):
        ui.label(summary.text).classes("mr-text")
        span = {"first": summary.first_sequence_no, "last": summary.last_sequence_no}
        dim(visit.say("summary_of", **span, by=summary.made_by))
