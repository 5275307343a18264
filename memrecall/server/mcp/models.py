"""What the tools of a user's own memories take and give."""

from typing import Annotated

from pydantic import Field

from memrecall.server.tools.models import Params, Result


class RecallParams(Params):
    """A question that refers to something."""

    question: Annotated[
        str,
        Field(
            min_length=1,
            max_length=10_000,
            description="What the user said or asks, in their own words.",
        ),
    ]


class MessageSearchParams(Params):
    """What to look for in what was said."""

    query: Annotated[str, Field(min_length=1, description="Words or a question, in any language.")]
    limit: Annotated[int, Field(ge=1, le=50, description="How many messages.")] = 10


class RememberParams(Params):
    """Something to keep."""

    content: Annotated[str, Field(min_length=1, description="What to remember, in full.")]
    summary: Annotated[str, Field(description="The same in one line.")] = ""


class ForgetParams(Params):
    """A memory."""

    memory_key: Annotated[str, Field(description="The key that recall or remember gave.")]


class McpEvidence(Result):
    """A memory or message that belongs to the answer."""

    memory_key: str
    kind: str
    content: str
    summary: str
    speaker: str | None
    said_at: str
    relevance_score: float | None


class RecallReply(Result):
    """What was found; `abstained` means that nothing was, and that guessing would be wrong."""

    summary: str
    confidence: float
    abstained: bool
    memories: list[McpEvidence]
    follow_up_question: str | None = None


class McpMessage(Result):
    """A message that was found."""

    message_id: str
    role: str
    speaker: str | None
    content: str
    said_at: str
    session_id: str | None
    relevance_score: float


class MessageHits(Result):
    """The best messages, the best first."""

    messages: list[McpMessage]
    total_found: int


class McpMemory(Result):
    """A memory that was stored."""

    memory_key: str


class Forgotten(Result):
    """A memory that is hidden; it can be brought back until it is purged."""

    memory_key: str
