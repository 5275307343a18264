"""Calls of the model, counted: each is held against the budget and told to the trace."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage
from autogen_core.tools import Tool, ToolSchema

from memrecall.agent.trace import EventKind, Recorder
from memrecall.budget import Budget
from memrecall.errors import CallerError, ModelFailed
from memrecall.model.client import BaseClient, Request, failure_of, message_texts
from memrecall.model.offline import FAMILY
from memrecall.telemetry import trace_model


@dataclass(frozen=True, slots=True)
class CountedModel:
    """A model client together with who counts its calls."""

    client: ChatCompletionClient
    budget: Budget
    recorder: Recorder
    reserve: float = 0.0  # seconds that are kept back for the rules, should the model never answer

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
        """Ask once, within the time that is left. Raises ModelFailed or TimeoutError alone."""
        started = time.monotonic()
        chosen = tool_choice if isinstance(tool_choice, str) else tool_choice.name
        told: dict[str, Any] = {"purpose": purpose, "tool_choice": chosen, "characters": characters}
        tokens = (0, 0)
        try:
            async with asyncio.timeout(max(self.budget.seconds_left - self.reserve, 0.0)):
                reply = await self._ask(
                    messages,
                    purpose,
                    tools=tools,
                    tool_choice=tool_choice,
                    json_output=json_output,
                )
            tokens = (reply.usage.prompt_tokens, reply.usage.completion_tokens)
        except (CallerError, TimeoutError) as error:
            # A cassette that does not fit and a script that ran out are the caller's to see.
            told["failed"] = str(error) or "no answer within the time that was left"
            raise
        except ModelFailed as error:
            told["failed"] = error.message
            raise
        except Exception as error:  # clients of others raise what they like
            told["failed"] = type(error).__name__
            raise failure_of(error) from error
        finally:
            seconds = time.monotonic() - started
            self.budget.spend_model_call(characters, *tokens, seconds)
            told |= {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
            self.recorder.add(EventKind.MODEL, **told, seconds=round(seconds, 4))
        return reply

    async def _ask(
        self, messages: Sequence[LLMMessage], purpose: str, **arguments: Any
    ) -> CreateResult:
        """The client's answer, told to whoever traces."""
        with trace_model(model_name(self.client), _provider(self.client), purpose) as span:
            reply = await self.client.create(messages, **arguments)
            span.set(
                {
                    "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
                    "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
                    "gen_ai.response.finish_reasons": (reply.finish_reason,),
                }
            )
            return reply


def model_name(client: ChatCompletionClient) -> str:
    """What a client's model is called."""
    return str(getattr(client, "model", "") or type(client).__name__)


def _provider(client: ChatCompletionClient) -> str:
    """Who answers: the rules, whoever speaks OpenAI's API, or what another client is called."""
    if client.model_info["family"] == FAMILY:
        return "memrecall"
    return "openai" if isinstance(client, BaseClient) else type(client).__name__


class CountedClient(BaseClient):
    """A counted model where a client is wanted: for questions beside the loop."""

    def __init__(self, model: CountedModel, purpose: str) -> None:
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
