"""Pydantic AI: a capability that recalls and remembers, and a toolset.

agent = Agent(model, capabilities=[RecallCapability(AsyncMemory(user_id="ann"))])
agent = Agent(model, toolsets=[MemoryToolset(AsyncMemory(user_id="ann"))])
"""

from dataclasses import replace
from typing import Any, Unpack

from pydantic import TypeAdapter

from memrecall.integrations.agent_memory import (
    SOURCE,
    AgentArguments,
    AgentMemory,
    BlockArguments,
    MemorySource,
    TurnBlocks,
    bind_tools,
    framework_of,
)

with framework_of("pydantic-ai"):
    from pydantic_ai import AgentRunResult, ModelRequest, RunContext, ToolDefinition
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, UserPromptPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

# The table of tools checks the arguments and answers in the model's language.
_ANY_ARGUMENTS = TypeAdapter(dict[str, Any]).validator


class RecallCapability(AbstractCapability[Any]):
    """Adds what the user refers to before a model request, and stores the turn after the run.

    The recalled memories are one part of data in the request, which the history does not get; the
    requests of one run share one recall. `remember=False` stores nothing. A function as `memory`
    gets the `RunContext` of the run.
    """

    def __init__(
        self, memory: MemorySource, *, remember: bool = True, **arguments: Unpack[BlockArguments]
    ) -> None:
        self._memory = AgentMemory(memory, **arguments)
        self._remember = remember
        self._blocks = TurnBlocks()

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: no specification can name a memory."""
        return None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Recall for the last prompt of the user, and add the result to this request only."""
        messages = list(request_context.messages)
        index = _last_prompt_index(messages)
        if index is None:
            return request_context
        owner, asked = self._memory.of(ctx), messages[: index + 1]
        block = None if asked == messages else self._blocks.get(owner, asked)
        if block is None:
            block = await owner.recall_block(asked, ctx.conversation_id)
            self._blocks.put(owner, asked, block)
        if block:
            messages[index] = _add_block(messages[index], block)
        return replace(request_context, messages=messages)

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Store the messages of the run and the facts in them."""
        if self._remember:
            await self._memory.of(ctx).remember(result.new_messages(), ctx.conversation_id)
        return result


def _prompt_index(message: ModelMessage) -> int | None:
    """Return the index of the last part that the user wrote."""
    parts = message.parts if isinstance(message, ModelRequest) else []
    return max(
        (i for i, part in enumerate(parts) if isinstance(part, UserPromptPart)), default=None
    )


def _last_prompt_index(messages: list[ModelMessage]) -> int | None:
    indices = (i for i, message in enumerate(messages) if _prompt_index(message) is not None)
    return max(indices, default=None)


def _add_block(message: ModelMessage, block: str) -> ModelMessage:
    """Return the message with the block before the user's prompt."""
    parts, index = list(message.parts), _prompt_index(message)
    return replace(message, parts=[*parts[:index], UserPromptPart(block), *parts[index:]])


class MemoryToolset(AbstractToolset[Any]):
    """The tools of the table; a function as `memory` gets the `RunContext` of the run."""

    def __init__(
        self,
        memory: MemorySource,
        *,
        id: str | None = SOURCE,  # noqa: A002 -- the framework's name
        **arguments: Unpack[AgentArguments],
    ) -> None:
        self._tools = {tool.name: tool for tool in bind_tools(memory, **arguments)}
        self._id = id

    @property
    def id(self) -> str | None:
        """The name of the toolset in durable runs and error messages."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by name, with the schemas of the table."""
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=name,
                    description=tool.description,
                    parameters_json_schema=tool.parameters,
                ),
                max_retries=1,
                args_validator=_ANY_ARGUMENTS,
            )
            for name, tool in self._tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run a tool; an error is an answer too."""
        return await self._tools[name].call(tool_args, ctx)
