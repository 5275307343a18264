"""The form that begins a recall, perhaps with the question of an earlier one and other settings."""

from contextlib import aclosing
from typing import Any

from nicegui import background_tasks, ui
from pydantic import ValidationError

from memrecall.budget import Limits
from memrecall.errors import MemrecallError
from memrecall.server.dashboard.parts import row
from memrecall.server.dashboard.visit import Visit
from memrecall.server.errors import Refused, problem_of
from memrecall.server.live import LiveRecall
from memrecall.server.recall import RecallRun
from memrecall.server.requests import RecallLimits, RecallRequest
from memrecall.store import StoredTrace

_USUAL = Limits()
_NUMBERS = ("iterations", "model_calls", "tool_calls", "seconds")


def draw_form(visit: Visit, earlier: StoredTrace | None) -> None:
    """Fields for the question and its settings; the button begins the recall and shows it."""
    question = ui.input(visit.say("question"), value=earlier.query if earlier else "")
    question.props("outlined dense").classes("full-width")
    fields: dict[str, Any] = {}
    with ui.expansion(visit.say("settings"), icon="tune").classes("mr-expansion") as settings:
        settings.props("dense")
        with ui.element("div").classes("mr-form"):
            for name in _NUMBERS:
                fields[name] = ui.number(
                    visit.say(f"limit_{name}"), value=getattr(_USUAL, name), min=0
                ).props("outlined dense")
            languages = {"": visit.say("automatic"), "en": "English", "zh": "中文"}
            fields["language"] = ui.select(languages, value="", label=visit.say("answer_language"))
            fields["language"].props("outlined dense")
            fields["as_of"] = ui.input(visit.say("as_of")).props("outlined dense")
            fields["as_of"].props["placeholder"] = "2026-01-31T12:00:00Z"
    settings.value = earlier is not None

    async def begin() -> None:
        await _begin(visit, question.value, {name: field.value for name, field in fields.items()})

    question.on("keydown.enter", begin)
    with row():
        ui.button(visit.say("recall_start"), icon="play_arrow", on_click=begin).props("unelevated")


async def _begin(visit: Visit, question: str, given: dict[str, Any]) -> None:
    try:
        request = _request(question, given)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        named = ".".join(map(str, fault["loc"])) or "query"
        ui.notify(f"{named}: {fault['msg']}", type="warning")
        return
    scope = await visit.scope()
    live = visit.service.live.begin(scope, question)
    run = RecallRun(await visit.asking(), scope, request, live)
    background_tasks.create(_play(run, live), name="recall")
    ui.navigate.to(visit.link("/recalls/live", user=visit.user, id=live.live_id))


def _request(question: str, given: dict[str, Any]) -> RecallRequest:
    whole = {name: int(given[name]) for name in _NUMBERS[:-1] if given[name] is not None}
    seconds = None if given["seconds"] is None else float(given["seconds"])
    return RecallRequest(
        query=question,
        limits=RecallLimits(**whole, seconds=seconds),
        language=given["language"] or None,
        as_of=given["as_of"] or None,
    )


async def _play(run: RecallRun, live: LiveRecall) -> None:
    """Run it to its end, whoever still looks; what goes wrong is told where it is watched."""
    try:
        async with aclosing(run.events()) as events:
            async for _ in events:
                pass
    except Refused as error:
        live.problem = error.problem.message
    except MemrecallError as error:
        live.problem = problem_of(error).message
