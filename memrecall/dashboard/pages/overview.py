"""The first page: a question, the last recalls and what is stored; or how to store something."""

import json
import shlex
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement
from pydantic import ValidationError

from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page, Redirect
from memrecall.dashboard.pages.recalls import draw_facts, draw_handoff, draw_recall, stop_text
from memrecall.dashboard.sample import SAMPLE_USERS, load_sample, read_sample_questions
from memrecall.dashboard.widgets import (
    button_link,
    card,
    chip_link,
    dim_label,
    draw_button,
    draw_list,
    format_duration,
    row,
    show_code,
    show_fact,
    show_title,
    user_time_zone,
)
from memrecall.errors import NotFound, describe_validation_error
from memrecall.scope import Permission
from memrecall.server.auth import MAX_SPACES, Principal
from memrecall.server.http.recall import RecallHandler, RecallRequest
from memrecall.store import TraceQuery
from memrecall.store.traces import SCANNED_TRACES

_PERIOD = timedelta(days=7)  # of the figures about recalls
_USER_COUNTS = ("sessions", "messages", "memories", "current_memories", "traces")
_GENERAL_QUESTIONS = ("question_place", "question_plan", "question_promise")
_LATEST_USERS = 20
_LATEST_RECALLS = 5
# Enter also ends the input of Chinese characters, which must not ask; Safari says so by the code.
_UNLESS_COMPOSING = "(e) => { if (!e.isComposing && e.keyCode !== 229) emit(); }"


@register_page("/", "overview")
async def show_overview(page: Page) -> None:
    """Ask the memory of one user, and show what is stored; on an empty database, where to begin."""
    principal, users = await page.principal(), await page.find_users()
    if users and not page.user:
        # The sample's user who speaks the language of the page, or the last active one.
        latest = await page.library.store.owners.latest_users(_LATEST_USERS)
        names = (SAMPLE_USERS[page.language], *latest)
        user = next((name for name in names if name in users), users[0])
        raise Redirect(page.link_here(user=user))
    show_title(page.text("ask_title" if page.user else "overview"))
    if page.user:
        await _QuestionBox(page).draw()
    if not users and principal.users is None:
        _draw_welcome(page, principal)
    elif not page.user:
        await _draw_figures(page, principal)


class _QuestionBox:
    """A question to the memory of a user, its answer, and what is stored after it."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def draw(self) -> None:
        """Draw the box with sample questions, room for the answer, recalls and figures."""
        page, store = self._page, self._page.library.store
        self._spaces = (await store.spaces.list_of(page.user))[:MAX_SPACES]
        with card():
            with row().props("role=search"):
                self._field = ui.input(page.text("question")).classes("mr-grow")
                self._field.props("outlined dense")
                self._field.on("keydown.enter", self._ask, js_handler=_UNLESS_COMPOSING)
                self._button = draw_button(page, "ask", self._ask, "search", "unelevated")
            with row():
                dim_label(page.text("ask_samples"))
                questions = await read_sample_questions(page.library, await page.scope())
                for question in questions or map(page.text, _GENERAL_QUESTIONS):
                    sample = TextElement(tag="button", text=question).classes("mr-chip")
                    sample.props("type=button").on("click", partial(self._ask_sample, question))
            if self._spaces:
                names = ", ".join(space.name for space in self._spaces)
                dim_label(page.text("ask_spaces", names=names))
        self._answer = ui.element("div").classes("mr-answer").props("aria-live=polite")
        self._stored = ui.element("div").classes("mr-answer")
        await self._draw_stored()

    async def _ask_sample(self, question: str) -> None:
        self._field.set_value(question)
        await self._ask()

    async def _ask(self) -> None:
        page = self._page
        if not self._field.value.strip():
            ui.notify(page.text("ask_empty"), type="warning")
            return
        try:
            request = RecallRequest(query=self._field.value)
        except ValidationError as error:
            ui.notify(describe_validation_error(error), type="warning")
            return
        scope = replace(await page.scope(), spaces=tuple(s.space_id for s in self._spaces))
        handler = RecallHandler(await page.request_context(), scope, request)
        self._button.props("loading")
        try:
            result = await handler.result()
        finally:
            self._button.props(remove="loading")
        self._answer.clear()
        with self._answer:
            draw_handoff(page, result)
            draw_facts(page, result)
            target = page.user_link("/recalls/trace", id=result.trace.trace_id)
            with row():
                button_link(page.text("show_recall"), target, "manage_search")
        await self._draw_stored()

    async def _draw_stored(self) -> None:
        page, principal = self._page, await self._page.principal()
        recalls = await page.library.store.trace_list.page(
            TraceQuery(), _LATEST_RECALLS, users={page.user}, agent_id=principal.agent_id
        )
        self._stored.clear()
        with self._stored:
            if recalls.items:
                zone = await user_time_zone(page)
                with card(page.text("last_recalls")):
                    for item in draw_list(recalls.items):
                        draw_recall(page, item, zone)
                    with row():
                        target = page.user_link("/recalls")
                        button_link(page.text("all_recalls"), target, "manage_search")
            await _draw_figures(page, principal)


async def _draw_figures(page: Page, principal: Principal) -> None:
    """Draw what is stored of the user, or of all users for an operator who asks for it."""
    store, is_operator = page.library.store, Permission.OPERATOR in principal.permissions
    is_whole = is_operator and (not page.user or "all" in page.query)
    if is_operator and page.user:
        with row():
            chip_link(page.user, page.link_here(all=None), is_current=not is_whole)
            chip_link(page.text("all_users"), page.link_here(all="yes"), is_current=is_whole)
    if is_whole:
        _draw_counts(page, await store.estimate_counts())
        await _draw_recalls(page, principal, None)
    elif page.user:
        scope = await page.scope()
        counts = await store.count(scope.user_id)
        counts["current_memories"] = await store.memories(scope).count()
        _draw_counts(page, {name: counts[name] for name in _USER_COUNTS if counts[name]})
        await _draw_recalls(page, principal, frozenset({scope.user_id}))


def _draw_counts(page: Page, counts: dict[str, int]) -> None:
    with ui.element("div").classes("mr-tiles"):
        for name, value in counts.items():
            with ui.card().classes("mr-card mr-tile"):
                dim_label(page.text(name))
                ui.label(f"{value:,}").classes("mr-number")


async def _draw_recalls(page: Page, principal: Principal, users: frozenset[str] | None) -> None:
    """Draw how the recalls of the last days ended: the same ones that the list of recalls has."""
    outcomes = await page.library.store.trace_list.outcomes(
        datetime.now(UTC) - _PERIOD, users=users, agent_id=principal.agent_id
    )
    if not outcomes:
        return
    figures = {"recalls": f"{len(outcomes):,}"}
    if abstained := sum(outcome.abstained for outcome in outcomes):
        figures["abstentions"] = f"{abstained:,} ({abstained / len(outcomes):.0%})"
    seconds = median(outcome.seconds for outcome in outcomes)
    figures["median_duration"] = format_duration(seconds)
    with card(page.text("recalls_of_week")):
        if len(outcomes) == SCANNED_TRACES:
            dim_label(page.text("latest_recalls", count=f"{SCANNED_TRACES:,}"))
        with row():
            for name, value in figures.items():
                show_fact(page.text(name), value).props(f"data-figure={name}")
        with row():
            reasons = Counter(outcome.stop_reason for outcome in outcomes)
            for reason, count in reasons.most_common():
                target = page.link("/recalls", user=page.user if users else "", reason=reason)
                chip_link(f"{stop_text(page, reason)}: {count:,}", target, is_current=False)


def _draw_welcome(page: Page, principal: Principal) -> None:
    """Draw what a visitor of an empty database can do."""
    # Only operators see the path of the database.
    location = page.database_file(principal) or "memory.db"
    option = f"--db {shlex.quote(location)}"
    commands = {
        "import": f"memrecall import conversations.json --user me {option}",
        "python": (
            "from memrecall import Memory\n\n"
            f"memory = Memory(db={json.dumps(location, ensure_ascii=False)})\n"
            'memory.add("I am allergic to peanuts.", user_id="me")\n'
            'print(memory.search("What can I not eat?", user_id="me"))'
        ),
        "mcp": f"claude mcp add memrecall -- memrecall mcp --user me {option}",
    }

    async def load() -> None:
        current = await page.principal()
        current.require_write()
        if current.users is not None:
            raise NotFound("the key has no access to the users of the sample")
        button.props("loading")
        await load_sample(page.library)
        ui.navigate.to(page.link("/", user=SAMPLE_USERS[page.language]))

    with card(page.text("welcome")):
        ui.label(page.text("welcome_hint"))
    with ui.element("div").classes("mr-grid mr-halves"):
        if not principal.read_only:
            with card(page.text("sample")):
                ui.label(page.text("sample_hint"))
                button = draw_button(page, "load_sample", load, "download", "unelevated")
        for name, code in commands.items():
            with card(page.text(f"way_{name}")):
                ui.label(page.text(f"way_{name}_hint"))
                show_code(page, code)
