"""Model calls that are counted against the budget and recorded in the trace."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from memrecall.agent.trace import Recorder
from memrecall.agent.trace_events import ModelEvent
from memrecall.budget import Budget
from memrecall.errors import CallerError, ModelFailed
from memrecall.model.client import BaseClient, Request, message_texts, to_model_failure
from memrecall.model.offline import OFFLINE_FAMILY
from memrecall.model.protocol import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    Tool,
    ToolSchema,
)
from memrecall.telemetry import trace_model


@dataclass(frozen=True, slots=True)
class BudgetedModel:
    """A model client with the budget and the recorder of one recall."""

    client: ChatCompletionClient
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
        messages: Sequence[LLMMessage],
        *,
        characters: int,
        purpose: str,
        tools: Sequence[ToolSchema] = (),
        tool_choice: Tool | str = "auto",
        json_output: bool | None = None,
    ) -> CreateResult:
        """Call the model once within the remaining time.

        Raises ModelFailed or TimeoutError. A cassette mismatch and an exhausted test script pass
        through, because the caller has to fix them.
        """
        started = time.monotonic()
        choice = tool_choice if isinstance(tool_choice, str) else tool_choice.name
        event = ModelEvent(purpose=purpose, tool_choice=choice, characters=characters)
        try:
            async with asyncio.timeout(max(self.budget.seconds_left - self.reserve, 0.0)):
                reply = await self._call_client(
                    messages, purpose, tools=tools, tool_choice=tool_choice, json_output=json_output
                )
            event = replace(
                event,
                prompt_tokens=reply.usage.prompt_tokens,
                completion_tokens=reply.usage.completion_tokens,
            )
        except (CallerError, ModelFailed, TimeoutError) as error:
            problem = error.message if isinstance(error, ModelFailed) else str(error)
            event = replace(event, failed=problem or "no answer within the remaining time")
            raise
        except Exception as error:  # third-party clients raise errors of any type
            event = replace(event, failed=type(error).__name__)
            raise to_model_failure(error) from error
        finally:
            seconds = time.monotonic() - started
            self.budget.spend_model_call(
                event.characters, event.prompt_tokens, event.completion_tokens, seconds
            )
            self.recorder.add(replace(event, seconds=round(seconds, 4)))
        return reply

    async def _call_client(
        self, messages: Sequence[LLMMessage], purpose: str, **arguments: Any
    ) -> CreateResult:
        with trace_model(self.name, self._provider(), purpose) as span:
            reply = await self.client.create(messages, **arguments)
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
        return "openai" if isinstance(self.client, BaseClient) else type(self.client).__name__


class BudgetedClient(BaseClient):
    """A client over a budgeted model, for model calls beside the loop."""

    def __init__(self, model: BudgetedModel, purpose: str) -> None:
        super().__init__(purpose, model.client.model_info)
        self._model = model
        self._purpose = purpose

    async def _answer(self, request: Request) -> CreateResult:
        texts = [text for message in request.messages for text in message_texts(message)]
        return await self._model.call(
            request.messages,
            characters=sum(map(len, texts)),
            purpose=self._purpose,
            json_output=bool(request.json_output) or None,
        )
