"""Choosing whose data a page shows."""

from nicegui import ui

from memrecall.server.dashboard.parts import card, note
from memrecall.server.dashboard.visit import Elsewhere, Visit

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
