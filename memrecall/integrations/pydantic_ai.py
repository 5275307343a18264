"""Pydantic AI: a toolset to remember, recall, correct and forget.

agent = Agent(model, toolsets=[MemoryToolset(AsyncMemory(user_id="ann"))])
"""

from typing import Any, Unpack

from pydantic import TypeAdapter

from memrecall.integrations.agent_memory import (
    SOURCE,
    AgentArguments,
    AgentMemory,
    AnyMemory,
    framework_of,
)

with framework_of("pydantic-ai"):
    from pydantic_ai import RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

# The table of tools checks the arguments and answers in the model's language.
_ANY_ARGUMENTS = TypeAdapter(dict[str, Any]).validator


class MemoryToolset(AbstractToolset[Any]):
    """The tools of the table for the user of a memory."""

    def __init__(
        self,
        memory: AnyMemory,
        *,
        id: str | None = SOURCE,  # noqa: A002 -- the framework's name
        **arguments: Unpack[AgentArguments],
    ) -> None:
        self._tools = {tool.name: tool for tool in AgentMemory(memory, **arguments).tools()}
        self._id = id

    @property
    def id(self) -> str | None:
        """The name of the toolset in durable runs and error messages."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the definitions of the tools by name."""
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
        return await self._tools[name].call(tool_args)
