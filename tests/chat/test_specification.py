"""The five tests and four acceptance points of the chat turn specification, by name.

Each in single and in group chat, with forged and real calls together.
"""

import json
from typing import Any

import pytest

from memrecall.memory import Library
from memrecall.model import make_client
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, call, say
from tests.cases import check_each_async

from ..model.openai_server import ModelServer, stream
from .chat_helpers import (
    DSML,
    LIN,
    PEANUTS,
    QUESTION,
    TEAM,
    TurnEvents,
    collect_turn,
    group_chat,
    message_kinds,
    stored_messages,
    system_text,
    take_group_turn,
    take_turn,
)

ALL_FORGED = ["get_other_members_messages", "is_mentioned", "recall_memory"]
SINGLE_TOOLS = ("recall_memory",)
GROUP_TOOLS = ("recall_memory", "get_other_members_messages", "is_mentioned")
ANSWER = "你对花生过敏。"
MARK = "DSML"


async def group_turn(
    library: Library, client: Any, question: str = QUESTION, **options: Any
) -> TurnEvents:
    """Run a turn in which the assistant answers Ann."""
    chat = group_chat(library, client=client, **options)
    await chat.post("ann", f"@小助手 {question}")
    return await collect_turn(chat.stream("bot"))


async def single_turn(
    library: Library, client: Any, question: str = QUESTION, **options: Any
) -> TurnEvents:
    return await take_turn(library, question, client=client, **options)


TURNS = pytest.mark.parametrize("run_turn", [single_turn, group_turn], ids=["single", "group"])


class TestSuggestedTests:
    async def test_1_group_chat_leaks_no_tool_call_text(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say(ANSWER)])
        turn = await group_turn(library, client)
        assert turn.final.text == ANSWER
        assert turn.final.leaks == ()
        assert turn.calls(forged=True) == ALL_FORGED
        assert turn.calls(forged=False) == ["recall_memory"]

    async def test_2_at_sign_sets_is_mentioned(self, sqlite_library: Library) -> None:
        cases: list[tuple[str, str]] = [
            ("@小助手 在吗？", "被提及，需要发言"),
            ("@bot 在吗？", "被提及，需要发言"),
            ("＠助手，在吗？", "被提及，需要发言"),
            ("小波在吗？", "未被提及，可自行判断"),
            ("@helper are you there?", "You are mentioned and must speak."),
            ("Is anybody there?", "You are not mentioned; judge for yourself whether to speak."),
        ]

        async def check(case: tuple[str, str]) -> None:
            text, answer = case
            language = "en" if answer.isascii() else "zh"
            turn = await take_group_turn(
                sqlite_library, "ann", text, call("is_mentioned"), say("在。"), language=language
            )
            (forged,) = turn.results("is_mentioned", forged=True)
            (real,) = turn.results("is_mentioned", forged=False)
            assert forged.content == real.content == answer

        await check_each_async(cases, check)

    async def test_3_single_chat_leaks_nothing_and_recall_memory_can_be_called(
        self, library: Library
    ) -> None:
        client = ScriptedClient([call("recall_memory", query="花生过敏"), say(ANSWER)])
        turn = await single_turn(library, client)
        assert turn.final.text == ANSWER
        assert turn.final.leaks == ()
        (answer,) = turn.recall_answers(forged=False)
        events = {event["key"]: event for event in answer["events"]}
        assert events["lin-0"]["text"] == PEANUTS
        assert set(events["lin-0"]) >= {"time", "speaker", "text", "key", "score"}

    @TURNS
    @pytest.mark.parametrize(("count_forced", "remaining"), [(True, 1), (False, 2)])
    async def test_4_forced_and_own_recalls_respect_the_limit(
        self, library: Library, run_turn: Any, count_forced: bool, remaining: int
    ) -> None:
        client = ScriptedClient([*[call("recall_memory", query="过敏")] * 3, say(ANSWER)])
        turn = await run_turn(library, client, recalls=2, count_forced=count_forced)
        (forced,), own = turn.recall_answers(forged=True), turn.recall_answers(forged=False)
        assert forced["events"]
        assert all(answer["events"] for answer in own[:remaining])
        assert [answer["events"] for answer in own[remaining:]] == [[]] * (3 - remaining)
        assert all("2" in answer["note"] for answer in own[remaining:])
        assert (turn.final.recalls, turn.final.text) == (1 + remaining, ANSWER)
        assert str(remaining) in system_text(client.requests[0]).splitlines()[-1]

    @TURNS
    @pytest.mark.concurrent
    async def test_5_deepseek_calls_tools_by_structure(
        self, library: Library, server: ModelServer, run_turn: Any
    ) -> None:
        arguments = json.dumps({"query": "过敏"}, ensure_ascii=False)
        server.play(
            stream(
                [
                    {"reasoning_content": "先回忆"},
                    {
                        "tool_calls": [
                            {
                                "index": 0,
                                "id": "ds_1",
                                "type": "function",
                                "function": {"name": "recall_memory", "arguments": arguments},
                            }
                        ]
                    },
                ],
                "tool_calls",
            ),
            stream([{"reasoning_content": "有了"}, {"content": "你对"}, {"content": "花生过敏。"}]),
        )
        client = make_client(Settings(model="deepseek-chat", base_url=server.url, api_key="k"))
        assert client is not None
        turn = await run_turn(library, client)
        await client.close()
        assert turn.final.text == ANSWER
        assert (turn.final.degraded, turn.final.leaks) == (False, ())
        names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
        assert names == list(GROUP_TOOLS if run_turn is group_turn else SINGLE_TOOLS)
        answers = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
        assert answers[-1]["reasoning_content"] == "先回忆"
        assert all("reasoning_content" in message for message in answers)


class TestAcceptance:
    @TURNS
    @pytest.mark.parametrize("before", ["", "我想想。"])
    async def test_answers_contain_no_dsml_text(
        self, library: Library, run_turn: Any, before: str
    ) -> None:
        client = ScriptedClient([say(before + DSML), say(ANSWER)])
        turn = await run_turn(library, client)
        assert turn.final.text.endswith(ANSWER)
        assert not any(MARK in delta for delta in turn.deltas)
        scope = TEAM if run_turn is group_turn else LIN
        assert not any(MARK in message.content for message in await stored_messages(library, scope))
        assert [leak.name for leak in turn.final.leaks] == ["recall_memory"]
        assert client.requests[0].tool_names == (
            GROUP_TOOLS if run_turn is group_turn else SINGLE_TOOLS
        )
        assert client.requests[1].tool_names == ()

    @TURNS
    async def test_tool_events_are_shown(self, library: Library, run_turn: Any) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say(ANSWER)])
        turn = await run_turn(library, client)
        tools = turn.calls(forged=True) + turn.calls(forged=False)
        forged = ALL_FORGED if run_turn is group_turn else ["recall_memory"]
        assert tools == [*forged, "recall_memory"]
        assert turn.kinds == [*["tool_call", "tool_result"] * len(tools), "text_delta", "final"]

    async def test_single_chat_registers_only_recall_memory(self, library: Library) -> None:
        client = ScriptedClient([call("is_mentioned"), say(ANSWER)])
        turn = await single_turn(library, client)
        assert client.requests[0].tool_names == ("recall_memory",)
        (refusal,) = turn.results("is_mentioned", forged=False)
        assert refusal.is_error
        assert "recall_memory" in refusal.content
        assert message_kinds(client.requests[0]) == [
            *("system", "system", "user", "call:recall_memory", "result:recall_memory")
        ]
