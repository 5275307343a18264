"""The parts of the explorer, as tabs that are links."""

from nicegui import ui

from memrecall.server.dashboard.parts import title
from memrecall.server.dashboard.people import choose_user
from memrecall.server.dashboard.visit import Visit

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
