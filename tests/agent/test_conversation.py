"""The window over a conversation: the caller's messages and the session's older ones."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from memrecall.agent import Recaller
from memrecall.agent.conversation import Conversation
from memrecall.agent.offline.request import parse_request
from memrecall.agent.prompt_view import Briefing, read_briefing
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
    search,
    tool_results,
    user_messages,
)


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


async def read_first_briefing(library: Library, messages: object) -> Briefing:
    client = ScriptedClient([hand_off()])
    await run_recall(library, client=client, messages=messages)
    return read_briefing(str(client.requests[0].messages[1].content))


async def test_briefing_marks_the_message_that_is_asked_about(library: Library) -> None:
    notices = [{"role": "user", "content": TRANSFER}]
    answers = [{"role": "assistant", "content": f"Working, step {n}"} for n in range(9)]
    question = [{"role": "user", "content": "like before"}]
    for messages in (question, question + notices, question + answers):
        briefing = await read_first_briefing(library, [*answers[:2], *messages])
        (asked,) = [message for message in briefing.messages if message.get("asked")]
        assert asked["text"] == "like before"
        request = parse_request(briefing.messages, briefing.now, ZoneInfo("UTC"))
        assert request.text == "like before"


async def test_briefing_and_expansion_agree_on_the_window(library: Library) -> None:
    for count in (1, 3, 5, 8):
        client = ScriptedClient([expand_window(count), hand_off()])
        recall = await run_recall(library, client=client, messages=user_messages(count))
        briefing = read_briefing(str(client.requests[0].messages[1].content))
        assert briefing.window == len(briefing.messages) == min(count, 5)
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
