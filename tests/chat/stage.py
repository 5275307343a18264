"""What the tests of chat turns have in common."""

import json
from collections.abc import AsyncGenerator, Sequence
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
    ToolCall,
    ToolResult,
)
from memrecall.memory import Library
from memrecall.model import Request
from memrecall.scope import Scope
from memrecall.testing import Script, ScriptedClient
from memrecall.types import Message, NewMessage, Role
from tests.waiting import LIMIT

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
LIN = Scope("lin", session_id="now")
TEAM = Scope("team", session_id="now")
PEANUTS = "我对花生过敏，千万别放。"
LISBON = "The offsite will be in Lisbon, from 4 to 6 May."
ASKED = "我对什么过敏？"
ASKED_EN = "Where will the offsite be?"
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
    """Store what lin, and the team, said some days ago."""
    for scope, speaker in ((LIN, None), (TEAM, "Ann")):
        batch = [
            NewMessage(
                message_id=f"{scope.user_id}-{number}",
                role=Role.USER,
                content=text,
                speaker=speaker,
                ts=NOW - timedelta(days=8 - 2 * number),
            )
            for number, text in enumerate((PEANUTS, LISBON, "今天跑了十公里。"))
        ]
        for message in batch:
            day = scope.with_session(f"session {message.message_id}")
            await library.add_messages(day, [message])


def patient(**options: Any) -> ChatOptions:
    """Options with time for a recall on a busy machine."""
    return ChatOptions(**{"recall_seconds": LIMIT, **options})


def single(
    library: Library, *script: Any, client: ChatCompletionClient | None = None, **options: Any
) -> SingleChat:
    """A single chat whose model follows a script."""
    steps: Script = script
    chosen = client or ScriptedClient(steps)
    return SingleChat(library, LIN, chosen, options=patient(**options), clock=lambda: NOW)


def group(
    library: Library, *script: Any, client: ChatCompletionClient | None = None, **options: Any
) -> GroupChat:
    """A group chat whose model follows a script."""
    steps: Script = script
    chosen = client or ScriptedClient(steps)
    return GroupChat(library, TEAM, MEMBERS, chosen, options=patient(**options), clock=lambda: NOW)


class Played:
    """The events of one turn, and what is asserted of all of them."""

    def __init__(self, events: Sequence[ChatEvent]) -> None:
        self.events = list(events)
        *before, self.end = self.events
        assert isinstance(self.end, TERMINAL)
        assert not any(isinstance(event, TERMINAL) for event in before)
        self._check_calls()
        if isinstance(self.end, Final):
            assert self.end.text == "".join(self.deltas)

    def _check_calls(self) -> None:
        """Each call has exactly one result, right behind it."""
        tools = [event for event in self.events if isinstance(event, ToolCall | ToolResult)]
        calls, results = tools[::2], tools[1::2]
        assert all(isinstance(event, ToolCall) for event in calls)
        assert all(isinstance(event, ToolResult) for event in results)
        told = [(event.id, event.name, event.forged) for event in calls]
        assert told == [(event.id, event.name, event.forged) for event in results]
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
        """The kinds in order; neighbours of the same kind once."""
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

    def recalled(self, *, forged: bool) -> list[dict[str, Any]]:
        found = self.results("recall_memory", forged=forged)
        return [json.loads(result.content) for result in found]


async def play(events: AsyncGenerator[ChatEvent, None]) -> Played:
    return Played([event async for event in events])


def context(request: Request) -> list[str]:
    """A request's messages by their kind: who speaks, or `call:` and `result:` of which tools."""
    told = []
    for message in request.messages:
        if isinstance(message, FunctionExecutionResultMessage):
            told.append("result:" + ",".join(result.name for result in message.content))
        elif isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            told.append("call:" + ",".join(call.name for call in message.content))
        else:
            told.append(type(message).__name__.removesuffix("Message").lower())
    return told


def system_text(request: Request) -> str:
    return "\n".join(m.content for m in request.messages if isinstance(m, SystemMessage))


async def stored(library: Library, scope: Scope) -> list[Message]:
    """What the session holds, in order."""
    return await library.store.timeline(scope).thread(session_id=str(scope.session_id), limit=1_000)
