"""The layout that all pages share, page registration, error display and the sign-in page."""

from collections.abc import Awaitable, Callable
from copy import copy
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from nicegui import ui

from memrecall.dashboard.auth import PREFERENCES, SEE_OTHER, SIGN_IN, SIGN_OUT, local_path
from memrecall.dashboard.page import Page, Redirect
from memrecall.dashboard.widgets import describe_error, hidden_field, select_user, show_title
from memrecall.errors import MemrecallError
from memrecall.server.auth import LOCAL, Principal
from memrecall.server.errors import RequestError, problem_from_error

Build = Callable[[Page], Awaitable[None]]

NAVIGATION = (
    ("overview", "/", "insights"),
    ("explorer", "/explorer", "forum"),
    ("recalls", "/recalls", "manage_search"),
    ("evaluations", "/evaluations", "fact_check"),
    ("try_it", "/try", "chat"),
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
_RESPONSE_SECONDS = 60.0  # a page that takes longer is answered with an error

ui.button.default_props("no-caps padding='4px 12px'")


def register_page(path: str, title: str, *, with_frame: bool = True) -> Callable[[Build], Build]:
    """Return a decorator that registers a page; `title` is the name of a text."""

    def register(build: Build) -> Build:
        async def show(request: Request) -> Response | None:
            page = Page.from_request(request)
            _configure(page, page.text(title))
            if with_frame:
                await _draw_frame(page, path)
            with ui.element("main").classes("mr-main") as content:
                ui.skip_link(page.text("skip"), target=content)
                try:
                    await _build(build, page)
                except Redirect as redirect:
                    return RedirectResponse(redirect.target, SEE_OTHER)
            return None

        ui.page(path, response_timeout=_RESPONSE_SECONDS)(show)
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
    ui.colors(primary="#2f5fc4", secondary="#5b6675", accent="#7a5cc7", dark="#1d2026")


async def _build(build: Build, page: Page) -> None:
    """Build the page, or show why it cannot be shown."""
    try:
        await build(page)
    except (MemrecallError, RequestError) as error:
        ui.context.client.status_code = problem_from_error(error).http_status
        with ui.card().classes("mr-card").props("role=alert"):
            ui.label(describe_error(page, error))


def notify_error(page: Page, error: Exception) -> None:
    """Show why an action failed, until the user closes it."""
    text = page.text("failed")
    if isinstance(error, MemrecallError | RequestError):
        text = describe_error(page, error, missing="failed_gone")
    ui.notify(text, type="negative", timeout=0, close_button=page.text("close"), multi_line=True)


async def _draw_frame(page: Page, path: str) -> None:
    principal = await page.principal()
    with ui.header().classes("mr-header"):
        menu = ui.button(icon="menu").props("flat round dense").classes("mr-menu")
        menu.props["aria-label"] = page.text("menu")
        ui.link("memrecall", "/").classes("mr-brand")
        ui.space()
        _draw_switches(page)
        _draw_identity(page, principal)
    with ui.left_drawer(bordered=True).props("width=208 breakpoint=1000") as drawer:
        drawer.classes("mr-drawer")
        menu.on_click(drawer.toggle)
        with ui.element("nav").classes("mr-nav"):
            for name, target, icon in NAVIGATION:
                with ui.link(target=page.user_link(target)) as entry:
                    ui.icon(icon)
                    ui.label(page.text(name))
                if path == target or (target != "/" and path.startswith(f"{target}/")):
                    entry.props("aria-current=page")


def _draw_switches(page: Page) -> None:
    other = "en" if page.language == "zh" else "zh"
    target = page.link(PREFERENCES, language=other, next=page.url)
    link = ui.link(page.text("language"), target).classes("mr-switch")
    link.props(f"lang={other} hreflang={other}").props["title"] = page.text("language_hint")
    next_theme, icon = _THEMES[page.theme]
    target = page.link(PREFERENCES, theme=next_theme, next=page.url)
    with ui.link(target=target).classes("mr-switch") as switch:
        ui.icon(icon)
    label = page.text(f"theme_{page.theme}")
    switch.props["aria-label"] = switch.props["title"] = label


def _draw_identity(page: Page, principal: Principal) -> None:
    if principal.key_id == LOCAL:
        icon = ui.icon("lock_open").classes("mr-open").props("tabindex=0")
        icon.props["aria-label"] = icon.props["title"] = page.text("open")
        return
    with ui.element("form").props(f"method=post action={SIGN_OUT}"):
        button = ui.button(icon="logout").props("flat round dense type=submit")
        button.props["aria-label"] = button.props["title"] = page.text("sign_out")


async def draw_explorer_head(page: Page) -> bool:
    """Draw the title, user selection and tabs of the explorer; return True with a user."""
    show_title(page.text("explorer"))
    if not await select_user(page):
        return False
    with ui.element("nav").classes("mr-tabs"):
        for name, path in EXPLORER_TABS:
            tab = ui.link(page.text(name), page.user_link(path))
            if path == page.path:
                tab.props("aria-current=page")
    return True


@register_page(SIGN_IN, "sign_in", with_frame=False)
async def sign_in(page: Page) -> None:
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
