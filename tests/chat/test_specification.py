"""The five tests and the four acceptance points of the specification of chat turns, by name.

Each in single and in group chat, with forged and real calls together.
"""

import json
from typing import Any

import pytest

from memrecall.chat import GROUP_TOOLS, SINGLE_TOOLS
from memrecall.memory import Library
from memrecall.model import make_client
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, call, say
from tests.cases import check_each_async

from ..model.openai_server import ModelServer, stream
from .stage import (
    ASKED,
    DSML,
    LIN,
    PEANUTS,
    TEAM,
    Played,
    context,
    group,
    play,
    single,
    stored,
    system_text,
)

ALL_FORGED = ["get_other_members_messages", "is_mentioned", "recall_memory"]
ANSWER = "你对花生过敏。"
MARK = "DSML"


async def group_turn(library: Library, client: Any, asked: str = ASKED, **options: Any) -> Played:
    """Ann asks the assistant, who answers."""
    chat = group(library, client=client, **options)
    await chat.post("ann", f"@小助手 {asked}")
    return await play(chat.stream("bot"))


async def single_turn(library: Library, client: Any, asked: str = ASKED, **options: Any) -> Played:
    return await play(single(library, client=client, **options).stream(asked))


TURNS = pytest.mark.parametrize("turn", [single_turn, group_turn], ids=["single", "group"])


class TestSuggestedTests:
    async def test_1_group_chat_leaks_no_tool_call_text(self, library: Library) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say(ANSWER)])
        played = await group_turn(library, client)
        assert played.final.text == ANSWER
        assert played.final.leaks == ()
        assert played.calls(forged=True) == ALL_FORGED
        assert played.calls(forged=False) == ["recall_memory"]

    async def test_2_at_sign_sets_is_mentioned(self, lite: Library) -> None:
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
            chat = group(lite, call("is_mentioned"), say("在。"), language=language)
            await chat.post("ann", text)
            played = await play(chat.stream("bot"))
            (forged,) = played.results("is_mentioned", forged=True)
            (real,) = played.results("is_mentioned", forged=False)
            assert forged.content == real.content == answer

        await check_each_async(cases, check)

    async def test_3_single_chat_leaks_nothing_and_recall_memory_can_be_called(
        self, library: Library
    ) -> None:
        client = ScriptedClient([call("recall_memory", query="花生过敏"), say(ANSWER)])
        played = await single_turn(library, client)
        assert played.final.text == ANSWER
        assert played.final.leaks == ()
        (recalled,) = played.recalled(forged=False)
        events = {event["key"]: event for event in recalled["events"]}
        assert events["lin-0"]["text"] == PEANUTS
        assert set(events["lin-0"]) == {"time", "speaker", "text", "key", "score"}

    @TURNS
    async def test_4_forced_and_own_recalls_respect_the_limit(
        self, library: Library, turn: Any
    ) -> None:
        client = ScriptedClient([*[call("recall_memory", query="过敏")] * 3, say(ANSWER)])
        played = await turn(library, client, recalls=2)
        forced, own, *refused = played.recalled(forged=True) + played.recalled(forged=False)
        assert forced["events"]
        assert own["events"]
        assert [answer["events"] for answer in refused] == [[], []]
        assert all("2" in answer["note"] for answer in refused)
        assert played.final.recalls == 2
        assert played.final.text == ANSWER

    @TURNS
    async def test_5_deepseek_calls_tools_by_structure(
        self, library: Library, server: ModelServer, turn: Any
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
        played = await turn(library, client)
        await client.close()
        assert played.final.text == ANSWER
        assert (played.final.degraded, played.final.leaks) == (False, ())
        names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
        assert names == list(GROUP_TOOLS if turn is group_turn else SINGLE_TOOLS)
        said = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
        assert said[-1]["reasoning_content"] == "先回忆"
        assert all("reasoning_content" in message for message in said)


class TestAcceptance:
    @TURNS
    @pytest.mark.parametrize("before", ["", "我想想。"])
    async def test_answers_contain_no_dsml_text(
        self, library: Library, turn: Any, before: str
    ) -> None:
        client = ScriptedClient([say(before + DSML), say(ANSWER)])
        played = await turn(library, client)
        assert played.final.text.endswith(ANSWER)
        assert not any(MARK in delta for delta in played.deltas)
        scope = TEAM if turn is group_turn else LIN
        assert not any(MARK in message.content for message in await stored(library, scope))
        assert [leak.name for leak in played.final.leaks] == ["recall_memory"]
        assert client.requests[0].tool_names == (
            GROUP_TOOLS if turn is group_turn else SINGLE_TOOLS
        )
        assert client.requests[1].tool_names == ()

    @TURNS
    async def test_tool_events_are_shown(self, library: Library, turn: Any) -> None:
        client = ScriptedClient([call("recall_memory", query="过敏"), say(ANSWER)])
        played = await turn(library, client)
        tools = played.calls(forged=True) + played.calls(forged=False)
        wanted = ALL_FORGED if turn is group_turn else ["recall_memory"]
        assert tools == [*wanted, "recall_memory"]
        assert played.kinds == [*["tool_call", "tool_result"] * len(tools), "text_delta", "final"]

    @TURNS
    @pytest.mark.parametrize(("counted", "left"), [(True, 1), (False, 2)])
    async def test_every_turn_recalls_and_the_limit_is_stated_and_enforced(
        self, library: Library, turn: Any, counted: bool, left: int
    ) -> None:
        client = ScriptedClient([*[call("recall_memory", query="过敏")] * 3, say(ANSWER)])
        played = await turn(library, client, recalls=2, count_forced=counted)
        assert len(played.recalled(forged=True)) == 1
        run = [answer for answer in played.recalled(forged=False) if answer["events"]]
        assert len(run) == left
        assert played.final.recalls == 1 + left
        assert str(left) in system_text(client.requests[0]).splitlines()[-1]

    async def test_single_chat_registers_only_recall_memory(self, library: Library) -> None:
        client = ScriptedClient([call("is_mentioned"), say(ANSWER)])
        played = await single_turn(library, client)
        assert client.requests[0].tool_names == ("recall_memory",)
        (refused,) = played.results("is_mentioned", forged=False)
        assert refused.is_error
        assert "recall_memory" in refused.content
        assert context(client.requests[0]) == [
            *("system", "system", "user", "call:recall_memory", "result:recall_memory")
        ]
