"""Conversations in whatever form callers have them, and what lies behind them."""

from datetime import UTC, datetime

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)

from memrecall.agent.conversation import Conversation, language_of, read_conversation
from memrecall.agent.prompt_view import read_briefing
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient
from memrecall.types import NewMessage, Role

from ..cases import check_each
from .stage import ANN, hand_off, on_both_engines, play, search


def test_every_kind_of_message_is_read() -> None:
    said = read_conversation(
        [
            {"role": "user", "content": "a", "name": "Ann", "ts": "2026-01-02T03:04:05Z"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": []},
            SystemMessage(content="c"),
            UserMessage(content="d", source="ann"),
            AssistantMessage(content="e", source="assistant"),
            AssistantMessage(content=[FunctionCall("1", "{}", "tool")], source="assistant"),
            FunctionExecutionResultMessage(
                content=[FunctionExecutionResult(content="f", name="t", call_id="1")]
            ),
            TextMessage(content="g", source="user"),
            TextMessage(content="h", source="planner"),
            NewMessage(role=Role.OTHER, content="i", message_id="m"),
        ]
    )
    assert [(each.role.value, each.text, each.speaker) for each in said] == [
        ("user", "a", "Ann"),
        ("user", "b", None),
        ("system", "c", None),
        ("user", "d", "ann"),
        ("assistant", "e", None),
        ("tool", "f", None),
        ("user", "g", None),
        ("assistant", "h", "planner"),
        ("other", "i", None),
    ]
    assert said[0].ts == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


REFUSED: tuple[tuple[object, str], ...] = (
    ([], "empty"),
    ("  ", "empty"),
    (7, "int is not a conversation"),
    ([7], "int is not a message"),
    ([{"role": "robot", "content": "x"}], "role 'robot'"),
    ([{"role": "user", "content": 7}], "not text"),
    ([{"role": "user", "content": "x", "message_id": [1]}], "message_id"),
    ([{"role": "user", "content": "x", "name": 5}], "name 5"),
    ([{"role": "user", "content": "a\0"}], "NUL"),
    ([{"role": "user", "content": "x", "ts": "soon"}], "not a time"),
)


def test_what_is_no_conversation_is_refused() -> None:
    def check(case: tuple[object, str]) -> None:
        given, told = case
        with pytest.raises(InvalidArgument, match=told):
            read_conversation(given)

    check_each(REFUSED, check)


@pytest.mark.parametrize(
    ("text", "language"),
    [("按照之前的来", "zh"), ("用 Redis 吧", "zh"), ("like before", "en"), ("", "en")],
)
def test_language(text: str, language: str) -> None:
    assert language_of(text) == language


async def test_the_last_user_message_is_what_is_asked(library: Library) -> None:
    said = read_conversation(
        [{"role": "user", "content": "first"}, {"role": "assistant", "content": "second"}]
    )
    assert Conversation(said, library.store, ANN).asked.text == "first"


@on_both_engines
class TestOlderMessages:
    async def test_what_the_caller_gave_is_not_repeated(self, library: Library) -> None:
        scope = Scope("ann", session_id="talk")
        given = read_conversation(
            [
                {"role": "user", "content": "The plan for the garden: tomatoes along the fence"},
                {"role": "user", "content": "and now?"},
            ]
        )
        window = await Conversation(given, library.store, scope).window(4)
        assert [each.text[:12] for each in window] == [
            *("Tomatoes alo", "Ignore previ", "The plan for", "and now?")
        ]

    async def test_a_known_first_message_is_the_anchor(self, library: Library) -> None:
        scope = Scope("ann", session_id="talk")
        given = read_conversation(
            [{"role": "user", "content": "We had dinner", "message_id": "a3"}]
        )
        window = await Conversation(given, library.store, scope).window(9)
        assert [each.message_id for each in window] == ["a1", "a2", "a3"]

    async def test_without_a_session_there_is_nothing_behind(self, library: Library) -> None:
        given = read_conversation("hello")
        assert len(await Conversation(given, library.store, ANN).window(9)) == 1


async def test_a_briefing_is_read_back(library: Library) -> None:
    client = ScriptedClient([search(limit=2), hand_off()])
    messages = [{"role": "user", "content": 'a "quoted"\n{"n": 1}\nline', "name": "Ann"}]
    await play(library, client=client, messages=messages)
    briefing = read_briefing(str(client.requests[0].messages[1].content))
    assert briefing.now == datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert (briefing.iteration, briefing.max_iterations, briefing.window) == (1, 3, 1)
    assert not briefing.older_messages
    assert briefing.messages[0]["text"] == messages[0]["content"]
    assert (briefing.found, briefing.tried) == ((), ())


async def test_long_messages_share_the_room_of_a_window(library: Library) -> None:
    client = ScriptedClient([hand_off()])
    messages = [{"role": "user", "content": f"{n}" * 50_000} for n in range(5)]
    await play(library, client=client, messages=messages)
    text = str(client.requests[0].messages[1].content)
    assert len(text) < 13_000
    assert "[50000 characters]" in text
