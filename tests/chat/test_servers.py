"""Turns through a real HTTP server on loopback: our client and AutoGen's own, as DeepSeek behaves.

Calls written as text, reasoning beside or inside the answer, calls at the cap: the recipe of
docs/chat.md, played.
"""

import json
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from memrecall.chat import SINGLE_TOOLS, SingleChat
from memrecall.memory import Library
from memrecall.model import load_prompt, make_client
from memrecall.settings import Settings

from ..model.openai_server import ModelServer, Reply, refusal, stream, text
from .stage import ASKED, DSML, LIN, NOW, Played, group, patient, play, stored

pytestmark = pytest.mark.concurrent

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=False,
    multiple_system_messages=False,
)
ANSWER = "你对花生过敏。"


def ours(server: ModelServer) -> ChatCompletionClient:
    client = make_client(Settings(model="deepseek-chat", base_url=server.url, api_key="k"))
    assert client is not None
    return client


def autogens(server: ModelServer) -> ChatCompletionClient:
    return OpenAIChatCompletionClient(
        model="tiny",
        base_url=server.url,
        api_key="k",
        model_info=INFO,
        extra_body={"thinking": {"type": "disabled"}},  # type: ignore[call-arg]  # it takes it
    )


CLIENTS = pytest.mark.parametrize("make", [ours, autogens], ids=["ours", "autogen"])


def pieces(words: str, size: int = 3, **first: Any) -> Reply:
    """An answer in words, some characters at a time."""
    deltas = [{"content": words[at : at + size]} for at in range(0, len(words), size)]
    return stream([*([first] if first else []), *deltas])


def calling(query: str, number: int, **first: Any) -> Reply:
    """A structured call whose arguments come in two pieces."""
    written = json.dumps({"query": query}, ensure_ascii=False)
    head = {"index": 0, "id": f"srv_{number}", "type": "function"}
    deltas = [
        {"tool_calls": [{**head, "function": {"name": "recall_memory", "arguments": written[:5]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": written[5:]}}]},
    ]
    return stream([*([first] if first else []), *deltas], "tool_calls")


async def ask(library: Library, client: ChatCompletionClient, **options: Any) -> Played:
    chat = SingleChat(library, LIN, client, options=patient(**options), clock=lambda: NOW)
    try:
        return await play(chat.stream(ASKED))
    finally:
        await client.close()


@CLIENTS
async def test_forged_and_real_calls_over_the_wire(
    lite: Library, server: ModelServer, make: Any
) -> None:
    server.play(calling("花生", 1), pieces(ANSWER))
    played = await ask(lite, make(server))
    assert (played.final.text, played.final.degraded) == (ANSWER, False)
    assert len(played.deltas) > 1
    first, second = server.requests
    assert [m["role"] for m in first["messages"]] == ["system", "user", "assistant", "tool"]
    assert first["messages"][0]["content"].startswith(load_prompt("chat_single", "zh"))
    (forged,) = first["messages"][2]["tool_calls"]
    assert forged["type"] == "function"
    assert forged["function"]["name"] == "recall_memory"
    assert json.loads(forged["function"]["arguments"]) == {"query": ASKED}
    assert first["messages"][3]["tool_call_id"] == forged["id"]
    assert json.loads(first["messages"][3]["content"])["events"]
    assert [tool["function"]["name"] for tool in first["tools"]] == list(SINGLE_TOOLS)
    assert second["messages"][:4] == first["messages"]
    assert second["messages"][4]["tool_calls"][0]["id"] == "srv_1"
    assert second["messages"][5]["tool_call_id"] == "srv_1"
    assert first["stream"] is True
    if make is autogens:
        assert [body["thinking"] for body in (first, second)] == [{"type": "disabled"}] * 2


@CLIENTS
@pytest.mark.parametrize("size", [1, 4, 200])
async def test_leaked_calls_are_hidden_and_retried_without_tools(
    lite: Library, server: ModelServer, make: Any, size: int
) -> None:
    server.play(pieces(f"我看看。\n\n{DSML}", size), pieces(ANSWER))
    played = await ask(lite, make(server))
    assert (played.final.text, played.final.degraded) == (f"我看看。\n\n{ANSWER}", False)
    assert [leak.name for leak in played.final.leaks] == ["recall_memory"]
    again = server.requests[1]
    assert "tools" not in again
    assert {m["role"] for m in again["messages"]} == {"system", "user", "assistant"}
    assert not any("tool_calls" in m for m in again["messages"])
    assert not any("DSML" in m.content for m in await stored(lite, LIN))


@CLIENTS
async def test_two_leaked_calls_end_degraded(lite: Library, server: ModelServer, make: Any) -> None:
    server.play(pieces(DSML), pieces(DSML))
    played = await ask(lite, make(server))
    assert played.final.degraded
    assert played.final.text == "这个问题我答不上来。"


@CLIENTS
async def test_calls_beyond_the_cap_are_refused(
    lite: Library, server: ModelServer, make: Any
) -> None:
    server.play(*(calling("花生", number) for number in range(1, 4)), pieces(ANSWER))
    played = await ask(lite, make(server), recalls=2, model_calls=4)
    assert [r.is_error for r in played.results("recall_memory", forged=False)] == [
        *(False, True, True)
    ]
    assert (played.final.text, played.final.recalls) == (ANSWER, 2)
    refused = server.requests[2]["messages"][-1]["content"]
    assert json.loads(refused)["events"] == []
    assert "tools" not in server.requests[3]


async def test_reasoning_is_sent_back_and_not_shown(lite: Library, server: ModelServer) -> None:
    server.play(
        calling("花生", 1, reasoning_content="先找过敏"),
        pieces(ANSWER, reasoning_content="找到了：<｜DSML｜"),
    )
    played = await ask(lite, ours(server))
    assert (played.final.text, played.final.leaks) == (ANSWER, ())
    forged, real = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
    # In thinking mode a call without the field is answered with status 400.
    assert forged["reasoning_content"] == ""
    assert real["reasoning_content"] == "先找过敏"


@CLIENTS
async def test_reasoning_inside_the_answer_is_stripped(
    lite: Library, server: ModelServer, make: Any
) -> None:
    server.play(pieces(f"<think>用户问\n\n过敏</think>\n\n{ANSWER}"))
    played = await ask(lite, make(server))
    assert played.final.text == ANSWER


async def test_reasoning_text_of_autogen_client_is_stripped(
    lite: Library, server: ModelServer
) -> None:
    server.play(pieces(ANSWER, reasoning_content="先想想"))
    played = await ask(lite, autogens(server))
    assert played.final.text == ANSWER


async def test_earlier_answers_have_the_reasoning_field(lite: Library, server: ModelServer) -> None:
    server.play(pieces("你好。"), pieces(ANSWER))
    client = ours(server)
    chat = SingleChat(lite, LIN, client, options=patient(), clock=lambda: NOW)
    await chat.answer("你好")
    await chat.answer(ASKED)
    await client.close()
    said = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
    assert [m["reasoning_content"] for m in said] == ["", ""]


@CLIENTS
async def test_request_without_tools_if_server_refuses_tools(
    lite: Library, server: ModelServer, make: Any
) -> None:
    server.play(refusal(400, "this model does not support tools"), pieces(ANSWER))
    played = await ask(lite, make(server))
    assert (played.final.text, played.final.degraded) == (ANSWER, False)
    assert "tools" not in server.requests[1]


@pytest.mark.parametrize("finish", [None, "insufficient_system_resource"])
async def test_interrupted_answer_is_an_error(
    lite: Library, server: ModelServer, finish: str | None
) -> None:
    """The connection ends in good order, but nothing said that the answer was complete."""
    whole = pieces(ANSWER)
    said = [json.loads(chunk) for chunk in whole.chunks[:-3]]
    if finish:
        said[-1]["choices"][0]["finish_reason"] = finish
    server.play(Reply(chunks=tuple(json.dumps(chunk) for chunk in said)))
    played = await ask(lite, ours(server))
    assert played.end.as_dict()["code"] == "UNAVAILABLE"
    assert "interrupted its answer" in played.end.as_dict()["message"]
    assert [m.content for m in await stored(lite, LIN)] == [ASKED]


async def test_usage_without_finish_reason_is_finished(lite: Library, server: ModelServer) -> None:
    *said, finish, usage, done = pieces(ANSWER).chunks
    server.play(Reply(chunks=(*said, usage, done)))
    played = await ask(lite, ours(server))
    assert (played.final.text, played.final.degraded) == (ANSWER, False)
    assert "finish_reason" in finish


async def test_tool_calls_by_json_schema(lite: Library, server: ModelServer) -> None:
    called = {"tool": "recall_memory", "arguments": {"query": "花生"}}
    server.play(text(json.dumps(called)), text(json.dumps({"answer": ANSWER})))
    client = make_client(Settings(model="tiny", base_url=server.url, tool_calls="json"))
    assert client is not None
    played = await ask(lite, client)
    assert played.calls(forged=False) == ["recall_memory"]
    assert played.final.text == ANSWER


@CLIENTS
async def test_group_turn_over_the_wire(lite: Library, server: ModelServer, make: Any) -> None:
    server.play(pieces("[pass]"), pieces(f"{ANSWER}{DSML}"), pieces("就是花生。"))
    client = make(server)
    chat = group(lite, client=client)
    await chat.post("bo", "我先走了")
    assert (await chat.answer("bot")).silent
    await chat.post("ann", f"@小助手 {ASKED}")
    end = await chat.answer("bot")
    await client.close()
    assert end.text == f"{ANSWER}\n\n就是花生。"
    roles = [m["role"] for m in server.requests[0]["messages"]]
    assert roles == ["system", "user", *["assistant", "tool"] * 3]
