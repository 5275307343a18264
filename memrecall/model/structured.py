"""Structured answers: a prompt or messages in, a validated pydantic model out."""

import asyncio
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, ValidationError

from memrecall.errors import CallerError, ModelFailed
from memrecall.model.prompts import load_prompt
from memrecall.model.repair import repair_json
from memrecall.types import Language, describe_validation_problem

T = TypeVar("T", bound=BaseModel)

_MAX_PROBLEMS = 5
_ATTEMPTS = 2


@dataclass(frozen=True)
class Structured(Generic[T]):
    """A validated value, or None and the problem.

    None means "no usable answer", neither yes nor no. `repaired` says that the answer was not plain
    JSON, `asked` how often the model was asked.
    """

    value: T | None
    repaired: bool = False
    asked: int = 1
    problem: str = ""


async def ask_json(
    client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    model: type[T],
    *,
    cancellation_token: CancellationToken | None = None,
) -> Structured[T]:
    """Ask for JSON that fits the pydantic `model`, again if the answer is unusable."""
    conversation = list(messages)
    answer: Structured[T] = Structured(None)
    for attempt in range(1, _ATTEMPTS + 1):
        reply = await client.create(
            conversation,
            json_output=True if client.model_info["json_output"] else None,
            cancellation_token=cancellation_token,
        )
        answer = _parse_reply(reply, model, attempt)
        if answer.value is not None:
            break
        conversation += _retry_messages(reply, answer.problem)
    return answer


def _parse_reply(reply: CreateResult, model: type[T], asked: int) -> Structured[T]:
    if not isinstance(reply.content, str):
        return Structured(None, asked=asked, problem="it is a tool call, not JSON")
    if not reply.content.strip():
        return Structured(None, asked=asked, problem="it is empty")
    try:
        value, repaired = _parse_json(reply.content)
        return Structured(model.model_validate(value), repaired, asked)
    except ValidationError as error:
        return Structured(None, asked=asked, problem=_describe(error))
    except ValueError as error:
        return Structured(None, asked=asked, problem=f"it is not JSON: {error}")


def _parse_json(text: str) -> tuple[object, bool]:
    """Return the value in a text, and whether it had to be repaired."""
    try:
        value, is_repaired = json.loads(text), False
    except (ValueError, RecursionError):
        value, is_repaired = repair_json(text), True
    if isinstance(value, str):  # JSON inside a string
        return repair_json(value), True
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0], True
    return value, is_repaired


def _describe(error: ValidationError) -> str:
    """Return the problems for the model, without the values, which may be long."""
    return "; ".join(map(describe_validation_problem, error.errors()[:_MAX_PROBLEMS]))


def _retry_messages(reply: CreateResult, problem: str) -> list[LLMMessage]:
    request = UserMessage(
        content=f"That answer cannot be used: {problem}. Answer again with the JSON object alone.",
        source="user",
    )
    if isinstance(reply.content, str) and reply.content.strip():
        return [AssistantMessage(content=reply.content, source="assistant"), request]
    return [request]


ModelClient: TypeAlias = ChatCompletionClient
"""A server's client, the offline client or a replay."""

SOURCE = "memrecall"
_log = logging.getLogger(__name__)


async def ask_prompt(
    client: ModelClient,
    prompt: str,
    language: Language,
    lines: Iterable[str],
    answer: type[T],
    *,
    seconds: float,
) -> Structured[T]:
    """Return the answer to a prompt over lines of data; a failure becomes a problem.

    Cassette mismatches, exhausted scripts and cancellations are raised.
    """
    messages: list[LLMMessage] = [
        SystemMessage(content=load_prompt(prompt, language)),
        UserMessage(content="\n".join(lines), source=SOURCE),
    ]
    try:
        async with asyncio.timeout(seconds):
            return await ask_json(client, messages, answer)
    except CallerError:
        raise
    except TimeoutError:
        problem = f"the model did not answer in {seconds:g} seconds"
    except ModelFailed as failure:
        problem = f"the model failed: {failure.kind}"
    except Exception as error:  # other clients may raise anything
        # Its message may quote the conversation.
        problem = f"the model failed: {type(error).__name__}"
    _log.warning("prompt %s: %s", prompt, problem)
    return Structured(None, problem=problem)
