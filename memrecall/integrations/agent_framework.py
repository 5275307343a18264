"""Microsoft Agent Framework: a context provider that recalls and remembers, and tools.

agent = Agent(client, context_providers=[RecallProvider(AsyncMemory(user_id="ann"))])
agent = Agent(client, tools=memory_tools(AsyncMemory(user_id="ann")))
"""

from typing import Any

from memrecall.agent.driver import RecallOptions
from memrecall.agent.prompt_view import BLOCK_CHARACTERS
from memrecall.integrations.agent_memory import SOURCE, AgentMemory, BoundTool, framework_of
from memrecall.memory.memory import AsyncMemory
from memrecall.memory.sync import Memory
from memrecall.types import Language

with framework_of("agent-framework"):
    from agent_framework import (
        AgentSession,
        ContextProvider,
        FunctionTool,
        Message,
        SessionContext,
        SupportsAgentRun,
    )


class RecallProvider(ContextProvider):
    """Adds what the user refers to before a run, and stores the turn after it.

    The recalled memories are one message of data, never instructions. `remember=False` stores
    nothing. The agent session labels what is stored, unless the memory is bound to a session.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        remember: bool = True,
        options: RecallOptions | None = None,
        language: Language = "en",
        block_characters: int = BLOCK_CHARACTERS,
        source_id: str = SOURCE,
    ) -> None:
        super().__init__(source_id)
        self._memory = AgentMemory(
            memory, options=options, language=language, block_characters=block_characters
        )
        self._remember = remember

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Recall for the last user message, and add the result as one message."""
        messages = context.get_messages(include_input=True)
        block = await self._memory.recall_block(messages, context.session_id)
        if block:
            message = Message("user", [block], author_name=SOURCE)
            context.extend_messages(self, [message])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store the messages of the turn and the facts in them."""
        if self._remember and context.response is not None:
            messages = [*context.input_messages, *context.response.messages]
            await self._memory.remember(messages, context.session_id)


def memory_tools(
    memory: Memory | AsyncMemory,
    *,
    options: RecallOptions | None = None,
    language: Language = "en",
) -> list[FunctionTool]:
    """Return tools to remember, recall, correct and forget for the user of the memory."""
    agent_memory = AgentMemory(memory, options=options, language=language)
    return [_function_tool(tool) for tool in agent_memory.tools()]


def _function_tool(tool: BoundTool) -> FunctionTool:
    async def call(**arguments: Any) -> str:
        return await tool.call(arguments)

    return FunctionTool(
        name=tool.name, description=tool.description, func=call, input_model=tool.parameters
    )
