"""Model calls that are counted against the budget and recorded in the trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memrecall import model
from memrecall.agent.prompt import Prompt
from memrecall.agent.trace import Recorder
from memrecall.agent.trace_events import ModelEvent
from memrecall.budget import Budget
from memrecall.errors import CallerError, ModelFailed
from memrecall.json_objects import make_storable
from memrecall.model import protocol
from memrecall.model.failures import to_model_failure
from memrecall.model.options import create_accepted
from memrecall.model.prompts import OFFLINE_FAMILY
from memrecall.model.protocol import message_texts
from memrecall.telemetry import trace_model
from memrecall.text_length import estimate_tokens


@dataclass(frozen=True, slots=True)
class BudgetedModel:
    """A model client with the budget and the recorder of one recall."""

    client: protocol.ChatCompletionClient
    budget: Budget
    recorder: Recorder
    reserve: float = 0.0  # seconds kept for the offline rules in case the model never answers

    @property
    def name(self) -> str:
        """The name of the model, else that of its client."""
        return str(getattr(self.client, "model", "") or type(self.client).__name__)

    @property
    def is_offline(self) -> bool:
        """Whether the offline rules answer instead of a model."""
        return bool(self.client.model_info["family"] == OFFLINE_FAMILY)

    async def call(
        self,
        prompt: Prompt,
        *hints: protocol.LLMMessage,
        purpose: str,
        tools: Sequence[protocol.ToolSchema] = (),
        tool_choice: protocol.Tool | str = "auto",
        json_output: bool | None = None,
    ) -> protocol.CreateResult:
        """Call the model once within the remaining time.

        Hints follow the prompt and are not kept in it.
        Raises ModelFailed or TimeoutError. A cassette mismatch and an exhausted test script pass
        through, because the caller has to fix them.
        """
        started = time.monotonic()
        choice = tool_choice if isinstance(tool_choice, str) else tool_choice.name
        characters = prompt.characters + sum(len(text) for m in hints for text in message_texts(m))
        event = ModelEvent(purpose=purpose, tool_choice=choice, characters=characters)
        try:
            async with asyncio.timeout(max(self.budget.seconds_left - self.reserve, 0.0)):
                reply = await self._call_client(
                    [*prompt.messages, *hints],
                    purpose,
                    tools=tools,
                    tool_choice=tool_choice,
                    json_output=json_output,
                )
            self._add_usage(event, reply, prompt)
        except (CallerError, ModelFailed, TimeoutError) as error:
            problem = error.message if isinstance(error, ModelFailed) else str(error)
            event.failed = problem or "no answer within the remaining time"
            raise
        except Exception as error:  # third-party clients raise errors of any type
            event.failed = type(error).__name__
            raise to_model_failure(error) from error
        finally:
            self._record(event, time.monotonic() - started)
        return reply

    def _add_usage(self, event: ModelEvent, reply: protocol.CreateResult, prompt: Prompt) -> None:
        """Set the tokens of the call, estimated if the server reports none."""
        # Clients of others may pass on a negative number, which would raise the limit.
        sent = max(reply.usage.prompt_tokens, 0)
        answered = max(reply.usage.completion_tokens, 0)
        estimated = 0
        if not sent and not self.is_offline:
            sent = estimated = prompt.estimate_tokens()
            if not answered:
                answered = sum(map(estimate_tokens, _reply_texts(reply)))
                estimated += answered
        event.prompt_tokens, event.completion_tokens = sent, answered
        event.estimated_tokens = estimated or None

    def _record(self, event: ModelEvent, seconds: float) -> None:
        self.budget.spend_model_call(
            event.characters,
            event.prompt_tokens,
            event.completion_tokens,
            seconds,
            event.estimated_tokens or 0,
        )
        event.seconds = round(seconds, 4)
        self.recorder.add(event)

    async def _call_client(
        self, messages: Sequence[protocol.LLMMessage], purpose: str, **arguments: Any
    ) -> protocol.CreateResult:
        with trace_model(self.name, self._provider(), purpose) as span:
            reply = _make_valid(await create_accepted(self.client, messages, **arguments))
            span.set(
                {
                    "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
                    "gen_ai.response.finish_reasons": (reply.finish_reason,),
                }
            )
            return reply

    def _provider(self) -> str:
        """Return the provider as OpenTelemetry names it."""
        if self.is_offline:
            return "memrecall"
        return "openai" if isinstance(self.client, model.BaseClient) else type(self.client).__name__


def _make_valid(reply: protocol.CreateResult) -> protocol.CreateResult:
    """Return an answer whose texts can be stored and written as UTF-8."""
    texts = _reply_texts(reply)
    if (valid := make_storable(texts)) == texts:
        return reply
    thought, *rest = valid
    content: str | list[protocol.FunctionCall] = rest[0] if isinstance(reply.content, str) else []
    if not isinstance(content, str):
        content = list(map(protocol.FunctionCall, rest[::3], rest[1::3], rest[2::3]))
    update = {"content": content, "thought": thought if reply.thought else None}
    return reply.model_copy(update=update)


def _reply_texts(reply: protocol.CreateResult) -> list[str]:
    """Return the thought, then the text, or the id, arguments and name of each call."""
    thought, content = reply.thought or "", reply.content
    if isinstance(content, str):
        return [thought, content]
    return [thought, *(text for c in content for text in (c.id, c.arguments, c.name))]
