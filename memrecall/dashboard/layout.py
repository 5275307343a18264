"""What all pages share: the frame around them, how they are registered, how they tell a problem."""

from collections.abc import Awaitable, Callable
from copy import copy
from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from nicegui import ui

from memrecall.dashboard.auth import PREFERENCES, SIGN_OUT
from memrecall.dashboard.session import Elsewhere, Visit
from memrecall.dashboard.widgets import choose_user, title
from memrecall.errors import MemrecallError, NotFound
from memrecall.server.auth import LOCAL, Principal
from memrecall.server.errors import Problem, Refused, problem_of

TABS = (
    ("messages", "/explorer"),
    ("memories", "/explorer/memories"),
    ("graph", "/explorer/graph"),
    ("sessions", "/explorer/sessions"),
)


async def draw_tabs(visit: Visit) -> bool:
    """Draw the head of the explorer; whether a user is chosen."""
    title(visit.say("explorer"))
    if not await choose_user(visit):
        return False
    with ui.element("nav").classes("mr-tabs"):
        for name, path in TABS:
            tab = ui.link(visit.say(name), visit.link(path, user=visit.user))
            if path == visit.path:
                tab.props("aria-current=page")
    return True


Build = Callable[[Visit], Awaitable[None]]

NAVIGATION = (
    ("overview", "/", "insights"),
    ("explorer", "/explorer", "forum"),
    ("recalls", "/recalls", "manage_search"),
    ("evaluations", "/evaluations", "fact_check"),
    ("try_it", "/try", "chat"),
)
# For each theme the one that the switch chooses next, and its sign.
_THEMES = {
    "auto": ("light", "brightness_auto"),
    "light": ("dark", "light_mode"),
    "dark": ("auto", "dark_mode"),
}
_DARK = {"auto": None, "light": False, "dark": True}
_STYLE = Path(__file__).with_name("style.css")
_RESPONSE_SECONDS = 15.0
_SEE_OTHER = 303

ui.button.default_props("no-caps padding='4px 12px'")


def page(path: str, name: str, *, framed: bool = True) -> Callable[[Build], Build]:
    """Register what builds a page; its title is the text of that name."""

    def register(build: Build) -> Build:
        async def show(request: Request) -> Response | None:
            visit = Visit.of(request)
            _adapt(visit, visit.say(name))
            if framed:
                await _draw_frame(visit, path)
            with ui.element("main").classes("mr-main") as content:
                ui.skip_link(visit.say("skip"), target=content)
                try:
                    await _build(build, visit)
                except Elsewhere as other:
                    return RedirectResponse(other.target, _SEE_OTHER)
            return None

        ui.page(path, response_timeout=_RESPONSE_SECONDS)(show)
        return build

    return register


def _adapt(visit: Visit, title: str) -> None:
    """Give this one page its language, theme and title; the page object is shared by all."""
    client = ui.context.client
    client.page = copy(client.page)
    client.page.language = "zh-CN" if visit.language == "zh" else "en-US"
    client.page.dark = _DARK[visit.theme]
    client.title = f"{title} · memrecall"
    client.on_exception(lambda error: tell_problem(visit, error))
    ui.add_css(_STYLE)
    ui.colors(primary="#2f5fc4", secondary="#5b6675", accent="#7a5cc7", dark="#1d2026")


async def _build(build: Build, visit: Visit) -> None:
    """Build the page; what it may not or cannot show is told in its place."""
    try:
        await build(visit)
    except (MemrecallError, Refused) as error:
        ui.context.client.status_code = _problem(error).http_status
        with ui.card().classes("mr-card").props("role=alert"):
            ui.label(_said(visit, error))


def tell_problem(visit: Visit, error: Exception) -> None:
    """Tell what an action failed with."""
    if isinstance(error, MemrecallError | Refused):
        ui.notify(_said(visit, error), type="negative")
    else:
        ui.notify(visit.say("failed"), type="negative")


def _problem(error: MemrecallError | Refused) -> Problem:
    return error.problem if isinstance(error, Refused) else problem_of(error)


def _said(visit: Visit, error: MemrecallError | Refused) -> str:
    if isinstance(error, NotFound):
        return visit.say("not_found")
    return str(_problem(error).message)


async def _draw_frame(visit: Visit, path: str) -> None:
    principal = await visit.principal()
    with ui.header().classes("mr-header"):
        menu = ui.button(icon="menu").props("flat round dense").classes("mr-menu")
        menu.props["aria-label"] = visit.say("menu")
        ui.link("memrecall", "/").classes("mr-brand")
        ui.space()
        _draw_switches(visit)
        _draw_identity(visit, principal)
    with ui.left_drawer(bordered=True).props("width=208 breakpoint=1000") as drawer:
        drawer.classes("mr-drawer")
        menu.on_click(drawer.toggle)
        with ui.element("nav").classes("mr-nav"):
            for name, target, icon in NAVIGATION:
                _draw_entry(visit, name, target, icon, is_here=_is_in(path, target))


def _is_in(path: str, target: str) -> bool:
    return path == target or (target != "/" and path.startswith(f"{target}/"))


def _draw_entry(visit: Visit, name: str, target: str, icon: str, *, is_here: bool) -> None:
    with ui.link(target=visit.link(target, user=visit.user)) as entry:
        ui.icon(icon)
        ui.label(visit.say(name))
    if is_here:
        entry.props("aria-current=page")


def _draw_switches(visit: Visit) -> None:
    other = "en" if visit.language == "zh" else "zh"
    target = visit.link(PREFERENCES, language=other, next=visit.here)
    link = ui.link(visit.say("language"), target).classes("mr-switch")
    link.props(f"lang={other} hreflang={other}").props["title"] = visit.say("language_hint")
    following, icon = _THEMES[visit.theme]
    target = visit.link(PREFERENCES, theme=following, next=visit.here)
    with ui.link(target=target).classes("mr-switch") as theme:
        ui.icon(icon)
    told = visit.say(f"theme_{visit.theme}")
    theme.props["aria-label"] = theme.props["title"] = told


def _draw_identity(visit: Visit, principal: Principal) -> None:
    if principal.key_id == LOCAL:
        icon = ui.icon("lock_open").classes("mr-open").props("tabindex=0")
        icon.props["aria-label"] = icon.props["title"] = visit.say("open")
        return
    with ui.element("form").props(f"method=post action={SIGN_OUT}"):
        leave = ui.button(icon="logout").props("flat round dense type=submit")
        leave.props["aria-label"] = leave.props["title"] = visit.say("sign_out")
