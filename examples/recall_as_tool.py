"""Recall as a typed tool of an `AssistantAgent`: several calls in one turn, and cancellation.

The tool takes a query and an optional context; it is bound to a user when it is created. Both
models are scripts. With real models, replace `ScriptedClient(…)` by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio
import json
import time

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core import CancellationToken
from history import LIN, opened_history, quote_the_evidence

from memrecall import Library, RecallTool
from memrecall.testing import ScriptedClient, call, calls, say, wait


async def ask_twice(library: Library) -> None:
    """Let the assistant recall two things at once; the recalls run concurrently."""
    both = calls(
        call("recall", query="Which seat did I say I take on trains?"),
        call("recall", query="我之前说过我对什么东西过敏，不能点什么菜？"),
    )
    assistant = AssistantAgent(
        "assistant",
        model_client=ScriptedClient([both, quote_the_evidence]),
        tools=[RecallTool(library, LIN)],
        max_tool_iterations=2,
    )
    result = await assistant.run(task="Book my train and a table for dinner.")
    for event in result.messages:
        if isinstance(event, ToolCallExecutionEvent) and event.source == "assistant":
            for answer in event.content:
                memories = json.loads(answer.content)["memories"]
                print(f"recall:    {[memory['memory_key'] for memory in memories]}")
    print(f"assistant: {result.messages[-1].to_text()}")


async def cancel(library: Library) -> None:
    """Cancel the assistant while the recall waits for a slow model."""
    slow = ScriptedClient([wait(60, then=say("too late"))])
    assistant = AssistantAgent(
        "assistant",
        model_client=ScriptedClient([call("recall", query="Which seat?"), say("unused")]),
        tools=[RecallTool(library, LIN, model_client=slow)],
        max_tool_iterations=2,
    )
    token = CancellationToken()
    running = asyncio.ensure_future(assistant.run(task="Which seat?", cancellation_token=token))
    await asyncio.sleep(0.2)
    start = time.monotonic()
    token.cancel()
    try:
        await running
    except asyncio.CancelledError:
        # The tool answered that it was cancelled; the assistant ended at its next model call.
        print(f"cancelled: the assistant ended after {time.monotonic() - start:.1f} s")


async def run() -> None:
    """Run both parts."""
    async with opened_history() as library:
        await ask_twice(library)
        await cancel(library)


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
