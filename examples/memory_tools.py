"""An assistant with tools to remember, recall, correct and forget.

The tools are bound to a user when they are created. Their writes are marked as written by an
assistant and can be undone. The model is a script. With a real model, replace `ScriptedClient(…)`
by one of

    make_client(load_settings().settings)                      # memrecall.model.openai_client
    OpenAIChatCompletionClient(model="gpt-4.1-mini")           # autogen_ext.models.openai
"""

import asyncio
import json
from collections.abc import Callable

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_core.models import FunctionExecutionResultMessage
from history import LIN, opened_history

from memrecall import AsyncMemory, Library, memory_tools
from memrecall.model import Request
from memrecall.testing import ScriptedClient, Step, call, say


def correct(request: Request) -> Step:
    """Act as the model: correct the memory that the last recall returned."""
    outputs = [m for m in request.messages if isinstance(m, FunctionExecutionResultMessage)]
    memory = json.loads(outputs[-1].content[0].content)["memories"][0]
    return call("correct", memory_key=memory["memory_key"], text="林晓现在用 Mac", reason="换了")


async def talk(library: Library) -> None:
    """Remember something, correct it, and print the stored memories."""
    script: list[Step | Callable[[Request], Step]] = [
        call("remember", text="林晓的工作电脑是 Windows", memory_type="user_profile"),
        say("记住了。"),
        call("recall", query="林晓的工作电脑"),
        correct,
        say("改好了：现在是 Mac。"),
    ]
    assistant = AssistantAgent(
        "assistant",
        model_client=ScriptedClient(script),
        tools=memory_tools(library, LIN),
        max_tool_iterations=3,
    )
    for task in ("记一下，我的工作电脑是 Windows", "我的电脑换成 Mac 了"):
        result = await assistant.run(task=task)
        for event in result.messages:
            if isinstance(event, ToolCallExecutionEvent) and event.source == "assistant":
                print(f"tools:     {[answer.name for answer in event.content]}")
        print(f"assistant: {result.messages[-1].to_text()}")
    memory = AsyncMemory(library=library, user_id=LIN.user_id)
    for item in (await memory.get_all(superseded=True))["results"]:
        reason = f", superseded: {item['superseded_reason']}" if item["superseded_by"] else ""
        print(f"memory:    {item['memory']} (by an {item['origin']}{reason})")


async def run() -> None:
    """Run the example."""
    async with opened_history() as library:
        await talk(library)


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
