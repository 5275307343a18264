"""AutoGen's `Memory` protocol: recall in `AssistantAgent(memory=[…])`.

The assistant's model is a script. With a real model, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core.memory import MemoryContent, MemoryMimeType
from history import LIN, opened_history, quote_the_evidence

from memrecall import RecallMemory
from memrecall.testing import ScriptedClient

TEA = "Lin drinks jasmine tea in the morning, never coffee."
FACTS = (TEA, "Lin's tea shop is called Morning Leaf.", "Lin's office is in Hangzhou.")
QUESTION = "Do you remember which tea I drink?"


async def run() -> None:
    """Add facts, let an assistant use them, query them, and clear them."""
    async with opened_history() as library:
        memory = RecallMemory(library, LIN)
        for fact in FACTS:
            await memory.add(MemoryContent(content=fact, mime_type=MemoryMimeType.TEXT))

        assistant = AssistantAgent(
            "assistant", model_client=ScriptedClient([quote_the_evidence]), memory=[memory]
        )
        result = await assistant.run(task=QUESTION)
        for event in result.messages:
            if isinstance(event, MemoryQueryEvent):
                print(f"recalled:  {[content.content for content in event.content]}")
        print(f"assistant: {result.messages[-1].to_text()}")

        hits = await memory.query(QUESTION)
        print(f"query:     {[content.metadata for content in hits.results]}")
        await memory.clear()  # deletes the user's memories; messages stay
        hits = await memory.query(QUESTION)
        print(f"cleared:   {TEA not in [content.content for content in hits.results]}")
        await memory.close()


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
