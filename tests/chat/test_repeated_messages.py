"""The same message sent again while its turn runs: one answer is stored, and all get it."""

import asyncio

import pytest

from memrecall.chat import GroupChat, SingleChat
from memrecall.errors import Conflict
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, say
from tests.waiting import LIMIT

from .chat_helpers import (
    LIN,
    MEMBERS,
    NOW,
    QUESTION,
    TEAM,
    PausedClient,
    collect_turn,
    make_options,
    single_chat,
    stored_messages,
)

pytestmark = pytest.mark.concurrent


async def test_answer_that_was_stored_first_replaces_the_other(library: Library) -> None:
    client, other = PausedClient(say("one two")), ScriptedClient([say("three")])
    slow = single_chat(library, client=client).stream(QUESTION, message_id="q1")
    first = asyncio.create_task(collect_turn(slow))
    await asyncio.wait_for(client.paused.wait(), LIMIT)
    assert (await single_chat(library, client=other).answer(QUESTION, message_id="q1")).text == (
        "three"
    )
    client.resumed.set()
    turn = await first
    assert turn.kinds[-3:] == ["text_retracted", "text_delta", "final"]
    assert (turn.final.text, len(await stored_messages(library, LIN))) == ("three", 2)


async def test_group_member_answers_once(library: Library) -> None:
    client = PausedClient(say("在 里斯本"), say("other"))
    chat = GroupChat(library, TEAM, MEMBERS, client, options=make_options(), clock=lambda: NOW)
    posted = await chat.post("ann", "@小助手 在哪里？", message_id="g1")
    streams = [chat.stream("bot", answers=posted.message_id) for _ in range(2)]
    turns = asyncio.gather(*map(collect_turn, streams))
    await asyncio.wait_for(client.paused.wait(), LIMIT)
    client.resumed.set()
    first, second = await turns
    assert (first.final.text, first.final.message_id) == (
        second.final.text,
        second.final.message_id,
    )
    assert len(await stored_messages(library, TEAM)) == 2


async def test_other_text_or_user_is_another_message(sqlite_library: Library) -> None:
    chat = single_chat(sqlite_library, client=ScriptedClient([say("one two")]))
    assert (await chat.answer(QUESTION, message_id="q1")).text == "one two"
    with pytest.raises(Conflict):
        await chat.answer("Something else?", message_id="q1")
    client = ScriptedClient([say("three")])
    ben = SingleChat(sqlite_library, Scope("ben"), client, options=make_options())
    assert (await ben.answer(QUESTION, message_id="q1")).text == "three"
