"""The chat page: a conversation, and the tool calls and recall of each answer."""

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from nicegui import ui
from pydantic import ValidationError

from memrecall.agent.result import RecallResult
from memrecall.chat import Final, Member, TextDelta, TextRetracted, ToolCall, ToolResult
from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.trace_view import draw_call, draw_handoff
from memrecall.dashboard.widgets import (
    card,
    dim_label,
    draw_button,
    row,
    select_user,
    show_empty,
    show_fact,
    show_title,
)
from memrecall.errors import describe_validation_error
from memrecall.server.http.chat import ChatHandler, ChatRequest, GroupTurn
from memrecall.store import MessageFilter
from memrecall.types import Role

MAX_HISTORY = 20
_SESSION = "dashboard"
_MAX_MEMBERS = 20


@register_page("/try", "try_it")
async def show_chat(page: Page) -> None:
    """Show a chat with the memory of the selected user."""
    show_title(page.text("try_it"))
    if not await select_user(page):
        return
    await page.scope()
    conversation = _Conversation(page)
    with row():
        show_fact(page.text("model"), page.library.settings.model or page.text("offline_model"))
        conversation.draw_settings()
    with ui.element("div").classes("mr-columns"):
        with ui.element("div"), card(page.text("conversation")):
            conversation.draw_messages()
        with ui.element("div"), card(page.text("behind")):
            conversation.draw_details()
    await conversation.load_history()


class _Conversation:
    """One conversation in one browser."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._is_busy = False

    def draw_settings(self) -> None:
        """Draw the choice of single or group chat, the session and the members."""
        text = self._page.text
        kinds = {"single": text("single_chat"), "group": text("group_chat")}
        self._kind = ui.toggle(kinds, value="single").props("no-caps unelevated")
        session = self._page.query.get("session", _SESSION)
        self._session = ui.input(text("filter_session"), value=session)
        self._people = ui.input(text("people"), value="Lin, Maya")
        self._assistants = ui.input(text("helpers"), value="Juno, Pip")
        group_fields = (self._people, self._assistants)
        for field in (self._session, *group_fields):
            field.props("outlined dense")

        def update() -> None:
            for field in group_fields:
                field.set_visibility(self._kind.value == "group")

        update()
        self._kind.on_value_change(update)

    def draw_messages(self) -> None:
        """Draw the message list and the input field."""
        text = self._page.text
        self._messages = ui.element("div").classes("mr-talk").props("aria-live=polite role=log")
        with row():
            self._input = ui.input(text("your_message")).props("outlined dense").classes("mr-grow")
            self._input.on("keydown.enter", self.send)
            self._button = draw_button(self._page, "send", self.send, "send", "unelevated")

    def draw_details(self) -> None:
        """Draw the container of the details of the last answer."""
        self._details = ui.element("div").classes("mr-list mr-behind")
        with self._details:
            show_empty(self._page.text("behind_hint"))

    async def load_history(self) -> None:
        """Draw the last messages of the session."""
        timeline = self._page.library.store.timeline(await self._page.scope())
        session = MessageFilter(session_id=self._session.value)
        for message in reversed((await timeline.page(session, page_size=MAX_HISTORY)).items):
            is_user = message.role is Role.USER
            self._draw_message(message.speaker or message.role.value, message.content, is_user)

    def _draw_message(self, speaker: str, text: str, is_user: bool) -> ui.label:
        classes = "mr-message mr-mine" if is_user else "mr-message"
        with self._messages, ui.element("article").classes(classes):
            ui.label(speaker).classes("mr-speaker")
            return ui.label(text).classes("mr-text")

    async def send(self) -> None:
        """Send the text of the input field, and show the answer as it is generated."""
        text = (self._input.value or "").strip()
        if not text or self._is_busy:
            return
        try:
            request, speaker, assistant = self._create_request(text)
        except ValidationError as error:
            ui.notify(describe_validation_error(error), type="warning")
            return
        self._is_busy = True
        self._button.disable()
        try:
            scope = await self._page.writable_scope(request.session_id)
            self._input.set_value("")
            self._draw_message(speaker, text, is_user=True)
            handler = ChatHandler(await self._page.request_context(), scope, request)
            await self._run(handler, self._draw_message(assistant, "…", is_user=False))
        finally:
            self._is_busy = False
            self._button.enable()

    def _create_request(self, message: str) -> tuple[ChatRequest, str, str]:
        """Return the request, and the names of the speaker and of the answering assistant."""
        text = self._page.text
        fields: dict[str, Any] = {"message": message, "session_id": self._session.value or _SESSION}
        if self._kind.value == "single":
            return ChatRequest(**fields), text("you"), text("assistant")
        people = _split_names(self._people.value)
        assistants = _split_names(self._assistants.value)
        members = [Member(member_id=f"p{n}", name=name) for n, name in enumerate(people)]
        members += [
            Member(member_id=f"a{n}", name=name, ai=True) for n, name in enumerate(assistants)
        ]
        answering = next((n for n, name in enumerate(assistants) if f"@{name}" in message), 0)
        group = GroupTurn(members=members, speaker="p0", answers=f"a{answering}")
        return ChatRequest(**fields, group=group), people[0], assistants[answering]

    async def _run(self, handler: ChatHandler, answer: ui.label) -> None:
        self._details.clear()
        start, text = datetime.now(UTC), ""
        calls: dict[str, ToolCall] = {}
        async with aclosing(handler.events()) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        text += event.text
                        answer.set_text(text)
                    case TextRetracted():
                        text = event.text
                        answer.set_text(text or "…")
                    case ToolCall():
                        calls[event.id] = event
                    case ToolResult():
                        with self._details:
                            draw_call(self._page, calls[event.id], event)
                    case Final():
                        answer.set_text(event.text or self._page.text("silent"))
                        await self._draw_end(event, start)

    async def _draw_end(self, end: Final, start: datetime) -> None:
        """Draw the cost of the turn, and the recall that it made."""
        page = self._page
        traces = page.library.store.traces(await page.scope())
        recalls = await traces.since(start, 1)
        with self._details:
            counts = {"calls": end.model_calls, "recalls": end.recalls, "leaks": len(end.leaks)}
            dim_label(page.text("turn_cost", **counts))
            for item in recalls:
                target = page.user_link("/recalls/trace", id=item.trace_id)
                ui.link(page.text("show_recall"), target)
                stored = await traces.get(item.trace_id)
                draw_handoff(page, RecallResult.from_dict(stored.body))


def _split_names(text: str) -> list[str]:
    """Split names at commas; return one empty name, which validation refuses, if there is none."""
    names = [name.strip() for name in text.replace("，", ",").split(",")]
    return [name for name in names if name][:_MAX_MEMBERS] or [""]
