"""The explorer's memories: list, search, and one memory with its history and recalls."""

from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Any

from nicegui import ui

from memrecall.dashboard import widgets
from memrecall.dashboard.layout import draw_explorer_head, register_page
from memrecall.dashboard.page import ROWS_PER_PAGE, Page
from memrecall.dashboard.pages.recalls import draw_recall
from memrecall.dashboard.pages.spaces import draw_who_can_see
from memrecall.errors import NotFound
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.store import MemoryQuery, Revision
from memrecall.types import MemoryRecord, format_minute

MEMORY_STATES = ("current", "expired", "superseded", "deleted")
_MAX_SOURCES = 50
_QUOTED = 200  # characters of a memory in a question


@register_page("/explorer/memories", "memories")
async def show_memories(page: Page) -> None:
    """Show a user's memories, the latest first, or search results."""
    if not await draw_explorer_head(page):
        return
    page = widgets.take_notice(page)
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
    page.service.metrics.searches.labels("memories").inc()
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
        "expired": (_is_expired(item), "mr-warn"),
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
    # What the user said, if this is a claim that contradicts it.
    keys = item.provenance.conflicts_with
    contents = {m.memory_key: m.content for m in await store.memories(scope).get_many(keys)}
    for other in keys:
        with widgets.row():
            ui.label(page.text("conflicts_with", key=other)).classes("mr-warn")
            target = page.user_link("/explorer/memory", key=other)
            ui.link(contents.get(other, "–")[:300], target)
    actions = _MemoryActions(page, item)
    actions.draw()
    if item.deleted_at is None:
        draw_who_can_see(page, key)
    with widgets.card(page.text("history")):
        for step in await store.memories(scope).history(key):
            with ui.element("div").classes("mr-evidence"):
                _draw_revision(page, step, zone)
                if item.deleted_at is None and _is_earlier_text(step, item):
                    actions.draw_restore(str(step.old_text))
    ids = list(item.source_message_ids[:_MAX_SOURCES])
    messages = {m.message_id: m.content for m in await store.timeline(scope).get_many(ids)}
    with widgets.card(page.text("came_from")):
        if not ids:
            widgets.show_empty(page.text("no_sources"))
        for message_id in ids:
            target = page.user_link("/explorer", around=message_id)
            ui.link(messages.get(message_id, message_id)[:300], target)
    if page.space:  # recalls are their users' own
        return
    with widgets.card(page.text("its_recalls")):
        recalls = await store.traces(scope).find_mentions(key)
        if not recalls:
            widgets.show_empty(page.text("never_recalled"))
        for recall in recalls[:ROWS_PER_PAGE]:
            with ui.element("div").classes("mr-item"):
                draw_recall(page, recall, zone)


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
            style = "mr-warn" if _is_expired(item) else ""
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


def _is_expired(item: MemoryRecord) -> bool:
    """Return True if a memory is not recalled any more because it has expired."""
    return item.expires_at is not None and item.expires_at <= datetime.now(UTC)


def _draw_revision(page: Page, step: Revision, zone: tzinfo) -> None:
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


class _MemoryActions:
    """The buttons that change one memory, as it was when the page was built."""

    def __init__(self, page: Page, item: MemoryRecord) -> None:
        self._page = page
        self._item = item

    def draw(self) -> None:
        """Draw the buttons for the state of the memory."""
        item = self._item
        is_deleted = item.deleted_at is not None
        with widgets.row():
            if not is_deleted:
                self._draw_button("edit", "edit", self._edit)
                pin = partial(self._update, pinned=not item.pinned)
                self._draw_question("unpin" if item.pinned else "pin", "push_pin", pin)
                if item.expires_at is None:
                    self._draw_button("expire", "event_busy", self._expire)
                else:
                    keep = partial(self._update, expires_at=None)
                    self._draw_question("keep", "event_available", keep)
                self._draw_button("delete", "delete", self._delete)
            self._draw_button("purge", "delete_forever", self._purge)
            self._draw_question("restore" if is_deleted else "undo", "undo", self._undo)

    def draw_restore(self, text: str) -> None:
        """Draw the button that gives the memory an earlier text of its history again."""
        restore = partial(self._update, data=text)
        button = self._draw_question("restore_text", "history", restore, text)
        button.props("flat dense size=sm", remove="outline")

    def _draw_button(self, name: str, icon: str, action: Any) -> ui.button:
        look = "outline color=negative" if name in ("delete", "purge") else "outline"
        return widgets.draw_button(self._page, name, action, icon, look)

    def _draw_question(self, name: str, icon: str, action: Any, text: str = "") -> ui.button:
        """Draw a button that asks before its action, and quotes the memory or another text."""
        page = self._page

        async def ask() -> None:
            question = page.text(f"ask_{name}", text=(text or self._item.content)[:_QUOTED])
            if await widgets.confirm(page, question, page.text(name)):
                await action()

        return self._draw_button(name, icon, ask)

    async def _update(self, **fields: Any) -> None:
        memory = await self._page.writable_memory()
        since = self._item.updated_at
        await memory.update(self._item.memory_key, unchanged_since=since, **fields)
        ui.navigate.reload()

    async def _edit(self) -> None:
        page, item = self._page, self._item
        async with widgets.open_dialog(page, page.text("edit_hint"), page.text("save")) as wait:
            fields: dict[str, Any] = {
                "data": ui.textarea(page.text("memory_text"), value=item.content)
                .props("outlined autogrow")
                .classes("full-width"),
                "memory_type": widgets.TermField(
                    page, page.text("memory_type"), "memory_type", item.memory_type
                ),
                "subject": widgets.TermField(
                    page, page.text("subject"), "entity", item.subject or ""
                ),
            }
            is_confirmed = await wait()
        old = {"data": item.content, "memory_type": item.memory_type, "subject": item.subject}
        new = {name: field.value or "" for name, field in fields.items()}
        new["subject"] = new["subject"] or None
        changed = {name: value for name, value in new.items() if value != old[name]}
        if is_confirmed and not changed:
            ui.notify(page.text("nothing_changed"))
        elif is_confirmed:
            await self._update(**changed)

    async def _expire(self) -> None:
        page = self._page
        question = page.text("ask_expire", text=self._item.content[:_QUOTED])
        async with widgets.open_dialog(page, question, page.text("expire")) as wait:
            day = ui.input(page.text("last_day")).props("type=date outlined dense stack-label")
            day.classes("full-width")
            is_confirmed = await wait()
        if is_confirmed and day.value:
            await self._update(expiration_date=day.value)
        elif is_confirmed:
            await self._update(expires_at=datetime.now(UTC))

    async def _delete(self) -> None:
        choice = await self._ask_about_sources("delete")
        if choice is not None:
            memory = await self._page.writable_memory()
            await memory.delete(self._item.memory_key, sources=choice)
            ui.navigate.reload()

    async def _purge(self) -> None:
        choice = await self._ask_about_sources("purge")
        if choice is None:
            return
        memory = await self._page.writable_memory()
        report = await memory.purge(self._item.memory_key, sources=choice)
        if not report["purged"]:
            raise NotFound("the memory was erased before")
        target = self._page.user_link("/explorer/memories")
        widgets.go_with_notice(target, "purged", report["purged"])

    async def _ask_about_sources(self, name: str) -> bool | None:
        """Ask before a removal; return whether it includes the sources, None if refused."""
        page, sources = self._page, len(self._item.source_message_ids)
        question = page.text(f"ask_{name}", text=self._item.content[:_QUOTED])
        async with widgets.open_dialog(page, question, page.text(name), removes=True) as wait:
            box = ui.checkbox(page.text("keep_sources", count=sources)) if sources else None
            is_confirmed = await wait()
        return not (box is not None and box.value) if is_confirmed else None

    async def _undo(self) -> None:
        memory = await self._page.writable_memory()
        await memory.undo(self._item.memory_key, unchanged_since=self._item.updated_at)
        ui.navigate.reload()
