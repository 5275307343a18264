"""The same message sent again while its turn runs: all callers get one turn."""

import asyncio
from typing import Any

import pytest

from memrecall.chat import GroupChat, SingleChat
from memrecall.errors import Conflict
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, fail, say
from tests.waiting import LIMIT

from .chat_helpers import (
    LIN,
    MEMBERS,
    NOW,
    QUESTION,
    QUESTION_EN,
    TEAM,
    PausedClient,
    TurnEvents,
    collect_turn,
    make_options,
    single_chat,
    stored_messages,
)

pytestmark = pytest.mark.concurrent


async def start(chat: Any, client: PausedClient, *arguments: Any, **options: Any) -> Any:
    """Start or join a turn, and wait for its model; return the task of its events."""
    joined = asyncio.Event()

    async def collect() -> TurnEvents:
        events = []
        async for event in chat.stream(*arguments, **options):
            joined.set()
            events.append(event)
        return TurnEvents(events)

    turn = asyncio.create_task(collect())
    async with asyncio.timeout(LIMIT):
        await joined.wait()
        await client.paused.wait()
    return turn


@pytest.mark.parametrize("question", [QUESTION, QUESTION_EN])
async def test_second_caller_joins_the_running_turn(library: Library, question: str) -> None:
    client = PausedClient(say("one two three"))
    first = await start(single_chat(library, client=client), client, question, message_id="q1")
    # Each request has a chat object of its own.
    again = single_chat(library, client=client).stream(question, message_id="q1")
    assert (await anext(again)).kind == "tool_call"  # from the beginning, before the first ends
    client.resumed.set()
    second = [event async for event in again]
    assert second == (await first).events[1:]
    assert (await first).final.text == "one two three"
    assert len(client.requests) == 1
    assert len(await stored_messages(library, LIN)) == 2


async def test_group_members_turn_is_joined(library: Library) -> None:
    client = PausedClient(say("在 里斯本"), say("other"))
    chat = GroupChat(library, TEAM, MEMBERS, client, options=make_options(), clock=lambda: NOW)
    posted = await chat.post("ann", "@小助手 在哪里？", message_id="g1")
    first = await start(chat, client, "bot", answers=posted.message_id)
    second = asyncio.create_task(collect_turn(chat.stream("bot", answers=posted.message_id)))
    client.resumed.set()
    assert (await second).final == (await first).final
    assert len(client.requests) == 1
    assert len(await stored_messages(library, TEAM)) == 2


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_turn_continues_until_the_last_caller_leaves(
    library: Library, cancelled_first: bool
) -> None:
    client = PausedClient(say("one two three"), say("four"))
    chat = single_chat(library, client=client)
    turns = [await start(chat, client, QUESTION, message_id="q1")]
    turns.append(await start(chat, client, QUESTION, message_id="q1"))
    leaver, stayer = turns if cancelled_first else reversed(turns)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert not client.cancelled
    client.resumed.set()
    assert (await stayer).final.text == "one two three"
    assert len(client.requests) == 1


async def test_turn_ends_with_its_last_caller_and_can_be_sent_again(library: Library) -> None:
    client = PausedClient(say("one two three"), say("four"))
    chat = single_chat(library, client=client)
    turns = [await start(chat, client, QUESTION, message_id="q1") for _ in range(2)]
    for turn in turns:
        turn.cancel()
    await asyncio.gather(*turns, return_exceptions=True)
    assert client.cancelled
    assert [m.content for m in await stored_messages(library, LIN)] == [QUESTION]
    client.resumed.set()
    assert (await chat.answer(QUESTION, message_id="q1")).text == "four"


async def test_failure_reaches_every_caller_and_is_not_kept(sqlite_library: Library) -> None:
    client = ScriptedClient([fail("unreachable", "no route"), say("In Lisbon.")])
    chat = single_chat(sqlite_library, client=client)
    streams = [chat.stream(QUESTION_EN, message_id="q1") for _ in range(2)]
    turns = await asyncio.gather(*map(collect_turn, streams))
    assert [turn.end.as_dict()["message"] for turn in turns] == ["no route"] * 2
    assert len(client.requests) == 1
    assert (await chat.answer(QUESTION_EN, message_id="q1")).text == "In Lisbon."


async def test_other_text_or_user_does_not_join(sqlite_library: Library) -> None:
    client = PausedClient(say("one two"), say("three"))
    chat = single_chat(sqlite_library, client=client)
    first = await start(chat, client, QUESTION, message_id="q1")
    with pytest.raises(Conflict):
        await chat.answer("Something else?", message_id="q1")
    ben = SingleChat(sqlite_library, Scope("ben"), client, options=make_options())
    other = asyncio.create_task(ben.answer(QUESTION, message_id="q1"))
    client.resumed.set()
    assert (await other).text == "three"
    assert (await first).final.text == "one two"


async def test_answer_of_another_process_replaces_this_one(library: Library) -> None:
    """Turns of two processes cannot be joined: the answer that was stored first is the answer."""
    client, other = PausedClient(say("one two")), ScriptedClient([say("three")])
    first = await start(single_chat(library, client=client), client, QUESTION, message_id="q1")
    in_thread = asyncio.to_thread(asyncio.run, _answer_elsewhere(library, other))
    assert (await in_thread) == "three"
    client.resumed.set()
    turn = await first
    assert turn.kinds[-3:] == ["text_retracted", "text_delta", "final"]
    assert (turn.final.text, len(await stored_messages(library, LIN))) == ("three", 2)


async def _answer_elsewhere(library: Library, client: ScriptedClient) -> str:
    async with await Library.open(library.settings) as elsewhere:
        chat = single_chat(elsewhere, client=client)
        return (await chat.answer(QUESTION, message_id="q1")).text
