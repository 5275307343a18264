"""Changes from pages: the dialogs for one memory, and the notice after a change."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import TermField, confirm, draw_button, open_dialog, row
from memrecall.errors import NotFound
from memrecall.types import MemoryRecord

_QUOTED = 200  # characters of a memory in a question
_REMOVALS = ("delete", "purge")
_NOTICES = (
    *("purged", "user_erased"),
    *("message_deleted", "message_restored", "message_erased", "message_gone"),
)


def go_with_notice(address: str, name: str, count: int = 0) -> None:
    """Open an address of the dashboard, which `take_notice` shows a result on."""
    separator = "&" if "?" in address else "?"
    ui.navigate.to(f"{address}{separator}done={name}&count={count}")


def take_notice(page: Page) -> Page:
    """Show the result of the last change, and return the page without it in its address."""
    name, count = page.query.get("done"), page.query.get("count")
    if name in _NOTICES and count and count.isdecimal():
        with row().props("role=status"):
            ui.label(page.text(f"done_{name}", count=count)).classes("mr-good")
    query = {key: value for key, value in page.query.items() if key not in ("done", "count")}
    return replace(page, query=query)


class MemoryActions:
    """The buttons that change one memory, as it was when the page was built."""

    def __init__(self, page: Page, item: MemoryRecord) -> None:
        self._page = page
        self._item = item

    def draw(self) -> None:
        """Draw the buttons for the state of the memory."""
        item = self._item
        sources = len(item.source_message_ids)
        option = self._page.text("keep_sources", count=sources) if sources else ""
        with row():
            if item.deleted_at is None:
                self._draw_button("edit", "edit", self._edit)
                self._draw_question("unpin" if item.pinned else "pin", "push_pin", self._pin)
                if item.expires_at is None:
                    self._draw_button("expire", "event_busy", self._expire)
                else:
                    self._draw_question("keep", "event_available", self._keep)
                self._draw_question("delete", "delete", self._delete, option=option)
            self._draw_question("purge", "delete_forever", self._purge, option=option)
            is_deleted = item.deleted_at is not None
            self._draw_question("restore" if is_deleted else "undo", "undo", self._undo)

    def draw_restore(self, text: str) -> None:
        """Draw the button that gives the memory an earlier text of its history again."""

        async def restore(_: bool) -> None:
            await self._update(data=text)

        button = self._draw_question("restore_text", "history", restore, text)
        button.props("flat dense size=sm", remove="outline")

    def _draw_button(self, name: str, icon: str, action: Any) -> ui.button:
        color = "color=negative" if name in _REMOVALS else ""
        return draw_button(self._page, name, action, icon, f"outline {color}")

    def _draw_question(
        self, name: str, icon: str, action: Any, text: str = "", option: str = ""
    ) -> ui.button:
        async def ask() -> None:
            question = self._page.text(f"ask_{name}", text=(text or self._item.content)[:_QUOTED])
            action_name, removes = self._page.text(name), name in _REMOVALS
            await confirm(self._page, question, action_name, action, option, removes=removes)

        return self._draw_button(name, icon, ask)

    async def _update(self, **fields: Any) -> None:
        memory = await self._page.writable_memory()
        since = self._item.updated_at
        await memory.update(self._item.memory_key, unchanged_since=since, **fields)
        ui.navigate.reload()

    async def _edit(self) -> None:
        page, item = self._page, self._item
        async with open_dialog(page, page.text("edit_hint"), page.text("save")) as wait:
            fields: dict[str, Any] = {
                "data": _text_area(page.text("memory_text"), item.content),
                "memory_type": TermField(
                    page, page.text("memory_type"), "memory_type", item.memory_type
                ),
                "subject": TermField(page, page.text("subject"), "entity", item.subject or ""),
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

    async def _pin(self, _: bool) -> None:
        await self._update(pinned=not self._item.pinned)

    async def _expire(self) -> None:
        page = self._page
        question = page.text("ask_expire", text=self._item.content[:_QUOTED])
        async with open_dialog(page, question, page.text("expire")) as wait:
            day = ui.input(page.text("last_day")).props("type=date outlined dense stack-label")
            day.classes("full-width")
            is_confirmed = await wait()
        if is_confirmed and day.value:
            await self._update(expiration_date=day.value)
        elif is_confirmed:
            await self._update(expires_at=datetime.now(UTC))

    async def _keep(self, _: bool) -> None:
        await self._update(expires_at=None)

    async def _delete(self, without_sources: bool) -> None:
        memory = await self._page.writable_memory()
        await memory.delete(self._item.memory_key, sources=not without_sources)
        ui.navigate.reload()

    async def _purge(self, without_sources: bool) -> None:
        memory = await self._page.writable_memory()
        report = await memory.purge(self._item.memory_key, sources=not without_sources)
        if not report["purged"]:
            raise NotFound("the memory was erased before")
        target = self._page.user_link("/explorer/memories")
        go_with_notice(target, "purged", report["purged"])

    async def _undo(self, _: bool) -> None:
        memory = await self._page.writable_memory()
        await memory.undo(self._item.memory_key, unchanged_since=self._item.updated_at)
        ui.navigate.reload()


def _text_area(label: str, text: str) -> ui.textarea:
    area = ui.textarea(label, value=text).props("outlined autogrow")
    return area.classes("full-width")
