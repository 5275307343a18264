"""Microsoft Agent Framework: a context provider that recalls and remembers, and tools.

agent = Agent(client, context_providers=[RecallProvider(AsyncMemory(user_id="ann"))])
agent = Agent(client, tools=memory_tools(AsyncMemory(user_id="ann")))
"""

from typing import Any, Unpack

from memrecall.integrations.agent_memory import (
    SOURCE,
    AgentArguments,
    AgentMemory,
    BlockArguments,
    BoundTool,
    MemorySource,
    bind_tools,
    framework_of,
)

with framework_of("agent-framework"):
    from agent_framework import (
        AgentSession,
        ContextProvider,
        FunctionInvocationContext,
        FunctionTool,
        Message,
        SessionContext,
        SupportsAgentRun,
    )


class RecallProvider(ContextProvider):
    """Adds what the user refers to before a run, and stores the turn after it.

    The recalled memories are one message of data, never instructions. `remember=False` stores
    nothing. The agent session labels what is stored, unless the memory is bound to a session. A
    function as `memory` gets the `AgentSession` of the run, whose `state` is yours to fill.
    """

    def __init__(
        self,
        memory: MemorySource,
        *,
        remember: bool = True,
        source_id: str = SOURCE,
        **arguments: Unpack[BlockArguments],
    ) -> None:
        super().__init__(source_id)
        self._memory = AgentMemory(memory, **arguments)
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
        block = await self._memory.of(session).recall_block(messages, context.session_id)
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
            await self._memory.of(session).remember(messages, context.session_id)


def memory_tools(memory: MemorySource, **arguments: Unpack[AgentArguments]) -> list[FunctionTool]:
    """Return tools to remember, recall, correct and forget; a function gets the `AgentSession`."""
    return [_function_tool(tool) for tool in bind_tools(memory, **arguments)]


def _function_tool(tool: BoundTool) -> FunctionTool:
    async def call(ctx: FunctionInvocationContext, **arguments: Any) -> str:
        return await tool.call(arguments, ctx.session)

    return FunctionTool(
        name=tool.name, description=tool.description, func=call, input_model=tool.parameters
    )
