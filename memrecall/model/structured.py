"""Structured answers: a prompt or messages in, a validated pydantic model out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from memrecall.errors import CallerError, ModelFailed, describe_validation_problem
from memrecall.json_objects import make_storable
from memrecall.model import protocol
from memrecall.model.failures import create_accepted
from memrecall.model.prompts import load_prompt
from memrecall.model.repair import repair_json
from memrecall.types import Language

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
    ask: Callable[[Sequence[protocol.LLMMessage]], Awaitable[protocol.CreateResult]],
    messages: Sequence[protocol.LLMMessage],
    model: type[T],
) -> Structured[T]:
    """Ask for JSON that fits the pydantic `model`, again if the answer is unusable."""
    conversation = list(messages)
    answer: Structured[T] = Structured(None)
    for _ in range(_ATTEMPTS):
        reply = await ask(conversation)
        answer = _parse_reply(reply, model)
        if answer.value is not None:
            break
        conversation += _retry_messages(reply, answer.problem)
    return answer


def _parse_reply(reply: protocol.CreateResult, model: type[T]) -> Structured[T]:
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


def _retry_messages(reply: protocol.CreateResult, problem: str) -> list[protocol.LLMMessage]:
    request = protocol.UserMessage(
        content=f"That answer cannot be used: {problem}. Answer again with the JSON object alone.",
        source="user",
    )
    if isinstance(reply.content, str) and reply.content.strip():
        return [protocol.AssistantMessage(content=reply.content, source="assistant"), request]
    return [request]


SOURCE = "memrecall"
_log = logging.getLogger(__name__)


async def ask_prompt(
    client: protocol.ChatCompletionClient,
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
    messages: list[protocol.LLMMessage] = [
        protocol.SystemMessage(content=load_prompt(prompt, language)),
        protocol.UserMessage(content="\n".join(lines), source=SOURCE),
    ]
    try:
        async with asyncio.timeout(seconds):
            json_output = client.model_info["json_output"] or None
            ask = partial(create_accepted, client, json_output=json_output)
            return await ask_json(ask, messages, answer)
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
