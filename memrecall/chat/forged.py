"""Tool calls that the turn makes in the model's name: a call and its output, as providers have it.

They show the model that the tools exist and what they bring, and they make sure that every turn
recalls. They live in one request's context and are never stored.
"""

import hashlib
from collections.abc import Sequence

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from memrecall.chat.phrases import say
from memrecall.model.prompts import Language

ASSISTANT, USER = "assistant", "user"  # AutoGen sends sources as names, which must be plain
_ID_LENGTH = 24


def forge_call(turn: str, name: str, arguments: str) -> FunctionCall:
    """A call with an id of its own: the same turn and tool, the same id."""
    digest = hashlib.sha256(f"{turn}\0{name}\0{arguments}".encode()).hexdigest()
    return FunctionCall(id=f"call_{digest[:_ID_LENGTH]}", name=name, arguments=arguments)


def call_items(
    calls: Sequence[FunctionCall],
    results: Sequence[FunctionExecutionResult],
    thought: str | None = None,
) -> list[LLMMessage]:
    """Calls and their outputs as two items of a context, forged or real."""
    return [
        AssistantMessage(content=list(calls), thought=thought, source=ASSISTANT),
        FunctionExecutionResultMessage(content=list(results)),
    ]


def without_calls(
    messages: Sequence[LLMMessage], said: str, language: Language
) -> list[LLMMessage]:
    """The context for a request without tools: outputs as data, calls left out.

    A context with calls in it and no tools beside it is what makes models write calls as text.
    What the reader has seen of the answer already stands at the end, before the demand for words.
    """
    plain: list[LLMMessage] = []
    for message in messages:
        if isinstance(message, FunctionExecutionResultMessage):
            plain += [_as_data(result, language) for result in message.content]
        elif not isinstance(message, AssistantMessage) or isinstance(message.content, str):
            plain.append(message)
    if said:
        plain.append(AssistantMessage(content=said, source=ASSISTANT))
    plain.append(UserMessage(content=say(language, "answer_in_words"), source=USER))
    return plain


def _as_data(result: FunctionExecutionResult, language: Language) -> UserMessage:
    text = say(language, "as_data", tool=result.name, content=result.content)
    return UserMessage(content=text, source=USER)
