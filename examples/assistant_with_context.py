"""Recall as the model context of an `AssistantAgent`, with no other change.

The assistant's model is a script. With a real model, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai

and pass it to `MemoryContext(…, model_client=…)` as well if it should also drive the recall.
"""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from history import LIN, opened_history, quote_the_evidence

from memrecall import MemoryContext
from memrecall.testing import ScriptedClient, repeat

TURNS = (
    "Hi there!",
    "我之前说过我对什么东西过敏，不能点什么菜？",
    "Which seat did I say I take on trains?",
)


async def run() -> None:
    """Talk for three turns; two of them refer to earlier conversations."""
    async with opened_history() as library:
        context = MemoryContext(library, LIN)
        assistant = AssistantAgent(
            "assistant",
            model_client=ScriptedClient([repeat(quote_the_evidence, len(TURNS))]),
            model_context=context,
        )
        for text in TURNS:
            result = await assistant.run(task=text)
            recalled = context.last_result
            keys = recalled.handoff.relevant_memory_keys if recalled else "not needed"
            print(f"\nuser:      {text}\nrecall:    {keys}")
            print(f"assistant: {result.messages[-1].to_text()}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
