"""What people state in a chat is remembered, if the options say so."""

import json
import re
from collections.abc import Callable

import pytest

from memrecall.chat import GroupChat, SingleChat
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import MemoryQuery
from memrecall.testing import Request, ScriptedClient, Step, fail, repeat, say
from tests.cases import check_each_async

from ..extraction.helpers import answer, prompt_lines, stated
from ..model.openai_server import ModelServer, memrecall_client, text
from .chat_helpers import LIN, MEMBERS, TEAM, collect_turn, make_options, reads, stored_messages


def reading(pattern: str, fact: str) -> Callable[[Request], Step]:
    """Return a model that answers "Noted.", and reads a fact that replaces all that is known."""

    def react(request: Request) -> Step:
        if not reads(request):
            return say("Noted.")
        lines = prompt_lines(request)
        known = [line["known"] for line in lines if "known" in line]
        new = [line for line in lines if "id" in line and not line.get("context")]
        facts = [
            stated(match.expand(fact), line["id"], field="home", replaces=known)
            for line in new
            if line["role"] == "user" and (match := re.search(pattern, line["text"]))
        ]
        return answer(facts=facts)

    return react


class TestWithoutModel:
    async def test_only_what_the_user_asks_to_remember_becomes_a_memory(
        self, library: Library
    ) -> None:
        async def check(case: tuple[str, str, str]) -> None:
            request, note, statement = case
            for is_on in (True, False):
                scope = Scope(f"{note} {is_on}", session_id="now")
                chat = SingleChat(library, scope, options=make_options(extract=is_on))
                for said in (statement, request, "What?", "谁？"):
                    await chat.answer(said)
                assert await stored_memories(library, scope) == [note] * is_on
                kept = [message.content for message in await stored_messages(library, scope)]
                assert {statement, request} <= set(kept)

        cases = [
            ("Remember: the key is at Jo's.", "the key is at Jo's.", "I live in Berlin."),
            ("记住，钥匙在老王那里。", "钥匙在老王那里。", "我住在成都。"),
        ]
        await check_each_async(cases, check)

    async def test_repeated_request_is_remembered_once(self, sqlite_library: Library) -> None:
        scope = Scope("once", session_id="now")
        chat = SingleChat(sqlite_library, scope, options=make_options(extract=True))
        for _ in range(2):
            await chat.answer("Note: my cat is called Momo.", message_id="q1")
        assert await stored_memories(sqlite_library, scope) == ["my cat is called Momo."]

    async def test_group_remembers_what_its_people_ask_for(self, sqlite_library: Library) -> None:
        chat = GroupChat(sqlite_library, TEAM, MEMBERS, options=make_options(extract=True))
        await chat.post("ann", "Remember, I am allergic to walnuts.")
        await chat.post("bot", "Remember, I am allergic to tests.")
        assert await stored_memories(sqlite_library, TEAM) == ["I am allergic to walnuts."]


class TestExtraction:
    """What people state is remembered, if the options say so."""

    STATEMENTS = (
        (r"live in (\w+)", "User lives in \\1.", "I live in Bonn.", "Now I live in Berlin."),
        (r"住在(\w+)", "用户住在\\1。", "我住在厦门。", "其实我现在住在成都。"),
    )

    async def test_statements_become_memories(self, library: Library) -> None:
        async def check(case: tuple[str, str, str, str]) -> None:
            pattern, fact, first, second = case
            match = re.search(pattern, second)
            assert match is not None
            for is_on in (True, False):
                scope = Scope(f"{second} {is_on}", session_id="now")
                client = ScriptedClient([repeat(reading(pattern, fact), 20)])
                chat = SingleChat(library, scope, client, options=make_options(extract=is_on))
                for words in (first, second, "Hello!", "你好！"):
                    await chat.answer(words)
                assert await stored_memories(library, scope) == [match.expand(fact)] * is_on
                asked = [request for request in client.requests if reads(request)]
                assert len(asked) == 2 * is_on  # a greeting is not read

        await check_each_async(self.STATEMENTS, check)

    async def test_repeated_message_is_extracted_once(self, sqlite_library: Library) -> None:
        scope = Scope("once", session_id="now")
        client = ScriptedClient([repeat(reading(r"called (\w+)", r"User's cat is \1."), 20)])
        chat = SingleChat(sqlite_library, scope, client, options=make_options(extract=True))
        for _ in range(2):
            await chat.answer("My cat is called Momo.", message_id="q1")
        assert await stored_memories(sqlite_library, scope) == ["User's cat is Momo."]

    async def test_group_members_statements_become_memories(self, sqlite_library: Library) -> None:
        client = ScriptedClient([repeat(reading(r"allergic to (\w+)", r"Ann avoids \1."), 20)])
        chat = GroupChat(sqlite_library, TEAM, MEMBERS, client, options=make_options(extract=True))
        await chat.post("ann", "I am allergic to walnuts.")
        await chat.post("bot", "I am allergic to tests.")
        assert await stored_memories(sqlite_library, TEAM) == ["Ann avoids walnuts."]
        assert len(client.requests) == 1

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
