"""Choosing whose data a page shows."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from memrecall.dashboard.session import Elsewhere, Visit

MARK_BEFORE, MARK_AFTER = "\ue000", "\ue001"  # of nobody's language: private use


def title(text: str) -> None:
    """The heading of a page."""
    _heading("h1", text, "mr-title")


def heading(text: str) -> None:
    """The heading of a part."""
    _heading("h2", text, "mr-heading")


def _heading(tag: str, text: str, look: str) -> None:
    TextElement(tag=tag, text=text).classes(look)


@contextmanager
def card(name: str = "") -> Iterator[ui.card]:
    """A part of a page, with its heading."""
    with ui.card().classes("mr-card") as made:
        if name:
            heading(name)
        yield made


@contextmanager
def row() -> Iterator[Any]:
    """Things beside each other as far as there is room."""
    with ui.element("div").classes("mr-row") as made:
        yield made


def dim(text: str) -> ui.label:
    """Text that stands back."""
    return ui.label(text).classes("mr-dim mr-small")


def fact(name: str, value: str, look: str = "") -> None:
    """A named value."""
    with ui.element("div").classes("mr-fact"):
        dim(name)
        ui.label(value).classes(look)


def note(text: str) -> None:
    """What is said where there is nothing to show."""
    ui.label(text).classes("mr-dim mr-empty")


def button_link(text: str, target: str, icon: str = "") -> None:
    """A link that looks like a button."""
    with ui.link(target=target).classes("mr-button"):
        if icon:
            ui.icon(icon)
        ui.label(text)


def marked_text(text: str) -> None:
    """Text in which the words that were searched for are marked."""
    if MARK_BEFORE not in text:
        ui.label(text).classes("mr-text")
        return
    with ui.element("div").classes("mr-text"):
        for number, part in enumerate(text.split(MARK_BEFORE)):
            if number == 0:
                _span(part)
                continue
            word, _, rest = part.partition(MARK_AFTER)
            TextElement(tag="mark", text=word)
            _span(rest)


def _span(text: str) -> None:
    if text:
        ui.label(text).classes("mr-span")


async def user_zone(visit: Visit) -> tzinfo:
    """Where the page's user lives."""
    mark = await visit.library.store.feed(visit.user).version()
    return ZoneInfo(mark.time_zone if mark else "UTC")


def moment(at: datetime, zone: tzinfo) -> str:
    """A time as people read it, where the user lives."""
    local = at.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M}"


def milliseconds(seconds: float) -> str:
    """A time span in few characters."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


async def ask_first(
    visit: Visit, question: str, name: str, do: Callable[[], Awaitable[None]]
) -> None:
    """Do something that changes data only after it was confirmed."""
    with ui.dialog() as dialog, ui.card().classes("mr-card mr-dialog"):
        ui.label(question).classes("mr-text")
        with row():
            ui.button(visit.say("cancel"), on_click=lambda: dialog.submit(False)).props(
                "flat autofocus"
            )
            ui.button(name, on_click=lambda: dialog.submit(True)).props("unelevated color=negative")
    sure = await dialog
    dialog.delete()
    if sure:
        await do()


def pager(visit: Visit, next_cursor: str | None) -> None:
    """The way to older rows, and back to the newest."""
    with row():
        if "cursor" in visit.asked:
            button_link(visit.say("newest"), visit.link_here(cursor=None), "first_page")
        if next_cursor:
            button_link(visit.say("older"), visit.link_here(cursor=next_cursor), "chevron_right")


SUGGESTED = 20


async def choose_user(visit: Visit) -> bool:
    """Draw the choice of a user; whether one is chosen. Who may see one alone is sent there."""
    principal = await visit.principal()
    known = await visit.users()
    if not visit.user and len(known) == 1:
        raise Elsewhere(visit.link_here(user=known[0]))
    if principal.users is not None and len(principal.users) == 1 and visit.user in known:
        return True  # there is nothing to choose
    with ui.element("form").classes("mr-row mr-user").props("method=get"):
        _draw_input(visit, known)
        ui.button(visit.say("show")).props("type=submit outline")
    if visit.user:
        return True
    with card(visit.say("choose_user")):
        if not known:
            note(visit.say("no_users"))
        with ui.element("div").classes("mr-row"):
            for user in known[:SUGGESTED]:
                ui.link(user, visit.link_here(user=user)).classes("mr-chip")
    return False


def _draw_input(visit: Visit, known: list[str]) -> None:
    """The id, with suggestions that follow what is typed."""

    async def suggest() -> None:
        field.set_autocomplete((await visit.users(field.value or ""))[:SUGGESTED])

    field = ui.input(
        visit.say("user"), value=visit.user, autocomplete=known[:SUGGESTED], on_change=suggest
    )
    field.props("name=user dense outlined").props["placeholder"] = visit.say("choose_user_hint")
