"""The window over a conversation: the caller's messages and the session's older ones."""

import json
from typing import Any

import pytest

from memrecall.agent import Recaller
from memrecall.agent.conversation import Conversation
from memrecall.memory import Library
from memrecall.messages import ConversationMessage, parse_messages
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient
from memrecall.text.language import language_of
from memrecall.types import Role

from ..cases import check_each_async
from .recall_helpers import (
    ANN,
    expand_window,
    hand_off,
    on_both_engines,
    run_recall,
    tool_results,
    user_messages,
)


@pytest.mark.parametrize(
    ("text", "language"),
    [("按照之前的来", "zh"), ("用 Redis 吧", "zh"), ("like before", "en"), ("", "en")],
)
def test_language_of_text(text: str, language: str) -> None:
    assert language_of(text) == language


async def test_half_a_surrogate_in_the_request_is_replaced(library: Library) -> None:
    broken = "what was my database \ud83d config\0 from before"
    forms: list[object] = [
        broken,
        [{"role": "user", "content": broken}],
        [ConversationMessage(Role.USER, broken)],
    ]

    async def check(messages: object) -> None:
        recall = await Recaller(library, ANN).recall(messages)
        assert "a1" in recall.handoff.relevant_memory_keys
        assert "database ? config\ufffd from" in recall.model_dump_json()
        assert await library.store.traces(ANN).get(recall.trace.trace_id)

    await check_each_async(forms, check)


TRANSFER = "Transferred to recall, adopting the role of recall immediately."


async def test_transfer_notice_is_not_the_request(library: Library) -> None:
    messages = parse_messages(
        [{"role": "user", "content": "like before"}, {"role": "user", "content": TRANSFER}]
    )
    assert Conversation(messages, library.store, ANN).request.text == "like before"
    assert Conversation(messages[1:], library.store, ANN).request.text == TRANSFER


async def read_briefing(library: Library, messages: object) -> list[dict[str, Any]]:
    """Return the JSON lines of the first message that a model gets: a head, then messages."""
    client = ScriptedClient([hand_off()])
    await run_recall(library, client=client, messages=messages)
    text = str(client.requests[0].messages[1].content)
    return [json.loads(line) for line in text.split("\n") if line.startswith("{")]


async def test_briefing_marks_the_message_that_is_asked_about(library: Library) -> None:
    notices = [{"role": "user", "content": TRANSFER}]
    answers = [{"role": "assistant", "content": f"Working, step {n}"} for n in range(9)]
    question = [{"role": "user", "content": "like before"}]
    for messages in (question, question + notices, question + answers):
        _, *lines = await read_briefing(library, [*answers[:2], *messages])
        assert [line["text"] for line in lines if line.get("asked")] == ["like before"]


async def test_briefing_and_expansion_agree_on_the_window(library: Library) -> None:
    for count in (1, 3, 5, 8):
        head, *lines = await read_briefing(library, user_messages(count))
        assert head["window"] == len(lines) == min(count, 5)
        client = ScriptedClient([expand_window(count), hand_off()])
        recall = await run_recall(library, client=client, messages=user_messages(count))
        (result,) = tool_results(recall, "expand_context_window")
        if count <= 5:
            words = f"requested_size {count} must exceed the window of {count}"
            assert words in result["text"]
        else:
            assert result["output"]["new_size"] == count


@pytest.mark.parametrize(
    ("request_text", "day"), [("like before", "Tuesday"), ("像之前那样", "星期二")]
)
async def test_briefing_names_the_weekday_in_its_language(
    library: Library, request_text: str, day: str
) -> None:
    client = ScriptedClient([hand_off()])
    await run_recall(library, client=client, messages=request_text)
    assert f'"weekday":"{day}"' in str(client.requests[0].messages[1].content)


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


async def test_briefing_has_one_line_for_each_message(library: Library) -> None:
    text = 'a "quoted"\n{"n": 1}\nline'
    head, line = await read_briefing(library, [{"role": "user", "content": text, "name": "Ann"}])
    assert (head["now"], head["older_messages"]) == ("2026-03-10T12:00:00+00:00", False)
    assert (head["iteration"], head["max_iterations"], head["window"]) == (1, 3, 1)
    assert line["text"] == text


async def test_long_messages_are_truncated_to_fit_the_window(library: Library) -> None:
    client = ScriptedClient([hand_off()])
    messages = [{"role": "user", "content": f"{n}" * 50_000} for n in range(5)]
    await run_recall(library, client=client, messages=messages)
    text = str(client.requests[0].messages[1].content)
    assert len(text) < 13_000
    assert "[50000 characters]" in text
