"""Agents of Pydantic AI with recall before each turn, and with tools.

The memory is bound to a user when it is created. The model is a function; with a real one, pass its
name: `Agent("openai:gpt-4.1-mini", capabilities=[…])`.
"""

import asyncio

from history import LIN, opened_history, quote_memories
from pydantic_ai import Agent, ModelMessage, ModelResponse
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from memrecall import AsyncMemory
from memrecall.integrations.pydantic_ai import MemoryToolset, RecallCapability
from memrecall.messages import parse_messages


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Act as the model: recall first if there are tools, then quote the memories."""
    if info.function_tools and len(messages) == 1:
        call = ToolCallPart("recall", {"query": "Which seat did I say I take on trains?"})
        return ModelResponse(parts=[call])
    texts = [message.text for message in parse_messages(messages)]
    return ModelResponse(parts=[TextPart(quote_memories(texts))])


async def run() -> None:
    """Ask for things that were said in earlier conversations."""
    async with opened_history() as library:
        memory = AsyncMemory(library=library, user_id=LIN.user_id)
        agent = Agent(FunctionModel(answer), capabilities=[RecallCapability(memory)])
        result = await agent.run("我之前说过我对什么东西过敏，不能点什么菜？")
        print(f"recall: {result.output}")

        agent = Agent(FunctionModel(answer), toolsets=[MemoryToolset(memory)])
        result = await agent.run("Book my train.")
        print(f"tools:  {result.output}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
