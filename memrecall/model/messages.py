"""What messages contain: texts and tool calls."""

from __future__ import annotations

from collections.abc import Sequence

from memrecall.model import protocol


def count_tool_calls(messages: Sequence[protocol.LLMMessage]) -> int:
    """Return the number of tool calls in the messages."""
    return sum(
        len(message.content)
        for message in messages
        if isinstance(message, protocol.AssistantMessage) and not isinstance(message.content, str)
    )


def message_texts(message: protocol.LLMMessage) -> list[str]:
    """Return the texts of a message of any kind, without images."""
    if isinstance(message.content, str):
        return [message.content]
    return [text for item in message.content if (text := _item_text(item))]


def _item_text(item: object) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, protocol.FunctionCall):
        return f"{item.name} {item.arguments}"
    return str(getattr(item, "content", ""))
