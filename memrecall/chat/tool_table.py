"""The tools that only a chat turn offers: entries of the table of tools, and their handlers."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from pydantic import StringConstraints

from memrecall.agent.tools import IS_MENTIONED, OTHER_MESSAGES, RECALL_MEMORY
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import ToolInput, ToolOutput
from memrecall.agent.tools.search import MAX_QUERY
from memrecall.agent.tools.table import Interface, add_tools, make_tool


class TextAnswer(ToolOutput):
    """A text for the model of a chat turn."""

    content: str
    is_error: bool = False
    results: int = 0  # recalled events, or messages


@dataclass(slots=True, kw_only=True)
class TurnContext(ToolContext):
    """The context of one chat turn."""

    recall_query: Callable[[str], Awaitable[TextAnswer]]  # counted against the cap of the turn
    answers: Mapping[str, TextAnswer] = field(default_factory=dict)  # of tools without arguments


class ChatRecallArguments(ToolInput):
    """Arguments of `recall_memory`."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class NoArguments(ToolInput):
    """Arguments of the tools that take none."""


async def recall_memory(context: TurnContext, arguments: ChatRecallArguments) -> TextAnswer:
    """Recall within the cap of the turn."""
    return await context.recall_query(arguments.query[:MAX_QUERY])


async def get_other_members_messages(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return what the other members of the group wrote since the speaker's last message."""
    return context.answers[OTHER_MESSAGES]


async def is_mentioned(context: TurnContext, _: NoArguments) -> TextAnswer:
    """Return whether the speaker is mentioned in this turn."""
    return context.answers[IS_MENTIONED]


_GROUP = frozenset({Interface.GROUP_CHAT})
_make_tool = partial(make_tool, interfaces=_GROUP, prompt="chat_tools")
add_tools(
    _make_tool(recall_memory, RECALL_MEMORY, interfaces=_GROUP | {Interface.CHAT}),
    _make_tool(get_other_members_messages, OTHER_MESSAGES),
    _make_tool(is_mentioned, IS_MENTIONED),
)
