"""The offline client, which answers by rules instead of a model.

Prompts have names, and each name may have a rule. The rules live in the layers that own the
prompts.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage, SystemMessage

from memrecall.errors import ModelFailed
from memrecall.json_objects import load_json_object
from memrecall.model.client import (
    BaseClient,
    Request,
    check_token,
    count_tool_calls,
    message_texts,
    run_cancellable,
    text_model_info,
)
from memrecall.model.prompts import prompt_name
from memrecall.types import Language

OFFLINE_FAMILY = "memrecall-offline"
# Characters above which a rule runs in a thread, because it may take a while.
_LARGE_INPUT = 20_000


@dataclass(frozen=True)
class RuleRequest:
    """The input of a rule: the messages after the prompt, and the available tools.

    `forced` names the tool that must be called; with `required` some tool must be called.
    """

    prompt: str
    language: Language
    messages: tuple[LLMMessage, ...]
    tools: tuple[str, ...] = ()
    forced: str | None = None
    required: bool = False

    def json_lines(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of messages that hold one per line, skipping other lines."""
        for message in self.messages:
            if isinstance(message.content, str):
                yield from filter(None, map(load_json_object, message.content.split("\n")))


@dataclass(frozen=True)
class RuleCall:
    """A tool call made by a rule."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleAnswer:
    """The answer of a rule: text or calls."""

    text: str = ""
    calls: tuple[RuleCall, ...] = ()
    thought: str = ""


Rule = Callable[[RuleRequest], RuleAnswer]


class RuleClient(BaseClient):
    """A client that answers each prompt by its rule, deterministically."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        super().__init__(OFFLINE_FAMILY, text_model_info(OFFLINE_FAMILY))
        self._rules = dict(rules)

    async def _answer(self, request: Request) -> CreateResult:
        check_token(request.token)
        rule_request = _to_rule_request(request)
        rule = self._rules.get(rule_request.prompt)
        if rule is None:
            names = ", ".join(sorted(self._rules)) or "none"
            raise ModelFailed(
                f"the offline client has no rule for the prompt {rule_request.prompt!r}",
                kind="refused",
                hint=f"There are rules for: {names}. Set a model to use this prompt",
            )
        texts = (text for message in request.messages for text in message_texts(message))
        if sum(map(len, texts)) > _LARGE_INPUT:
            answer = await run_cancellable(request.token, asyncio.to_thread(rule, rule_request))
        else:
            answer = rule(rule_request)
        return _to_result(answer, count_tool_calls(request.messages))


def _to_rule_request(request: Request) -> RuleRequest:
    index, system = next(
        ((i, m.content) for i, m in enumerate(request.messages) if isinstance(m, SystemMessage)),
        (-1, ""),
    )
    name_and_language = prompt_name(system)
    if name_and_language is None:
        raise ModelFailed(
            "the request has no prompt that the offline client knows",
            kind="refused",
            hint="Send a prompt of memrecall, unchanged, as the system message, or set a model",
        )
    prompt, language = name_and_language
    return RuleRequest(
        prompt=prompt,
        language=language,
        messages=request.messages[:index] + request.messages[index + 1 :],
        tools=() if request.tool_choice == "none" else request.tool_names,
        forced=request.tool_choice if request.forced is not None else None,
        required=request.forced is not None or request.tool_choice == "required",
    )


def _to_result(answer: RuleAnswer, earlier_calls: int) -> CreateResult:
    calls = [
        FunctionCall(
            id=f"call_{number}",
            name=call.name,
            arguments=json.dumps(call.arguments, ensure_ascii=False, sort_keys=True),
        )
        for number, call in enumerate(answer.calls, earlier_calls + 1)
    ]
    return CreateResult(
        finish_reason="function_calls" if calls else "stop",
        content=calls or answer.text,
        usage=RequestUsage(0, 0),
        cached=False,
        # A result cannot have text next to calls.
        thought=answer.thought or (answer.text if calls else "") or None,
    )
