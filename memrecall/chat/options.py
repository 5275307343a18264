"""How turns are run."""

from dataclasses import dataclass

from memrecall.agent import RecallOptions
from memrecall.budget import Limits
from memrecall.errors import InvalidArgument
from memrecall.model.prompts import Language
from memrecall.settings import Settings

LONGEST_SHOWN = 500  # messages


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How turns are run. A turn recalls once in any case, also with `recalls` 0."""

    recalls: int = 3  # in one turn, at most
    count_forced: bool = True  # the forced recall is one of them
    recall_seconds: float = 10.0  # of one recall; then the turn goes on without it
    seconds: float = 120.0  # of all answers of the model in one turn
    model_calls: int = 8  # in one turn; the last one gets no tools
    history: int = 20  # messages of the session that the model is shown
    history_characters: int = 24_000
    view: int = 100  # messages of the others that a member of a group is shown
    language: Language | None = None  # None: that of the message
    keep_traces_days: int = 30  # of the recalls; 0: they are not stored
    log_contents: bool = False  # the arguments of tool calls, which quote what was said

    def __post_init__(self) -> None:
        bounds = {
            "recalls": (0, 100),
            "model_calls": (1, 100),
            "history": (0, LONGEST_SHOWN),
            "view": (1, LONGEST_SHOWN),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidArgument(f"{name} {value} is out of range", hint=f"{least} to {most}")
        if self.recall_seconds <= 0 or self.seconds <= 0:
            raise InvalidArgument("recall_seconds and seconds must be above 0")

    @classmethod
    def of(cls, settings: Settings, language: Language | None = None) -> "ChatOptions":
        """What the settings say."""
        return cls(
            recalls=settings.chat_recalls,
            count_forced=settings.chat_count_forced,
            recall_seconds=settings.chat_recall_seconds,
            seconds=settings.chat_seconds,
            history=settings.chat_history,
            language=language,
            keep_traces_days=settings.trace_days,
            log_contents=settings.log_contents,
        )

    @property
    def own_recalls(self) -> int:
        """How many recalls of a turn are the model's own to make."""
        return max(self.recalls - self.count_forced, 0)

    def recall_options(self, language: Language) -> RecallOptions:
        """The same for one recall."""
        return RecallOptions(
            limits=Limits(seconds=self.recall_seconds),
            language=language,
            keep_traces_days=self.keep_traces_days,
        )
