"""The offline client: it answers by rules instead of a model.

Prompts have names, and each name may have a rule. The rules live with the layers that own the
prompts; here is only what calls them.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage, ModelInfo, RequestUsage, SystemMessage

from memrecall.errors import ModelFailed
from memrecall.model.client import (
    BaseClient,
    Request,
    check_token,
    count_tool_calls,
    message_texts,
    run_cancellable,
)
from memrecall.model.prompts import Language, prompt_name

OFFLINE_FAMILY = "memrecall-offline"
# A rule that reads more than this many characters runs in a thread: it may take a while.
LARGE_INPUT = 20_000


@dataclass(frozen=True)
class RuleRequest:
    """What a rule is asked: the conversation after the prompt, and the tools it may call.

    `forced` names the tool that must be called; `required` says that some tool must be.
    """

    prompt: str
    language: Language
    messages: tuple[LLMMessage, ...]
    tools: tuple[str, ...] = ()
    forced: str | None = None
    required: bool = False


@dataclass(frozen=True)
class RuleCall:
    """A tool call that a rule makes."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RuleAnswer:
    """What a rule says: a text, or calls."""

    text: str = ""
    calls: tuple[RuleCall, ...] = ()
    thought: str = ""


Rule = Callable[[RuleRequest], RuleAnswer]


class RuleClient(BaseClient):
    """Answers every prompt by the rule of its name: the same question, the same answer."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        info = ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            family=OFFLINE_FAMILY,
            structured_output=False,
            multiple_system_messages=True,
        )
        super().__init__(OFFLINE_FAMILY, info)
        self._rules = dict(rules)

    async def _answer(self, request: Request) -> CreateResult:
        check_token(request.token)
        asked = _read_request(request)
        rule = self._rules.get(asked.prompt)
        if rule is None:
            known = ", ".join(sorted(self._rules)) or "none"
            raise ModelFailed(
                f"the offline client has no rule for the prompt {asked.prompt!r}",
                kind="refused",
                hint=f"There are rules for: {known}. Set a model to use this prompt",
            )
        if _is_large(request.messages):
            answer = await run_cancellable(request.token, asyncio.to_thread(rule, asked))
        else:
            answer = rule(asked)
        return _result(answer, count_tool_calls(request.messages))


def _read_request(request: Request) -> RuleRequest:
    place, system = next(
        ((i, m.content) for i, m in enumerate(request.messages) if isinstance(m, SystemMessage)),
        (-1, ""),
    )
    named = prompt_name(system)
    if named is None:
        raise ModelFailed(
            "the offline client was asked without a prompt that it knows",
            kind="refused",
            hint="Send a prompt of memrecall, unchanged, as the system message, or set a model",
        )
    allowed = request.tool_choice != "none"
    return RuleRequest(
        prompt=named[0],
        language=named[1],
        messages=request.messages[:place] + request.messages[place + 1 :],
        tools=request.tool_names if allowed else (),
        forced=request.tool_choice if request.forced is not None else None,
        required=request.forced is not None or request.tool_choice == "required",
    )


def _is_large(messages: tuple[LLMMessage, ...]) -> bool:
    size = 0
    for message in messages:
        size += sum(map(len, message_texts(message)))
        if size > LARGE_INPUT:
            return True
    return False


def _result(answer: RuleAnswer, earlier: int) -> CreateResult:
    calls = [
        FunctionCall(
            id=f"call_{number}",
            name=call.name,
            arguments=json.dumps(call.arguments, ensure_ascii=False, sort_keys=True),
        )
        for number, call in enumerate(answer.calls, earlier + 1)
    ]
    return CreateResult(
        finish_reason="function_calls" if calls else "stop",
        content=calls or answer.text,
        usage=RequestUsage(0, 0),
        cached=False,
        # A text beside calls would be lost otherwise.
        thought=answer.thought or (answer.text if calls else "") or None,
    )
