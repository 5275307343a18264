"""An agent of OpenAI's Agents SDK with recall before each turn, a stored session, and tools.

The memory is bound to a user and a session when it is created. The model is a script; without
`model=`, the SDK uses OpenAI's.
"""

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from history import LIN, opened_history, quote_memories
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from memrecall import AsyncMemory
from memrecall.integrations.openai_agents import MemorySession, RecallFilter, memory_tools
from memrecall.messages import parse_messages


class ScriptedModel(Model):
    """A model that plays its calls, then quotes the memories in its request."""

    def __init__(self, *calls: ResponseFunctionToolCall) -> None:
        self._calls = list(calls)

    async def get_response(self, *_: Any, **options: Any) -> ModelResponse:
        """Return a call or a text."""
        texts = [message.text for message in parse_messages(options["input"])]
        answer = self._calls.pop() if self._calls else _message(quote_memories(texts))
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        """Refuse: this example does not stream."""
        raise NotImplementedError


def _message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="1", content=[content], role="assistant", status="completed", type="message"
    )


async def run() -> None:
    """Ask for things that were said in earlier conversations."""
    set_tracing_disabled(True)
    async with opened_history() as library:
        memory = AsyncMemory(library=library, user_id=LIN.user_id, session_id="today")
        session = MemorySession(memory)

        agent = Agent("assistant", model=ScriptedModel())
        config = RunConfig(call_model_input_filter=RecallFilter(memory))
        question = "我之前说过我对什么东西过敏，不能点什么菜？"
        result = await Runner.run(agent, question, session=session, run_config=config)
        print(f"filter:  {result.final_output}")

        query = json.dumps({"query": "Which seat did I say I take on trains?"})
        call = ResponseFunctionToolCall(
            name="recall", arguments=query, call_id="1", type="function_call"
        )
        agent = Agent("assistant", model=ScriptedModel(call), tools=memory_tools(memory))
        result = await Runner.run(agent, "Book my train.", session=session)
        print(f"tools:   {result.final_output}")
        print(f"session: {len(await session.get_items())} items")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
