"""The layout that all pages share, page registration, error display and the sign-in page."""

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from nicegui import background_tasks, ui
from nicegui.elements.mixins.text_element import TextElement

from memrecall.dashboard.auth import MISSING, PREFERENCES, SEE_OTHER, SIGN_IN, SIGN_OUT, local_path
from memrecall.dashboard.page import SPACE_PAGE, SPACE_PAGES, Page, Redirect
from memrecall.dashboard.widgets import (
    button_link,
    card,
    describe_error,
    hidden_field,
    row,
    select_user,
    show_title,
)
from memrecall.errors import MemrecallError, NotFound
from memrecall.scope import Permission
from memrecall.server.auth import LOCAL, Principal
from memrecall.server.errors import RequestError, log_bug, problem_from_error

Build = Callable[[Page], Awaitable[None]]

NAVIGATION = (
    ("overview", "/", "insights"),
    ("explorer", "/explorer", "forum"),
    ("recalls", "/recalls", "manage_search"),
    ("spaces", "/spaces", "groups"),
    ("evaluations", "/evaluations", "fact_check"),
)
EXPLORER_TABS = (
    ("messages", "/explorer"),
    ("memories", "/explorer/memories"),
    ("graph", "/explorer/graph"),
    ("sessions", "/explorer/sessions"),
    ("changes", "/explorer/changes"),
    ("user_data", "/explorer/user"),
)
# The theme that the switch selects next, and the icon of the current one.
_THEMES = {
    "auto": ("light", "brightness_auto"),
    "light": ("dark", "light_mode"),
    "dark": ("auto", "dark_mode"),
}
_DARK = {"auto": None, "light": False, "dark": True}
_STYLE = Path(__file__).with_name("style.css")
_KEYS = Path(__file__).with_name("keys.js").read_text("utf-8")
_KEY_NAMES = {"/": "key_search", "j": "key_next", "k": "key_previous", "?": "key_help"}
_FRAME_SECONDS = 0.4  # until a page is sent without its content, which follows when it is ready
_POLL_SECONDS = 0.5  # between two updates of the progress
_MAX_NAME = 80  # characters of an unknown name
_MAX_SIMILAR = 8
_DATABASE_SECONDS = 600.0  # for the checks before the frame is sent, behind a busy database

ui.button.default_props("no-caps padding='4px 12px'")


def register_page(path: str, title: str, *, with_frame: bool = True) -> Callable[[Build], Build]:
    """Return a decorator that registers a page; `title` is the name of a text."""

    def register(build: Build) -> Build:
        async def show(request: Request) -> Response | None:
            page = Page.from_request(request)
            _configure(page, page.text(title))
            if with_frame:
                await _draw_frame(page, path)
            # Inside the page's main landmark, which the library draws.
            with ui.element("div").classes("mr-main") as content:
                ui.skip_link(page.text("skip"), target=content)
                if (page.user or page.space) and not await _find_user(page):
                    return None
            return await _fill(build, page, content)

        ui.page(path, response_timeout=_DATABASE_SECONDS)(show)
        return build

    return register


def _configure(page: Page, title: str) -> None:
    """Set language, theme and title of this client; NiceGUI shares its page object by default."""
    client = ui.context.client
    client.page = copy(client.page)
    client.page.language = "zh-CN" if page.language == "zh" else "en-US"
    client.page.dark = _DARK[page.theme]
    client.title = f"{title} · memrecall"
    client.on_exception(lambda error: notify_error(page, error))
    ui.add_css(_STYLE)
    ui.add_head_html(f"<script>{_KEYS}</script>")
    ui.colors(primary="#2f5fc4", secondary="#5b6675", accent="#7a5cc7", dark="#1d2026")


async def _find_user(page: Page) -> bool:
    """Return True if the page may show its user; else say so, and offer similar names."""
    try:
        await page.scope()
        await page.log_read()
    except (MemrecallError, RequestError) as error:
        if page.space or not isinstance(error, NotFound):
            _show_error(page, error)
            return False
        ui.context.client.status_code = HTTPStatus.NOT_FOUND
        show_title(page.text("unknown_user", user=page.user[:_MAX_NAME]))
        ui.label(page.text("not_found"))
        users = await page.find_users()
        with card(page.text("choose_user")), row():
            for user in get_close_matches(page.user, users, _MAX_SIMILAR) or users[:_MAX_SIMILAR]:
                ui.link(user, page.link_here(user=user)).classes("mr-chip")
            button_link(page.text("all_users"), page.link(page.path), "group")
        return False
    return True


async def _fill(build: Build, page: Page, content: ui.element) -> Response | None:
    """Build the page; if that takes long, send its frame first and the rest when it is ready."""
    client = ui.context.client
    building = background_tasks.create(_build(build, page, content), handle_exceptions=False)
    client.on_delete(lambda: building.cancel() and None)
    finished, _ = await asyncio.wait([building], timeout=_FRAME_SECONDS)
    if finished:
        target = building.result()
        return None if target is None else RedirectResponse(target, SEE_OTHER)
    with content, card() as progress:
        progress.props("role=status").classes("mr-loading")
        label = ui.label(page.text("loading"))
        bar = ui.linear_progress(show_value=False).props("indeterminate")
        bar.props["aria-label"] = page.text("loading")
    await client.connected()
    while not finished:
        # How much of the user's index is loaded, if this is what takes long.
        share = page.library.cache.loaded_share(page.user)
        if share is not None:
            label.set_text(page.text("loading_index", share=f"{share:.0%}"))
            bar.props(remove="indeterminate")
            bar.set_value(share)
        finished, _ = await asyncio.wait([building], timeout=_POLL_SECONDS)
    progress.delete()
    if target := building.result():
        ui.navigate.to(target)
    return None


async def _build(build: Build, page: Page, content: ui.element) -> str | None:
    """Build the page, or show why it cannot be shown; return where it redirects to."""
    with content:
        try:
            await build(page)
        except Redirect as redirect:
            return redirect.target
        except (MemrecallError, RequestError) as error:
            _show_error(page, error)
        except Exception as error:  # the outer edge: a page without its content would look empty
            log_bug(error, "dashboard")
            ui.context.client.status_code = HTTPStatus.INTERNAL_SERVER_ERROR
            _show_alert(page.text("failed"))
    return None


def _show_error(page: Page, error: MemrecallError | RequestError) -> None:
    ui.context.client.status_code = problem_from_error(error).http_status
    _show_alert(describe_error(page, error))


def _show_alert(text: str) -> None:
    with card() as element:
        element.props("role=alert")
        ui.label(text)


def notify_error(page: Page, error: Exception) -> None:
    """Show why an action failed, until the user closes it."""
    text = page.text("failed")
    if isinstance(error, MemrecallError | RequestError):
        text = describe_error(page, error, missing="failed_gone")
    ui.notify(text, type="negative", timeout=0, close_button=page.text("close"), multi_line=True)


def _name(element: ui.element, text: str) -> None:
    """Name an element that shows only an icon, for screen readers and on hover."""
    element.props["aria-label"] = element.props["title"] = text


async def _draw_frame(page: Page, path: str) -> None:
    principal = await page.principal()
    with ui.header().classes("mr-header"):
        menu = ui.button(icon="menu").props("flat round dense").classes("mr-menu")
        menu.props["aria-label"] = page.text("menu")
        ui.link("memrecall", page.user_link("/")).classes("mr-brand")
        ui.space()
        await _draw_switcher(page, path)
        _draw_keys(page)
        other = "en" if page.language == "zh" else "zh"
        target = page.link(PREFERENCES, language=other, next=page.url)
        link = ui.link(page.text("language"), target).classes("mr-switch")
        link.props(f"lang={other} hreflang={other}").props["title"] = page.text("language_hint")
        next_theme, icon = _THEMES[page.theme]
        target = page.link(PREFERENCES, theme=next_theme, next=page.url)
        with ui.link(target=target).classes("mr-switch") as switch:
            ui.icon(icon)
        _name(switch, page.text(f"theme_{page.theme}"))
        if principal.key_id == LOCAL:
            with ui.element("span").classes("mr-open").props("role=img") as sign:
                ui.icon("lock_open")
            _name(sign, page.text("open"))
        else:
            with ui.element("form").props(f"method=post action={SIGN_OUT}"):
                button = ui.button(icon="logout").props("flat round dense type=submit")
                _name(button, page.text("sign_out"))
    # Without a value, the library asks the browser for it, and a slow one makes that an error.
    with ui.left_drawer(value=False, bordered=True).classes("mr-drawer") as drawer:
        drawer.props("width=208 breakpoint=1000 show-if-above")
        menu.on_click(drawer.toggle)
        with ui.element("nav").classes("mr-nav") as navigation:
            navigation.props["aria-label"] = page.text("menu")
            for name, target, icon in _open_pages(principal):
                with ui.link(target=page.user_link(target)) as entry:
                    ui.icon(icon)
                    ui.label(page.text(name))
                if path == target or (target != "/" and path.startswith(f"{target}/")):
                    entry.props("aria-current=page")


async def _draw_switcher(page: Page, path: str) -> None:
    """Draw the choice of a user; from the page of one row it leads to its list."""
    lists = {target for _, target, _ in NAVIGATION} | {target for _, target in EXPLORER_TABS}
    parents = (target for _, target, _ in reversed(NAVIGATION) if path.startswith(target))
    users = sorted({*await page.find_users(), *filter(None, [page.user])})
    if not users:
        return
    with ui.element("form").classes("mr-switcher").props("method=get") as form:
        form.props["action"] = path if path in lists else next(parents)
        ui.icon("person")
        select = ui.element("select").props("name=user")
        select.props["aria-label"] = page.text("user")
        select.on("change", js_handler="(event) => event.target.form.submit()")
    with select:
        has_choice = path != "/" and len(users) > 1  # the first page asks one user
        for user in ["", *users] if has_choice else users:
            option = TextElement(tag="option", text=user or page.text("all_users"))
            option.props["value"] = user
            option.props("selected" if user == page.user else "")


def _draw_keys(page: Page) -> None:
    """Draw the button for the list of keys, and the list itself, which "?" shows too."""
    button = ui.button(icon="keyboard").props("flat round dense").classes("mr-keyboard")
    _name(button, page.text("keys"))
    button.on("click", js_handler="() => document.querySelector('dialog.mr-keys').showModal()")
    with ui.element("dialog").classes("mr-card mr-keys") as dialog:
        dialog.props["aria-label"] = page.text("keys")
        TextElement(tag="h2", text=page.text("keys")).classes("mr-heading")
        for key, name in _KEY_NAMES.items():
            with row():
                TextElement(tag="kbd", text=key)
                ui.label(page.text(name))
        with ui.element("form").props("method=dialog"):
            ui.button(page.text("close")).props("type=submit outline")


def _open_pages(principal: Principal) -> list[tuple[str, str, str]]:
    """Return the entries of the menu that a key can use."""
    closed = set() if Permission.OPERATOR in principal.permissions else {"evaluations"}
    return [entry for entry in NAVIGATION if entry[0] not in closed]


async def draw_explorer_head(page: Page) -> bool:
    """Draw the title, user selection and tabs of the explorer; return True with a user."""
    show_title(page.text("explorer"))
    if page.space:
        ui.link(page.text("in_space", space=page.space), page.user_link(SPACE_PAGE))
    elif not await select_user(page):
        return False
    with ui.element("nav").classes("mr-tabs") as tabs:
        tabs.props["aria-label"] = page.text("explorer")
        shown = [tab for tab in EXPLORER_TABS if not page.space or tab[1] in SPACE_PAGES]
        for name, path in shown:
            tab = ui.link(page.text(name), page.user_link(path))
            if path == page.path:
                tab.props("aria-current=page")
    return True


@register_page(MISSING, "missing_page")
async def show_missing_page(page: Page) -> None:
    """Show that an address has no page."""
    ui.context.client.status_code = HTTPStatus.NOT_FOUND
    show_title(page.text("missing_page"))
    with card():
        ui.label(page.text("missing_page_hint", path=page.path[:_MAX_NAME]))
        with row():
            for name, target, icon in _open_pages(await page.principal()):
                button_link(page.text(name), page.user_link(target), icon)


@register_page(SIGN_IN, "sign_in", with_frame=False)
async def show_sign_in(page: Page) -> None:
    """Show an ordinary form, because a cookie cannot be set through a websocket."""
    form = ui.element("form").props(f"method=post action={SIGN_IN}").classes("mr-sign-in")
    with form, ui.card().classes("mr-card"):
        ui.label("memrecall").classes("mr-brand")
        ui.label(page.text("sign_in_hint"))
        for reason, text in (("refused", "key_refused"), ("used", "link_used")):
            if reason in page.query:
                ui.label(page.text(text)).classes("mr-bad").props("role=alert")
        key = ui.input(page.text("key")).props(
            "name=key type=password outlined autofocus autocomplete=current-password"
        )
        key.classes("full-width")
        hidden_field("next", local_path(page.query.get("next", "/")))
        ui.button(page.text("sign_in")).props("type=submit unelevated").classes("full-width")
