"""The end of a chat turn as a notebook shows it."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from memrecall.errors import MemrecallError
from memrecall.text.html import TEXT, box, clip, labels, note, tag, warning


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool is called: by the model, or (`forged`) by the turn itself in the model's name."""

    kind: ClassVar[str] = "tool_call"

    id: str
    name: str
    arguments: str
    forged: bool

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        return {"type": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call brought: each call has exactly one result, which follows it."""

    kind: ClassVar[str] = "tool_result"

    id: str
    name: str
    content: str
    is_error: bool
    forged: bool

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        return {"type": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer. All pieces together are the text of the end."""

    kind: ClassVar[str] = "text_delta"

    text: str

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        return {"type": self.kind, "text": self.text}


@dataclass(frozen=True, slots=True)
class LeakTold:
    """A tool call that the model wrote as text: it was hidden and never run."""

    family: str
    name: str | None


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a turn that was answered, well or not.

    `degraded`: the model gave no clean answer, and the text is what there was of it or says that
    there is none. `silent`: a member of a group chose to say nothing, and nothing was stored.
    """

    kind: ClassVar[str] = "final"

    text: str
    message_id: str | None  # of the stored answer
    degraded: bool = False
    silent: bool = False
    language: str = "en"
    model: str = ""
    model_calls: int = 0
    recalls: int = 0  # that were run, the forced one included
    leaks: tuple[LeakTold, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        return {"type": self.kind, **told, "leaks": [asdict(leak) for leak in self.leaks]}

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from memrecall.chat.events import final_html

        return final_html(self)


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a turn that could not be answered: the model or the database failed."""

    kind: ClassVar[str] = "error"

    error: MemrecallError

    def as_dict(self) -> dict[str, Any]:
        """The event as one flat JSON object."""
        return {"type": self.kind, "code": self.error.code, "message": str(self.error)}


ChatEvent = ToolCall | ToolResult | TextDelta | Final | Failed


_LABELS = {
    "silent": ("chose to say nothing", "选择不发言"),
    "degraded": ("the model gave no clean answer", "模型没有给出完整的回答"),
    "leaked": ("a tool call written as text was hidden", "隐藏了一个写成文字的工具调用"),
    "recalls": ("recalls", "次回忆"),
    "model_calls": ("model calls", "次模型调用"),
    "tokens": ("tokens", "个词元"),
}


def final_html(final: Final) -> str:
    """An answer, what went wrong on the way to it, and what it cost."""
    say = labels(_LABELS, final.language)
    told = [say("degraded")] if final.degraded else []
    told += [
        f"{say('leaked')}: {leak.family}" + (f" ({leak.name})" if leak.name else "")
        for leak in final.leaks
    ]
    answer = tag("div", clip(final.text, say), style=TEXT)
    return str(
        box(
            note(say("silent")) if final.silent else answer,
            *map(warning, told),
            note(_cost(final)),
        )
    )


def _cost(final: Final) -> str:
    say = labels(_LABELS, final.language)
    tokens = sum(final.usage.values())
    parts = [
        *([final.model] if final.model else []),
        f"{final.recalls} {say('recalls')}",
        f"{final.model_calls} {say('model_calls')}",
        *([f"{tokens:,} {say('tokens')}"] if tokens else []),
        *([final.message_id] if final.message_id else []),
    ]
    return " · ".join(parts)
