"""Signing in with a key."""

from nicegui import ui

from memrecall.dashboard.auth import SIGN_IN, local_path
from memrecall.dashboard.frame import page
from memrecall.dashboard.session import Visit


@page(SIGN_IN, "sign_in", framed=False)
async def sign_in(visit: Visit) -> None:
    """A form that is sent as forms are: a cookie cannot be set through a websocket."""
    form = ui.element("form").props(f"method=post action={SIGN_IN}").classes("mr-sign-in")
    with form, ui.card().classes("mr-card"):
        ui.label("memrecall").classes("mr-brand")
        ui.label(visit.say("sign_in_hint"))
        if "refused" in visit.asked:
            ui.label(visit.say("key_refused")).classes("mr-bad").props("role=alert")
        key = ui.input(visit.say("key")).props(
            "name=key type=password outlined autofocus autocomplete=current-password"
        )
        key.classes("full-width")
        hidden = ui.element("input").props("type=hidden name=next")
        hidden.props["value"] = local_path(visit.asked.get("next", "/"))
        ui.button(visit.say("sign_in")).props("type=submit unelevated").classes("full-width")
