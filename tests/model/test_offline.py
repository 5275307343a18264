"""The offline client: rules that answer prompts by name."""

import asyncio
import threading

import pytest
from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool

from memrecall.errors import ModelFailed
from memrecall.model import client
from memrecall.model.client import RuleClient
from memrecall.model.prompts import Rule, RuleAnswer, RuleCall, RuleRequest

from ..waiting import LIMIT, wait_until

Tools = tuple[FunctionTool, FunctionTool]
SYSTEM = SystemMessage(content="回忆。")
REQUEST = UserMessage(content="上次那个方案", source="user")


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = {"回忆。": ("recall", "zh"), "Judge.": ("judge", "en")}
    monkeypatch.setattr(client, "prompt_name", prompts.get)


class RecordingRule:
    """A rule that searches once and records its requests."""

    def __init__(self) -> None:
        self.requests: list[RuleRequest] = []
        self.thread: threading.Thread | None = None

    def __call__(self, request: RuleRequest) -> RuleAnswer:
        self.requests.append(request)
        self.thread = threading.current_thread()
        return RuleAnswer(
            text="查一下",
            calls=(RuleCall("search", {"query": "方案", "limit": 5}), RuleCall("handoff")),
        )


def text_rule(text: str) -> Rule:
    return lambda request: RuleAnswer(text, thought=f"{request.prompt} {request.language}")


async def test_rule_of_the_prompt_answers(tools: Tools) -> None:
    rule = RecordingRule()
    client = RuleClient({"recall": rule})
    result = await client.create([SYSTEM, REQUEST], tools=tools, tool_choice="required")
    assert result == CreateResult(
        finish_reason="function_calls",
        content=[
            FunctionCall("call_1", '{"limit": 5, "query": "方案"}', "search"),
            FunctionCall("call_2", "{}", "handoff"),
        ],
        usage=RequestUsage(0, 0),
        cached=False,
        thought="查一下",
    )
    (request,) = rule.requests
    assert request == RuleRequest(
        "recall", "zh", (REQUEST,), ("search", "handoff"), forced=None, required=True
    )
    assert rule.thread is threading.main_thread()


async def test_call_ids_continue_from_the_history(tools: Tools) -> None:
    earlier: list[LLMMessage] = [
        AssistantMessage(content=[FunctionCall(f"x{i}", "{}", "search")], source="a")
        for i in range(3)
    ]
    client = RuleClient({"recall": RecordingRule()})
    result = await client.create([SYSTEM, REQUEST, *earlier], tools=tools, tool_choice=tools[1])
    assert isinstance(result.content, list)
    assert [call.id for call in result.content] == ["call_4", "call_5"]


async def test_tool_choice_reaches_the_rule(tools: Tools) -> None:
    rule = RecordingRule()
    client = RuleClient({"recall": rule})
    await client.create([SYSTEM], tools=tools, tool_choice=tools[1])
    await client.create([SYSTEM], tools=tools, tool_choice="none")
    await client.create([SYSTEM], tools=tools)
    requests = [(request.tools, request.forced, request.required) for request in rule.requests]
    tool_names = ("search", "handoff")
    assert requests == [(tool_names, "handoff", True), ((), None, False), (tool_names, None, False)]


async def test_offline_stream_returns_text_then_result() -> None:
    client = RuleClient({"judge": text_rule("yes")})
    parts = [
        part async for part in client.create_stream([SystemMessage(content="Judge."), REQUEST])
    ]
    assert parts[0] == "yes"
    assert isinstance(parts[1], CreateResult)
    assert (parts[1].content, parts[1].thought) == ("yes", "judge en")
    assert len(parts) == 2


async def test_prompt_without_a_rule_is_an_error() -> None:
    client = RuleClient({"judge": text_rule("yes")})
    with pytest.raises(ModelFailed, match=r"no rule for the prompt 'recall'.*rules for: judge"):
        await client.create([SYSTEM, REQUEST])
    with pytest.raises(ModelFailed, match="no prompt that the offline client knows"):
        await client.create([REQUEST])


async def test_large_inputs_do_not_block_the_loop() -> None:
    rule = RecordingRule()
    client = RuleClient({"recall": rule})
    await client.create([SYSTEM, UserMessage(content="长" * 20_001, source="user")])
    assert rule.thread is not threading.main_thread()


@pytest.mark.concurrent
async def test_cancelled_token_cancels_the_rule() -> None:
    token = CancellationToken()
    token.cancel()
    client = RuleClient({"recall": text_rule("late")})
    with pytest.raises(asyncio.CancelledError):
        await client.create([SYSTEM, REQUEST], cancellation_token=token)

    started, released = threading.Event(), threading.Event()

    def slow(request: RuleRequest) -> RuleAnswer:
        started.set()
        assert released.wait(LIMIT)
        return RuleAnswer()

    token = CancellationToken()
    large = UserMessage(content="x" * 30_000, source="user")
    working = asyncio.ensure_future(
        RuleClient({"recall": slow}).create([SYSTEM, large], cancellation_token=token)
    )
    await wait_until(started.is_set)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    released.set()


def test_offline_model_info() -> None:
    info = RuleClient({}).model_info
    assert (info["family"], info["function_calling"]) == ("memrecall-offline", True)
    assert info["json_output"]
