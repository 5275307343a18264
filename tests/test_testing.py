"""The public helpers for tests."""

import asyncio

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, UserMessage

from memrecall.errors import ScriptExhausted
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.testing import ScriptedClient, call, call_raw, calls, say, silence, think, wait

from .libraries import open_library
from .waiting import wait_until

MESSAGES: list[LLMMessage] = [UserMessage(content="茶?", source="user")]


async def test_script_steps_run_in_order() -> None:
    client = ScriptedClient(
        [
            call("search", query="茶", name="also an argument"),
            calls(call("a"), call("b", x=1)),
            call_raw("a", "{broken"),
            think("hm", say("tea")),
            silence(),
        ]
    )
    contents = [(await client.create(MESSAGES)).content for _ in range(3)]
    assert contents == [
        [FunctionCall("call_1", '{"query": "茶", "name": "also an argument"}', "search")],
        [FunctionCall("call_2", "{}", "a"), FunctionCall("call_3", '{"x": 1}', "b")],
        [FunctionCall("call_4", "{broken", "a")],
    ]
    result = await client.create(MESSAGES)
    assert (result.content, result.thought, result.finish_reason) == ("tea", "hm", "stop")
    assert client.remaining == 1
    assert (await client.create(MESSAGES)).content == ""


async def test_exhausted_script_raises() -> None:
    client = ScriptedClient([say("1")])
    await client.create(MESSAGES)
    with pytest.raises(ScriptExhausted, match="has 1 steps, and the model was called 2 times"):
        await client.create(MESSAGES)


@pytest.mark.concurrent
@pytest.mark.parametrize("streamed", [False, True])
async def test_cancellation_ends_wait(streamed: bool) -> None:
    clients: list[ScriptedClient] = []

    async def send_request(token: CancellationToken | None) -> None:
        client = ScriptedClient([wait(3600, then=say("late"))])
        clients.append(client)
        if streamed:
            async for _ in client.create_stream(MESSAGES, cancellation_token=token):
                pass
        else:
            await client.create(MESSAGES, cancellation_token=token)

    token = CancellationToken()
    pending = asyncio.ensure_future(send_request(token))
    await wait_until(lambda: clients and clients[0].requests)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    with pytest.raises(asyncio.CancelledError):
        await send_request(token)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await send_request(None)


async def test_stream_yields_words_then_result() -> None:
    client = ScriptedClient([say("a b\n c "), call("search")])
    *words, result = [part async for part in client.create_stream(MESSAGES)]
    assert words == ["a", " b", "\n c", " "]
    assert isinstance(result, CreateResult)
    assert result.content == "a b\n c "
    (only,) = [part async for part in client.create_stream(MESSAGES)]
    assert isinstance(only, CreateResult)


async def test_open_library_with_messages_and_memories() -> None:
    async with open_library(
        scope="lin", messages=["我不吃辣"], memories=["likes green tea"], snapshots=False
    ) as library:
        page = await library.search(Scope("lin"), SearchRequest("吃辣"))
        assert page.results[0].content == "我不吃辣"
        assert (await library.stats("lin"))["memories"] == 1
        file = library.store.file
        assert file is not None
    assert not file.exists()
    async with open_library() as empty:
        assert (await empty.stats())["messages"] == 0
