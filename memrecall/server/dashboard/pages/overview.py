"""Overview."""

from nicegui import ui

from memrecall.server.dashboard.frame import page
from memrecall.server.dashboard.visit import Visit


@page("/", "overview")
async def overview(visit: Visit) -> None:
    """What there is and how it does."""
    ui.label(visit.say("overview")).classes("mr-title")
