"""The explorer's messages and sessions: read, search, delete, context, session summaries."""

import re
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta, tzinfo

from nicegui import ui

from memrecall.dashboard import widgets
from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page
from memrecall.dashboard.pages.spaces import draw_who_can_see
from memrecall.memory.summaries import summarise_text
from memrecall.search import LexicalQuery, SemanticQuery
from memrecall.store import MemoryQuery, MessageFilter
from memrecall.text.query import parse_query, positive_words
from memrecall.text.snippets import snippets
from memrecall.text_length import truncate_text
from memrecall.types import Message, Role, format_minute, parse_time

NEIGHBORS = 8
MAX_CHARS = 1_500
_QUOTED = 200  # characters of a message in a question
_MAX_MEMORIES = 100
_ROLES = tuple(role.value for role in Role)
_SUMMARY_LEVELS = ("turns", "chunks", "session")  # from the lowest
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@register_page("/explorer", "explorer")
async def show_messages(page: Page) -> None:
    """Show messages page by page, search results, or the neighbours of one message."""
    page = widgets.take_notice(page)
    if not await draw_explorer_head(page):
        return
    zone = await widgets.user_time_zone(page)
    _draw_filters(page)
    await widgets.draw_projects(page)
    if page.query.get("around"):
        await _draw_neighbors(page, zone)
    elif page.query.get("q", "").strip():
        await _draw_results(page, zone)
    else:
        await _draw_page(page, zone)


def _draw_filters(page: Page) -> None:
    query = page.query
    with widgets.search_form(page, "search_messages", "user", "space", "project") as field:
        field.props["placeholder"] = page.text("query_hint")
        methods = {"": page.text("by_words"), "meaning": page.text("by_meaning")}
        widgets.form_select(page.text("search_by"), "by", methods, query.get("by", ""))
        roles = {"": page.text("any"), **{role: page.term("role", role) for role in _ROLES}}
        widgets.form_select(page.text("role"), "role", roles, query.get("role", ""))
        field = ui.input(page.text("filter_session"), value=query.get("session", ""))
        field.props("name=session outlined dense")
        for name in ("since", "until"):
            value = query.get(name, "")
            field = ui.input(page.text(f"filter_{name}"), value=value)
            field.props(f"name={name} outlined dense stack-label")
            # The picker would drop a time that a link contains.
            if not value or _DATE.fullmatch(value):
                field.props("type=date min=0002-01-01 max=9998-12-31")


def _read_filter(page: Page, zone: tzinfo) -> MessageFilter:
    query = page.query
    since = _read_time(page, "since", zone)
    until = _read_time(page, "until", zone, days=1)  # the last day is included
    role = Role(query["role"]) if query.get("role") in _ROLES else None
    return MessageFilter(since, until, role, query.get("session") or None)


def _read_time(page: Page, name: str, zone: tzinfo, *, days: int = 0) -> datetime | None:
    """Return a time of the address; a date is the midnight, `days` later, in the user's zone."""
    value = page.query.get(name, "").strip()
    if not value:
        return None
    moment = parse_time(value, name)
    if not _DATE.fullmatch(value):
        return moment
    midnight = datetime.combine(moment.date() + timedelta(days=days), time(), zone)
    return midnight.astimezone(UTC)


async def _draw_page(page: Page, zone: tzinfo) -> None:
    is_deleted = page.query.get("state") == "deleted"
    stored = await page.library.store.timeline(await page.scope()).page(
        _read_filter(page, zone),
        page_size=ROWS_PER_PAGE,
        cursor=page.query.get("cursor"),
        hidden=is_deleted,
    )
    with widgets.card(page.text("deleted_messages") if is_deleted else ""):
        with widgets.row():
            name = "all_messages" if is_deleted else "deleted_messages"
            state = None if is_deleted else "deleted"
            target = page.link_here(state=state, cursor=None)
            widgets.button_link(page.text(name), target, "forum" if is_deleted else "delete")
        if not stored.items:
            widgets.show_empty(page.text("no_messages"))
        for message in reversed(stored.items):
            _draw_message(page, message, zone, is_deleted=is_deleted)
        widgets.draw_pager(page, stored.next_cursor)


async def _draw_results(page: Page, zone: tzinfo) -> None:
    scope = await page.scope()
    text, message_filter = page.query["q"].strip(), _read_filter(page, zone)
    if page.query.get("by") == "meaning":
        words: list[str] = []
        semantic = SemanticQuery(text, filter=message_filter, top_k=ROWS_PER_PAGE)
        results = await page.library.nearest_messages(scope, semantic)
    else:
        words = positive_words(parse_query(text))
        lexical = LexicalQuery(text, message_filter, ROWS_PER_PAGE, page.query.get("cursor"))
        results = await page.library.find_messages(scope, lexical)
    page.service.metrics.searches.labels("semantic" if not words else "lexical").inc()
    with widgets.card(page.text("found_messages")):
        if not results.items:
            widgets.show_empty(page.text("nothing_found"))
        for hit in results.items:
            _draw_message(page, hit.message, zone, words, score=hit.score)
        widgets.draw_pager(page, results.next_cursor)


async def _draw_neighbors(page: Page, zone: tzinfo) -> None:
    key = page.query["around"]
    scope = await page.scope()
    timeline = page.library.store.timeline(scope)
    neighbors = (await timeline.neighbors(key, before=NEIGHBORS, after=NEIGHBORS)).items
    page.service.metrics.searches.labels("neighbors").inc()
    with widgets.card(page.text("around")):
        with widgets.row():
            widgets.button_link(page.text("all_messages"), page.user_link("/explorer"), "forum")
            earlier, later = neighbors[0].message_id, neighbors[-1].message_id
            widgets.button_link(page.text("earlier"), page.link_here(around=earlier), "expand_less")
            widgets.button_link(page.text("later"), page.link_here(around=later), "expand_more")
        for message in neighbors:
            _draw_message(page, message, zone, is_anchor=message.message_id == key)
    draw_who_can_see(page, key)
    # The memories of the anchor's session whose sources are shown.
    anchor = next(message for message in neighbors if message.message_id == key)
    query = MemoryQuery(session_id=anchor.session_id, superseded=True)
    stored = await page.library.store.memories(scope).page(query, limit=_MAX_MEMORIES)
    shown = {message.message_id for message in neighbors}
    memories = [item for item in stored.items if shown.intersection(item.source_message_ids)]
    with widgets.card(page.text("learnt_here")):
        if not memories:
            widgets.show_empty(page.text("nothing_learnt"))
        for item in memories:
            ui.link(item.content[:300], page.user_link("/explorer/memory", key=item.memory_key))


def _draw_message(
    page: Page,
    message: Message,
    zone: tzinfo,
    words: list[str] | None = None,
    *,
    score: float | None = None,
    is_anchor: bool = False,
    is_deleted: bool = False,
) -> None:
    """Draw one message of a conversation, with the query's words highlighted."""
    own = " mr-mine" if message.role is Role.USER else ""
    anchor = " mr-anchor" if is_anchor else ""
    with ui.element("article").classes(f"mr-message{own}{anchor}") as article:
        if is_anchor:
            article.props("tabindex=-1")
            article.run_method("scrollIntoView", {"block": "center"})
            article.run_method("focus", {"preventScroll": True})
        with widgets.row():
            name = message.speaker or page.term("role", message.role.value)
            ui.label(name).classes("mr-speaker")
            target = page.user_link("/explorer", around=message.message_id)
            ui.link(format_minute(message.ts, zone), target).classes("mr-small")
            session = page.user_link("/explorer", session=message.session_id)
            ui.link(message.session_id, session).classes("mr-small mr-dim")
            if score is not None:
                widgets.dim_label(f"{score:.2f}")
            if message.content_type != "text":
                widgets.dim_label(message.content_type)
            _draw_buttons(page, message, is_deleted=is_deleted)
        text = truncate_text(message.content, MAX_CHARS)
        if words:
            marks = {"before": widgets.MARK_START, "after": widgets.MARK_END}
            text = "\n".join(snippets(message.content, words, length=240, limit=1, **marks))
        widgets.highlighted_text(text)


def _draw_buttons(page: Page, message: Message, *, is_deleted: bool) -> None:
    """Draw the buttons that hide a message or show it again, and erase it."""
    key, quoted = message.message_id, message.content[:_QUOTED]
    # The page without the message, which it may be about.
    target = page.link_here(around=None) if page.query.get("around") == key else page.url

    async def delete() -> None:
        question = page.text("ask_delete_message", text=quoted)
        if await widgets.confirm(page, question, page.text("delete"), removes=True):
            report = await (await page.writable_memory()).delete_message(key)
            name = "message_deleted" if report["deleted"] else "message_gone"
            widgets.go_with_notice(target, name, len(report["memories"]))

    async def restore() -> None:
        await (await page.writable_memory()).undo(key)
        widgets.go_with_notice(page.url, "message_restored")

    async def purge() -> None:
        question = page.text("ask_purge_message", text=quoted)
        if await widgets.confirm(page, question, page.text("purge"), removes=True):
            report = await (await page.writable_memory()).purge(key)
            name = "message_erased" if report["purged"] else "message_gone"
            widgets.go_with_notice(target, name, len(report["memories"]))

    if is_deleted:
        widgets.icon_button(page, "restore_message", "undo", restore)
    else:
        widgets.icon_button(page, "delete_message", "delete", delete)
    widgets.icon_button(page, "purge_message", "delete_forever", purge)


@register_page("/explorer/sessions", "sessions")
async def show_sessions(page: Page) -> None:
    """Show a user's sessions, the one with the latest message first."""
    if not await draw_explorer_head(page):
        return
    scope, zone = await page.scope(), await widgets.user_time_zone(page)
    stored = await page.library.store.session_list(scope).page(
        ROWS_PER_PAGE, page.query.get("cursor")
    )
    with widgets.card():
        if not stored.items:
            widgets.show_empty(page.text("no_sessions"))
        for item in widgets.draw_list(stored.items):
            title = item.session_name or item.opening or item.session_id
            ui.link(title, page.user_link("/explorer/session", id=item.session_id))
            if not item.status:
                ui.label(page.text("ended")).classes("mr-badge")
            widgets.dim_label(page.text("messages_count", count=f"{item.messages:,}"))
            widgets.dim_label(format_minute(item.last_time, zone))
            agent = page.text("of_agent", agent=item.agent_id)
            widgets.dim_label(f"{item.session_id} · {agent}")
        widgets.draw_pager(page, stored.next_cursor)


@register_page("/explorer/session", "session")
async def show_session(page: Page) -> None:
    """Show the summaries of one session, the highest level first; without any, compute one."""
    scope = await page.scope(page.query.get("id") or "–")
    store = page.library.store
    item = await store.owners.get_session(
        scope.user_id, str(scope.session_id), agent_id=scope.agent_id
    )
    ui.link(page.text("sessions"), page.user_link("/explorer/sessions"))
    widgets.show_title(item["session_name"] or item["session_id"])
    with widgets.row():
        target = page.user_link("/explorer", session=item["session_id"])
        widgets.button_link(page.text("its_messages"), target, "forum")
        created = format_minute(item["create_time"], await widgets.user_time_zone(page))
        agent = page.text("of_agent", agent=item["agent_id"])
        widgets.dim_label(f"{agent} · {page.text('stored_at', time=created)}")
    state = store.session_state(replace(scope, agent_id=item["agent_id"]))
    summaries = await state.summaries() or await summarise_text(state)
    if not summaries:
        with widgets.card(page.text("summaries")):
            widgets.show_empty(page.text("no_summaries"))
    for level, name in reversed(list(enumerate(_SUMMARY_LEVELS))):
        layer = [summary for summary in summaries if summary.level == level]
        if layer:
            with widgets.card(page.text(f"level_{name}")):
                for summary in layer:
                    with ui.element("div").classes("mr-evidence"):
                        ui.label(summary.text).classes("mr-text")
                        name = "excerpts_of" if summary.made_by == "text" else "summary_of"
                        source = page.text(
                            name,
                            first=summary.first_sequence_no,
                            last=summary.last_sequence_no,
                            by=page.term("made_by", summary.made_by),
                        )
                        widgets.dim_label(source)
