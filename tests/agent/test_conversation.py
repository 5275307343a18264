"""The window over a conversation: the caller's messages and the session's older ones."""

from datetime import UTC, datetime

import pytest

from memrecall.agent.conversation import Conversation
from memrecall.agent.prompt_view import read_briefing
from memrecall.memory import Library
from memrecall.messages import parse_messages
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient
from memrecall.text.language import language_of

from .recall_helpers import ANN, hand_off, on_both_engines, run_recall, search


@pytest.mark.parametrize(
    ("text", "language"),
    [("按照之前的来", "zh"), ("用 Redis 吧", "zh"), ("like before", "en"), ("", "en")],
)
def test_language_of_text(text: str, language: str) -> None:
    assert language_of(text) == language


async def test_request_is_the_last_user_message(library: Library) -> None:
    messages = parse_messages(
        [{"role": "user", "content": "first"}, {"role": "assistant", "content": "second"}]
    )
    assert Conversation(messages, library.store, ANN).request.text == "first"


@on_both_engines
class TestOlderMessages:
    async def test_window_does_not_repeat_the_callers_messages(self, library: Library) -> None:
        scope = Scope("ann", session_id="talk")
        messages = parse_messages(
            [
                {"role": "user", "content": "The plan for the garden: tomatoes along the fence"},
                {"role": "user", "content": "and now?"},
            ]
        )
        window = await Conversation(messages, library.store, scope).window(4)
        assert [message.text[:12] for message in window] == [
            *("Tomatoes alo", "Ignore previ", "The plan for", "and now?")
        ]

    async def test_window_continues_before_a_stored_first_message(self, library: Library) -> None:
        scope = Scope("ann", session_id="talk")
        messages = parse_messages(
            [{"role": "user", "content": "We had dinner", "message_id": "a3"}]
        )
        window = await Conversation(messages, library.store, scope).window(9)
        assert [message.message_id for message in window] == ["a1", "a2", "a3"]

    async def test_window_is_full_when_the_first_id_is_not_stored(self, library: Library) -> None:
        scope = Scope("ann", session_id="talk")
        thread = await library.store.timeline(scope).thread(session_id="talk", limit=9)
        messages = parse_messages(
            [{"content": thread[-1].content, "id": "framework-1"}, {"content": "and now?"}]
        )
        window = await Conversation(messages, library.store, scope).window(4)
        older = [message.message_id for message in thread[-3:-1]]
        assert [message.message_id for message in window] == [*older, "framework-1", None]

    async def test_window_without_session_has_no_older_messages(self, library: Library) -> None:
        messages = parse_messages("hello")
        assert len(await Conversation(messages, library.store, ANN).window(9)) == 1


async def test_briefing_round_trips(library: Library) -> None:
    client = ScriptedClient([search(limit=2), hand_off()])
    messages = [{"role": "user", "content": 'a "quoted"\n{"n": 1}\nline', "name": "Ann"}]
    await run_recall(library, client=client, messages=messages)
    briefing = read_briefing(str(client.requests[0].messages[1].content))
    assert briefing.now == datetime(2026, 3, 10, 12, tzinfo=UTC)
    assert (briefing.iteration, briefing.max_iterations, briefing.window) == (1, 3, 1)
    assert not briefing.older_messages
    assert briefing.messages[0]["text"] == messages[0]["content"]
    assert (briefing.found, briefing.tried) == ((), ())


async def test_long_messages_are_truncated_to_fit_the_window(library: Library) -> None:
    client = ScriptedClient([hand_off()])
    messages = [{"role": "user", "content": f"{n}" * 50_000} for n in range(5)]
    await run_recall(library, client=client, messages=messages)
    text = str(client.requests[0].messages[1].content)
    assert len(text) < 13_000
    assert "[50000 characters]" in text
