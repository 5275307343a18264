"""Structured answers: a prompt or messages in, a validated pydantic model out."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

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
from memrecall.json_objects import make_storable
from memrecall.model.prompts import load_prompt
from memrecall.model.repair import repair_json
from memrecall.types import Language, describe_validation_problem

T = TypeVar("T", bound=BaseModel)

_MAX_PROBLEMS = 5
_ATTEMPTS = 2


@dataclass(frozen=True)
class Structured(Generic[T]):
    """A validated value, or None and the problem.

    None means "no usable answer", neither yes nor no.
    """

    value: T | None
    problem: str = ""


async def ask_json(
    client: ChatCompletionClient, messages: Sequence[LLMMessage], model: type[T]
) -> Structured[T]:
    """Ask for JSON that fits the pydantic `model`, again if the answer is unusable."""
    conversation = list(messages)
    answer: Structured[T] = Structured(None)
    for _ in range(_ATTEMPTS):
        json_output = True if client.model_info["json_output"] else None
        reply = await client.create(conversation, json_output=json_output)
        answer = _parse_reply(reply, model)
        if answer.value is not None:
            break
        conversation += _retry_messages(reply, answer.problem)
    return answer


def _parse_reply(reply: CreateResult, model: type[T]) -> Structured[T]:
    if not isinstance(reply.content, str):
        return Structured(None, "it is a tool call, not JSON")
    if not reply.content.strip():
        return Structured(None, "it is empty")
    try:
        value = make_storable(_parse_json(reply.content))
        return Structured(model.model_validate(value))
    except ValidationError as error:
        # Without the values, which may be long.
        problems = map(describe_validation_problem, error.errors()[:_MAX_PROBLEMS])
        return Structured(None, "; ".join(problems))
    except ValueError as error:
        return Structured(None, f"it is not JSON: {error}")


def _parse_json(text: str) -> object:
    """Return the value in a text, also from inside a string or a list of one object."""
    value = repair_json(text, allow_truncated=False)
    if isinstance(value, str):
        return repair_json(value, allow_truncated=False)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0]
    return value


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
    return Structured(None, problem)
