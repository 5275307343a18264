"""The state of one recall, shared by its tools and bound to one scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel

from memrecall.agent.conversation import LARGEST_WINDOW, Conversation
from memrecall.agent.phrases import say, say_codes
from memrecall.agent.result import QueryTried
from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.models import (
    MAX_KEYWORDS,
    ExtractKeywordsInput,
    HandoffInput,
    KeywordExtractionItem,
    ToolErrorCode,
)
from memrecall.library.library import Caches, Library
from memrecall.messages import ConversationMessage
from memrecall.model import protocol
from memrecall.model.structured import Structured
from memrecall.scope import DEFAULT_NAME, Scope
from memrecall.search import Hit
from memrecall.store import UserVersion
from memrecall.text.times import TimeSpan
from memrecall.types import Message, to_zone

GOOD_SCORE = 0.5  # the score from which a hit counts although no model has judged it
MAX_CONSECUTIVE_SEARCHES = 3
# Characters that are read of a window, and of one message in it.
_WINDOW_CHARACTERS, SHORTEST_MESSAGE, _LONGEST_MESSAGE = 12_000, 120, 2_000
_LARGEST_EXPANSION = 500  # characters of an expanded query
UNKNOWN_USER = UserVersion("", 0, 1, "UTC")


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A finished tool call: validated arguments, output, and the text for the model."""

    tool: str
    arguments: dict[str, Any]
    output: BaseModel
    text: str
    seconds: float

    @property
    def error(self) -> ToolErrorCode | None:
        """The error code of a failed call."""
        code: ToolErrorCode | None = getattr(self.output, "error", None)
        return code


class KeywordReply(BaseModel):
    """The answer of a model to the prompt `keywords`, bounded: it becomes part of searches."""

    keywords: Annotated[
        list[KeywordExtractionItem],
        AfterValidator(lambda items: [item for item in items if item.keyword][:MAX_KEYWORDS]),
    ]
    expanded_query: Annotated[
        str | None, AfterValidator(lambda query: query and query[:_LARGEST_EXPANSION])
    ] = None


KeywordModel = Callable[[ExtractKeywordsInput], Awaitable[Structured[KeywordReply]]]


async def read_version(library: Library, scope: Scope) -> UserVersion:
    """Return the version of the user's data, or raise Disabled."""
    return await library.store.read_version(scope) or UNKNOWN_USER


async def has_knowledge(library: Library, scope: Scope) -> bool:
    """Return True if the scope's agent has ever had an entry in its knowledge base."""
    feed = library.store.knowledge_feed(scope.agent_id or DEFAULT_NAME)
    return await feed.version() is not None


@dataclass(slots=True)
class Window:
    """The part of the conversation that the agent sees, and whether it may grow."""

    size: int
    iteration: int = 1
    max_iterations: int = 3
    shown: int = 0  # messages, fewer than the size if no more exist
    has_older: bool = False
    refusals: int = 0
    granted: int | None = None

    @property
    def can_grow(self) -> bool:
        """Whether a request for a larger window can be granted."""
        is_below_limits = self.iteration < self.max_iterations and self.size < LARGEST_WINDOW
        return is_below_limits and self.has_older


@dataclass(slots=True, kw_only=True)
class RecallState(ToolContext):
    """Everything that the tools of one recall share, across its iterations."""

    version: UserVersion
    conversation: Conversation
    now: datetime
    window: Window
    caches: Caches
    as_of: datetime | None = None  # later messages and memories are not seen
    time_zone: str | None = None  # for this recall alone; None: the user's
    period: TimeSpan | None = None  # nothing else is seen
    keyword_model: KeywordModel | None = None  # None: keywords come from the text
    checks_keys: bool = True  # False outside of a recall, where no key has been seen

    shown: Sequence[ConversationMessage] = ()  # the messages of the window
    turns: list[protocol.LLMMessage] = field(default_factory=list)  # of this iteration
    runs: list[ToolRun] = field(default_factory=list)  # of all iterations
    hits: dict[str, Hit] = field(default_factory=dict)  # by key, each with its best score
    # By key, in the first search that returned it: narrower searches score the same row higher.
    probabilities: dict[str, float | None] = field(default_factory=dict)
    seen_keys: dict[str, None] = field(default_factory=dict)  # in order
    searches: list[QueryTried] = field(default_factory=list)
    # What a model saw and searched before the offline policy took over.
    earlier_keys: dict[str, None] = field(default_factory=dict)
    earlier_searches: list[QueryTried] = field(default_factory=list)
    consecutive_searches: int = 0
    calls: int = 0
    withheld: int = 0
    nearest: datetime | None = None  # if there is nothing in the period
    degraded: dict[str, None] = field(default_factory=dict)  # reasons, in order
    failures: list[str] = field(default_factory=list)  # error codes of failed tool calls
    dropped_keys: list[str] = field(default_factory=list)  # the first ones, shortened
    dropped_unlisted: int = 0  # how many more were dropped
    read_runs: int = 0  # how many runs the model had seen when it decided this turn
    can_correct: bool = False  # the model has another call to repair a handoff
    blind_handoffs: int = 0  # handoffs that named nothing before their own search was read
    has_corrected_keys: bool = False
    problem: str = ""  # of the model's answers, although the recall went on
    is_unsupported: bool = False  # the handoff claimed something without a key that was found
    handoff: HandoffInput | None = None
    _has_knowledge: bool | None = None  # None: not read yet

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of this recall, else the user's."""
        return ZoneInfo(self.time_zone or self.version.time_zone)

    @property
    def end_time(self) -> datetime | None:
        """The first moment that is not visible; None: everything is visible."""
        return None if self.as_of is None else self.as_of + timedelta(microseconds=1)

    @property
    def characters_per_message(self) -> int:
        """How much of each message of the window is read: of many messages, less of each."""
        share = _WINDOW_CHARACTERS // max(len(self.shown), 1)
        return min(max(share, SHORTEST_MESSAGE), _LONGEST_MESSAGE)

    @property
    def is_offline(self) -> bool:
        """Whether the offline policy makes the calls, and no model."""
        return self.keyword_model is None

    @property
    def has_results(self) -> bool:
        """Whether any search returned something."""
        return any(search.keys for search in self.searches)

    def say(self, phrase: str, **values: object) -> str:
        """Return a phrase in the language of the recall."""
        return say(self.language, phrase, **values)

    def say_codes(self, *codes: str) -> str:
        """Return codes in the language of the recall."""
        return say_codes(self.language, *codes)

    async def has_knowledge(self) -> bool:
        """Return True if there is a knowledge base to search; it is read once per recall."""
        if self._has_knowledge is None:
            self._has_knowledge = await has_knowledge(self.library, self.scope)
        return self._has_knowledge

    def is_visible(self, moment: datetime) -> bool:
        """Return True if a moment is in the period, and not after `as_of`."""
        is_early_enough = self.end_time is None or moment < self.end_time
        return is_early_enough and (self.period is None or self.period.covers(moment))

    async def find_neighbors(
        self, message: Message, count: int
    ) -> tuple[list[Message], list[Message]]:
        """Return up to `count` messages before and after one in its session, oldest first.

        Messages that the caller has, or that are not visible yet, are left out.
        """
        timeline = self.library.store.timeline(self.scope)
        page = await timeline.neighbors(message.message_id, before=count, after=count)
        before: list[Message] = []
        after: list[Message] = []
        neighbors = before
        for each in page.items:
            if each.message_id == message.message_id:
                neighbors = after
            elif (
                each.session_id == message.session_id
                and not self.conversation.has_message(each.message_id, each.content)
                and self.is_visible(each.ts)
            ):
                neighbors.append(each)
        return before, after

    def format_local(self, moment: datetime) -> str:
        """Return a time in the user's zone as RFC 3339, to the second."""
        return to_zone(moment, self.zone).replace(microsecond=0).isoformat()

    def restart_offline(self) -> None:
        """Let the offline policy search again after a model failed.

        A score tells how well a hit fits its query. Those of a model may be about anything: only
        a search for the request itself can say whether a hit fits the request.
        """
        self.earlier_keys, self.seen_keys = self.seen_keys, {}
        self.earlier_searches, self.searches = self.searches, []
        self.hits.clear()
        self.probabilities.clear()
        self.runs.clear()
        self.handoff, self.is_unsupported = None, False
        self.window.refusals = self.consecutive_searches = 0

    def add_hits(self, hits: Iterable[Hit]) -> int:
        """Record search results and return how many of their keys are new."""
        before = len(self.seen_keys)
        for hit in hits:
            known = self.hits.get(hit.key)
            if known is None or hit.score > known.score:
                self.hits[hit.key] = hit
            self.probabilities.setdefault(hit.key, hit.probability)
            self.seen_keys[hit.key] = None
        return len(self.seen_keys) - before

    def best_hits(self) -> list[Hit]:
        """Return three good hits, best first; the best of each search comes before others."""
        good = {key: hit for key, hit in self.hits.items() if hit.score >= GOOD_SCORE}
        ranked = sorted(good, key=lambda key: (-good[key].score, key))
        firsts = [[key for key in search.keys if key in good][:1] for search in self.searches]
        selected = list(dict.fromkeys([*chain(*firsts), *ranked]))[:3]
        return [good[key] for key in ranked if key in selected]
