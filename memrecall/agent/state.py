"""The desk of one recall: everything its tools work with, bound to one scope when it is made.

No tool can reach another user: the scope is here, and no argument of any tool names it.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from memrecall.agent.conversation import LARGEST_WINDOW, Conversation
from memrecall.agent.tools.models import (
    ExtractKeywordsInput,
    HandoffInput,
    KeywordExtractionItem,
)
from memrecall.library.caches import Caches
from memrecall.library.library import Library
from memrecall.model.prompts import Language
from memrecall.model.structured import Structured
from memrecall.scope import Scope
from memrecall.search import Hit
from memrecall.store import UserVersion

GOOD = 0.5  # the score from which a hit counts without anyone having judged it
SEARCHES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class SearchNote:
    """A search that was made: its arguments as applied, and what it brought."""

    call: int
    arguments: dict[str, Any]
    total_found: int
    keys: tuple[str, ...]  # best first
    new_keys: int

    @property
    def returned(self) -> int:
        """How many were shown."""
        return len(self.keys)


@dataclass(slots=True)
class Notes:
    """The memory of one recall, across its iterations."""

    hits: dict[str, Hit] = field(default_factory=dict)  # by key, with the best score it had
    shown: dict[str, None] = field(default_factory=dict)  # every key seen, in order
    opened: dict[str, None] = field(default_factory=dict)  # keys whose content was read
    searches: list[SearchNote] = field(default_factory=list)
    in_a_row: int = 0
    calls: int = 0
    withheld: int = 0
    degraded: dict[str, None] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def take_hits(self, hits: Iterable[Hit]) -> int:
        """Remember what a search brought; tells how many keys were new."""
        before = len(self.shown)
        for hit in hits:
            known = self.hits.get(hit.key)
            if known is None or hit.score > known.score:
                self.hits[hit.key] = hit
            self.shown[hit.key] = None
        return len(self.shown) - before

    def show(self, keys: Iterable[str]) -> None:
        """Remember keys that were shown beside others: what was said before and after."""
        self.shown.update(dict.fromkeys(keys))

    def open(self, key: str) -> None:
        """Remember that a content was read."""
        self.shown[key] = None
        self.opened[key] = None

    def best(self, count: int = 3) -> list[Hit]:
        """The good hits, best first, if any: each search has a place before one has two."""
        good = {key: hit for key, hit in self.hits.items() if hit.score >= GOOD}
        ranked = sorted(good, key=lambda key: (-good[key].score, key))
        firsts = [[key for key in note.keys if key in good][:1] for note in self.searches]
        kept = list(dict.fromkeys([*chain(*firsts), *ranked]))[:count]
        return [good[key] for key in ranked if key in kept]


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
class RecallState:
    """One recall's desk."""

    library: Library
    scope: Scope
    mark: UserVersion
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
