"""Chat turns for one user or a group: forced recall, tools, and clean answers."""

from memrecall.chat.events import (
    ChatEvent,
    Failed,
    Final,
    LeakReport,
    TextDelta,
    TextRetracted,
    ToolCall,
    ToolResult,
)
from memrecall.chat.group import GroupChat, NothingToAnswer, Posted
from memrecall.chat.mentions import Member
from memrecall.chat.single import SingleChat
from memrecall.chat.turn import ChatOptions

__all__ = [
    "ChatEvent",
    "ChatOptions",
    "Failed",
    "Final",
    "GroupChat",
    "LeakReport",
    "Member",
    "NothingToAnswer",
    "Posted",
    "SingleChat",
    "TextDelta",
    "TextRetracted",
    "ToolCall",
    "ToolResult",
]
