"""The tools of one user's memory, for an agent framework to wrap."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

from memrecall.agent.dispatch import error_code
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import to_json
from memrecall.agent.tools.arguments import parse_arguments
from memrecall.agent.tools.definition import Interface, Tool
from memrecall.agent.tools.models import ToolErrorCode, ToolFailure
from memrecall.agent.tools.table import tools_for
from memrecall.errors import MemrecallError
from memrecall.integrations.agent_memory import (
    AgentArguments,
    AgentMemory,
    MemorySource,
    report_failure,
)
from memrecall.model import protocol


def bind_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list["BoundTool"]:
    """Return the tools to remember, recall, correct and forget, in the order of the table."""
    owner = AgentMemory(memory, **arguments)
    runner = _ToolRunner(owner)
    tools = tools_for(Interface.AUTOGEN).values()
    return [BoundTool(tool, tool.function_schema(owner.language), runner) for tool in tools]


@dataclass
class _ToolRunner:
    """Runs tools of the table by name, with the memory opened at the first call."""

    owner: AgentMemory
    tools: dict[str, Any] = field(default_factory=dict)

    def of(self, context: object, *, is_sync: bool = False) -> "_ToolRunner":
        owner = self.owner.of(context, is_sync=is_sync)
        return self if owner is self.owner else _ToolRunner(owner)

    async def run(self, tool: Tool, arguments: object) -> str:
        owner = self.owner
        values = parse_arguments(tool, arguments, lenient=True, language=owner.language)
        if not self.tools:
            tools = await owner.memory.tools(language=owner.language, **owner.recall_arguments)
            self.tools.update({each.name: each for each in tools})
        runnable = self.tools[tool.name]
        answer: str = runnable.return_value_as_string(
            await runnable.run(values, protocol.CancellationToken())
        )
        return answer


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool of the table, bound to one user, for a framework to wrap.

    The model's arguments are checked against the table: none of them can name a user.
    """

    tool: Tool
    schema: Any
    runner: _ToolRunner

    @property
    def name(self) -> str:
        """The name for the model."""
        return self.tool.name

    @property
    def description(self) -> str:
        """The description for the model, in the language of the memory."""
        return str(self.schema["description"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return dict(self.schema["parameters"])

    async def call(self, arguments: object, context: object = None) -> str:
        """Return the answer for the model as JSON; an error is an answer too.

        `arguments` is an object, or the JSON text that the model wrote. `context` is the host's
        context of the request, which decides whose memory it is if that was left to a function.
        """
        runner = self.runner.of(context)
        return await runner.owner.attempt(partial(runner.run, self.tool, arguments), self._failure)

    def call_sync(self, arguments: object, context: object = None) -> str:
        """Like `call`, from sync code."""
        runner = self.runner.of(context, is_sync=True)
        return runner.owner.attempt_sync(partial(runner.run, self.tool, arguments), self._failure)

    def _failure(self, error: Exception) -> str:
        problem = report_failure(self.name, error)
        if isinstance(error, MemrecallError):
            failure = ToolFailure(error=error_code(error), message=str(error))
        else:
            text = say(self.runner.owner.language, "internal", tool=self.name, problem=problem)
            failure = ToolFailure(error=ToolErrorCode.INTERNAL, message=text)
        return to_json(failure.as_json())
