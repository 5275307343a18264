"""Clients of model servers, over HTTP on loopback."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from pydantic import BaseModel

from memrecall import retries
from memrecall.errors import InvalidArgument, ModelFailed
from memrecall.model import make_client
from memrecall.model.openai_client import ServerClient
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, say

from ..cases import check_each_async
from ..waiting import LIMIT, wait_until
from .openai_server import ModelServer, Reply, completion, refusal, stream, text, tool_call

pytestmark = pytest.mark.concurrent

Tools = tuple[FunctionTool, FunctionTool]
KEY = "sk-very-secret-key"
MESSAGE_TEXT = "my cat is called 墨墨"
MESSAGES: list[LLMMessage] = [UserMessage(content=MESSAGE_TEXT, source="user")]


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[ServerClient]:
    server_client = ServerClient("tiny", base_url=server.url, api_key=KEY, timeout=LIMIT)
    yield server_client
    await server_client.close()


def test_no_client_without_a_model() -> None:
    assert make_client(Settings()) is None


def test_settings_select_the_client() -> None:
    client = make_client(Settings(model="gpt-9-unheard-of"))
    assert isinstance(client, ServerClient)
    assert client.model_info["function_calling"]


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://me:pw@host/v1", "http://x/?key=1"])
def test_invalid_base_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidArgument, match="base_url") as failure:
        ServerClient("m", base_url=url)
    assert "pw" not in str(failure.value)


async def test_text_answer_has_usage_whatever_model_it_names(
    client: ServerClient, server: ModelServer
) -> None:
    server.play(text("你好", model="tiny-2026-01-01"))
    result = await client.create(MESSAGES)
    assert (result.content, result.finish_reason, result.thought) == ("你好", "stop", None)
    assert (client.actual_usage().prompt_tokens, client.total_usage().completion_tokens) == (7, 3)
    assert server.requests == [
        {"model": "tiny", "messages": [{"role": "user", "content": MESSAGE_TEXT}]}
    ]  # no names, no empty tools
    assert server.authorizations == [f"Bearer {KEY}"]


async def test_tool_call_is_returned(
    client: ServerClient, server: ModelServer, tools: Tools
) -> None:
    server.play(tool_call("search", '{"query": "猫"}'))
    result = await client.create(MESSAGES, tools=tools, tool_choice="required")
    assert result.content == [FunctionCall("srv_1", '{"query": "猫"}', "search")]
    assert result.finish_reason == "function_calls"
    request = server.requests[0]
    assert request["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in request["tools"]] == ["search", "handoff"]


async def test_forced_tool_and_incomplete_calls(
    client: ServerClient, server: ModelServer, tools: Tools
) -> None:
    server.play(tool_call("handoff", {"summary": "猫"}, call_id=None))
    result = await client.create(MESSAGES, tools=tools, tool_choice=tools[1])
    assert result.content == [FunctionCall("call_1", '{"summary": "猫"}', "handoff")]
    assert server.requests[0]["tool_choice"] == {
        "type": "function", "function": {"name": "handoff"}
    }  # fmt: skip


class Verdict(BaseModel):
    needed: bool


@pytest.mark.parametrize(
    ("json_output", "kind"), [(True, "json_object"), (False, "text"), (Verdict, "json_schema")]
)
async def test_json_output(
    client: ServerClient, server: ModelServer, json_output: bool | type[BaseModel], kind: str
) -> None:
    server.play(text("{}"))
    await client.create(MESSAGES, json_output=json_output, extra_create_args={"temperature": 0})
    assert server.requests[0]["response_format"]["type"] == kind
    assert server.requests[0]["temperature"] == 0


async def test_system_messages_are_joined_and_source_is_omitted(
    client: ServerClient, server: ModelServer
) -> None:
    server.play(text("ok"))
    await client.create(
        [
            SystemMessage(content="a"),
            SystemMessage(content="b"),
            *MESSAGES,
            SystemMessage(content="memory"),
            UserMessage(content=["one", "two"], source="x"),
            AssistantMessage(content="said", thought="dropped", source="y"),
        ]
    )
    assert server.requests[0]["messages"] == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": MESSAGE_TEXT},
        {"role": "user", "content": "memory"},
        {"role": "user", "content": "one\ntwo"},
        {"role": "assistant", "content": "said"},
    ]


def turn(result: CreateResult) -> list[LLMMessage]:
    assert isinstance(result.content, list)
    results = [
        FunctionExecutionResult(content="none", name=call.name, call_id=call.id, is_error=False)
        for call in result.content
    ]
    return [
        AssistantMessage(content=result.content, thought=result.thought, source="a"),
        FunctionExecutionResultMessage(content=results),
    ]


async def test_reasoning_is_sent_back_with_the_call(
    client: ServerClient, server: ModelServer, tools: Tools
) -> None:
    server.play(tool_call("search", "{}", reasoning_content="think: a cat"), text("done"))
    first = await client.create(MESSAGES, tools=tools)
    assert first.thought == "think: a cat"
    await client.create([*MESSAGES, *turn(first)], tools=tools)
    messages = server.requests[1]["messages"]
    assert messages[1]["reasoning_content"] == "think: a cat"
    assert messages[1]["content"] is None
    assert messages[2] == {"role": "tool", "tool_call_id": "srv_1", "content": "none"}


async def test_text_next_to_a_call_is_sent_back_as_content(
    client: ServerClient, server: ModelServer, tools: Tools
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    server.play(completion({"content": "Let me look.", "tool_calls": [call]}), text("done"))
    first = await client.create(MESSAGES, tools=tools)
    assert first.thought == "Let me look."
    await client.create([*MESSAGES, *turn(first)], tools=tools)
    assert server.requests[1]["messages"][1]["content"] == "Let me look."
    assert "reasoning_content" not in server.requests[1]["messages"][1]


async def test_reasoning_tags_become_the_thought(client: ServerClient, server: ModelServer) -> None:
    server.play(text("<think>\nthe kitten\n</think>\n\nMeow"), completion({"content": None}))
    result = await client.create(MESSAGES)
    assert (result.thought, result.content) == ("the kitten", "Meow")
    assert (await client.create(MESSAGES)).content == ""


async def collect(client: ServerClient, **arguments: object) -> tuple[list[str], CreateResult]:
    parts = [part async for part in client.create_stream(MESSAGES, **arguments)]  # type: ignore[arg-type]
    assert isinstance(parts[-1], CreateResult)
    return [part for part in parts if isinstance(part, str)], parts[-1]


async def test_stream_returns_text_then_result(client: ServerClient, server: ModelServer) -> None:
    deltas = [{"reasoning_content": "think "}, {"reasoning_content": "hint"}, {"content": "你"}]
    server.play(stream([*deltas, {"content": "好"}]))
    chunks, result = await collect(client)
    assert chunks == ["你", "好"]
    assert (result.content, result.thought) == ("你好", "think hint")
    assert result.usage.prompt_tokens == client.actual_usage().prompt_tokens == 7
    assert server.requests[0]["stream_options"] == {"include_usage": True}


async def test_streamed_tool_call(client: ServerClient, server: ModelServer, tools: Tools) -> None:
    pieces = [
        {"index": 0, "id": "a", "function": {"name": "search", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"query":'}},
        {"index": 0, "function": {"arguments": ' "x"}'}},
        {"index": 1, "id": "b", "function": {"name": "handoff", "arguments": "{}"}},
    ]
    deltas: list[dict[str, object]] = [{"reasoning": "why"}]
    server.play(stream([*deltas, *({"tool_calls": [piece]} for piece in pieces)], "tool_calls"))
    chunks, result = await collect(client, tools=tools)
    assert chunks == []
    assert result.thought == "why"
    assert result.content == [
        FunctionCall("a", '{"query": "x"}', "search"), FunctionCall("b", "{}", "handoff")
    ]  # fmt: skip


async def test_streamed_tool_name_may_be_repeated(
    client: ServerClient, server: ModelServer, tools: Tools
) -> None:
    names = {"repeated": ["search"] * 3, "growing": ["sea", "search"], "in parts": ["sea", "rch"]}
    for case, parts in names.items():
        pieces = [{"index": 0, "function": {"name": name, "arguments": ""}} for name in parts]
        server.play(stream([{"tool_calls": [piece]} for piece in pieces], "tool_calls"))
        _, result = await collect(client, tools=tools)
        assert [call.name for call in result.content if not isinstance(call, str)] == ["search"], (
            case
        )


async def test_reasoning_in_the_text_becomes_the_thought(
    client: ServerClient, server: ModelServer
) -> None:
    cases = {
        "<think>why</think>\n\nYes": ("why", "Yes"),
        "why\n</think>\n\nYes": ("why", "Yes"),  # opened by the prompt
        "why.</think>\nYes": ("why.", "Yes"),
        "Write <think> and </think>\nthen": (None, "Write <think> and </think>\nthen"),
        "Write </think> then": (None, "Write </think> then"),
        "Yes\n": (None, "Yes\n"),
    }
    for answer, (thought, content) in cases.items():
        server.play(stream([{"content": answer}]))
        _, result = await collect(client)
        assert (result.thought, result.content) == (thought, content)


TOO_LONG = "This model's maximum context length is 4096 tokens. However, your messages have 9000."


FAILURES = (
    (refusal(401, f"Incorrect API key provided: {KEY}"), "authentication"),
    (refusal(403, "no"), "authentication"),
    (refusal(402, "Insufficient Balance"), "quota"),
    (refusal(429, "You exceeded your current quota", "insufficient_quota"), "quota"),
    (refusal(429, "Limit 30000 tokens per min, requested 40000 tokens"), "rate_limited"),
    (refusal(400, TOO_LONG, "context_length_exceeded"), "overflow"),
    (refusal(400, "the request exceeds the available context size"), "overflow"),
    (refusal(413, "too big"), "overflow"),
    (refusal(400, "registry.ollama.ai/library/tiny does not support tools"), "no_tools"),
    (refusal(400, '"auto" tool choice requires --enable-auto-tool-choice'), "no_tools"),
    (refusal(500, "tools param requires --jinja flag"), "no_tools"),
    (refusal(404, "No endpoints found that support tool use"), "no_tools"),
    (refusal(501, "function calling is not implemented"), "no_tools"),
    (refusal(400, "tool_call_ids did not have response messages"), "refused"),
    (refusal(404, "The model `tiny` does not exist", "model_not_found"), "refused"),
    (refusal(503, "overloaded"), "unreachable"),
    (Reply(body="{not json"), "malformed"),
    (Reply(body="<html>Welcome</html>"), "malformed"),
    (Reply(body='{"choices": []}'), "malformed"),
    (Reply(body='{"error": {"message": "no such engine"}}'), "refused"),
    (Reply(body='{"error": {"message": "maximum context length is 8192"}}'), "overflow"),
    (Reply(body='{"choices": [{"message": {"content": 5}}]}'), "malformed"),
)


async def test_failures_are_classified(client: ServerClient, server: ModelServer) -> None:
    async def check(case: tuple[Reply, str]) -> None:
        reply, kind = case
        server.script.clear()
        server.requests.clear()
        server.play(reply, reply, reply)
        with pytest.raises(ModelFailed) as failure:
            await client.create(MESSAGES)
        assert failure.value.kind == kind
        assert failure.value.hint
        assert KEY not in str(failure.value)
        # Only transient failures are retried, with at most three attempts.
        assert len(server.requests) == (3 if failure.value.may_pass else 1)

    await check_each_async(FAILURES, check)


async def test_invalid_answer_is_described_without_its_values(
    client: ServerClient, server: ModelServer
) -> None:
    server.play(Reply(body='{"choices": [{"message": {"content": {"a": "secret"}}}]}'))
    with pytest.raises(ModelFailed, match=r"choices\.0\.message\.content: must be text") as failure:
        await client.create(MESSAGES)
    assert "secret" not in str(failure.value)


async def test_missing_key_is_named_and_a_short_one_garbles_nothing(server: ModelServer) -> None:
    for key, words in (("", "No key is set"), ("k", "unknown key. Check")):
        server.play(refusal(401, "unknown key"))
        client = ServerClient("tiny", base_url=server.url, api_key=key)
        with pytest.raises(ModelFailed, match=words):
            await client.create(MESSAGES)
        await client.close()


async def test_stream_is_read_in_any_form(client: ServerClient, server: ModelServer) -> None:
    chunk = '[{"delta": {"content": "a\u2028b"}}]}'
    for body in (
        f'data:{{"choices": {chunk}\n\ndata: [DONE]',
        f': queued\r\n\r\ndata: {{"choices":\r\ndata: {chunk}\r\n\r\ndata: [DONE]\r\n\r\n',
        '{"choices": [{"message": {"content": "a\u2028b"}, "finish_reason": "stop"}]}',
    ):
        server.play(Reply(body=body))
        assert (await collect(client))[1].content == "a\u2028b"


async def test_temporary_failures_are_retried(client: ServerClient, server: ModelServer) -> None:
    for header in ("0.01", "Wed, 21 Oct 2015 07:28:00 GMT"):
        server.play(refusal(429, "slow down", headers={"Retry-After": header}), text("ok"))
        assert (await client.create(MESSAGES)).content == "ok"
    server.play(refusal(500, "oops"), stream([{"content": "ok"}]))
    assert (await collect(client))[0] == ["ok"]


async def test_long_retry_after_is_not_awaited(client: ServerClient, server: ModelServer) -> None:
    async def check(header: str) -> None:
        server.play(refusal(429, "slow down", headers={"Retry-After": header}))
        with pytest.raises(ModelFailed) as failure:
            await client.create(MESSAGES)
        assert failure.value.kind == "rate_limited"
        assert failure.value.details["retry_after"] == pytest.approx(3600, abs=60)

    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    await check_each_async(["3600", in_an_hour], check)


@pytest.mark.parametrize("streamed", [False, True])
async def test_hanging_server_times_out(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(retries, "PAUSES", (3600.0,))  # a retry would exceed the timeout
    server.play(Reply(seconds=LIMIT))
    client = ServerClient("tiny", base_url=server.url, timeout=0.2)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ModelFailed, match=r"0\.2 seconds") as failure:
            await (collect(client) if streamed else client.create(MESSAGES))
    assert failure.value.kind == "timeout"
    await client.close()


async def test_unreachable_server() -> None:
    with socket.socket() as unused_socket:
        unused_socket.bind(
            ("127.0.0.1", 0)
        )  # bound but not listening, so no other process takes the port
        client = ServerClient(
            "tiny", base_url=f"http://127.0.0.1:{unused_socket.getsockname()[1]}/v1"
        )
        with pytest.raises(ModelFailed, match="cannot be reached") as failure:
            await client.create(MESSAGES)
    assert failure.value.kind == "unreachable"
    await client.close()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (
            Reply(chunks=('{"choices": [{"delta": {"content": "a"}}]}',), is_interrupted=True),
            "unreachable",
        ),
        (Reply(chunks=("{not json",)), "malformed"),
        (Reply(chunks=('{"choices": [{"delta": {"content": 5}}]}',)), "malformed"),
        (Reply(chunks=('{"error": {"message": "maximum context", "code": 400}}',)), "overflow"),
    ],
)
async def test_interrupted_stream_is_a_failure(
    client: ServerClient, server: ModelServer, reply: Reply, kind: str
) -> None:
    server.play(reply)
    with pytest.raises(ModelFailed) as failure:
        await collect(client)
    assert failure.value.kind == kind


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelled_token_ends_the_call(
    client: ServerClient, server: ModelServer, streamed: bool
) -> None:
    server.play(Reply(seconds=LIMIT))
    token = CancellationToken()
    pending_call = asyncio.ensure_future(
        collect(client, cancellation_token=token)
        if streamed
        else client.create(MESSAGES, cancellation_token=token)
    )
    await wait_until(lambda: server.requests)
    token.cancel()
    async with asyncio.timeout(LIMIT):
        with pytest.raises(asyncio.CancelledError):
            await pending_call


def test_client_without_a_key_works_in_another_event_loop(server: ModelServer) -> None:
    client = ServerClient("tiny", base_url=server.url)

    async def send_request() -> object:
        return (await client.create(MESSAGES)).content

    server.play(text("one"), text("two"))
    assert asyncio.run(send_request()) == "one"
    assert asyncio.run(send_request()) == "two"


async def test_key_and_conversation_are_not_logged(
    client: ServerClient, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server.play(text("a secret answer"))
    await client.create(MESSAGES)
    for secret in (KEY, MESSAGE_TEXT, "a secret answer"):
        assert secret not in caplog.text


def test_tokens_are_estimated_without_a_tokenizer(tools: Tools) -> None:
    client = ServerClient("tiny")
    assert 0 < client.count_tokens(MESSAGES) < client.count_tokens(MESSAGES, tools=tools)
    assert client.remaining_tokens(MESSAGES) < client.remaining_tokens([])
    with pytest.warns(DeprecationWarning, match="capabilities"):
        assert client.capabilities == client.model_info


async def test_images_are_rejected(client: ServerClient) -> None:
    from autogen_core import Image
    from PIL import Image as Picture

    image = Image(Picture.new("RGB", (1, 1)))
    with pytest.raises(InvalidArgument, match="image"):
        await client.create([UserMessage(content=["look", image], source="user")])


async def test_misspelt_argument_is_refused() -> None:
    client: Any = ScriptedClient([say("hello")])
    with pytest.raises(TypeError, match="tool_choise"):
        await client.create(MESSAGES, tool_choise="none")


def test_loading_imports_what_the_first_call_needs() -> None:
    script = """
import asyncio, sys
from memrecall.model.openai_client import ServerClient
assert "openai" not in sys.modules
asyncio.run(ServerClient("tiny", base_url="http://127.0.0.1:1/v1").load())
assert "openai.resources.chat.completions" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
