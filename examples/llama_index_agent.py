"""A chat engine of LlamaIndex whose memory recalls, and a retriever.

The memory is bound to a user when it is created. The model is a script; with a real one, pass an
LLM of LlamaIndex.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from history import LIN, opened_history, quote_memories
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import Memory

from memrecall import AsyncMemory
from memrecall.integrations.llama_index import RecallBlock, RecallNodeRetriever


class ScriptedLLM(MockLLM):
    """A model that quotes the memories in its request."""

    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
        """Return the answer."""
        text = quote_memories(str(message.content) for message in messages)
        return ChatResponse(message=ChatMessage(text, role="assistant"))


async def run() -> None:
    """Ask for things that were said in earlier conversations."""
    async with opened_history() as library:
        memory = AsyncMemory(library=library, user_id=LIN.user_id)

        blocks = [RecallBlock(memory)]
        chat_memory = Memory.from_defaults(memory_blocks=blocks, tokenizer_fn=str.split)
        engine = SimpleChatEngine.from_defaults(llm=ScriptedLLM(), memory=chat_memory)
        answer = await engine.achat("我之前说过我对什么东西过敏，不能点什么菜？")
        print(f"block:     {answer}")

        retriever = RecallNodeRetriever(memory)
        nodes = await retriever.aretrieve("Which seat did I say I take on trains?")
        print(f"retriever: {nodes[0].text}")


def main() -> None:
    """Run the example."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
