"""Chat turns with failing recalls, models and listeners."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from memrecall.chat import ChatOptions, Failed, TextDelta
from memrecall.errors import InvalidArgument, ModelFailed, StorageError
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, call, fail, say, wait
from tests.cases import check_each
from tests.waiting import LIMIT, wait_until

from .chat_helpers import LIN, QUESTION_EN, single_chat, stored_messages, take_turn


class TestFailures:
    @pytest.mark.parametrize("problem", [StorageError("down"), RuntimeError("boom"), OSError()])
    async def test_failed_recall_does_not_fail_the_turn(
        self, sqlite_library: Library, monkeypatch: pytest.MonkeyPatch, problem: Exception
    ) -> None:
        async def broken(*_: Any, **__: Any) -> None:
            raise problem

        monkeypatch.setattr("memrecall.agent.driver.Recaller.recall", broken)
        client = ScriptedClient([call("recall_memory", query="x"), say("Hello.")])
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
        assert (turn.final.text, turn.final.degraded) == ("Hello.", False)
        for result in turn.recall_answers(forged=True) + turn.recall_answers(forged=False):
            assert result["events"] == []
            assert "not the same as finding nothing" in result["note"]
        assert len(await stored_messages(sqlite_library, LIN)) == 2

    async def test_failed_search_does_not_fail_the_turn(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: Any) -> None:
            raise StorageError("down")

        monkeypatch.setattr(library, "search", broken)
        turn = await take_turn(library, QUESTION_EN, say("Hello."))
        assert turn.final.text == "Hello."
        assert turn.results("recall_memory", forged=True)[0].is_error

    @pytest.mark.concurrent
    async def test_hanging_recall_times_out(
        self, sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def hang(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr("memrecall.agent.driver.Recaller.recall", hang)
        monkeypatch.setattr("memrecall.chat.turn._GRACE", 0.0)
        async with asyncio.timeout(LIMIT):
            turn = await take_turn(sqlite_library, QUESTION_EN, say("Hi."), recall_seconds=0.05)
        assert turn.final.text == "Hi."
        assert turn.results("recall_memory", forged=True)[0].is_error

    async def test_failed_model_is_an_error_and_the_message_is_stored(
        self, sqlite_library: Library
    ) -> None:
        turn = await take_turn(sqlite_library, QUESTION_EN, fail("unreachable", "no route"))
        assert isinstance(turn.end, Failed)
        assert turn.kinds == ["tool_call", "tool_result", "error"]
        error = {"code": "UNAVAILABLE", "message": "no route", "details": {"kind": "unreachable"}}
        assert turn.end.as_dict() == {"type": "error", "error": error}
        assert [m.content for m in await stored_messages(sqlite_library, LIN)] == [QUESTION_EN]
        with pytest.raises(ModelFailed):
            await single_chat(sqlite_library, fail("unreachable")).answer(QUESTION_EN)

    async def test_any_client_error_becomes_model_failed(self, sqlite_library: Library) -> None:
        class RaisingClient(ScriptedClient):
            async def _answer(self, request: Any) -> Any:
                raise ZeroDivisionError("the user's words")

        turn = await take_turn(sqlite_library, QUESTION_EN, client=RaisingClient([]))
        assert (
            turn.end.as_dict()["error"]["message"] == "the model's client failed: ZeroDivisionError"
        )

    @pytest.mark.parametrize("is_known", [True, False])
    async def test_model_without_tools_gets_request_without_tools(
        self, sqlite_library: Library, is_known: bool
    ) -> None:
        script = [say("Lisbon.")] if is_known else [fail("no_tools"), say("Lisbon.")]
        client = ScriptedClient(script, function_calling=not is_known)
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
        assert (turn.final.text, turn.final.degraded) == ("Lisbon.", False)
        assert client.requests[-1].tool_names == ()

    @pytest.mark.concurrent
    async def test_slow_model_times_out(self, sqlite_library: Library) -> None:
        turn = await take_turn(sqlite_library, QUESTION_EN, wait(600, say("x")), seconds=0.1)
        assert "did not answer in 0.1 seconds" in turn.end.as_dict()["error"]["message"]

    @pytest.mark.concurrent
    async def test_closing_the_stream_ends_the_turn(self, sqlite_library: Library) -> None:
        async with aclosing(
            single_chat(sqlite_library, say("one two three")).stream("go")
        ) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    break
        assert [m.content for m in await stored_messages(sqlite_library, LIN)] == ["go"]

    @pytest.mark.concurrent
    async def test_cancelled_turn_raises_cancelled_error(self, sqlite_library: Library) -> None:
        client = ScriptedClient([wait(600, say("x"))])
        turn = asyncio.ensure_future(single_chat(sqlite_library, client=client).answer("go"))
        await wait_until(lambda: client.requests)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert [m.content for m in await stored_messages(sqlite_library, LIN)] == ["go"]

    @pytest.mark.concurrent
    async def test_turns_run_concurrently(self, sqlite_library: Library) -> None:
        client = ScriptedClient([wait(0.05, say("ok"))] * 5)
        chat = single_chat(sqlite_library, client=client)
        ends = await asyncio.gather(*(chat.answer(f"q{n}") for n in range(5)))
        assert [end.text for end in ends] == ["ok"] * 5
        assert len(await stored_messages(sqlite_library, LIN)) == 10


def test_options_have_bounds() -> None:
    cases: list[dict[str, Any]] = [{"recalls": -1}, {"model_calls": 0}, {"seconds": 0}, {"view": 0}]

    def check(fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            ChatOptions(**fields)

    check_each(cases, check)
    for text in ("often", '{"recalls": -1}', '{"often": 1}', '{"recall_seconds": "long"}'):
        with pytest.raises(InvalidArgument):
            ChatOptions.of(Settings(chat=text))
