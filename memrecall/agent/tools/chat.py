"""The tools of a chat turn. The turn has their answers, bound to its scope."""

from typing import Annotated

from pydantic import StringConstraints

from memrecall.agent.tools import IS_MENTIONED, OTHER_MESSAGES
from memrecall.agent.tools.context import TurnContext
from memrecall.agent.tools.models import TextAnswer, ToolInput

MAX_QUERY = 1_000


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
