"""The client, message and tool types of models: AutoGen's, named in one place.

The recall agent imports them from here, so that only this package, the AutoGen classes in
`agent/autogen` and chat depend on the framework by name.
"""

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
from autogen_core.tools import BaseTool, ParametersSchema, Tool, ToolSchema

__all__ = [
    "AssistantMessage",
    "BaseTool",
    "CancellationToken",
    "ChatCompletionClient",
    "CreateResult",
    "FunctionCall",
    "FunctionExecutionResult",
    "FunctionExecutionResultMessage",
    "LLMMessage",
    "ParametersSchema",
    "SystemMessage",
    "Tool",
    "ToolSchema",
    "UserMessage",
]
