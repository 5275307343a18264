"""Chat turns: forced recall, real tools behind forged calls, single and group, clean answers."""

from memrecall.chat.events import (
    ChatEvent,
    Failed,
    Final,
    LeakTold,
    TextDelta,
    ToolCall,
    ToolResult,
)
from memrecall.chat.group import GroupChat, NothingToAnswer, Posted
from memrecall.chat.mentions import Member, find_mentions
from memrecall.chat.offline import offline_chat_client
from memrecall.chat.options import ChatOptions
from memrecall.chat.single import SingleChat
from memrecall.chat.tools import GROUP_TOOLS, SINGLE_TOOLS

__all__ = [
    "GROUP_TOOLS",
    "SINGLE_TOOLS",
    "ChatEvent",
    "ChatOptions",
    "Failed",
    "Final",
    "GroupChat",
    "LeakTold",
    "Member",
    "NothingToAnswer",
    "Posted",
    "SingleChat",
    "TextDelta",
    "ToolCall",
    "ToolResult",
    "find_mentions",
    "offline_chat_client",
]
