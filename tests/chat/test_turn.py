"""One turn: order of events, the tool loop, the cap, leaks; nothing forged is ever stored."""

import asyncio
import json
import logging
from typing import Any

import pytest

from memrecall.agent import RecalledMemory
from memrecall.chat import SingleChat
from memrecall.chat.tools import memory_events
from memrecall.errors import InvalidArgument, ModelFailed
from memrecall.memory import Library
from memrecall.testing import (
    ScriptedClient,
    call,
    call_raw,
    calls,
    fail,
    say,
    silence,
    think,
)
from memrecall.types import Role
from tests.cases import check_each_async
from tests.waiting import LIMIT

from .stage import (
    ASKED,
    ASKED_EN,
    DSML,
    LIN,
    LISBON,
    NOW,
    PEANUTS,
    context,
    patient,
    play,
    single,
    stored,
    system_text,
)


class TestAnswer:
    async def test_turn_stores_exactly_two_messages(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say("花生。")])
        played = await play(single(library, client=client).stream(ASKED, message_id="q1"))
        said = await stored(library, LIN)
        assert [(m.role, m.content) for m in said] == [
            (Role.USER, ASKED),
            (Role.ASSISTANT, "花生。"),
        ]
        assert said[0].message_id == "q1"
        assert said[1].message_id == played.final.message_id
        assert said[1].metadata == {"recalled": ["lin-1", "lin-0"]}
        assert (await library.store.count("lin"))["messages"] == 5

    async def test_next_turn_sees_messages_without_forged_calls(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="x"), say("花生。"), say("不客气。")])
        chat = single(library, client=client)
        await chat.answer(ASKED)
        await chat.answer("谢谢")
        assert context(client.requests[2]) == [
            *("system", "system", "user", "assistant", "user"),
            *("call:recall_memory", "result:recall_memory"),
        ]
        assert client.requests[2].messages[0] == client.requests[0].messages[0]

    async def test_visible_messages_are_not_recalled(self, sensible: Library) -> None:
        client = ScriptedClient([say("ok")] * 3)
        chat = single(sensible, client=client)
        await chat.answer("My cat is called Momo.")
        played = await play(chat.stream("What is my cat called?"))
        assert played.recalled(forged=True)[0]["events"] == []
        elsewhere = SingleChat(sensible, LIN.with_session("another"), client, options=patient())
        played = await play(elsewhere.stream("What is my cat called?"))
        texts = [event["text"] for event in played.recalled(forged=True)[0]["events"]]
        assert "My cat is called Momo." in texts

    async def test_truncated_messages_can_be_recalled(self, sensible: Library) -> None:
        chat = single(sensible, *[say("ok")] * 5)
        await chat.answer("The code of my garage door is 4711-QX. " + "We talked of trains. " * 500)
        for _ in range(2):
            await chat.answer("A long story about the weather. " * 500)
        played = await play(chat.stream("What is the code of my garage door?"))
        texts = [event["text"] for event in played.recalled(forged=True)[0]["events"]]
        assert any("4711-QX" in text for text in texts)

    def test_long_memory_is_cut_to_the_relevant_passage(self) -> None:
        story = "We talked about trains and the weather. " * 400
        contents = [f"{story}My code is 4711-QX.", "The code is long.", f"{story}没有别的。"]
        memories = [
            RecalledMemory(
                memory_key=f"m{number}",
                kind="message",
                memory_type="message",
                summary="",
                content=content,
                speaker=None,
                role="user",
                ts=NOW,
                session_id=None,
                relevance_score=0.5,
            )
            for number, content in enumerate(contents)
        ]
        first, short, last = (e["text"] for e in memory_events(memories, "What is my code?"))
        assert first.startswith("…")
        assert first.endswith("My code is 4711-QX.")
        assert short == contents[1]
        assert last.startswith("We talked")  # where nothing fits, the beginning
        assert 5_000 < len(first) + len(last) < 6_100

    async def test_repeated_message_id_gets_the_stored_answer(self, library: Library) -> None:
        client = ScriptedClient([fail("unreachable"), say("花生。")])
        chat = single(library, client=client)
        with pytest.raises(ModelFailed):
            await chat.answer(ASKED, message_id="q1")
        first = await play(chat.stream(ASKED, message_id="q1"))
        again = await play(chat.stream(ASKED, message_id="q1"))
        assert again.kinds == ["text_delta", "final"]
        assert (again.final.text, again.final.message_id) == ("花生。", first.final.message_id)
        assert (again.final.model_calls, again.final.recalls) == (0, 0)
        assert [m.content for m in await stored(library, LIN)] == [ASKED, "花生。"]

    async def test_same_text_without_id_is_another_message(self, lite: Library) -> None:
        chat = single(lite, say("one"), say("two"))
        assert [(await chat.answer("hi")).text for _ in range(2)] == ["one", "two"]

    async def test_context_has_calls_and_results_with_ids(self, lite: Library) -> None:
        both = calls(call("recall_memory", query="a"), call("recall_memory", query="b"))
        client = ScriptedClient([think("两次", both), say("好。")])
        played = await play(single(lite, client=client).stream(ASKED))
        *_, called, given = client.requests[1].messages
        ids = [result.id for result in played.results("recall_memory", forged=False)]
        assert [c.id for c in called.content] == ids  # type: ignore[union-attr]
        assert [r.call_id for r in given.content] == ids  # type: ignore[union-attr]
        assert called.thought == "两次"  # type: ignore[union-attr]
        forged = client.requests[0].messages[-2:]
        assert client.requests[1].messages[-4:-2] == forged
        assert forged[0].content[0].id == forged[1].content[0].call_id  # type: ignore[union-attr]

    async def test_text_is_streamed(self, lite: Library) -> None:
        played = await play(single(lite, say("one two three")).stream("go"))
        assert played.deltas == ["one", " two", " three"]

    async def test_text_beside_calls_is_shown(self, lite: Library) -> None:
        class Chatty(ScriptedClient):
            async def _stream(self, request: Any) -> Any:
                if len(self.requests) == 0:
                    yield "Let me look. "
                async for part in super()._stream(request):
                    yield part

        client = Chatty([call("recall_memory", query="offsite"), say("In Lisbon.")])
        played = await play(single(lite, client=client).stream(ASKED_EN))
        assert played.final.text == "Let me look.\n\nIn Lisbon."
        assert played.kinds[2] == "text_delta"

    async def test_recalls_are_bound_to_the_scope(self, lite: Library) -> None:
        raw = json.dumps({"query": "x", "user_id": "team"})
        played = await play(
            single(lite, call_raw("recall_memory", raw), say("ok")).stream(ASKED_EN)
        )
        (refused,) = played.results("recall_memory", forged=False)
        assert refused.is_error
        assert "'user_id' cannot be given" in refused.content
        assert played.final.recalls == 1

    async def test_invalid_arguments_are_reported_and_not_counted(self, lite: Library) -> None:
        cases: list[str] = ["", "[]", "nonsense", '{"q": 1}', '{"query": ""}', '{"query": " \\n"}']

        async def check(written: str) -> None:
            script = [call_raw("recall_memory", written), say("ok")]
            played = await play(single(lite, *script).stream(ASKED_EN))
            assert played.results("recall_memory", forged=False)[0].is_error
            assert (played.final.recalls, played.final.text) == (1, "ok")

        await check_each_async(cases, check)

    async def test_tool_names_with_template_tokens_are_normalized(self, lite: Library) -> None:
        script = [call("functions.recall_memory", query="offsite"), say("ok")]
        played = await play(single(lite, *script).stream(ASKED_EN))
        assert not played.results("functions.recall_memory", forged=False)[0].is_error

    async def test_empty_message_is_refused(self, lite: Library) -> None:
        with pytest.raises(InvalidArgument, match="empty"):
            await single(lite).answer("  ")
        played = await play(single(lite).stream("  "))
        assert played.end.as_dict()["code"] == "INVALID_ARGUMENT"

    async def test_unstorable_message_is_refused(self, lite: Library) -> None:
        cases: list[dict[str, str]] = [
            {"text": "a\0b"},
            {"text": "ok", "message_id": " x"},
            {"text": "\ud83d"},
        ]

        async def check(given: dict[str, str]) -> None:
            played = await play(single(lite).stream(**given))
            assert played.end.as_dict()["code"] == "INVALID_ARGUMENT"

        await check_each_async(cases, check)

    async def test_unstorable_characters_of_an_answer_are_removed(self, lite: Library) -> None:
        played = await play(single(lite, say("a\0b \ud83dc")).stream("go"))
        assert played.final.text == "ab c"

    async def test_calls_get_unique_ids(self, lite: Library) -> None:
        class Careless(ScriptedClient):
            async def _answer(self, request: Any) -> Any:
                result = await super()._answer(request)
                for made in result.content if isinstance(result.content, list) else ():
                    made.id = "call_0"
                return result

        both = calls(call("recall_memory", query="a"), call("recall_memory", query="b"))
        client = Careless([both, call("recall_memory", query="c"), say("ok")])
        played = await play(single(lite, client=client).stream(ASKED_EN))
        assert len(played.calls(forged=False)) == 3
        called, given = client.requests[2].messages[-4:-2]
        sent = [c.id for c in called.content]  # type: ignore[union-attr]
        assert sent == [r.call_id for r in given.content]  # type: ignore[union-attr]

    async def test_prompt_has_instructions_and_time(self, lite: Library) -> None:
        client = ScriptedClient([say("ok")])
        await lite.store.owners.set_time_zone("lin", "Asia/Shanghai")
        chat = SingleChat(lite, LIN, client, instructions="You are Bo.", clock=lambda: NOW)
        await chat.answer("hello")
        told = system_text(client.requests[0])
        assert "You are Bo." in told
        assert "2026-03-10 20:00+08:00" in told

    async def test_history_is_bounded(self, lite: Library) -> None:
        client = ScriptedClient([say("a" * 3_000)] * 4)
        chat = single(lite, client=client, history=4, history_characters=2_000)
        for _ in range(4):
            await chat.answer("q" * 3_000)
        history = client.requests[3].messages[2:6]
        assert [len(str(m.content)) for m in history] == [501] * 4
        assert len(client.requests[3].messages) == 2 + 4 + 1 + 2


class TestRecallLimit:
    @pytest.mark.parametrize(
        ("cap", "counted", "told", "refused"),
        [
            (0, True, "No further recall", "allows no recall of your own"),
            (1, True, "No further recall", "the one recall of this turn is used up"),
            (1, False, "can run once in this turn", "the one recall of this turn is used up"),
            (2, False, "can run 2 times", "all 2 recalls of this turn are used up"),
        ],
    )
    async def test_recall_limit_is_in_the_prompt(
        self, lite: Library, cap: int, counted: bool, told: str, refused: str
    ) -> None:
        client = ScriptedClient([*[call("recall_memory", query="x")] * 3, say("ok")])
        options = {"recalls": cap, "count_forced": counted}
        played = await play(single(lite, client=client, **options).stream(ASKED_EN))
        assert told in system_text(client.requests[0])
        assert refused in played.recalled(forged=False)[-1]["note"]

    async def test_prompt_says_that_no_recall_is_left(self, lite: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="x"), say("ok")])
        played = await play(single(lite, client=client, recalls=0).stream(ASKED_EN))
        assert "do not call recall_memory" in system_text(client.requests[0])
        assert played.recalled(forged=True)[0]["events"]
        assert played.results("recall_memory", forged=False)[0].is_error
        assert played.final.recalls == 1

    async def test_last_model_call_has_no_tools(self, lite: Library) -> None:
        client = ScriptedClient([*[call("recall_memory", query="x")] * 3, say("Lisbon.")])
        played = await play(single(lite, client=client, model_calls=4).stream(ASKED_EN))
        assert (played.final.text, played.final.degraded) == ("Lisbon.", False)
        last = client.requests[-1]
        assert last.tool_names == ()
        assert not any(kind.startswith(("call", "result")) for kind in context(last))
        assert LISBON in str([m.content for m in last.messages])

    async def test_only_calls_end_degraded(self, lite: Library) -> None:
        script = [call("recall_memory", query="x")] * 3
        played = await play(single(lite, *script, model_calls=3).stream(ASKED_EN))
        assert played.final.degraded
        assert played.final.text == "I have no answer to this."
        assert len(played.calls(forged=False)) == 2  # the one without tools is not run


class TestLog:
    """Names and numbers of every call; what was said only if that is wished."""

    @pytest.mark.parametrize("wished", [False, True])
    async def test_calls_are_logged_when_they_return(
        self, lite: Library, caplog: pytest.LogCaptureFixture, wished: bool
    ) -> None:
        script = [call("recall_memory", query="offsite"), call("secret_tool"), say("ok")]
        with caplog.at_level(logging.INFO, "memrecall.chat.tools"):
            played = await play(single(lite, *script, log_contents=wished).stream(ASKED_EN))
        forged, real, unknown = caplog.messages
        results = played.results("recall_memory", forged=True)
        results += played.results("recall_memory", forged=False)
        for line, result, how in zip((forged, real), results, ("forged", "called"), strict=True):
            assert line.startswith(f"recall_memory ({how}) returned: ")
            events = json.loads(result.content)["events"]
            assert f"results {len(events)}, characters out {len(result.content)}" in line
        assert unknown.startswith("an unknown tool (called) returned")
        assert ", failed" in unknown
        assert (ASKED_EN in forged, "offsite" in real) == (wished, wished)


class TestLeaks:
    async def test_on_leak_is_called_even_if_the_turn_fails(self, lite: Library) -> None:
        told: list[str] = []
        client = ScriptedClient([say(f"Well. {DSML}"), fail("unreachable")])
        played = await play(SingleChat(lite, LIN, client, on_leak=told.append).stream(ASKED))
        assert played.end.kind == "error"
        assert told == ["deepseek_dsml"]

    @pytest.mark.concurrent
    async def test_on_leak_is_called_for_a_closed_stream(self, lite: Library) -> None:
        told: list[str] = []
        heard = asyncio.Event()

        class Endless(ScriptedClient):
            async def _stream(self, request: Any) -> Any:
                yield f"Well. {DSML}"
                heard.set()
                await asyncio.Event().wait()

        turn = asyncio.ensure_future(
            SingleChat(lite, LIN, Endless([]), on_leak=told.append).answer(ASKED)
        )
        await asyncio.wait_for(heard.wait(), LIMIT)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert told == ["deepseek_dsml"]

    async def test_on_leak_is_called_for_the_recall_model(self, lite: Library) -> None:
        told: list[str] = []
        leak = say('<tool_call>{"name": "search_memories", "arguments": {}}</tool_call>')
        chat = SingleChat(
            lite,
            LIN,
            ScriptedClient([say("ok")]),
            recall_client=ScriptedClient([leak, leak]),
            on_leak=told.append,
        )
        end = await chat.answer(ASKED)
        assert told == ["hermes_json"] * 2
        assert (end.text, end.leaks) == ("ok", ())

    async def test_leak_is_retried_once_without_tools(
        self, lite: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = ScriptedClient([say(DSML), say("花生。")])
        with caplog.at_level(logging.ERROR, "memrecall.chat"):
            played = await play(single(lite, client=client).stream(ASKED))
        assert (played.final.text, played.final.degraded) == ("花生。", False)
        assert played.final.leaks[0].family.startswith("deepseek_dsml")
        assert played.calls(forged=False) == []  # never run
        (line,) = caplog.messages
        assert line.startswith("scripted wrote a call of recall_memory as text (deepseek_dsml)")
        assert "过敏" not in line
        again = client.requests[1]
        assert (again.tool_names, context(again)[-1]) == ((), "user")
        assert not any(kind.startswith(("call", "result")) for kind in context(again))
        assert PEANUTS in str([m.content for m in again.messages])

    async def test_two_leaks_keep_the_clean_text(self, lite: Library) -> None:
        client = ScriptedClient([say(f"我想想。{DSML}"), say(f"可能是花生。{DSML}")])
        played = await play(single(lite, client=client).stream(ASKED))
        assert played.final.degraded
        assert played.final.text == "我想想。\n\n可能是花生。"
        assert len(client.requests) == 2
        assert (await stored(lite, LIN))[-1].metadata["degraded"] is True

    async def test_two_leaks_without_text_say_no_answer(self, lite: Library) -> None:
        played = await play(single(lite, say(DSML), say(DSML)).stream(ASKED))
        assert played.final.degraded
        assert played.final.text == "这个问题我答不上来。"
        assert len(played.final.leaks) == 2

    async def test_empty_answer_is_retried(self, lite: Library) -> None:
        played = await play(single(lite, silence(), say("ok")).stream("hi"))
        assert (played.final.text, played.final.degraded) == ("ok", False)

    async def test_reasoning_written_as_text_is_hidden(self, lite: Library) -> None:
        script = say("<think>the user wants\n\nLisbon</think>\n\nIn Lisbon.\n")
        played = await play(single(lite, script).stream(ASKED_EN))
        assert played.final.text == "In Lisbon."

    async def test_prose_about_tags_is_shown(self, lite: Library) -> None:
        text = "DeepSeek writes `<｜DSML｜function_calls>` there."
        played = await play(single(lite, say(text)).stream("What is DSML?"))
        assert (played.final.text, played.final.leaks) == (text, ())

    async def test_real_call_beside_a_leak_runs(self, lite: Library) -> None:
        class Both(ScriptedClient):
            async def _stream(self, request: Any) -> Any:
                if len(self.requests) == 0:
                    yield DSML
                async for part in super()._stream(request):
                    yield part

        client = Both([call("recall_memory", query="过敏"), say("花生。")])
        played = await play(single(lite, client=client).stream(ASKED))
        assert (played.final.text, len(played.final.leaks)) == ("花生。", 1)
        assert played.calls(forged=False) == ["recall_memory"]

    async def test_leak_in_a_memory_is_data(self, lite: Library) -> None:
        await single(lite, say("ok")).answer(f"My note: {DSML}")
        client = ScriptedClient([say("It is about 过敏.")])
        played = await play(single(lite, client=client).stream("What was my note about?"))
        assert (played.final.text, played.final.leaks) == ("It is about 过敏.", ())
