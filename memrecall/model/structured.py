"""One question to a model by one of our prompts, answered as data, whatever the model does."""

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
from memrecall.model.prompts import Language, load_prompt
from memrecall.model.repair import repair_json

T = TypeVar("T", bound=BaseModel)

PROBLEMS_TOLD = 5
ATTEMPTS = 2


@dataclass(frozen=True)
class Structured(Generic[T]):
    """What came of asking for data: a checked value, or None and the problem.

    None is a third state, neither yes nor no. `repaired` says that the answer was not plain JSON,
    `asked` how often the model was asked.
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
    """Ask for JSON that fits the pydantic `model`; an unusable answer is asked for once more."""
    conversation = list(messages)
    answered: Structured[T] = Structured(None)
    for asked in range(1, ATTEMPTS + 1):
        reply = await client.create(
            conversation,
            json_output=True if client.model_info["json_output"] else None,
            cancellation_token=cancellation_token,
        )
        answered = _read(reply, model, asked)
        if answered.value is not None:
            break
        conversation += _complaint(reply, answered.problem)
    return answered


def _read(reply: CreateResult, model: type[T], asked: int) -> Structured[T]:
    if not isinstance(reply.content, str):
        return Structured(None, asked=asked, problem="it is a tool call, not JSON")
    if not reply.content.strip():
        return Structured(None, asked=asked, problem="it is empty")
    try:
        said, repaired = _parse(reply.content)
        return Structured(model.model_validate(said), repaired, asked)
    except ValidationError as error:
        return Structured(None, asked=asked, problem=_describe(error))
    except ValueError as error:
        return Structured(None, asked=asked, problem=f"it is not JSON: {error}")


def _parse(text: str) -> tuple[object, bool]:
    """The value in the text, and whether it took more than reading JSON."""
    said = repair_json(text)
    if isinstance(said, str):  # JSON inside a string
        return repair_json(said), True
    if isinstance(said, list) and len(said) == 1 and isinstance(said[0], dict):
        return said[0], True
    return said, not _is_json(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _describe(error: ValidationError) -> str:
    """What is wrong, field by field, without the values."""
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    told = [
        f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {problem['msg']}"
        for problem in problems[:PROBLEMS_TOLD]
    ]
    return "; ".join(told)


def _complaint(reply: CreateResult, problem: str) -> list[LLMMessage]:
    ask = UserMessage(
        content=f"That answer cannot be used: {problem}. Answer again with the JSON object alone.",
        source="user",
    )
    if isinstance(reply.content, str) and reply.content.strip():
        return [AssistantMessage(content=reply.content, source="assistant"), ask]
    return [ask]


ModelClient: TypeAlias = ChatCompletionClient
"""Whatever answers: a server's client, the offline client, a recording."""


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
    """What the model answers to a prompt over lines of data; a failure is a problem, not raised.

    A cassette that does not fit, a script that ran out and a cancellation are the caller's to see.
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
    except Exception as error:  # clients of others raise what they like
        problem = f"the model failed: {type(error).__name__}"  # its words may quote what was said
    _log.warning("prompt %s: %s", prompt, problem)
    return Structured(None, problem=problem)
