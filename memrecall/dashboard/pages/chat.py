"""Try it: a chat as an application would have it, with what stands behind each answer beside it."""

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from nicegui import ui
from pydantic import ValidationError

from memrecall.chat import Final, TextDelta, ToolCall, ToolResult
from memrecall.dashboard.frame import page
from memrecall.dashboard.session import Visit
from memrecall.dashboard.trace_view import draw_call, draw_handoff
from memrecall.dashboard.widgets import card, choose_user, dim, fact, note, row, title, user_zone
from memrecall.server.http.chat import ChatRun
from memrecall.server.http.chat_models import ChatRequest, GroupMember, GroupTurn
from memrecall.store import MessageFilter
from memrecall.types import Role

SHOWN = 20
SESSION = "dashboard"
_MOST_MEMBERS = 20


@page("/try", "try_it")
async def try_it(visit: Visit) -> None:
    """A chat with a chosen user's memory."""
    title(visit.say("try_it"))
    if not await choose_user(visit):
        return
    await visit.scope()
    talk = _Talk(visit)
    with row():
        fact(visit.say("model"), visit.library.settings.model or visit.say("offline_model"))
        talk.draw_settings()
    with ui.element("div").classes("mr-columns"):
        with ui.element("div"), card(visit.say("conversation")):
            talk.draw_conversation()
        with ui.element("div"), card(visit.say("behind")):
            talk.draw_behind()
    await talk.show_history()


class _Talk:
    """One conversation in one browser."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._said: Any = None
        self._behind: Any = None
        self._is_busy = False

    def draw_settings(self) -> None:
        say = self._visit.say
        kinds = {"single": say("single_chat"), "group": say("group_chat")}
        self._kind = ui.toggle(kinds, value="single").props("no-caps unelevated")
        self._session = ui.input(
            say("filter_session"), value=self._visit.asked.get("session", SESSION)
        )
        self._people = ui.input(say("people"), value="Lin, Maya")
        self._helpers = ui.input(say("helpers"), value="Juno, Pip")
        for field in (self._session, self._people, self._helpers):
            field.props("outlined dense")
        for field in (self._people, self._helpers):
            field.set_visibility(False)

        def follow() -> None:
            for field in (self._people, self._helpers):
                field.set_visibility(self._kind.value == "group")

        self._kind.on_value_change(follow)

    def draw_conversation(self) -> None:
        say = self._visit.say
        self._said = ui.element("div").classes("mr-talk").props("aria-live=polite role=log")
        with row():
            self._box = ui.input(say("your_message")).props("outlined dense").classes("mr-grow")
            self._box.on("keydown.enter", self.send)
            self._send = ui.button(say("send"), icon="send", on_click=self.send).props("unelevated")

    def draw_behind(self) -> None:
        self._behind = ui.element("div").classes("mr-list mr-behind")
        with self._behind:
            note(self._visit.say("behind_hint"))

    async def show_history(self) -> None:
        """What was said in the session before."""
        scope = await self._visit.scope()
        wanted = MessageFilter(session_id=self._session.value)
        timeline = self._visit.library.store.timeline(scope)
        for message in reversed((await timeline.page(wanted, page_size=SHOWN)).items):
            is_mine = message.role is Role.USER
            self._draw_words(message.speaker or message.role.value, message.content, is_mine)

    def _draw_words(self, speaker: str, text: str, is_mine: bool) -> ui.label:
        look = "mr-message mr-mine" if is_mine else "mr-message"
        with self._said, ui.element("article").classes(look):
            ui.label(speaker).classes("mr-speaker")
            return ui.label(text).classes("mr-text")

    async def send(self) -> None:
        """Say what is in the box, and show the answer as it comes."""
        text = (self._box.value or "").strip()
        if not text or self._is_busy:
            return
        try:
            request, speaker, helper = self._request(text)
        except ValidationError as error:
            fault = error.errors(include_input=False, include_url=False)[0]
            ui.notify(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}", type="warning")
            return
        self._is_busy = True
        self._send.disable()
        try:
            scope = await self._visit.writing(request.session_id)
            self._box.set_value("")
            self._draw_words(speaker, text, is_mine=True)
            run = ChatRun(await self._visit.asking(), scope, request)
            await self._play(run, self._draw_words(helper, "…", is_mine=False))
        finally:
            self._is_busy = False
            self._send.enable()

    def _request(self, text: str) -> tuple[ChatRequest, str, str]:
        """The request, who says the message and who answers it."""
        say = self._visit.say
        given: dict[str, Any] = {"message": text, "session_id": self._session.value or SESSION}
        if self._kind.value == "single":
            return ChatRequest(**given), say("you"), say("assistant")
        people, helpers = (_names(field.value) for field in (self._people, self._helpers))
        members = [GroupMember(member_id=f"p{n}", name=name) for n, name in enumerate(people)]
        members += [
            GroupMember(member_id=f"a{n}", name=name, ai=True) for n, name in enumerate(helpers)
        ]
        called = next((n for n, name in enumerate(helpers) if f"@{name}" in text), 0)
        group = GroupTurn(members=members, speaker="p0", answers=f"a{called}")
        return ChatRequest(**given, group=group), people[0], helpers[called]

    async def _play(self, run: ChatRun, answer: ui.label) -> None:
        self._behind.clear()
        began, text = datetime.now(UTC), ""
        calls: dict[str, ToolCall] = {}
        async with aclosing(run.events()) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        text += event.text
                        answer.set_text(text)
                    case ToolCall():
                        calls[event.id] = event
                    case ToolResult():
                        with self._behind:
                            draw_call(self._visit, calls[event.id], event)
                    case Final():
                        answer.set_text(event.text or self._visit.say("silent"))
                        await self._draw_end(event, began)

    async def _draw_end(self, end: Final, began: datetime) -> None:
        """What the turn cost, and the recall that it made."""
        visit = self._visit
        scope, zone = await visit.scope(), await user_zone(visit)
        kept = visit.library.store.traces(scope)
        made = await kept.since(began, 1)
        with self._behind:
            told = {"calls": end.model_calls, "recalls": end.recalls, "leaks": len(end.leaks)}
            dim(visit.say("turn_cost", **told))
            for item in made:
                target = visit.link("/recalls/trace", user=visit.user, id=item.trace_id)
                ui.link(visit.say("show_recall"), target)
                draw_handoff(visit, (await kept.get(item.trace_id)).body, zone)


def _names(text: str) -> list[str]:
    """Names that are divided by commas; at least one, or the request is refused."""
    names = [name.strip() for name in text.replace("，", ",").split(",")]
    return [name for name in names if name][:_MOST_MEMBERS] or [""]
