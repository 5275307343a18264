"""The offline client: rules that answer prompts by name."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage, RequestUsage, SystemMessage, UserMessage

from memrecall.errors import ModelFailed
from memrecall.model import client
from memrecall.model.client import PromptRule, RuleClient
from memrecall.types import Language

from ..waiting import LIMIT, wait_until

SYSTEM = SystemMessage(content="回忆。")
REQUEST = UserMessage(content="上次那个方案", source="user")


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = {"回忆。": ("recall", "zh"), "Judge.": ("judge", "en")}
    monkeypatch.setattr(client, "prompt_name", prompts.get)


class RecordingRule:
    """A rule that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Language, Sequence[LLMMessage]]] = []
        self.thread: threading.Thread | None = None

    def __call__(self, language: Language, messages: Sequence[LLMMessage]) -> str:
        self.calls.append((language, messages))
        self.thread = threading.current_thread()
        return "查一下"


def text_rule(text: str) -> PromptRule:
    return lambda language, messages: f"{text} {language}"


async def test_rule_of_the_prompt_answers() -> None:
    rule = RecordingRule()
    client = RuleClient({"recall": rule})
    result = await client.create([SYSTEM, REQUEST])
    assert result == CreateResult(
        finish_reason="stop", content="查一下", usage=RequestUsage(0, 0), cached=False
    )
    assert rule.calls == [("zh", (REQUEST,))]
    assert rule.thread is threading.main_thread()


async def test_offline_stream_returns_text_then_result() -> None:
    client = RuleClient({"judge": text_rule("yes")})
    parts = [
        part async for part in client.create_stream([SystemMessage(content="Judge."), REQUEST])
    ]
    assert parts[0] == "yes en"
    assert isinstance(parts[1], CreateResult)
    assert parts[1].content == "yes en"
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

    def slow(language: Language, messages: Sequence[LLMMessage]) -> str:
        started.set()
        assert released.wait(LIMIT)
        return ""

    token = CancellationToken()
    large = UserMessage(content="x" * 30_000, source="user")
    working = asyncio.ensure_future(
        RuleClient({"recall": slow}).create([SYSTEM, large], cancellation_token=token)
    )
    await wait_until(started.is_set)
    token.cancel()
    # A cancelled call waits until its thread has ended.
    asyncio.get_running_loop().call_soon(released.set)
    with pytest.raises(asyncio.CancelledError):
        await working


def test_offline_model_info() -> None:
    info = RuleClient({}).model_info
    assert (info["family"], info["function_calling"]) == ("memrecall-offline", True)
    assert info["json_output"]
