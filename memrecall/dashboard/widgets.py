"""Elements that several pages use: labels, buttons, dialogs, forms, lists and charts."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import tzinfo
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from memrecall.dashboard.page import WORDS, Page, Redirect
from memrecall.errors import MemrecallError, NotFound
from memrecall.server.errors import RequestError, problem_from_error

MARK_START, MARK_END = "\ue000", "\ue001"  # private use characters, which texts do not contain
MAX_SUGGESTIONS = 20
_MAX_PROJECTS = 20
# The browser chooses: a canvas has no style sheet, and only it knows the theme of the system.
TEXT_COLORS = {"light": "#5b6675", "dark": "#a3abb8"}
TEXT_COLOR = {
    ":color": "document.body.classList.contains('body--dark')"
    f" ? '{TEXT_COLORS['dark']}' : '{TEXT_COLORS['light']}'"
}
# Distinguishable with a colour vision deficiency, and on light and dark pages.
PALETTE = ("#4477dd", "#cc7711", "#229977", "#bb4466", "#8866cc", "#33a0b5", "#99872e", "#777f8c")
_REMOVALS = ("delete", "delete_forever", "person_remove")  # icons of buttons that remove something
# What `take_notice` may say after a change.
_NOTICES = (
    "purged",
    "user_erased",
    "message_deleted",
    "message_restored",
    "message_erased",
    "message_gone",
)
_Item = TypeVar("_Item")
_LINE = "rgba(128, 136, 150, .3)"


def show_title(text: str) -> None:
    """Show the heading of a page."""
    TextElement(tag="h1", text=text).classes("mr-title")


@contextmanager
def card(heading: str = "") -> Iterator[ui.card]:
    """Draw a section of a page with its heading."""
    with ui.card().classes("mr-card") as element:
        if heading:
            TextElement(tag="h2", text=heading).classes("mr-heading")
        yield element


def row() -> ui.element:
    """Place elements side by side, wrapping where the width ends."""
    return ui.element("div").classes("mr-row")


def dim_label(text: str) -> ui.label:
    """Show small, pale text."""
    return ui.label(text).classes("mr-dim mr-small")


def show_fact(name: str, value: str, classes: str = "") -> ui.label:
    """Show a named value; return the label of the value."""
    with ui.element("div").classes("mr-fact"):
        dim_label(name)
        return ui.label(value).classes(classes)


def show_empty(text: str) -> None:
    """Show a placeholder where there is no data."""
    ui.label(text).classes("mr-dim mr-empty")


def show_code(page: Page, text: str) -> None:
    """Show lines to be copied, with a button that copies them."""
    with ui.element("div").classes("mr-lines"):
        TextElement(tag="pre", text=text).classes("mr-code").props("tabindex=0")
        icon_button(page, "copy", "content_copy", lambda: ui.clipboard.write(text))


def draw_button(
    page: Page, name: str, action: Callable[[], Any], icon: str = "", look: str = "outline"
) -> ui.button:
    """Draw a button named by a text of the page."""
    return ui.button(page.text(name), icon=icon or None, on_click=action).props(look)


def icon_button(
    page: Page, name: str, icon: str, action: Callable[[], Any], /, **values: Any
) -> None:
    """Draw a small button with an icon only, and its name for screen readers and on hover.

    One that removes something is seen while its row is pointed at or has the focus.
    """
    button = ui.button(icon=icon, on_click=action, color=None)
    button.props("flat dense round size=sm padding=4px")
    button.classes("mr-dim mr-removal" if icon in _REMOVALS else "mr-dim")
    button.props["aria-label"] = page.text(name, **values)
    button.tooltip(page.text(name, **values))


def button_link(text: str, target: str, icon: str = "") -> None:
    """Draw a link that looks like a button."""
    with ui.link(target=target).classes("mr-button"):
        if icon:
            ui.icon(icon)
        ui.label(text)


def chip_link(text: str, target: str, *, is_current: bool) -> None:
    """Draw a link that selects one of several values."""
    ui.link(text, target).classes("mr-chip").props("aria-current=page" if is_current else "")


async def draw_projects(page: Page) -> None:
    """Draw the links that restrict the page to one of the user's latest projects."""
    user, chosen = (await page.scope()).user_id, page.query.get("project", "")
    found = await page.library.store.owners.list_projects(user)
    names = {"": page.text("all_projects"), **{p.project: p.project for p in found[:_MAX_PROJECTS]}}
    with row():
        for name, text in names.items() if found else ():
            target = page.link_here(project=name, cursor=None)
            chip_link(text, target, is_current=name == chosen)


def hidden_field(name: str, value: str) -> ui.element:
    """Add a hidden field to a form."""
    field = ui.element("input").props(f"type=hidden name={name}")
    field.props["value"] = value
    return field


@contextmanager
def search_form(page: Page, label: str, *kept: str) -> Iterator[ui.input]:
    """Draw an ordinary form that searches a list, so that the address contains the search.

    It keeps some values of the address. Yield the field of the query; the filters that the block
    draws fold away on a phone unless they are in use.
    """
    own = {"q", "cursor", "around", *kept}
    in_use = any(value for name, value in page.query.items() if name not in own)
    with ui.element("form").classes("mr-form").props("method=get role=search") as form:
        for name in kept:
            hidden_field(name, page.query.get(name, ""))
        field = ui.input(page.text(label), value=page.query.get("q", ""))
        field.props("name=q outlined dense clearable").classes("mr-grow")
        fold = ui.button(icon="tune").props("flat dense").classes("mr-fold")
        with ui.element("div").classes("mr-filters") as filters:
            yield field
        ui.button(page.text("search"), icon="search").props("type=submit unelevated")

    def unfold(is_open: bool) -> None:
        form.classes(add="mr-unfolded" if is_open else "", remove="" if is_open else "mr-unfolded")
        fold.props["aria-expanded"] = "true" if is_open else "false"

    fold.props["aria-label"] = page.text("filter")
    fold.set_visibility(bool(filters.default_slot.children))
    fold.on_click(lambda: unfold(fold.props["aria-expanded"] == "false"))
    unfold(in_use)


def form_select(label: str, name: str, options: dict[str, str], value: str) -> None:
    """Draw a select of a form by name and its options; an unknown value is the first option."""
    selected = value if value in options else next(iter(options))
    select = ui.select(options, label=label, value=selected).props("outlined dense options-dense")
    # The select would submit the label of an option, so a hidden field submits its value.
    field = hidden_field(name, selected)

    def update() -> None:
        field.props["value"] = select.value
        field.update()

    select.on_value_change(update)


def highlighted_text(text: str) -> None:
    """Show text with highlights between `MARK_START` and `MARK_END`."""
    if MARK_START not in text:
        ui.label(text).classes("mr-text")
        return
    with ui.element("div").classes("mr-text"):
        for part in text.split(MARK_START):
            word, is_marked, rest = part.rpartition(MARK_END)
            if is_marked:
                TextElement(tag="mark", text=word)
            if rest:
                ui.label(rest).classes("mr-span")


class TermField:
    """A field that shows a stored value by its name, suggests others and takes any text."""

    def __init__(self, page: Page, label: str, kind: str, value: str) -> None:
        self._values = {**page.term_names(kind), page.term(kind, value): value}
        with ui.element("datalist") as names:
            for name in page.term_names(kind):
                ui.element("option").props["value"] = name
        self._input = ui.input(label, value=page.term(kind, value)).classes("full-width")
        self._input.props(f"outlined dense list={names.html_id} autocomplete=off")

    @property
    def value(self) -> str:
        """The value to store: the value of a known name, else the text."""
        text = (self._input.value or "").strip()
        return self._values.get(text, text)


async def user_time_zone(page: Page) -> tzinfo:
    """Return the time zone of the user of a page."""
    version = await page.library.store.feed(page.user).version()
    return ZoneInfo(version.time_zone if version else "UTC")


def format_duration(seconds: float) -> str:
    """Return a duration in seconds or milliseconds."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def describe_error(
    page: Page, error: MemrecallError | RequestError, missing: str = "not_found"
) -> str:
    """Return why something was refused, in the language of the page if its reason has a text."""
    if isinstance(error, NotFound):
        return page.text(missing)
    problem = problem_from_error(error)
    name = f"failed_{problem.details.get('reason')}"
    return page.text(name) if name in WORDS else problem.message


@asynccontextmanager
async def open_dialog(
    page: Page, question: str, action_name: str, *, removes: bool = False
) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """Draw a dialog, with the elements of the block in it; call the result to wait for it.

    That returns True if the user has confirmed. Only what `removes` data has a red button.
    """
    with ui.dialog() as dialog, ui.card().classes("mr-card mr-dialog"):
        dialog.props["aria-label"] = action_name
        ui.label(question).classes("mr-text")

        async def wait() -> bool:
            with row():
                draw_button(page, "cancel", lambda: dialog.submit(False), look="flat autofocus")
                proceed = ui.button(action_name, on_click=lambda: dialog.submit(True))
                proceed.props(f"unelevated color={'negative' if removes else 'primary'}")
            return bool(await dialog)

        try:
            yield wait
        finally:
            dialog.delete()


async def confirm(page: Page, question: str, action_name: str, *, removes: bool = False) -> bool:
    """Ask before an action that changes data; return True if the user has confirmed it."""
    async with open_dialog(page, question, action_name, removes=removes) as wait:
        return await wait()


def draw_list(items: Sequence[_Item]) -> Iterator[_Item]:
    """Draw a list: yield its items, each of which the caller draws in an element of its own."""
    with ui.element("div").classes("mr-list"):
        for item in items:
            with ui.element("div").classes("mr-item"):
                yield item


def draw_pager(page: Page, next_cursor: str | None) -> None:
    """Draw the links to the newest and to older rows."""
    with row():
        if "cursor" in page.query:
            button_link(page.text("newest"), page.link_here(cursor=None), "first_page")
        if next_cursor:
            button_link(page.text("older"), page.link_here(cursor=next_cursor), "chevron_right")


async def select_user(page: Page) -> bool:
    """Draw the selection of a user; return True if one is selected.

    Redirects to the only user if there is only one.
    """
    if page.user:
        return True
    principal = await page.principal()
    users = await page.find_users()
    if len(users) == 1:
        raise Redirect(page.link_here(user=users[0]))
    with ui.element("form").classes("mr-row mr-user").props("method=get"):
        field = ui.input(page.text("user"), autocomplete=users).props("name=user dense outlined")
        field.props["placeholder"] = page.text("choose_user_hint")
        ui.button(page.text("show")).props("type=submit outline")
    with card(page.text("choose_user")):
        if not users:
            show_empty(page.text("no_users"))
            if principal.users is None:
                with row():
                    button_link(page.text("welcome_link"), "/", "rocket_launch")
        with row():
            for user in users[:MAX_SUGGESTIONS]:
                ui.link(user, page.link_here(user=user)).classes("mr-chip")
    return False


def chart(options: Mapping[str, Any], description: str) -> ui.echart:
    """Draw a chart with a description for screen readers."""
    defaults: dict[str, Any] = {
        "color": list(PALETTE),
        "backgroundColor": "transparent",
        "textStyle": TEXT_COLOR,
        "animation": False,
        "aria": {"enabled": True, "label": {"description": description}},
        # Rendered as text on the canvas, so that user content is never interpreted as HTML.
        "tooltip": {"renderMode": "richText", "trigger": "item", "confine": True},
    }
    element = ui.echart({**defaults, **options}).classes("mr-chart")
    element.props["aria-label"] = description
    return element


def time_chart(description: str, series: Sequence[Mapping[str, Any]]) -> ui.echart:
    """Draw lines of values from 0 to 1 over time."""
    axis = {"axisLabel": TEXT_COLOR, "axisLine": {"lineStyle": {"color": _LINE}}}
    has_legend = len(series) > 1
    grid = {"left": 8, "right": 16, "top": 36 if has_legend else 12, "bottom": 8}
    return chart(
        {
            "grid": {**grid, "containLabel": True},
            "legend": {"show": has_legend, "textStyle": TEXT_COLOR, "top": 0, "type": "scroll"},
            "xAxis": {**axis, "type": "time", "splitLine": {"show": False}},
            "yAxis": {**axis, "min": 0, "max": 1, "splitLine": {"lineStyle": {"color": _LINE}}},
            "series": list(series),
            "tooltip": {"renderMode": "richText", "trigger": "axis", "confine": True},
        },
        description,
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
