"""Options of chat turns."""

from dataclasses import dataclass
from typing import Any

from memrecall.agent import RecallOptions
from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.settings import Settings, parse_object
from memrecall.store.database.cursors import require_limit
from memrecall.text.leaks import LeakMode, Reasoning, check_modes
from memrecall.types import Language

LONGEST_SHOWN = 500  # messages
_EXAMPLE = '{"recalls": 3, "history": 20, "extract": true}'


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of chat turns. A turn recalls at least once, even with `recalls` 0."""

    recalls: int = 3  # at most, in one turn
    count_forced: bool = True  # the forced recall counts as one of them
    recall_seconds: float = 10.0  # limit of one recall; after it the turn continues without
    seconds: float = 120.0  # limit of all model calls in one turn
    model_calls: int = 8  # at most, in one turn; the last one gets no tools
    tool_calls: int = 16  # of the model, at most, in one turn; further ones are refused
    history: int = 20  # messages of the session that the model is shown
    history_characters: int = 24_000
    view: int = 100  # messages of the others that a group member is shown
    language: Language | None = None  # None: the language of the message
    keep_traces_days: int = 30  # of the recalls; 0 stores none
    log_contents: bool = False  # logs the arguments of tool calls, which quote messages
    leak_mode: LeakMode = "strict"  # "lenient" leaves Markdown code alone, for developers
    reasoning: Reasoning = "auto"  # of the model, if it writes it into its text
    extract: bool = False  # also remember the facts that people state
    recall_with_model: bool = False  # recall with the model that answers; otherwise offline

    def __post_init__(self) -> None:
        bounds = {
            "recalls": (0, 100),
            "model_calls": (1, 100),
            "tool_calls": (0, 1_000),
            "history": (0, LONGEST_SHOWN),
            "view": (1, LONGEST_SHOWN),
        }
        for name, (least, most) in bounds.items():
            require_limit(name, getattr(self, name), most, least)
        check_modes(self.reasoning, self.leak_mode)
        if self.recall_seconds <= 0 or self.seconds <= 0:
            raise InvalidArgument(
                f"recall_seconds {self.recall_seconds} and seconds {self.seconds} must be positive",
                hint="Leave them out for the defaults",
            )

    @classmethod
    def of(
        cls, settings: Settings, language: Language | None = None, *, extract: bool = False
    ) -> "ChatOptions":
        """Return the options of the settings; `extract` counts unless they decide it."""
        values: dict[str, Any] = {"extract": extract, "keep_traces_days": settings.trace_days}
        values |= parse_object("chat", settings.chat, _EXAMPLE)
        if language is not None:
            values["language"] = language
        try:
            return cls(**values)
        except TypeError as error:  # an unknown name, or a value of the wrong type
            raise InvalidArgument(
                f"chat {settings.chat!r}: {error}", hint=f"Write it like {_EXAMPLE}"
            ) from None

    @property
    def own_recalls(self) -> int:
        """The number of recalls that the model itself may request in a turn."""
        return max(self.recalls - self.count_forced, 0)

    def recall_options(self, language: Language) -> RecallOptions:
        """Return the options of one recall in a turn."""
        return RecallOptions(
            limits=Limits(seconds=self.recall_seconds),
            language=language,
            keep_traces_days=self.keep_traces_days,
        )
