"""The list of recalls of all users that the key may see, filtered."""

from datetime import UTC, tzinfo

from nicegui import ui

from memrecall.agent.result import Certainty, StopReason
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page, Redirect
from memrecall.dashboard.trace_view import model_text, stop_class, stop_text
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    draw_list,
    draw_pager,
    form_select,
    format_duration,
    search_form,
    show_empty,
    show_title,
    user_time_zone,
)
from memrecall.server.auth import Principal
from memrecall.store import (
    Feedback,
    ListedTrace,
    StoredPage,
    TraceQuery,
    TraceSummary,
)
from memrecall.types import format_minute

_ABSTAINED = {"yes": True, "no": False}


@register_page("/recalls", "recalls")
async def show_recalls(page: Page) -> None:
    """Show the recalls of a user or of all."""
    principal = await page.principal()
    users = await page.find_users()
    if not page.user and principal.users is not None and len(principal.users) == 1:
        raise Redirect(page.link_here(user=next(iter(principal.users))))
    show_title(page.text("recalls"))
    stored = await _read_page(page, principal)
    with card():
        _draw_filters(page)
        if not stored.items:
            show_empty(page.text(_explain_empty(stored, users)))
        await _draw_list(page, stored)


def _explain_empty(stored: StoredPage[ListedTrace], users: list[str]) -> str:
    """Return the name of the text that says why a page has no recalls."""
    if stored.next_cursor:
        return "no_recalls_more"
    return "no_recalls" if users else "no_users"


async def _read_page(page: Page, principal: Principal) -> StoredPage[ListedTrace]:
    users = principal.users
    if page.user:
        users = frozenset({(await page.scope()).user_id})
    return await page.library.store.trace_list.page(
        _read_query(page),
        ROWS_PER_PAGE,
        page.query.get("cursor"),
        users=users,
        agent_id=principal.agent_id,
    )


def _read_query(page: Page) -> TraceQuery:
    """Return the filter in the address; invalid values are ignored."""
    query = page.query
    return TraceQuery(
        text=query.get("q", "").strip(),
        stop_reason=query.get("reason", ""),
        abstained=_ABSTAINED.get(query.get("abstained", "")),
    )


def _draw_filters(page: Page) -> None:
    query, text = page.query, page.text
    with search_form(page, "search_questions", "user"):
        reasons = {reason.value: stop_text(page, reason.value) for reason in StopReason}
        reason = query.get("reason", "")
        form_select(text("stop_reason"), "reason", {"": text("any"), **reasons}, reason)
        answers = {"": text("any"), "no": text("answered"), "yes": text("abstained_short")}
        form_select(text("outcome"), "abstained", answers, query.get("abstained", ""))


async def _draw_list(page: Page, stored: StoredPage[ListedTrace]) -> None:
    zone: tzinfo = await user_time_zone(page) if page.user else UTC
    keys = [(item.user_id, item.trace_id) for item in stored.items]
    feedback = await page.library.store.feedback_list.get_many(keys)
    for item in draw_list(stored.items):
        draw_recall(page, item, zone, item.user_id)
        _draw_verdict(page, feedback.get((item.user_id, item.trace_id)))
    draw_pager(page, stored.next_cursor)


def _draw_verdict(page: Page, feedback: Feedback | None) -> None:
    if feedback is not None:
        name = "thumb_up" if feedback.is_right else "thumb_down"
        icon = ui.icon(name).classes("mr-good" if feedback.is_right else "mr-bad")
        icon.props("role=img").props["aria-label"] = page.text(name)
    if feedback is not None and feedback.in_evaluation:
        ui.label(page.text("in_evaluation")).classes("mr-badge mr-dim")


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
