"""What people state in a chat is remembered, if the options say so."""

import json

import pytest

from memrecall.chat import GroupChat, SingleChat
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import MemoryQuery
from memrecall.testing import ScriptedClient, fail, say
from tests.cases import check_each_async

from ..model.openai_server import ModelServer, memrecall_client, text
from .chat_helpers import LIN, MEMBERS, TEAM, collect_turn, make_options


class TestExtraction:
    """What people state is remembered, if the options say so."""

    STATEMENTS = (
        ("I live in Hamburg.", "Actually I live in Berlin since March.", "Berlin", "Hamburg"),
        ("我住在厦门。", "其实我现在住在成都。", "成都", "厦门"),
    )

    async def test_statements_become_memories(self, library: Library) -> None:
        async def check(case: tuple[str, str, str, str]) -> None:
            first, second, city, earlier = case
            for is_on in (True, False):
                scope = Scope(f"{city} {is_on}", session_id="now")
                chat = SingleChat(library, scope, options=make_options(extract=is_on))
                for words in (first, second, "What?", "谁？"):
                    await chat.answer(words)
                memories = await stored_memories(library, scope)
                assert any(city in memory for memory in memories) is is_on
                assert not any(earlier in memory for memory in memories)

        await check_each_async(self.STATEMENTS, check)

    async def test_repeated_message_is_extracted_once(self, sqlite_library: Library) -> None:
        scope = Scope("once", session_id="now")
        chat = SingleChat(sqlite_library, scope, options=make_options(extract=True))
        for _ in range(2):
            await chat.answer("My cat is called Momo.", message_id="q1")
        (memory,) = await stored_memories(sqlite_library, scope)
        assert "Momo" in memory

    async def test_group_members_statements_become_memories(self, sqlite_library: Library) -> None:
        chat = GroupChat(sqlite_library, TEAM, MEMBERS, options=make_options(extract=True))
        await chat.post("ann", "I am allergic to walnuts.")
        await chat.post("bot", "I am allergic to tests.")
        memories = await stored_memories(sqlite_library, TEAM)
        assert any("walnuts" in memory for memory in memories)
        assert not any("tests" in memory for memory in memories)

    @pytest.mark.concurrent
    async def test_model_extracts_after_it_has_answered(
        self, sqlite_library: Library, server: ModelServer
    ) -> None:
        facts = {"facts": [{"text": "User lives in Berlin", "message": 1}]}
        server.play(text("Noted."))
        server.answer = lambda request: text(json.dumps(facts))
        client = memrecall_client(server)
        chat = SingleChat(sqlite_library, LIN, client, options=make_options(extract=True))
        turn = await collect_turn(chat.stream("I live in Berlin."))
        await client.close()
        assert (turn.final.text, turn.final.model_calls) == ("Noted.", 1)
        assert len(server.requests) > 1
        assert "I live in Berlin." in json.dumps(server.requests[1])

    async def test_failed_extraction_does_not_fail_the_turn(
        self, sqlite_library: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = ScriptedClient([say("Noted."), fail("unreachable")])
        chat = SingleChat(sqlite_library, LIN, client, options=make_options(extract=True))
        assert (await chat.answer("I live in Berlin.")).text == "Noted."
        assert any("could not extract" in line for line in caplog.messages)
        assert "Berlin" not in caplog.text


async def stored_memories(library: Library, scope: Scope) -> list[str]:
    """Return the texts of the valid memories of a user."""
    page = await library.store.memories(scope).page(MemoryQuery(), limit=50)
    return [record.content for record in page.items]
