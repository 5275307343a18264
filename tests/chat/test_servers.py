"""Turns over HTTP on loopback with both clients, as DeepSeek behaves.

Calls written as text, reasoning beside or inside the answer, calls at the cap: the recipe of
docs/chat.md as tests.
"""

import json
from functools import partial
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient

from memrecall.chat import Failed, SingleChat
from memrecall.errors import ModelFailed
from memrecall.memory import Library
from memrecall.model.prompts import load_prompt

from ..model.openai_server import (
    ModelServer,
    Reply,
    autogen_client,
    memrecall_client,
    refusal,
    stream,
)
from .chat_helpers import (
    DSML,
    LIN,
    NOW,
    QUESTION,
    TurnEvents,
    collect_turn,
    group_chat,
    make_options,
    stored_messages,
    take_group_turn,
)

pytestmark = pytest.mark.concurrent

ANSWER = "你对花生过敏。"


THINKING = {"thinking": {"type": "disabled"}}  # passed through to the server
CLIENTS = pytest.mark.parametrize(
    "make",
    [memrecall_client, partial(autogen_client, extra_body=THINKING)],
    ids=["memrecall", "autogen"],
)


def streamed_text(words: str, size: int = 3, **first: Any) -> Reply:
    """Return an answer that is streamed some characters at a time."""
    deltas = [{"content": words[at : at + size]} for at in range(0, len(words), size)]
    return stream([*([first] if first else []), *deltas])


def streamed_call(query: str, number: int, **first: Any) -> Reply:
    """Return a structured call with its arguments in two chunks."""
    arguments = json.dumps({"query": query}, ensure_ascii=False)
    head = {"index": 0, "id": f"srv_{number}", "type": "function"}
    deltas = [
        {
            "tool_calls": [
                {**head, "function": {"name": "recall_memory", "arguments": arguments[:5]}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": arguments[5:]}}]},
    ]
    return stream([*([first] if first else []), *deltas], "tool_calls")


async def run_turn(library: Library, client: ChatCompletionClient, **options: Any) -> TurnEvents:
    chat = SingleChat(library, LIN, client, options=make_options(**options), clock=lambda: NOW)
    try:
        return await collect_turn(chat.stream(QUESTION))
    finally:
        await client.close()


@CLIENTS
async def test_forged_and_real_calls_over_the_wire(
    sqlite_library: Library, server: ModelServer, make: Any
) -> None:
    server.play(streamed_call("花生", 1), streamed_text(ANSWER))
    turn = await run_turn(sqlite_library, make(server))
    assert (turn.final.text, turn.final.degraded) == (ANSWER, False)
    assert len(turn.deltas) > 1
    first, second = server.requests
    assert [m["role"] for m in first["messages"]] == ["system", "user", "assistant", "tool"]
    assert first["messages"][0]["content"].startswith(load_prompt("chat_single", "zh"))
    (forged,) = first["messages"][2]["tool_calls"]
    assert forged["type"] == "function"
    assert forged["function"]["name"] == "recall_memory"
    assert json.loads(forged["function"]["arguments"]) == {"query": QUESTION}
    assert first["messages"][3]["tool_call_id"] == forged["id"]
    assert json.loads(first["messages"][3]["content"])["events"]
    assert [tool["function"]["name"] for tool in first["tools"]] == ["recall_memory"]
    assert second["messages"][:4] == first["messages"]
    assert second["messages"][4]["tool_calls"][0]["id"] == "srv_1"
    assert second["messages"][5]["tool_call_id"] == "srv_1"
    assert first["stream"] is True
    if make is not memrecall_client:
        assert [body["thinking"] for body in (first, second)] == [THINKING["thinking"]] * 2


@CLIENTS
@pytest.mark.parametrize("size", [1, 4, 200])
async def test_leaked_calls_are_hidden_and_retried_without_tools(
    sqlite_library: Library, server: ModelServer, make: Any, size: int
) -> None:
    server.play(streamed_text(f"我看看。\n\n{DSML}", size), streamed_text(ANSWER))
    turn = await run_turn(sqlite_library, make(server))
    assert (turn.final.text, turn.final.degraded) == (f"我看看。\n\n{ANSWER}", False)
    assert [leak.name for leak in turn.final.leaks] == ["recall_memory"]
    retry = server.requests[1]
    assert "tools" not in retry
    assert {m["role"] for m in retry["messages"]} == {"system", "user", "assistant"}
    assert not any("tool_calls" in m for m in retry["messages"])
    assert not any("DSML" in m.content for m in await stored_messages(sqlite_library, LIN))


@CLIENTS
@pytest.mark.parametrize("size", [1, 4, 200])
async def test_answer_ends_where_it_goes_on_as_others(
    sqlite_library: Library, server: ModelServer, make: Any, size: int
) -> None:
    server.play(streamed_text("在里斯本。\nAnn: 谢谢\n小助手: 不客气", size))
    turn = await take_group_turn(sqlite_library, "ann", "@小助手 在哪里？", client=make(server))
    assert turn.final.text == "".join(turn.deltas) == "在里斯本。"


def streamed_calls(name: str, count: int) -> Reply:
    """Return an answer with many calls at once."""
    function = {"name": name, "arguments": '{"query": "花生"}' if name == "recall_memory" else "{}"}
    calls = [
        {"index": number, "id": f"srv_{number}", "type": "function", "function": function}
        for number in range(count)
    ]
    return stream([{"tool_calls": [call]} for call in calls], "tool_calls")


@CLIENTS
@pytest.mark.parametrize("name", ["recall_memory", "is_mentioned", "nonsense"])
async def test_many_calls_in_one_answer_are_run_up_to_the_cap(
    sqlite_library: Library, server: ModelServer, make: Any, name: str
) -> None:
    server.play(streamed_calls(name, 200), streamed_text(ANSWER))
    turn = await take_group_turn(
        sqlite_library, "ann", f"@小助手 {QUESTION}", client=make(server), recalls=3, tool_calls=5
    )
    assert (turn.final.text, turn.final.degraded) == (ANSWER, False)
    results = turn.results(name, forged=False)
    run, refused = results[:5], results[5:]
    assert [r.is_error for r in run] == {
        "recall_memory": [False, False, True, True, True],
        "is_mentioned": [False] * 5,
        "nonsense": [True] * 5,
    }[name]
    assert {r.content for r in refused} == {"拒绝：一轮最多执行 5 次工具调用。请用已有的内容回答。"}
    sent = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in sent[3:]] == [f"srv_{n}" for n in range(200)]


@CLIENTS
@pytest.mark.parametrize(("finish", "is_truncated"), [("stop", False), ("length", True)])
async def test_truncated_answer_is_marked(
    sqlite_library: Library, server: ModelServer, make: Any, finish: str, is_truncated: bool
) -> None:
    server.play(stream([{"content": "你对花"}], finish))
    client = make(server)
    chat = SingleChat(sqlite_library, LIN, client, options=make_options(), clock=lambda: NOW)
    turn = await collect_turn(chat.stream(QUESTION, message_id="q1"))
    final = turn.final
    assert (final.finish_reason, final.is_truncated, final.degraded) == (
        finish,
        is_truncated,
        False,
    )
    again = (await collect_turn(chat.stream(QUESTION, message_id="q1"))).final
    assert (again.finish_reason, again.parent_message_id) == (finish, "q1")
    stored = (await stored_messages(sqlite_library, LIN))[-1]
    assert stored.metadata.get("finish_reason") == ("length" if is_truncated else None)
    await client.close()


@CLIENTS
@pytest.mark.parametrize(
    ("status", "message", "kind", "words"),
    [
        (401, "Incorrect API key provided", "authentication", "MEMRECALL_API_KEY"),
        (403, "Forbidden", "authentication", "MEMRECALL_API_KEY"),
        (402, "Insufficient Balance", "quota", "no quota left"),
        (429, "You exceeded your current quota", "quota", "no quota left"),
    ],
)
async def test_authentication_and_quota_failures_are_named(
    sqlite_library: Library,
    server: ModelServer,
    make: Any,
    status: int,
    message: str,
    kind: str,
    words: str,
) -> None:
    server.play(*[refusal(status, message)] * 3)  # OpenAI's library retries status 429
    turn = await run_turn(sqlite_library, make(server))
    assert isinstance(turn.end, Failed)
    assert isinstance(turn.end.error, ModelFailed)
    assert turn.end.error.kind == kind
    assert words in turn.end.as_dict()["error"]["message"]
    assert "try again" not in turn.end.as_dict()["error"]["message"].lower()


async def test_reasoning_is_sent_back_and_not_shown(
    sqlite_library: Library, server: ModelServer
) -> None:
    server.play(
        streamed_call("花生", 1, reasoning_content="先找过敏"),
        streamed_text(ANSWER, reasoning_content="找到了：<｜DSML｜"),
    )
    turn = await run_turn(sqlite_library, memrecall_client(server))
    assert (turn.final.text, turn.final.leaks) == (ANSWER, ())
    forged, real = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
    # In thinking mode the server answers a call without the field with status 400.
    assert forged["reasoning_content"] == ""
    assert real["reasoning_content"] == "先找过敏"


@CLIENTS
async def test_reasoning_inside_or_beside_the_answer_is_stripped(
    sqlite_library: Library, server: ModelServer, make: Any
) -> None:
    inside = streamed_text(f"<think>用户问\n\n过敏</think>\n\n{ANSWER}")
    for reply in (inside, streamed_text(ANSWER, reasoning_content="先想想")):
        server.play(reply)
        assert (await run_turn(sqlite_library, make(server))).final.text == ANSWER


async def test_earlier_answers_have_the_reasoning_field(
    sqlite_library: Library, server: ModelServer
) -> None:
    server.play(streamed_text("你好。"), streamed_text(ANSWER))
    client = memrecall_client(server)
    chat = SingleChat(sqlite_library, LIN, client, options=make_options(), clock=lambda: NOW)
    await chat.answer("你好")
    await chat.answer(QUESTION)
    await client.close()
    answers = [m for m in server.requests[1]["messages"] if m["role"] == "assistant"]
    assert [m["reasoning_content"] for m in answers] == ["", ""]


@pytest.mark.parametrize("finish", [None, "insufficient_system_resource"])
async def test_interrupted_answer_is_an_error(
    sqlite_library: Library, server: ModelServer, finish: str | None
) -> None:
    """The connection closes normally, but without a sign that the answer is complete."""
    whole = streamed_text(ANSWER)
    chunks = [json.loads(chunk) for chunk in whole.chunks[:-3]]
    if finish:
        chunks[-1]["choices"][0]["finish_reason"] = finish
    server.play(Reply(chunks=tuple(json.dumps(chunk) for chunk in chunks)))
    turn = await run_turn(sqlite_library, memrecall_client(server))
    assert turn.end.as_dict()["error"]["code"] == "UNAVAILABLE"
    assert "interrupted its answer" in turn.end.as_dict()["error"]["message"]
    assert [m.content for m in await stored_messages(sqlite_library, LIN)] == [QUESTION]


async def test_usage_or_end_without_finish_reason_is_finished(
    sqlite_library: Library, server: ModelServer
) -> None:
    *chunks, finish, usage, end = streamed_text(ANSWER).chunks
    for last in ((usage, end), (end,)):
        server.play(Reply(chunks=(*chunks, *last)))
        turn = await run_turn(sqlite_library, memrecall_client(server))
        assert (turn.final.text, turn.final.degraded) == (ANSWER, False)
    assert "finish_reason" in finish


@CLIENTS
async def test_group_turn_over_the_wire(
    sqlite_library: Library, server: ModelServer, make: Any
) -> None:
    server.play(
        streamed_text("[pass]"), streamed_text(f"{ANSWER}{DSML}"), streamed_text("就是花生。")
    )
    client = make(server)
    chat = group_chat(sqlite_library, client=client)
    await chat.post("bo", "我先走了")
    assert (await chat.answer("bot")).silent
    await chat.post("ann", f"@小助手 {QUESTION}")
    end = await chat.answer("bot")
    await client.close()
    assert end.text == f"{ANSWER}\n\n就是花生。"
    roles = [m["role"] for m in server.requests[0]["messages"]]
    assert roles == ["system", "user", *["assistant", "tool"] * 3]
