"""Sample data, scripted chats and event checks for the tests of chat turns."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    SystemMessage,
)

from memrecall.chat import (
    ChatEvent,
    ChatOptions,
    Failed,
    Final,
    GroupChat,
    Member,
    SingleChat,
    TextDelta,
    TextRetracted,
    ToolCall,
    ToolResult,
)
from memrecall.memory import Library
from memrecall.model import Request
from memrecall.scope import Scope
from memrecall.store import ScopedMessage
from memrecall.testing import Script, ScriptedClient
from memrecall.types import Message, NewMessage, Role
from tests.waiting import LIMIT

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
LIN = Scope("lin", session_id="now")
TEAM = Scope("team", session_id="now")
PEANUTS = "我对花生过敏，千万别放。"
LISBON = "The offsite will be in Lisbon, from 4 to 6 May."
QUESTION = "我对什么过敏？"
QUESTION_EN = "Where will the offsite be?"
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="recall_memory">\n'
    '<｜DSML｜parameter name="query" string="true">过敏</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
)
ANN = Member(member_id="ann", name="Ann", nicknames=("Annie",))
BO = Member(member_id="bo", name="小波", nicknames=("波波",))
BOT = Member(member_id="bot", name="小助手", nicknames=("助手", "Helper"), ai=True)
MEMBERS = (ANN, BO, BOT)
TERMINAL = (Final, Failed)


async def fill(library: Library) -> None:
    """Store messages of lin and of the team that are some days old, in a session each."""
    messages = [
        ScopedMessage(
            scope.with_session(f"session {scope.user_id}-{number}"),
            NewMessage(
                message_id=f"{scope.user_id}-{number}",
                role=Role.USER,
                content=text,
                speaker=speaker,
                ts=NOW - timedelta(days=8 - 2 * number),
            ),
        )
        for scope, speaker in ((LIN, None), (TEAM, "Ann"))
        for number, text in enumerate((PEANUTS, LISBON, "今天跑了十公里。"))
    ]
    await library.add_entries(messages)


def make_options(**options: Any) -> ChatOptions:
    """Return options with a recall timeout that suits a busy machine."""
    return ChatOptions(**{"recall_seconds": LIMIT, **options})


def reads(request: Request) -> bool:
    """Return True if a request asks for the facts of a message."""
    return '{"now": ' in str(request.messages[-1].content)


def single_chat(
    library: Library, *script: Any, client: ChatCompletionClient | None = None, **options: Any
) -> SingleChat:
    """Return a single chat with a scripted model."""
    steps: Script = script
    model = client or ScriptedClient(steps)
    return SingleChat(library, LIN, model, options=make_options(**options), clock=lambda: NOW)


def group_chat(
    library: Library, *script: Any, client: ChatCompletionClient | None = None, **options: Any
) -> GroupChat:
    """Return a group chat with a scripted model."""
    steps: Script = script
    model = client or ScriptedClient(steps)
    return GroupChat(
        library, TEAM, MEMBERS, model, options=make_options(**options), clock=lambda: NOW
    )


class TurnEvents:
    """The events of one turn, checked for what every turn guarantees."""

    def __init__(self, events: Sequence[ChatEvent]) -> None:
        self.events = list(events)
        *before, self.end = self.events
        assert isinstance(self.end, TERMINAL)
        assert not any(isinstance(event, TERMINAL) for event in before)
        self._check_calls()
        if isinstance(self.end, Final):
            assert self.end.text == shown_text(self.events)

    def _check_calls(self) -> None:
        """Check that each call is followed by exactly one result."""
        tools = [event for event in self.events if isinstance(event, ToolCall | ToolResult)]
        calls, results = tools[::2], tools[1::2]
        assert all(isinstance(event, ToolCall) for event in calls)
        assert all(isinstance(event, ToolResult) for event in results)
        expected = [(event.id, event.name, event.forged) for event in calls]
        assert expected == [(event.id, event.name, event.forged) for event in results]
        assert len({event.id for event in calls}) == len(calls)

    @property
    def final(self) -> Final:
        assert isinstance(self.end, Final), self.end.as_dict()
        return self.end

    @property
    def deltas(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, TextDelta)]

    @property
    def kinds(self) -> list[str]:
        """The kinds in order, without consecutive repeats."""
        kinds: list[str] = []
        for event in self.events:
            if not kinds or kinds[-1] != event.kind:
                kinds.append(event.kind)
        return kinds

    def calls(self, *, forged: bool) -> list[str]:
        return [e.name for e in self.events if isinstance(e, ToolCall) and e.forged is forged]

    def results(self, name: str, *, forged: bool) -> list[ToolResult]:
        return [
            event
            for event in self.events
            if isinstance(event, ToolResult) and (event.name, event.forged) == (name, forged)
        ]

    def recall_answers(self, *, forged: bool) -> list[dict[str, Any]]:
        results = self.results("recall_memory", forged=forged)
        return [json.loads(result.content) for result in results]


def shown_text(events: Iterable[ChatEvent]) -> str:
    """Return what a reader sees of the answer in the end."""
    text = ""
    for event in events:
        if isinstance(event, TextRetracted):
            text = event.text
        elif isinstance(event, TextDelta):
            text += event.text
    return text


class PausedClient(ScriptedClient):
    """A model that pauses after the first word until it is resumed."""

    def __init__(self, *script: Any) -> None:
        super().__init__(script)
        self.paused, self.resumed, self.cancelled = asyncio.Event(), asyncio.Event(), False

    async def _stream(self, request: Any) -> AsyncGenerator[Any, None]:
        async for part in super()._stream(request):
            yield part
            self.paused.set()
            try:
                await self.resumed.wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise


async def collect_turn(events: AsyncGenerator[ChatEvent, None]) -> TurnEvents:
    return TurnEvents([event async for event in events])


async def take_turn(library: Library, text: str, *script: Any, **options: Any) -> TurnEvents:
    """Return the events of one turn of a single chat."""
    return await collect_turn(single_chat(library, *script, **options).stream(text))


async def take_group_turn(
    library: Library, speaker: str, text: str, *script: Any, **options: Any
) -> TurnEvents:
    """Return the events of the assistant's turn after one message of a group."""
    chat = group_chat(library, *script, **options)
    await chat.post(speaker, text)
    return await collect_turn(chat.stream("bot"))


def message_kinds(request: Request) -> list[str]:
    """Return each message's role, or `call:` and `result:` with the names of the tools."""
    kinds = []
    for message in request.messages:
        if isinstance(message, FunctionExecutionResultMessage):
            kinds.append("result:" + ",".join(result.name for result in message.content))
        elif isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            kinds.append("call:" + ",".join(call.name for call in message.content))
        else:
            kinds.append(type(message).__name__.removesuffix("Message").lower())
    return kinds


def system_text(request: Request) -> str:
    return "\n".join(m.content for m in request.messages if isinstance(m, SystemMessage))


async def stored_messages(library: Library, scope: Scope) -> list[Message]:
    """Return the messages of the scope's session in all branches, oldest first."""
    timeline = library.store.timeline(scope)
    return await timeline.thread(session_id=str(scope.session_id), limit=1_000)
