"""One turn: order of events, the tool loop, the cap, leaks; forged calls are not stored."""

import asyncio
import json
import logging
from typing import Any

import pytest

from memrecall.agent import result as agent_result
from memrecall.chat import SingleChat
from memrecall.chat.turn import memory_events
from memrecall.errors import InvalidArgument, ModelFailed
from memrecall.memory import Library
from memrecall.testing import ScriptedClient, Step, call, call_raw, calls, fail, say, silence
from memrecall.types import Language, Role
from tests.cases import check_each_async
from tests.waiting import LIMIT

from ..agent.recall_helpers import recalled_memory
from .chat_helpers import (
    DSML,
    LIN,
    LISBON,
    NOW,
    PEANUTS,
    QUESTION,
    QUESTION_EN,
    collect_turn,
    make_options,
    message_kinds,
    single_chat,
    stored_messages,
    system_text,
    take_turn,
)


class TextBesideCalls(ScriptedClient):
    """A model that writes a text before its first step."""

    def __init__(self, text: str, script: list[Step]) -> None:
        super().__init__(script)
        self._text = text

    async def _stream(self, request: Any) -> Any:
        if len(self.requests) == 0:
            yield self._text
        async for part in super()._stream(request):
            yield part


class EveryStepSays(ScriptedClient):
    """A model that writes the same text before every step."""

    def __init__(self, text: str, script: list[Step]) -> None:
        super().__init__(script)
        self._text = text

    async def _stream(self, request: Any) -> Any:
        yield self._text
        async for part in super()._stream(request):
            yield part


class TestAnswer:
    async def test_turn_stores_exactly_two_messages(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say("花生。")])
        turn = await collect_turn(
            single_chat(library, client=client).stream(QUESTION, message_id="q1")
        )
        messages = await stored_messages(library, LIN)
        assert [(m.role, m.content) for m in messages] == [
            (Role.USER, QUESTION),
            (Role.ASSISTANT, "花生。"),
        ]
        assert messages[0].message_id == "q1"
        assert messages[1].message_id == turn.final.message_id
        assert messages[1].metadata == {"recalled": ["lin-0", "lin-1"]}  # best first
        assert (await library.store.count("lin"))["messages"] == 5

    async def test_next_turn_sees_messages_without_forged_calls(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="x"), say("花生。"), say("不客气。")])
        chat = single_chat(library, client=client)
        await chat.answer(QUESTION)
        await chat.answer("谢谢")
        assert message_kinds(client.requests[2]) == [
            *("system", "system", "user", "assistant", "user"),
            *("call:recall_memory", "result:recall_memory"),
        ]
        assert client.requests[2].messages[0] == client.requests[0].messages[0]

    async def test_visible_messages_are_not_recalled(self, semantic_library: Library) -> None:
        client = ScriptedClient([say("ok")] * 3)
        chat = single_chat(semantic_library, client=client)
        await chat.answer("My cat is called Momo.")
        turn = await collect_turn(chat.stream("What is my cat called?"))
        events = turn.recall_answers(forged=True)[0]["events"]
        assert "My cat is called Momo." not in [event["text"] for event in events]
        assert {event["certainty"] for event in events} <= {"possibly"}
        other_chat = SingleChat(
            semantic_library, LIN.with_session("another"), client, options=make_options()
        )
        turn = await collect_turn(other_chat.stream("What is my cat called?"))
        texts = [event["text"] for event in turn.recall_answers(forged=True)[0]["events"]]
        assert "My cat is called Momo." in texts

    async def test_truncated_messages_can_be_recalled(self, semantic_library: Library) -> None:
        chat = single_chat(semantic_library, *[say("ok")] * 5)
        await chat.answer("The code of my garage door is 4711-QX. " + "We talked of trains. " * 500)
        for _ in range(2):
            await chat.answer("A long story about the weather. " * 500)
        turn = await collect_turn(chat.stream("What is the code of my garage door?"))
        texts = [event["text"] for event in turn.recall_answers(forged=True)[0]["events"]]
        assert any("4711-QX" in text for text in texts)

    def test_long_memory_is_cut_to_the_relevant_passage(self) -> None:
        filler = "We talked about trains and the weather. " * 400
        contents = [f"{filler}My code is 4711-QX.", "The code is long.", f"{filler}没有别的。"]
        memories = [recalled_memory(number, text) for number, text in enumerate(contents)]
        events = memory_events(memories, "What is my code?", "en")
        first, short, last = (event["text"] for event in events)
        assert first.startswith("…")
        assert first.endswith("My code is 4711-QX.")
        assert short == contents[1]
        assert last.startswith("We talked")  # without a match, the beginning
        assert 5_000 < len(first) + len(last) < 6_100

    async def test_model_reads_what_is_only_possible(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def check(case: tuple[float, Language, str | None]) -> None:
            bar, language, label = case
            monkeypatch.setattr(agent_result, "_SURE", bar)
            chat = single_chat(library, say("花生。"), language=language)
            turn = await collect_turn(chat.stream(QUESTION))
            (answer,) = turn.recall_answers(forged=True)
            assert answer["certainty"] == ("possible" if label else "sure")
            assert answer["events"][0].get("certainty") == label

        cases: list[tuple[float, Language, str | None]] = [
            (0.1, "en", None),
            (1.0, "en", "possibly"),
            (1.0, "zh", "可能"),
        ]
        await check_each_async(cases, check)

    async def test_repeated_message_id_gets_the_stored_answer(self, library: Library) -> None:
        client = ScriptedClient([fail("unreachable"), say("花生。")])
        chat = single_chat(library, client=client)
        with pytest.raises(ModelFailed):
            await chat.answer(QUESTION, message_id="q1")
        first = await collect_turn(chat.stream(QUESTION, message_id="q1"))
        repeated = await collect_turn(chat.stream(QUESTION, message_id="q1"))
        assert repeated.kinds == ["text_delta", "final"]
        assert (repeated.final.text, repeated.final.message_id) == (
            "花生。",
            first.final.message_id,
        )
        assert (repeated.final.model_calls, repeated.final.recalls) == (0, 0)
        assert [m.content for m in await stored_messages(library, LIN)] == [QUESTION, "花生。"]

    async def test_same_text_without_id_is_another_message(self, sqlite_library: Library) -> None:
        chat = single_chat(sqlite_library, say("one"), say("two"))
        assert [(await chat.answer("hi")).text for _ in range(2)] == ["one", "two"]

    async def test_text_beside_calls_is_shown(self, sqlite_library: Library) -> None:
        script = [call("recall_memory", query="offsite"), say("In Lisbon.")]
        client = TextBesideCalls("Let me look. ", script)
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
        assert turn.final.text == "Let me look.\n\nIn Lisbon."
        assert turn.kinds[2] == "text_delta"

    async def test_recalls_are_bound_to_the_scope(self, sqlite_library: Library) -> None:
        raw = json.dumps({"query": "x", "user_id": "team"})
        turn = await take_turn(
            sqlite_library, QUESTION_EN, call_raw("recall_memory", raw), say("ok")
        )
        (refusal,) = turn.results("recall_memory", forged=False)
        assert refusal.is_error
        assert "'user_id' cannot be given" in refusal.content
        assert turn.final.recalls == 1

    async def test_invalid_arguments_are_reported_and_not_counted(
        self, sqlite_library: Library
    ) -> None:
        cases: list[str] = ["", "[]", "nonsense", '{"q": 1}', '{"query": ""}', '{"query": " \\n"}']

        async def check(arguments: str) -> None:
            script = [call_raw("recall_memory", arguments), say("ok")]
            turn = await take_turn(sqlite_library, QUESTION_EN, *script)
            assert turn.results("recall_memory", forged=False)[0].is_error
            assert (turn.final.recalls, turn.final.text) == (1, "ok")

        await check_each_async(cases, check)

    async def test_tool_names_with_template_tokens_are_normalized(
        self, sqlite_library: Library
    ) -> None:
        script = [call("functions.recall_memory", query="offsite"), say("ok")]
        turn = await take_turn(sqlite_library, QUESTION_EN, *script)
        assert not turn.results("functions.recall_memory", forged=False)[0].is_error

    async def test_empty_or_unstorable_message_is_refused(self, sqlite_library: Library) -> None:
        with pytest.raises(InvalidArgument, match="empty"):
            await single_chat(sqlite_library).answer("  ")
        cases = (
            {"text": "  "},
            {"text": "a\0b"},
            {"text": "ok", "message_id": " x"},
            {"text": "\ud83d"},
        )

        async def check(fields: dict[str, str]) -> None:
            turn = await collect_turn(single_chat(sqlite_library).stream(**fields))
            assert turn.end.as_dict()["error"]["code"] == "INVALID_ARGUMENT"

        await check_each_async(cases, check)

    async def test_unstorable_characters_of_an_answer_are_removed(
        self, sqlite_library: Library
    ) -> None:
        turn = await take_turn(sqlite_library, "go", say("a\0b \ud83dc"))
        assert turn.final.text == "ab c"

    async def test_calls_get_unique_ids(self, sqlite_library: Library) -> None:
        class SameIdClient(ScriptedClient):
            async def _answer(self, request: Any) -> Any:
                result = await super()._answer(request)
                for tool_call in result.content if isinstance(result.content, list) else ():
                    tool_call.id = "call_0"
                return result

        two_calls = calls(call("recall_memory", query="a"), call("recall_memory", query="b"))
        client = SameIdClient([two_calls, call("recall_memory", query="c"), say("ok")])
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
        assert len(turn.calls(forged=False)) == 3
        call_message, result_message = client.requests[2].messages[-4:-2]
        call_ids = [c.id for c in call_message.content]  # type: ignore[union-attr]
        assert call_ids == [r.call_id for r in result_message.content]  # type: ignore[union-attr]

    async def test_prompt_has_instructions_and_time(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say("ok")])
        await sqlite_library.store.owners.set_time_zone("lin", "Asia/Shanghai")
        chat = SingleChat(
            sqlite_library, LIN, client, instructions="You are Bo.", clock=lambda: NOW
        )
        await chat.answer("hello")
        prompt = system_text(client.requests[0])
        assert "You are Bo." in prompt
        assert "2026-03-10 20:00+08:00" in prompt

    async def test_history_is_bounded(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say("a" * 3_000)] * 4)
        chat = single_chat(sqlite_library, client=client, history=4, history_characters=2_000)
        for _ in range(4):
            await chat.answer("q" * 3_000)
        history = client.requests[3].messages[2:6]
        assert [len(str(m.content)) for m in history] == [501] * 4
        assert len(client.requests[3].messages) == 2 + 4 + 1 + 2


class TestRecallLimit:
    @pytest.mark.parametrize(
        ("cap", "count_forced", "prompt_text"),
        [
            (0, True, "No recalls are left"),
            (1, True, "No recalls are left"),
            (1, False, "Recalls left in this turn: 1."),
            (3, True, "Recalls left in this turn: 2."),
        ],
    )
    async def test_recall_limit_is_in_the_prompt(
        self, sqlite_library: Library, cap: int, count_forced: bool, prompt_text: str
    ) -> None:
        client = ScriptedClient([*[call("recall_memory", query="x")] * 3, say("ok")])
        options = {"recalls": cap, "count_forced": count_forced}
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client, **options)
        assert prompt_text in system_text(client.requests[0])
        note = turn.recall_answers(forged=False)[-1]["note"]
        assert f"no recall is left in this turn (at most {cap})" in note

    async def test_last_model_call_has_no_tools(self, sqlite_library: Library) -> None:
        client = ScriptedClient([*[call("recall_memory", query="x")] * 3, say("Lisbon.")])
        turn = await take_turn(sqlite_library, QUESTION_EN, client=client, model_calls=4)
        assert (turn.final.text, turn.final.degraded) == ("Lisbon.", False)
        last = client.requests[-1]
        assert last.tool_names == ()
        assert not any(kind.startswith(("call", "result")) for kind in message_kinds(last))
        assert LISBON in str([m.content for m in last.messages])

    async def test_only_calls_end_degraded(self, sqlite_library: Library) -> None:
        script = [call("recall_memory", query="x")] * 3
        turn = await take_turn(sqlite_library, QUESTION_EN, *script, model_calls=3)
        assert turn.final.degraded
        assert turn.final.text == "I have no answer to this."
        assert len(turn.calls(forged=False)) == 2  # a call in the answer without tools is not run

    async def test_sentence_before_every_call_is_said_once(self, sqlite_library: Library) -> None:
        def said_with_calls(text: str, last: list[Step]) -> ScriptedClient:
            return EveryStepSays(text, [*[call("recall_memory", query="x")] * 7, *last])

        for last in ([call("recall_memory", query="x")], [silence()]):
            client = said_with_calls("Let me check.", last)
            turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
            assert (turn.final.text, turn.final.degraded) == ("Let me check.", True)
            assert turn.final.model_calls == 8

    async def test_answer_before_a_call_is_not_said_again(self, sqlite_library: Library) -> None:
        for text, answer, shown in (
            ("Lisbon.", "", "Lisbon."),
            ("I see.", " You mean Lisbon.", "I see.\n\nYou mean Lisbon."),
        ):
            client = EveryStepSays(text, [call("recall_memory", query="x"), say(answer)])
            turn = await take_turn(sqlite_library, QUESTION_EN, client=client)
            assert (turn.final.text, turn.final.degraded) == (shown, False)
            assert turn.final.model_calls == 2


class TestLog:
    """Every call is logged by name and size, its contents only on request."""

    @pytest.mark.parametrize("log_contents", [False, True])
    async def test_calls_are_logged_when_they_return(
        self, sqlite_library: Library, caplog: pytest.LogCaptureFixture, log_contents: bool
    ) -> None:
        script = [call("recall_memory", query="offsite"), call("secret_tool"), say("ok")]
        with caplog.at_level(logging.INFO, "memrecall.chat.turn"):
            turn = await take_turn(sqlite_library, QUESTION_EN, *script, log_contents=log_contents)
        forged, real, unknown = caplog.messages
        results = turn.results("recall_memory", forged=True)
        results += turn.results("recall_memory", forged=False)
        for line, result, origin in zip((forged, real), results, ("forged", "called"), strict=True):
            assert line.startswith(f"recall_memory ({origin}) returned: ")
            events = json.loads(result.content)["events"]
            assert f"results {len(events)}, characters out {len(result.content)}" in line
        assert unknown.startswith("an unknown tool (called) returned")
        assert ", failed" in unknown
        assert (QUESTION_EN in forged, "offsite" in real) == (log_contents, log_contents)


class TestLeaks:
    async def test_on_leak_is_called_even_if_the_turn_fails(self, sqlite_library: Library) -> None:
        leaks: list[str] = []
        client = ScriptedClient([say(f"Well. {DSML}"), fail("unreachable")])
        turn = await collect_turn(
            SingleChat(sqlite_library, LIN, client, on_leak=leaks.append).stream(QUESTION)
        )
        assert turn.end.kind == "error"
        assert leaks == ["deepseek_dsml"]

    @pytest.mark.concurrent
    async def test_on_leak_is_called_for_a_closed_stream(self, sqlite_library: Library) -> None:
        leaks: list[str] = []
        streamed = asyncio.Event()

        class EndlessClient(ScriptedClient):
            async def _stream(self, request: Any) -> Any:
                yield f"Well. {DSML}"
                streamed.set()
                await asyncio.Event().wait()

        turn = asyncio.ensure_future(
            SingleChat(sqlite_library, LIN, EndlessClient([]), on_leak=leaks.append).answer(
                QUESTION
            )
        )
        await asyncio.wait_for(streamed.wait(), LIMIT)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert leaks == ["deepseek_dsml"]

    async def test_on_leak_is_called_for_the_recall_model(self, sqlite_library: Library) -> None:
        leaks: list[str] = []
        leak = say('<tool_call>{"name": "search_memories", "arguments": {}}</tool_call>')
        chat = SingleChat(
            sqlite_library,
            LIN,
            ScriptedClient([say("ok")]),
            recall_client=ScriptedClient([leak, leak]),
            on_leak=leaks.append,
        )
        end = await chat.answer(QUESTION)
        assert leaks == ["hermes_json"] * 2
        assert (end.text, end.leaks) == ("ok", ())

    async def test_leak_is_retried_once_without_tools(
        self, sqlite_library: Library, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = ScriptedClient([say(DSML), say("花生。")])
        with caplog.at_level(logging.ERROR, "memrecall.chat"):
            turn = await take_turn(sqlite_library, QUESTION, client=client)
        assert (turn.final.text, turn.final.degraded) == ("花生。", False)
        assert turn.final.leaks[0].family.startswith("deepseek_dsml")
        assert turn.calls(forged=False) == []  # never run
        (line,) = caplog.messages
        assert line.startswith("scripted wrote a call of recall_memory as text (deepseek_dsml)")
        assert "过敏" not in line
        retry = client.requests[1]
        assert (retry.tool_names, message_kinds(retry)[-1]) == ((), "user")
        assert not any(kind.startswith(("call", "result")) for kind in message_kinds(retry))
        assert PEANUTS in str([m.content for m in retry.messages])

    async def test_two_leaks_keep_the_clean_text(self, sqlite_library: Library) -> None:
        client = ScriptedClient([say(f"我想想。{DSML}"), say(f"可能是花生。{DSML}")])
        turn = await take_turn(sqlite_library, QUESTION, client=client)
        assert turn.final.degraded
        assert turn.final.text == "我想想。\n\n可能是花生。"
        assert len(client.requests) == 2
        assert (await stored_messages(sqlite_library, LIN))[-1].metadata["degraded"] is True

    async def test_preamble_before_two_leaks_is_said_once(self, sqlite_library: Library) -> None:
        for first, second, text in (
            ("我查一下。", f"我查一下。{DSML}", "我查一下。"),
            ("Let me check.", f"Let me {DSML}", "Let me check."),
            ("我查一下。", "我查一下。是花生。", "我查一下。\n\n是花生。"),
            ("I see", "I seem to recall peanuts.", "I see\n\nI seem to recall peanuts."),
            ("Yes. I will check.", "Yes.", "Yes. I will check.\n\nYes."),
        ):
            chat = single_chat(sqlite_library, say(f"{first}{DSML}"), say(second))
            assert (await collect_turn(chat.stream(QUESTION))).final.text == text

    async def test_two_leaks_without_text_say_no_answer(self, sqlite_library: Library) -> None:
        turn = await take_turn(sqlite_library, QUESTION, say(DSML), say(DSML))
        assert turn.final.degraded
        assert turn.final.text == "这个问题我答不上来。"
        assert len(turn.final.leaks) == 2

    async def test_empty_answer_is_retried(self, sqlite_library: Library) -> None:
        turn = await take_turn(sqlite_library, "hi", silence(), say("ok"))
        assert (turn.final.text, turn.final.degraded) == ("ok", False)

    async def test_prose_about_tags_is_shown(self, sqlite_library: Library) -> None:
        text = "DeepSeek writes `<｜DSML｜function_calls>` there."
        chat = single_chat(sqlite_library, say(text), leak_mode="lenient")
        turn = await collect_turn(chat.stream("What is DSML?"))
        assert (turn.final.text, turn.final.leaks) == (text, ())

    async def test_calls_in_markdown_code_are_hidden_by_default(
        self, sqlite_library: Library
    ) -> None:
        async def check(leak: str) -> None:
            chat = single_chat(sqlite_library, say(leak), say("花生。"))
            turn = await collect_turn(chat.stream(QUESTION))
            assert (turn.final.text, len(turn.final.leaks)) == ("花生。", 1)

        fences = ("```xml\n{}\n```", "~~~\n{}\n~~~", "    {}")
        for fence in fences:
            await check(fence.format(DSML))
        await check("```tool_code\nprint(recall_memory(query='过敏'))\n```")

    async def test_real_call_beside_a_leak_runs(self, sqlite_library: Library) -> None:
        client = TextBesideCalls(DSML, [call("recall_memory", query="过敏"), say("花生。")])
        turn = await take_turn(sqlite_library, QUESTION, client=client)
        assert (turn.final.text, len(turn.final.leaks)) == ("花生。", 1)
        assert turn.calls(forged=False) == ["recall_memory"]

    async def test_leak_in_a_memory_is_data(self, sqlite_library: Library) -> None:
        await single_chat(sqlite_library, say("ok")).answer(f"My note: {DSML}")
        client = ScriptedClient([say("It is about 过敏.")])
        turn = await take_turn(sqlite_library, "What was my note about?", client=client)
        assert (turn.final.text, turn.final.leaks) == ("It is about 过敏.", ())


class TestReasoning:
    """A model whose prompt opens its reasoning, so that its text only ends it."""

    ANSWER = "I must not reveal the plan.</think>Hello!"

    async def test_reasoning_without_a_beginning_is_retracted(self, library: Library) -> None:
        chat = single_chat(library, say(self.ANSWER), say("Nothing.</think>Nothing."))
        turn = await collect_turn(chat.stream("hi"))
        assert turn.kinds[-4:] == ["text_delta", "text_retracted", "text_delta", "final"]
        assert (turn.final.text, turn.final.degraded, turn.final.model_calls) == (
            "Hello!",
            False,
            1,
        )
        assert (await stored_messages(library, LIN))[-1].content == "Hello!"
        recall = (await collect_turn(chat.stream("Must you reveal the plan?"))).recall_answers(
            forged=True
        )
        assert "I must not" not in json.dumps(recall)

    async def test_model_that_ended_reasoning_is_hidden_until_it_ends(
        self, sqlite_library: Library
    ) -> None:
        client = ScriptedClient([say(self.ANSWER)] * 2)
        chat = single_chat(sqlite_library, client=client)
        await chat.answer("hi")
        turn = await collect_turn(chat.stream("hi again"))
        assert "text_retracted" not in turn.kinds
        assert (turn.final.text, "".join(turn.deltas)) == ("Hello!", "Hello!")
        other = single_chat(sqlite_library, say("No reasoning."))
        assert (await other.answer("hi")).text == "No reasoning."

    async def test_answer_without_an_end_is_asked_for_again(self, sqlite_library: Library) -> None:
        client = ScriptedClient(
            [say(self.ANSWER), say("The plan, then"), say("Plain."), say("Ok.")]
        )
        chat = single_chat(sqlite_library, client=client)
        await chat.answer("hi")
        turn = await collect_turn(chat.stream("hi again"))
        assert (turn.final.text, turn.final.model_calls) == ("Plain.", 2)
        assert (await chat.answer("and again")).model_calls == 1

    async def test_text_of_earlier_model_calls_is_kept(self, sqlite_library: Library) -> None:
        chat = single_chat(sqlite_library, say(f"Well. {DSML}"), say(self.ANSWER))
        assert (await collect_turn(chat.stream("hi"))).final.text == "Well.\n\nHello!"

    async def test_reasoning_setting(self, sqlite_library: Library) -> None:
        cases: dict[Any, str] = {
            "auto": "Hello!",
            "open": "Hello!",
            "strip": "I must not reveal the plan.Hello!",
            "keep": self.ANSWER,
        }
        for reasoning, expected in cases.items():
            chat = single_chat(sqlite_library, say(self.ANSWER), reasoning=reasoning)
            assert (await chat.answer("hi")).text == expected, reasoning
        with pytest.raises(InvalidArgument, match="reasoning 'never' is unknown"):
            single_chat(sqlite_library, reasoning="never")
