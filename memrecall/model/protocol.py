"""The client, message and tool types of models: AutoGen's, named in one place.

The recall agent and chat name them `protocol.UserMessage` and so on. AutoGen is loaded when the
first of them is used, so that only what runs a model pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from autogen_core import CancellationToken, FunctionCall
    from autogen_core.models import (
        AssistantMessage,
        ChatCompletionClient,
        CreateResult,
        FunctionExecutionResult,
        FunctionExecutionResultMessage,
        LLMMessage,
        SystemMessage,
        UserMessage,
    )
    from autogen_core.tools import Tool, ToolSchema

__all__ = [
    "AssistantMessage",
    "CancellationToken",
    "ChatCompletionClient",
    "CreateResult",
    "FunctionCall",
    "FunctionExecutionResult",
    "FunctionExecutionResultMessage",
    "LLMMessage",
    "SystemMessage",
    "Tool",
    "ToolSchema",
    "UserMessage",
    "message_texts",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "autogen_core": ("CancellationToken", "FunctionCall"),
        "autogen_core.models": (
            "AssistantMessage",
            "ChatCompletionClient",
            "CreateResult",
            "FunctionExecutionResult",
            "FunctionExecutionResultMessage",
            "LLMMessage",
            "SystemMessage",
            "UserMessage",
        ),
        "autogen_core.tools": ("Tool", "ToolSchema"),
    },
)


def message_texts(message: LLMMessage) -> list[str]:
    """Return the texts of a message of any kind, without images."""
    if isinstance(message.content, str):
        return [message.content]
    import autogen_core

    texts: list[str] = []
    for item in message.content:
        if isinstance(item, autogen_core.FunctionCall):
            texts.append(f"{item.name} {item.arguments}")
        else:
            texts.append(item if isinstance(item, str) else str(getattr(item, "content", "")))
    return list(filter(None, texts))
