"""The tool `recall`: what a parent agent and an MCP client pass and get."""

from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field, PrivateAttr

from memrecall.agent.blocks import write_block
from memrecall.agent.result import Certainty, RecalledMemory, RecallResult
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.detail import cut_excerpts
from memrecall.agent.tools.models import StrictInput, ToolInput, ToolOutput, excerpt_length
from memrecall.errors import MemrecallError
from memrecall.library.spaces import origin_fields
from memrecall.messages import ConversationMessage
from memrecall.types import Role, format_time

_EVIDENCE_FIELDS = {
    *("memory_key", "kind", "summary", "speaker", "certainty"),
    *("claimed_by", "conflicts_with", "truncated", "checked", "doubts"),
}


class RecallToolArguments(ToolInput):
    """Arguments of `recall` for a parent agent."""

    query: str
    context: str | None = None
    time: str | None = None

    def messages(self) -> list[ConversationMessage]:
        """Return the conversation to recall for."""
        before = [ConversationMessage(Role.OTHER, self.context)] if self.context else []
        return [*before, ConversationMessage(Role.USER, self.query)]


class RecallParams(StrictInput):
    """A question that refers to something."""

    # Clients of earlier versions send `question`.
    query: Annotated[
        str,
        Field(min_length=1, max_length=10_000, validation_alias=AliasChoices("query", "question")),
    ]
    time: str | None = None

    def messages(self) -> str:
        """Return the conversation to recall for."""
        return self.query


class RecallAnswer(ToolOutput):
    """Result of `recall` for a parent agent."""

    found: bool
    confidence: float
    certainty: Certainty = Certainty.NONE
    summary: str
    memories: list[dict[str, str]] = Field(default_factory=list)
    closest: list[str] | None = None  # quotes, if nothing was found that is likely to be meant
    follow_up_question: str | None = None
    withheld: int | None = None  # sensitive memories that match and may not be shown
    stop_reason: str
    judged: bool = False  # False: a limit or a failure ended the recall first
    fallback: str | None = None  # why the recall went on without its model
    problem: str | None = None
    dropped_keys: list[str] | None = None  # handed off, but not found in this recall

    @classmethod
    def from_result(cls, result: RecallResult) -> Self:
        """Return the answer for the parent's model."""
        length = excerpt_length(len(result.memories))
        return cls(
            found=bool(result.memories),
            confidence=result.confidence,
            certainty=result.certainty,
            summary=result.handoff.search_summary,
            memories=[
                {
                    "memory_key": memory.memory_key,
                    "said_at": format_time(memory.ts),
                    **({"by": memory.by} if memory.by else {}),
                    "certainty": memory.certainty.value,
                    "content": _excerpt(result, memory, length),
                    **memory.describe_conflict(result.language),
                    **origin_fields(memory),
                    **({} if memory.checked else memory.describe_certainty(result.language)),
                }
                for memory in result.memories
            ],
            closest=_quote_closest(result, length) or None,
            follow_up_question=result.handoff.follow_up_question,
            withheld=result.withheld or None,
            stop_reason=result.stop_reason.value,
            judged=result.judged,
            fallback=result.fallback,
            problem=result.problem,
            dropped_keys=result.keys_dropped or None,
        )

    @classmethod
    def from_error(cls, error: MemrecallError) -> Self:
        """Return the answer to a recall that failed."""
        problem = f"The memories could not be searched: {error.message}."
        return cls(
            found=False,
            confidence=0.0,
            summary=f"{problem} This does not mean that nothing was found.",
            stop_reason=error.code.lower(),
            problem=error.message,
        )


def _excerpt(result: RecallResult, memory: RecalledMemory, length: int) -> str:
    """Return a content, or the part of a long one that is about the request."""
    return cut_excerpts([memory.content], result.words_about(memory.memory_key), length)[0]


def _quote_closest(result: RecallResult, length: int) -> list[str]:
    """Return the closest contents; beside an unchecked fact, its messages are quoted."""
    return [
        " ".join(
            [
                _excerpt(result, memory, length),
                *(f"({doubt})" for doubt in memory.describe_doubts(result.language).values()),
            ]
        )
        for memory in result.closest
    ]


class RecallReply(ToolOutput):
    """What was found; `abstained` means that nothing was, and that guessing would be wrong."""

    summary: str
    confidence: float
    certainty: Certainty
    abstained: bool
    memories: list[dict[str, Any]]
    # Quotes, if nothing was found that is likely to be meant.
    closest: list[str] = Field(default_factory=list)
    follow_up_question: str | None = None
    withheld: int = 0  # sensitive memories that match and may not be shown
    _block: str = PrivateAttr(default="")

    @classmethod
    def from_result(cls, result: RecallResult) -> Self:
        """Return the reply for an MCP client."""
        length = excerpt_length(len(result.memories))
        reply = cls(
            summary=result.handoff.search_summary,
            confidence=result.confidence,
            certainty=result.certainty,
            abstained=result.abstained,
            memories=[
                {
                    **memory.model_dump(mode="json", include=_EVIDENCE_FIELDS),
                    "content": _excerpt(result, memory, length),
                    "probability": memory.probability and round(memory.probability, 2),
                    "characters": len(memory.content),
                    "said_at": format_time(memory.ts),
                    **origin_fields(memory),
                }
                for memory in result.memories
            ],
            closest=_quote_closest(result, length),
            follow_up_question=result.handoff.follow_up_question,
            withheld=result.withheld,
        )
        reply._block = write_block(result, place="apart")
        return reply

    def as_text(self) -> str:
        """Return the memories as the block of data that a model reads."""
        return self._block


async def recall(
    context: ToolContext, arguments: RecallToolArguments | RecallParams
) -> RecallResult:
    """Recall what the request refers to."""
    return await context.recall_messages(arguments.messages(), arguments.time)
