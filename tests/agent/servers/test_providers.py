"""The recipes of docs/models.md, with servers that imitate what each provider documents."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent import StopReason
from memrecall.memory import Library
from memrecall.model.openai_client import ServerClient, make_client
from memrecall.settings import Settings

from ...cases import check_each_async
from ...model.openai_server import ModelServer, Reply, completion, refusal
from .behaviours import HANDOFF, SEARCH, Behaviour, call, check_outcome, recall

pytestmark = pytest.mark.concurrent

MANUAL = Path(__file__).parents[3] / "docs" / "models.md"
Request = dict[str, Any]
Quirk = Callable[[Request], Reply | None]


@dataclass(frozen=True)
class Provider:
    """A provider: its documentation, what it refuses, and the fields of its answers."""

    name: str
    documentation: str
    quirk: Quirk
    reasons: bool = False  # answers have reasoning_content, which must be sent back


def is_forced(request: Request) -> bool:
    return request.get("tool_choice") not in (None, "auto", "none")


def thinks(request: Request, default: bool = True) -> bool:
    return bool(request.get("thinking", {"type": default}).get("type") != "disabled")


def refuse_openai(request: Request) -> Reply | None:
    if "max_tokens" in request:
        words = (
            "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        return refusal(400, f"Unsupported parameter: {words}", "unsupported_parameter")
    if request.get("temperature", 1) != 1:
        return refusal(400, "Unsupported value: 'temperature' does not support 0 with this model.")
    return None


def refuse_deepseek(request: Request) -> Reply | None:
    if thinks(request) and is_forced(request):
        return refusal(400, "Thinking mode does not support this tool_choice")
    answers = [message for message in request["messages"] if message.get("tool_calls")]
    if thinks(request) and any("reasoning_content" not in answer for answer in answers):
        return refusal(400, "The reasoning_content in the thinking mode must be passed back")
    return None


def refuse_qwen(request: Request) -> Reply | None:
    if request.get("enable_thinking", True) and is_forced(request):
        words = "The tool_choice parameter does not support being set to required or object in"
        return refusal(400, f"<400> InternalError.Algo.InvalidParameter: {words} thinking mode")
    return None


def refuse_glm(request: Request) -> Reply | None:
    if is_forced(request):
        return refusal(400, "tool_choice only supports auto: other values are not supported")
    return None


def refuse_kimi(request: Request) -> Reply | None:
    if thinks(request) and is_forced(request):
        return refusal(400, "tool_choice 'required' is incompatible with thinking enabled")
    answers = [message for message in request["messages"] if message.get("tool_calls")]
    if thinks(request) and not all(answer.get("reasoning_content") for answer in answers):
        words = (
            "thinking is enabled but reasoning_content is missing in assistant tool call message"
        )
        return refusal(400, words)
    return None


def refuse_vllm(request: Request) -> Reply | None:
    """Without --enable-auto-tool-choice, only forced calls work."""
    if request.get("tools") and not is_forced(request):
        return refusal(400, '"auto" tool choice requires --enable-auto-tool-choice to be set')
    return None


def accept(request: Request) -> Reply | None:
    return None


PROVIDERS = (
    Provider("OpenAI", "https://platform.openai.com/docs/guides/reasoning", refuse_openai),
    Provider(
        "DeepSeek", "https://api-docs.deepseek.com/guides/thinking_mode", refuse_deepseek, True
    ),
    Provider(
        "Qwen", "https://www.alibabacloud.com/help/en/model-studio/deep-thinking", refuse_qwen
    ),
    Provider("GLM", "https://docs.z.ai/api-reference/llm/chat-completion", refuse_glm, True),
    Provider(
        "Kimi", "https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
        refuse_kimi, True,
    ),
    Provider("Ollama", "https://docs.ollama.com/api/openai-compatibility", accept),
    Provider("vLLM", "https://docs.vllm.ai/en/latest/features/tool_calling/", refuse_vllm),
)  # fmt: skip


def read_recipes(name: str) -> list[dict[str, str]]:
    """Return the settings of a provider's recipes in the manual."""
    section = MANUAL.read_text("utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.S)
    assert blocks, name
    return [dict(re.findall(r"export MEMRECALL_(\w+)='?(.*?)'?(?: +#.*)?\n", b)) for b in blocks]


def answer_as(provider: Provider) -> Callable[[Request], Reply]:
    """Return a server that refuses what the provider does, and searches, then hands off."""

    def respond(request: Request) -> Reply:
        if (refused := provider.quirk(request)) is not None:
            return refused
        has_searched = '"tool"' in json.dumps([m["role"] for m in request["messages"]])
        handoff = {**HANDOFF, "relevant_memory_keys": ["a1"]}
        step = call("handoff", handoff) if has_searched else call("search_memories", SEARCH)
        thought = {"reasoning_content": "let me see"} if provider.reasons else {}
        return completion({"content": None, "tool_calls": [step], **thought}, "tool_calls")

    return respond


async def test_recipes_work_with_the_quirks_of_their_providers(
    library: Library, server: ModelServer
) -> None:
    async def check(provider: Provider) -> None:
        for recipe in read_recipes(provider.name):
            options = recipe.get("MODEL_OPTIONS", "")
            settings = Settings(model=recipe["MODEL"], base_url=server.url, model_options=options)
            client = make_client(settings)
            assert isinstance(client, ServerClient)
            behaviour = Behaviour("", (), StopReason.HANDOFF, forever=answer_as(provider))
            result = await recall(library, server, client, behaviour)
            check_outcome(behaviour, result, server)
            assert result.handoff.relevant_memory_keys == ["a1"]
            sent = server.requests[-1]
            for name, value in json.loads(options or "{}").items():
                assert sent.get(name) == value, name  # no recipe has an option that is refused
            await client.close()

    await check_each_async(PROVIDERS, check, label=lambda provider: provider.name)


async def test_manual_names_the_documentation_of_every_provider() -> None:
    manual = MANUAL.read_text("utf-8")
    assert [p.name for p in PROVIDERS if p.documentation not in manual] == []
    assert [p.name for p in PROVIDERS] == re.findall(r"^## (?!What|Options)(\w+)$", manual, re.M)
