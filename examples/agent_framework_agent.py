"""An agent of Microsoft Agent Framework that recalls before each turn, and one with tools.

The memory is bound to a user when it is created. The model is a script. With a real model, replace
`ScriptedChat(…)` by a client of the framework, such as `OpenAIChatClient()`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)
from history import LIN, opened_history, quote_memories

from memrecall import AsyncMemory
from memrecall.integrations.agent_framework import RecallProvider, memory_tools


class ScriptedChat(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A model that calls a tool if it has one, and quotes the memories in its request."""

    def __init__(self, *calls: Content) -> None:
        super().__init__()
        self._calls = list(calls)

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any
    ) -> Any:
        contents = [content for message in messages for content in message.contents]
        texts = [str(content.text or content.result) for content in contents]
        answer = self._calls.pop() if self._calls else Content.from_text(quote_memories(texts))

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=[answer])

        async def respond() -> ChatResponse[Any]:
            return ChatResponse(messages=Message("assistant", [answer]))

        return self._build_response_stream(updates()) if stream else respond()


async def run() -> None:
    """Ask for things that were said in earlier conversations."""
    async with opened_history() as library:
        memory = AsyncMemory(library=library, user_id=LIN.user_id)

        agent = Agent(ScriptedChat(), context_providers=[RecallProvider(memory)])
        stream = agent.run("我之前说过我对什么东西过敏，不能点什么菜？", stream=True)
        print(f"provider: {''.join([update.text async for update in stream])}")

        query = json.dumps({"query": "Which seat did I say I take on trains?"})
        call = Content.from_function_call("1", "recall", arguments=query)
        agent = Agent(ScriptedChat(call), tools=memory_tools(memory))
        print(f"tools:    {(await agent.run('Book my train.')).text}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
