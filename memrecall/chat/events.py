"""The events of a chat turn."""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from memrecall.errors import MemrecallError
from memrecall.store import WriteStatus

TRUNCATED = ("length", "content_filter")  # finish reasons of answers without their end


@dataclass(frozen=True, slots=True)
class _Event:
    kind: ClassVar[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one flat JSON object."""
        return {"type": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ToolCall(_Event):
    """A tool call, by the model or (`forged`) by the turn itself in the model's name."""

    kind: ClassVar[str] = "tool_call"

    id: str
    name: str
    arguments: str
    forged: bool


@dataclass(frozen=True, slots=True)
class ToolResult(_Event):
    """The result of a tool call; each call is followed by exactly one result."""

    kind: ClassVar[str] = "tool_result"

    id: str
    name: str
    content: str
    is_error: bool
    forged: bool


@dataclass(frozen=True, slots=True)
class TextDelta(_Event):
    """A piece of the answer; all pieces together are the final text, unless some are retracted."""

    kind: ClassVar[str] = "text_delta"

    text: str


@dataclass(frozen=True, slots=True)
class TextRetracted(_Event):
    """The end of the text so far was not meant for the reader; `text` replaces all of it."""

    kind: ClassVar[str] = "text_retracted"

    text: str


@dataclass(frozen=True, slots=True)
class LeakReport:
    """A tool call that the model wrote as text; it was hidden and never run."""

    family: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Final(_Event):
    """The end of a turn that was answered.

    `degraded`: the model gave no clean answer; the text is the part there was, or says that there
    is none. `silent`: a group member chose to say nothing, and nothing was stored. `finish_reason`
    belongs to the model's last answer: "length" and "content_filter" mean that it is truncated.
    """

    kind: ClassVar[str] = "final"

    text: str
    message_id: str | None  # of the stored answer
    parent_message_id: str | None = None  # of the message that it answers
    degraded: bool = False
    silent: bool = False
    finish_reason: str = "stop"
    language: str = "en"
    model: str = ""
    model_calls: int = 0
    recalls: int = 0  # including the forced one
    leaks: tuple[LeakReport, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    status: WriteStatus | None = None  # of the message that it answers, if this turn wrote it

    @property
    def is_truncated(self) -> bool:
        """Whether the model stopped before the end of its answer."""
        return self.finish_reason in TRUNCATED

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one flat JSON object."""
        return {"type": self.kind, **asdict(self), "leaks": [asdict(leak) for leak in self.leaks]}


@dataclass(frozen=True, slots=True)
class Failed(_Event):
    """The end of a turn that could not be answered: the model or the database failed."""

    kind: ClassVar[str] = "error"

    error: MemrecallError

    def as_dict(self) -> dict[str, Any]:
        """Return the event as one flat JSON object."""
        error = {"code": self.error.code, "message": str(self.error), "details": self.error.details}
        return {"type": self.kind, "error": error}


TextChange = TextDelta | TextRetracted
ChatEvent = ToolCall | ToolResult | TextChange | Final | Failed
