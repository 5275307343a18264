"""Changes of memories from pages: dialogs for one memory, and a selection of several."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from memrecall.dashboard.page import Page
from memrecall.dashboard.widgets import (
    TermField,
    confirm,
    describe_error,
    draw_button,
    open_dialog,
    row,
)
from memrecall.errors import Conflict, NotFound
from memrecall.store import MemoryQuery, read_filter
from memrecall.types import MemoryRecord, format_time, parse_time

_QUOTED = 200  # characters of a memory in a question
_REMOVALS = ("delete", "purge", "delete_selected")
_NOTICES = (
    *("restored", "purged", "message_erased", "message_gone"),
    *("correction_undone", "user_erased"),
)


def go_with_notice(address: str, name: str, count: int = 0) -> None:
    """Open an address of the dashboard, which `take_notice` shows a result on."""
    separator = "&" if "?" in address else "?"
    ui.navigate.to(f"{address}{separator}done={name}&count={count}")


def take_notice(page: Page) -> Page:
    """Show the result of the last change, and return the page without it in its address."""
    name, page = take_value(page, "done")
    count, page = take_value(page, "count")
    if name in _NOTICES and count and count.isdecimal():
        with row().props("role=status"):
            ui.label(page.text(f"done_{name}", count=count)).classes("mr-good")
    return page


def take_value(page: Page, name: str) -> tuple[str | None, Page]:
    """Return a value of the address, and the page without it in its address."""
    query = {key: value for key, value in page.query.items() if key != name}
    return page.query.get(name), replace(page, query=query)


class MemoryActions:
    """The buttons that change one memory, as it was when the page was built."""

    def __init__(self, page: Page, item: MemoryRecord) -> None:
        self._page = page
        self._item = item

    def draw(self) -> None:
        """Draw the buttons for the state of the memory."""
        item = self._item
        sources = len(item.source_message_ids)
        option = self._page.text("with_sources", count=sources) if sources else ""
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

    async def _delete(self, with_sources: bool) -> None:
        memory = await self._page.writable_memory()
        await memory.delete(self._item.memory_key, sources=with_sources)
        ui.navigate.reload()

    async def _purge(self, with_sources: bool) -> None:
        memory = await self._page.writable_memory()
        report = await memory.purge(self._item.memory_key, sources=with_sources)
        if not report["purged"]:
            raise NotFound("the memory was erased before")
        target = self._page.user_link("/explorer/memories")
        go_with_notice(target, "purged", report["purged"])

    async def _undo(self, _: bool) -> None:
        memory = await self._page.writable_memory()
        await memory.undo(self._item.memory_key, unchanged_since=self._item.updated_at)
        ui.navigate.reload()


class MemorySelection:
    """The checkboxes of a list of memories, and the buttons that change the checked ones."""

    def __init__(self, page: Page, *, of_deleted: bool) -> None:
        self._page = page
        self._of_deleted = of_deleted
        self._boxes: dict[str, tuple[MemoryRecord, ui.checkbox]] = {}

    def draw_checkbox(self, item: MemoryRecord) -> None:
        """Draw the checkbox of a memory."""
        box = ui.checkbox().props("dense")
        box.props["aria-label"] = self._page.text("select_memory", text=item.content[:80])
        self._boxes[item.memory_key] = (item, box)

    def draw_buttons(self) -> None:
        """Draw the buttons; for deleted memories, the one that restores them."""
        page = self._page
        with row():
            ui.checkbox(page.text("select_all"), on_change=self._select_all).props("dense")
            if self._of_deleted:
                draw_button(page, "restore_selected", self._restore, "undo")
                return
            look = "outline color=negative"
            draw_button(page, "delete_selected", self._delete, "delete", look)

    def _select_all(self, change: Any) -> None:
        for _, box in self._boxes.values():
            box.value = change.value

    def _records(self) -> list[MemoryRecord]:
        return [item for item, box in self._boxes.values() if box.value]

    async def _delete(self) -> None:
        records, page = self._records(), self._page

        async def delete(_: bool) -> None:
            keys = [record.memory_key for record in records]
            await (await page.writable_memory()).delete_all(filters={"id": keys})
            stored = await page.library.store.memories(await page.scope()).get_states(keys)
            at = max(filter(None, (record.deleted_at for record in stored)), default=None)
            ui.navigate.to(page.link_here(cursor=None, deleted=at and format_time(at)))

        await self._ask("delete_selected", records, delete)

    async def _restore(self) -> None:
        records = self._records()

        async def restore(_: bool) -> None:
            await restore_memories(self._page, [record.memory_key for record in records])

        await self._ask("restore_selected", records, restore)

    async def _ask(self, name: str, records: Sequence[MemoryRecord], action: Any) -> None:
        page = self._page
        if not records:
            ui.notify(page.text("choose_memories"), type="warning")
            return
        question = page.text(f"ask_{name}", count=len(records))
        await confirm(page, question, page.text(name), action, removes=name in _REMOVALS)


async def draw_last_deletion(page: Page) -> Page:
    """Offer to undo the deletion in the address; return the page without it in its address."""
    moment, plain = take_value(page, "deleted")
    if moment is None:
        return plain
    # All memories of one deletion have its time; a later change would have set another one.
    same_time = MemoryQuery(
        read_filter({"updated_at": parse_time(moment, "deleted")}), deleted=True
    )
    keys = await page.library.store.memories(await page.scope()).keys(same_time)

    async def undo() -> None:
        await restore_memories(plain, keys)

    text = page.text("done_deleted", count=len(keys))
    draw_undo(page, text, undo if keys else None, "done_expired_undo")
    return plain


def draw_undo(page: Page, text: str, undo: Any, expired: str) -> None:
    """Show what a change did and a button that undoes it, or that this is too late."""
    with row().props("role=status"):
        if undo is None:
            ui.label(page.text(expired)).classes("mr-warn")
            return
        ui.label(text).classes("mr-good")
        draw_button(page, "undo_deletion", undo, "undo")


async def restore_memories(page: Page, keys: Iterable[str]) -> None:
    """Undo the deletion of memories one by one, and say which could not be restored."""
    memory, scope = await page.writable_memory(), await page.scope()
    restored, problems = 0, []
    for key in keys:
        name = key
        try:
            record = await page.library.store.memories(scope).get_any(key)
            name = record.content[:_QUOTED]
            if record.deleted_at is not None:  # unless it came back with another one
                await memory.undo(key, unchanged_since=record.updated_at)
            restored += 1
        except (Conflict, NotFound) as error:
            problems.append(f"{name} {describe_error(page, error, missing='failed_gone')}")
    if not problems:
        go_with_notice(page.link_here(cursor=None), "restored", restored)
        return
    summary = page.text("not_restored", count=restored)
    with ui.dialog(value=True) as dialog, ui.card().classes("mr-card mr-dialog"):
        dialog.props["aria-label"] = summary
        with ui.element("div").props("role=alert"):
            for line in (summary, *problems):
                ui.label(line).classes("mr-text")
        draw_button(page, "close", ui.navigate.reload, look="flat autofocus")


def _text_area(label: str, text: str) -> ui.textarea:
    area = ui.textarea(label, value=text).props("outlined autogrow")
    return area.classes("full-width")
