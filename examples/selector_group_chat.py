"""A `SelectorGroupChat`: the recall agent speaks after the user, then the assistant takes over.

A function selects the speaker; without it, the selector's model does. The models are scripts. With
real models, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio
from collections.abc import Sequence

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StructuredMessage
from autogen_agentchat.teams import SelectorGroupChat
from history import LIN, opened_history

from memrecall import MemRecallAgent
from memrecall.model import Request
from memrecall.testing import ScriptedClient, Step, say


def select(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
    """Let the recall agent speak first, then the assistant."""
    return "assistant" if messages[-1].source == "recall" else "recall"


def answer(request: Request) -> Step:
    """Act as the assistant's model, which reads the handoff with its evidence."""
    handoff = str(request.messages[-1].content)
    return say("花生。点菜时我会避开。" if "花生" in handoff else "我不知道。")


async def run() -> None:
    """Ask once, in Chinese."""
    async with opened_history() as library:
        assistant = AssistantAgent("assistant", model_client=ScriptedClient([answer]))
        recall = MemRecallAgent("recall", library, LIN)
        team = SelectorGroupChat(
            [assistant, recall],
            model_client=ScriptedClient([]),
            selector_func=select,
            termination_condition=TextMessageTermination("assistant"),
        )
        result = await team.run(task="我之前说过我对什么东西过敏，不能点什么菜？")
        for message in result.messages:
            if isinstance(message, StructuredMessage):
                print(f"recall:    {message.content.relevant_memory_keys}")
        print(f"assistant: {result.messages[-1].to_text()}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
