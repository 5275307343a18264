"""The desk of one recall: everything its tools work with, bound to one scope when it is made.

No tool can reach another user: the scope is here, and no argument of any tool names it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from memrecall.agent.caches import Caches
from memrecall.agent.conversation import LARGEST_WINDOW, Conversation
from memrecall.agent.notes import Notes
from memrecall.agent.tools.models import (
    ExtractKeywordsInput,
    HandoffInput,
    KeywordExtractionItem,
)
from memrecall.model.prompts import Language
from memrecall.model.structured import Structured
from memrecall.scope import Scope
from memrecall.search import SearchPage, SearchRequest
from memrecall.store import Store, UserMark, Written
from memrecall.types import NewMemory, Origin


class Sources(Protocol):
    """What a recall reads from: a `Library` is one."""

    @property
    def store(self) -> Store:
        """The store behind the search."""
        ...

    async def search(self, scope: Scope, request: SearchRequest) -> SearchPage:
        """Search a scope's messages and memories."""
        ...

    async def add_memories(
        self, scope: Scope, batch: Sequence[NewMemory], *, origin: Origin, actor: str
    ) -> Written:
        """Store memories."""
        ...


class KeywordReply(BaseModel):
    """What a model answers to the prompt `keywords`."""

    keywords: list[KeywordExtractionItem]
    expanded_query: str | None = None


KeywordModel = Callable[[ExtractKeywordsInput], Awaitable[Structured[KeywordReply]]]


@dataclass(slots=True)
class Window:
    """How much of the conversation the agent is shown, and how much more it may ask for."""

    size: int
    iteration: int = 1
    max_iterations: int = 3
    older_exist: bool = False
    refusals: int = 0
    granted: int | None = None

    @property
    def can_grow(self) -> bool:
        """Whether asking for more has a chance."""
        may = self.iteration < self.max_iterations and self.size < LARGEST_WINDOW
        return may and self.older_exist


@dataclass(slots=True)
class Desk:
    """One recall's desk."""

    sources: Sources
    scope: Scope
    mark: UserMark
    conversation: Conversation
    language: Language
    now: datetime
    window: Window
    caches: Caches
    as_of: datetime | None = None  # nothing said later is seen
    time_zone: str | None = None  # for this recall alone; None: the user's
    keyword_model: KeywordModel | None = None  # None: keywords are made by rules
    expand_queries: bool = True
    expand_with_model: bool = False  # a call of the model for each new query
    notes: Notes = field(default_factory=Notes)
    handoff: HandoffInput | None = None

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of this recall, or else the user's."""
        return ZoneInfo(self.time_zone or self.mark.time_zone)

    @property
    def horizon(self) -> datetime | None:
        """The end of what may be seen, not included; None: no end."""
        return None if self.as_of is None else self.as_of + timedelta(microseconds=1)

    def local(self, moment: datetime) -> str:
        """A time as the user would write it: RFC 3339 with the zone's offset, to the second."""
        return moment.astimezone(self.zone).replace(microsecond=0).isoformat()
