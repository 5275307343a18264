"""The explorer's memories: list, search, and one memory with its history and recalls."""

from datetime import UTC, datetime, tzinfo

from nicegui import ui

from memrecall.dashboard import widgets
from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page
from memrecall.dashboard.pages.recalls import draw_recall
from memrecall.dashboard.pages.spaces import draw_who_can_see
from memrecall.dashboard.repair import MemoryActions, take_notice
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import MemoryQuery, Revision
from memrecall.types import MemoryRecord, format_minute

MEMORY_STATES = ("current", "expired", "superseded", "deleted")
_MAX_SOURCES = 50


@register_page("/explorer/memories", "memories")
async def show_memories(page: Page) -> None:
    """Show a user's memories, the latest first, or search results."""
    if not await draw_explorer_head(page):
        return
    page = take_notice(page)
    state = page.query.get("state", "current")
    with widgets.search_form(page, "search_memories", "user", "space", "project"):
        pass
    await widgets.draw_projects(page)
    with widgets.row():
        for name in MEMORY_STATES:
            target = page.link_here(state=name, cursor=None)
            widgets.chip_link(page.text(f"state_{name}"), target, is_current=name == state)
    scope, zone = await page.scope(), await widgets.user_time_zone(page)
    with widgets.card():
        if page.query.get("q", "").strip():
            await _draw_results(page, scope, zone)
            return
        query = MemoryQuery(
            superseded=state == "superseded", deleted=state == "deleted", expired=state == "expired"
        )
        stored = await page.library.store.memories(scope).page(
            query, limit=ROWS_PER_PAGE, cursor=page.query.get("cursor")
        )
        if not stored.items:
            widgets.show_empty(page.text("no_memories"))
        for item in widgets.draw_list(stored.items):
            _draw_memory(page, item, zone)
        widgets.draw_pager(page, stored.next_cursor)


async def _draw_results(page: Page, scope: Scope, zone: tzinfo) -> None:
    request = SearchRequest(page.query["q"].strip(), kind="memory", limit=ROWS_PER_PAGE)
    results = await page.library.search(scope, request)
    page.service.metrics.count_search("memories")
    keys = [hit.key for hit in results.results]
    stored = await page.library.store.memories(scope).get_many(keys)
    records = {item.memory_key: item for item in stored}
    if not results.results:
        widgets.show_empty(results.message or page.text("nothing_found"))
    for hit in widgets.draw_list([hit for hit in results.results if hit.key in records]):
        _draw_memory(page, records[hit.key], zone, hit.score)


def _draw_memory(page: Page, item: MemoryRecord, zone: tzinfo, score: float | None = None) -> None:
    ui.link(item.content[:300], page.user_link("/explorer/memory", key=item.memory_key))
    badges = {
        "superseded": (item.superseded_by is not None, "mr-warn"),
        "deleted": (item.deleted_at is not None, "mr-bad"),
        "pinned": (item.pinned, "mr-good"),
        "expired": (is_expired(item), "mr-warn"),
        "sensitive": (item.sensitive, ""),
        "truncated": (item.truncated, "mr-warn"),
    }
    for name, (is_shown, style) in badges.items():
        if is_shown:
            ui.label(page.text(name)).classes(f"mr-badge {style}")
    if score is not None:
        widgets.dim_label(f"{score:.2f}")
    kind = page.term("memory_type", item.memory_type)
    widgets.dim_label(f"{kind} · {format_minute(item.said_at, zone)}")


@register_page("/explorer/memory", "memory")
async def show_memory(page: Page) -> None:
    """Show one memory: content, sources, history, and the recalls that mention it."""
    scope, zone = await page.scope(), await widgets.user_time_zone(page)
    store, key = page.library.store, page.query.get("key", "")
    item = await store.memories(scope).get_any(key)
    ui.link(page.text("memories"), page.user_link("/explorer/memories"))
    widgets.show_title(item.content[:400])
    _draw_facts(page, item, zone)
    await _draw_conflicts(page, scope, item)
    actions = MemoryActions(page, item)
    actions.draw()
    if item.deleted_at is None:
        draw_who_can_see(page, key)
    with widgets.card(page.text("history")):
        for step in await store.memories(scope).history(key):
            with ui.element("div").classes("mr-evidence"):
                draw_revision(page, step, zone)
                if item.deleted_at is None and _is_earlier_text(step, item):
                    actions.draw_restore(str(step.old_text))
    with widgets.card(page.text("came_from")):
        await _draw_sources(page, scope, item)
    if page.space:  # recalls are their users' own
        return
    with widgets.card(page.text("its_recalls")):
        recalls = await store.traces(scope).find_mentions(key)
        if not recalls:
            widgets.show_empty(page.text("never_recalled"))
        for recall in recalls[:ROWS_PER_PAGE]:
            with ui.element("div").classes("mr-item"):
                draw_recall(page, recall, zone)


async def _draw_conflicts(page: Page, scope: Scope, item: MemoryRecord) -> None:
    """Show what the user said, if this is a claim that contradicts it."""
    keys = item.provenance.conflicts_with
    texts = {
        m.memory_key: m.content for m in await page.library.store.memories(scope).get_many(keys)
    }
    for key in keys:
        with widgets.row():
            ui.label(page.text("conflicts_with", key=key)).classes("mr-warn")
            ui.link(texts.get(key, "–")[:300], page.user_link("/explorer/memory", key=key))


async def _draw_sources(page: Page, scope: Scope, item: MemoryRecord) -> None:
    ids = list(item.source_message_ids[:_MAX_SOURCES])
    messages = await page.library.store.timeline(scope).get_many(ids)
    contents = {message.message_id: message.content[:300] for message in messages}
    if not ids:
        widgets.show_empty(page.text("no_sources"))
    for message_id in ids:
        target = page.user_link("/explorer", around=message_id)
        ui.link(contents.get(message_id, message_id), target)


def _draw_facts(page: Page, item: MemoryRecord, zone: tzinfo) -> None:
    with widgets.row():
        widgets.show_fact(page.text("key_name"), item.memory_key)
        widgets.show_fact(page.text("memory_type"), page.term("memory_type", item.memory_type))
        widgets.show_fact(page.text("layer"), page.term("layer", item.layer))
        widgets.show_fact(page.text("subject"), page.term("entity", item.subject or "–"))
        widgets.show_fact(page.text("valid_from"), format_minute(item.since, zone))
        if item.valid_to is not None:
            widgets.show_fact(page.text("valid_to"), format_minute(item.valid_to, zone), "mr-warn")
        if item.expires_at is not None:
            style = "mr-warn" if is_expired(item) else ""
            widgets.show_fact(page.text("expires"), format_minute(item.expires_at, zone), style)
        if item.pinned:
            widgets.show_fact("", page.text("pinned"), "mr-good")
        if item.author is not None:
            widgets.show_fact(page.text("author"), item.author)
        origin = page.term("origin", item.provenance.origin.value)
        widgets.show_fact(page.text("origin"), f"{origin}, {item.provenance.actor}")
        if item.truncated:
            widgets.show_fact(page.text("content"), page.text("truncated"), "mr-warn")
        if item.keywords:
            widgets.show_fact(
                page.text("keywords"), ", ".join(k.keyword for k in item.keywords[:12])
            )
    if item.superseded_by:
        with widgets.row():
            ui.label(page.text("superseded_because", why=item.superseded_reason or "–"))
            target = page.user_link("/explorer/memory", key=item.superseded_by)
            ui.link(page.text("what_superseded"), target)
    if item.supersedes:
        target = page.user_link("/explorer/memory", key=item.supersedes)
        ui.link(page.text("what_it_superseded"), target)


def _is_earlier_text(step: Revision, item: MemoryRecord) -> bool:
    is_edit = step.event == "UPDATE" and step.other_key is None
    is_own = step.memory_key == item.memory_key and step.old_text != step.new_text
    return is_edit and is_own and step.old_text != item.content


def is_expired(item: MemoryRecord) -> bool:
    """Return True if a memory is not recalled any more because it has expired."""
    return item.expires_at is not None and item.expires_at <= datetime.now(UTC)


def draw_revision(page: Page, step: Revision, zone: tzinfo) -> None:
    """Draw one change of a memory: who made it, when, and what it said before and after."""
    with widgets.row():
        ui.label(page.term("event", step.event)).classes("mr-badge")
        widgets.dim_label(f"{format_minute(step.at, zone)} · {step.actor}")
        if step.undone:
            ui.label(page.text("undone")).classes("mr-badge mr-warn")
    if step.old_text and step.new_text != step.old_text:
        ui.label(step.old_text[:600]).classes("mr-text mr-old")
    if step.new_text:
        ui.label(step.new_text[:600]).classes("mr-text")
    if step.reason:
        widgets.dim_label(page.text("because", why=step.reason))
    if step.other_key:
        target = page.user_link("/explorer/memory", key=step.other_key)
        ui.link(step.other_key, target).classes("mr-small")
