"""One question to a model by one of our prompts, answered as data, whatever the model does."""

import asyncio
import logging
from collections.abc import Iterable
from typing import TypeAlias, TypeVar

from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel

from memrecall.errors import CallerError, ModelFailed
from memrecall.model.prompts import Language, load_prompt
from memrecall.model.structured import Structured, ask_json

ModelClient: TypeAlias = ChatCompletionClient
"""Whatever answers: a server's client, the offline client, a recording."""

T = TypeVar("T", bound=BaseModel)
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
    except (CallerError, AssertionError):
        raise
    except TimeoutError:
        problem = f"the model did not answer in {seconds:g} seconds"
    except ModelFailed as failure:
        problem = f"the model failed: {failure.kind}"
    except Exception as error:  # clients of others raise what they like
        problem = f"the model failed: {type(error).__name__}"  # its words may quote what was said
    _log.warning("prompt %s: %s", prompt, problem)
    return Structured(None, problem=problem)
