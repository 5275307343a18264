"""What one recall has learned so far: the keys it saw, the searches it tried, what went wrong."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from memrecall.search import Hit

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
