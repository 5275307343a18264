"""Recalls with servers that fail, refuse a part of the request, or send garbage."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

from memrecall.agent import RecallResult, StopReason
from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.model.cassette import RecordingClient
from memrecall.model.failures import create_accepted
from memrecall.model.openai_client import ServerClient

from ...cases import check_each_async
from ...model.openai_server import ModelServer, Reply, autogen_client, completion, refusal, text
from .behaviours import Behaviour, call, check_outcome, hand_off, recall, search

pytestmark = pytest.mark.concurrent

FAILED = StopReason.MODEL_FAILED


def problem(words: str) -> Any:
    def check(result: RecallResult, server: ModelServer) -> None:
        assert words in str(result.problem)

    return check


def body_with(arguments: bytes) -> bytes:
    """Return an answer that searches with these bytes as its arguments."""
    reply = completion({"content": None, "tool_calls": [call("search_memories", "ARGUMENTS")]})
    assert isinstance(reply.body, str)
    return reply.body.encode().replace(b"ARGUMENTS", arguments)


TRUNCATED = str(search().body)[:100]
RETRY_SOON = {"Retry-After": "0.01"}
RETRY_LATE = {"Retry-After": "3600"}
ERRORS: tuple[tuple[str, Any], ...] = (
    ("no GPU left", {"error": {"message": "no GPU left"}}),
    ("model is loading", {"error": "model is loading", "choices": None}),
    ("Requests throttled", {"code": "Throttling", "message": "Requests throttled"}),
    ("daily limit reached", {"error_code": 17, "error_msg": "daily limit reached"}),
    ("no money", {"base_resp": {"status_code": 1008, "status_msg": "no money"}, "choices": None}),
    ("Not authenticated", {"detail": "Not authenticated"}),
    ("Field required", [{"detail": [{"type": "missing", "msg": "Field required"}]}]),
)
FAILURES = (
    Behaviour(
        "401", (), FAILED, True, refusal(401, "bad key sk-secret"),
        check=problem("status 401 (invalid_request_error): bad key …. "),
    ),
    Behaviour("402", (), FAILED, True, refusal(402, "Insufficient Balance"), check=problem("402")),
    Behaviour(
        "no quota", (), FAILED, True,
        refusal(429, "You exceeded your current quota", "insufficient_quota"),
        check=problem("insufficient_quota"),
    ),
    Behaviour(
        "404 model", (), FAILED, True,
        refusal(404, "The model `tiny` does not exist", "model_not_found"),
        check=problem("(model_not_found): The model `tiny` does not exist. "),
    ),
    Behaviour(
        "429, then ok", (refusal(429, "slow", headers=RETRY_SOON), search(), hand_off("a1")),
        StopReason.HANDOFF,
    ),
    Behaviour("429 for an hour", (), FAILED, True, refusal(429, "slow", headers=RETRY_LATE)),
    Behaviour(
        "500, then ok", (search(), refusal(500, "oops"), hand_off("a1")), StopReason.HANDOFF
    ),
    Behaviour(
        "500 forever", (search(),), FAILED, True, refusal(500, "CUDA\n out \x1bof\0 memory"),
        check=problem(": CUDA out of memory. "),
    ),
    Behaviour(
        "closed connection, then ok",
        (Reply(is_closed=True), search(), hand_off("a1")),
        StopReason.HANDOFF,
    ),
    Behaviour(
        "closed connection", (), FAILED, True, Reply(is_closed=True), check=problem("be reached")
    ),
    Behaviour(
        "half an answer", (), FAILED, True, Reply(body=TRUNCATED), check=problem("is not JSON")
    ),
    Behaviour(
        "cut answer", (), FAILED, True, replace(search(), is_interrupted=True),
        check=problem("interrupted its answer"),
    ),
    Behaviour(
        "finish reason error", (), FAILED, True,
        completion({"content": ""}, "error"), check=problem("interrupted its answer"),
    ),
    Behaviour(
        "error of the provider in a choice, then ok",
        (completion({"content": ""}, "network_error"), search(), hand_off("a1")),
        StopReason.HANDOFF,
    ),
    Behaviour(
        "status 200 with an error", (), FAILED, True,
        Reply(body='{"error": {"code": 402, "message": "Add credits; key is sk-secret"}}'),
        check=problem("interrupted its answer: Add credits; key is …"),
    ),
    *(
        Behaviour(
            f"status 200 with {body}", (), FAILED, True, Reply(body=json.dumps(body)),
            check=problem(f"interrupted its answer: {words}. "),
        )
        for words, body in ERRORS
    ),
    Behaviour("HTML", (), FAILED, True, Reply(body="<html>Welcome</html>")),
    Behaviour("no choices", (), FAILED, True, Reply(body='{"choices": []}')),
    Behaviour(
        "invalid UTF-8",
        (Reply(body=body_with(b'{\\"query\\": \\"pool \xff\xfe\\"}')), search(), hand_off("a1")),
        StopReason.HANDOFF,
    ),
    Behaviour(
        "no tools", (), StopReason.NO_TOOL_SUPPORT, True,
        refusal(400, "registry.ollama.ai/library/tiny does not support tools"),
    ),
    Behaviour(
        "no answer in time", (), FAILED, True, Reply(seconds=60),
        limits=Limits(seconds=1.0), check=problem("within 1 s"),
    ),
    Behaviour(
        "slow after a search", (search(),), StopReason.SECONDS, forever=Reply(seconds=60),
        limits=Limits(seconds=3.0),
    ),
)  # fmt: skip


STREAMS = (
    Behaviour(
        "interrupted stream", (), FAILED, True,
        Reply(chunks=('{"choices": [{"delta": {"content": "a"}}]}',), is_interrupted=True),
        check=problem("interrupted its answer"),
    ),
    Behaviour(
        "stream that ends early", (), FAILED, True,
        Reply(chunks=('{"choices": [{"delta": {"content": "a"}}]}',)),
        check=problem("interrupted its answer"),
    ),
    Behaviour("no stream", (), FAILED, True, Reply(body="<html>Welcome</html>")),
    Behaviour("slow stream", (), FAILED, True, Reply(seconds=60), limits=Limits(seconds=1.0)),
    Behaviour(
        "error in a stream", (search(),), FAILED, True,
        Reply(chunks=('{"error": {"message": "overloaded", "code": 503}}',)),
        check=problem("interrupted its answer: overloaded"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
async def test_recall_survives_a_failing_server_or_stream(
    library: Library, server: ModelServer, streamed: bool
) -> None:
    client = ServerClient("tiny", base_url=server.url, api_key="sk-secret")

    async def check(behaviour: Behaviour) -> None:
        result = await recall(library, server, client, behaviour, streamed=streamed)
        check_outcome(behaviour, result, server)

    behaviours = STREAMS if streamed else FAILURES
    await check_each_async(behaviours, check, label=lambda behaviour: behaviour.name)
    await client.close()


STRICT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
# An option that a request may have, the value that is refused, and the server's words.
REFUSED_OPTIONS: tuple[tuple[str, object, str], ...] = (
    ("tool_choice", "required", "Thinking mode does not support this tool_choice"),
    ("tool_choice", "required", "tool_choice: Input should be 'auto'"),
    ("tool_choice", "required", "当前模型不支持tool_choice=required"),
    ("tool_choice", "required", "tool choice must be auto when thinking is enabled"),
    ("tool_choice", "required", "Forced function calling is not supported in thinking mode"),
    ("tool_choice", "required", "思考模式不支持强制调用工具"),
    ("parallel_tool_calls", False, "Unsupported parameter: parallel_tool_calls"),
    ("response_format", STRICT, "response_format.json_schema.strict is not supported"),
    # DeepSeek's own words, with status 400 and 422.
    ("response_format", SCHEMA, "This response_format type is unavailable now"),
    ("response_format", SCHEMA, "response_format: `json_schema` is unavailable now"),
    ("temperature", 0.2, "'temperature' does not support 0.2 with this model"),
    ("reasoning_effort", "low", "Unrecognized request argument supplied: reasoning_effort"),
)


async def test_refused_option_is_not_sent_again(library: Library, server: ModelServer) -> None:
    async def check(case: tuple[str, object, str]) -> None:
        name, value, message = case

        def refuse(request: dict[str, Any]) -> Reply:
            if request.get(name) == value:
                return refusal(422 if ":" in message else 400, message)
            keys = "a1" in json.dumps(request["messages"])
            return hand_off("a1") if keys else search()

        options = {} if name == "tool_choice" else {name: value}
        client = ServerClient("tiny", base_url=server.url, options=options)
        behaviour = Behaviour(name, (), StopReason.HANDOFF, forever=refuse)
        for _ in range(2):
            check_outcome(behaviour, await recall(library, server, client, behaviour), server)
        assert [request.get(name) == value for request in server.requests] == [False] * 2
        assert client.refused_options
        await client.close()

    await check_each_async(REFUSED_OPTIONS, check)


@pytest.mark.parametrize(
    "wrap", [lambda client, _: client, lambda c, path: RecordingClient(c, path)]
)
async def test_refused_choice_is_learned_for_clients_of_autogen(
    library: Library,
    server: ModelServer,
    tmp_path: Path,
    wrap: Callable[[OpenAIChatCompletionClient, Path], ChatCompletionClient],
) -> None:
    def refuse(request: dict[str, Any]) -> Reply:
        if request["tool_choice"] != "auto":
            return refusal(400, "Thinking mode does not support this tool_choice")
        return hand_off("a1") if "a1" in json.dumps(request["messages"]) else search()

    client = wrap(autogen_client(server, several_system_messages=True), tmp_path / "recall.jsonl")
    behaviour = Behaviour("thinking", (), StopReason.HANDOFF, forever=refuse)
    choices = []
    for _ in range(2):
        check_outcome(behaviour, await recall(library, server, client, behaviour), server)
        choices.append([request["tool_choice"] for request in server.requests])
    assert choices == [["required", "auto", "auto"], ["auto", "auto"]]
    await client.close()


async def test_refused_format_is_learned_for_clients_of_autogen(server: ModelServer) -> None:
    def refuse(request: dict[str, Any]) -> Reply:
        if "response_format" in request:
            return refusal(400, "This response_format type is unavailable now")
        return text('{"x": 1}')

    server.answer = refuse
    client = autogen_client(server, several_system_messages=True)
    for _ in range(2):
        messages = [UserMessage(content="x", source="user")]
        reply = await create_accepted(client, messages, json_output=True)
        assert reply.content == '{"x": 1}'
    assert ["response_format" in request for request in server.requests] == [True, False, False]
    await client.close()


async def test_renamed_option_is_sent_by_its_new_name(
    library: Library, server: ModelServer
) -> None:
    words = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    client = ServerClient("tiny", base_url=server.url, options={"max_tokens": 900})
    replies = (refusal(400, words), search(), hand_off("a1"))
    behaviour = Behaviour("renamed", replies, StopReason.HANDOFF)
    check_outcome(behaviour, await recall(library, server, client, behaviour), server)
    names = ("max_tokens", "max_completion_tokens")
    sent = [[request.get(name) for name in names] for request in server.requests]
    assert sent == [[900, None], [None, 900], [None, 900]]
    await client.close()


async def test_wrong_value_of_an_option_is_not_hidden(
    library: Library, server: ModelServer
) -> None:
    client = ServerClient("tiny", base_url=server.url, options={"max_tokens": 999_999})
    words = "max_tokens must be in the range [1, 131072]"
    behaviour = Behaviour("range", (), FAILED, True, refusal(400, words))
    check_outcome(behaviour, await recall(library, server, client, behaviour), server)
    assert not client.refused_options
    await client.close()


async def test_extra_body_becomes_fields_of_the_request(server: ModelServer) -> None:
    """OpenAI's library merges it into the body; providers document their options this way."""
    server.answer = lambda _: text("hi")
    options = {"extra_body": {"thinking": {"type": "disabled"}, "top_k": 5}, "temperature": 0}
    client = ServerClient("tiny", base_url=server.url, options=options)
    messages = [UserMessage(content="x", source="user")]
    extra = {"thinking": {"budget": 9}, "top_k": 7, "enable_thinking": False}
    await client.create(messages, extra_create_args={"extra_body": extra})
    await client.create(messages)
    merged, plain = ({k: v for k, v in r.items() if k != "messages"} for r in server.requests)
    assert plain == {
        "model": "tiny",
        "temperature": 0,
        "thinking": {"type": "disabled"},
        "top_k": 5,
    }
    thinking = {"type": "disabled", "budget": 9}
    assert merged == plain | {"thinking": thinking, "top_k": 7, "enable_thinking": False}
    cases: tuple[object, ...] = ({"messages": []}, {"model": "other"}, "thinking")
    for wrong in cases:
        with pytest.raises(InvalidArgument):
            ServerClient("tiny", base_url=server.url, options={"extra_body": wrong})
        with pytest.raises(InvalidArgument):
            await client.create(messages, extra_create_args={"extra_body": wrong})
    assert len(server.requests) == 2
    await client.close()
