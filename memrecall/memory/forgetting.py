"""Forgetting by policy: told first, done when asked for; what is pinned stays."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import Store, Wanted
from memrecall.types import MemoryRecord

ACTOR = "sweep"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Policy:
    """What may go; None and False leave that kind alone. Days count back from the sweep."""

    older_than_days: float | None = None  # since it was written or last corrected
    not_recalled_days: float | None = None  # since it was last found, or else written
    superseded_days: float | None = None  # since it ceased to hold
    expired: bool = True
    duplicates: bool = True
    most_memories: int | None = None  # a user's budget: the least recently of use go

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value < 0:
                raise InvalidArgument(f"{item.name} {value} is negative")

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        """The policy of the settings, where 0 means: not for that reason."""
        return cls(
            settings.sweep_older_days or None,
            settings.sweep_not_recalled_days or None,
            settings.sweep_superseded_days or None,
            most_memories=settings.sweep_most_memories or None,
        )


@dataclass(frozen=True, slots=True)
class _Brief:
    """What choosing must know of a memory: small, because all of a user's are held at once."""

    key: str
    pinned: bool
    created_at: datetime
    of_use: datetime
    said: bytes | None  # None: it holds no longer, and repeats nobody


async def sweep(
    store: Store, scope: Scope, policy: Policy, *, dry_run: bool, purge: bool, now: datetime
) -> dict[str, Any]:
    """Find what a policy would remove and, unless it is a dry run, hide or purge it."""
    chosen = await _choose(store, scope, policy, now)
    removed = 0
    if not dry_run and chosen:
        changes = store.changes(scope)
        for reason in sorted(set(chosen.values())):
            keys = [key for key, why in chosen.items() if why == reason]
            removed += (
                await changes.purge(keys)
                if purge
                else await changes.delete(keys, actor=ACTOR, reason=reason)
            )
    results = [{"id": key, "reason": reason} for key, reason in chosen.items()]
    counts = {"found": len(chosen), "removed": removed, "reasons": Counter(chosen.values())}
    return {"dry_run": dry_run, **counts, "results": results}


async def _choose(store: Store, scope: Scope, policy: Policy, now: datetime) -> dict[str, str]:
    chosen: dict[str, str] = {}
    rest: list[_Brief] = []
    async for record in _all(store, scope):
        reason = None if record.pinned else _reason(record, policy, now)
        if reason is not None:
            chosen[record.memory_key] = reason
        else:
            rest.append(_brief(record))
    if policy.duplicates:
        chosen |= dict.fromkeys(_duplicates(rest), "duplicate")
        rest = [brief for brief in rest if brief.key not in chosen]
    if policy.most_memories is not None:
        chosen |= dict.fromkeys(_over_budget(rest, policy.most_memories), "over the budget")
    return chosen


async def _all(store: Store, scope: Scope) -> AsyncIterator[MemoryRecord]:
    """Every memory that is not hidden, superseded ones included, page by page."""
    cursor: str | None = None
    while True:
        page = await store.memory_list(scope).page(
            Wanted(superseded=True), limit=_PAGE, cursor=cursor
        )
        for record in page.items:
            yield record
        cursor = page.next_cursor
        if cursor is None:
            return


def _brief(record: MemoryRecord) -> _Brief:
    said = None
    if record.valid_to is None:
        words = "".join(unicodedata.normalize("NFKC", record.content).casefold().split())
        same = (words, record.agent_id, record.subject, record.speaker, record.layer)
        said = hashlib.sha256(repr(same).encode()).digest()[:16]
    last = max(filter(None, (record.last_recalled_at, record.updated_at)))
    return _Brief(record.memory_key, record.pinned, record.created_at, last, said)


def _reason(record: MemoryRecord, policy: Policy, now: datetime) -> str | None:
    def past(moment: datetime | None, days: float | None) -> bool:
        return moment is not None and days is not None and moment <= now - timedelta(days=days)

    if policy.expired and past(record.expires_at, 0):
        return "expired"
    if past(record.valid_to, policy.superseded_days):
        return "superseded"
    if past(record.updated_at, policy.older_than_days):
        return "old"
    if past(record.last_recalled_at or record.created_at, policy.not_recalled_days):
        return "not recalled"
    return None


def _duplicates(briefs: list[_Brief]) -> Iterator[str]:
    """All but the first of those that say the same of the same now; a pinned one comes first."""
    seen: set[bytes] = set()
    for brief in sorted(briefs, key=lambda b: (not b.pinned, b.created_at, b.key)):
        if brief.said is None:
            continue
        if brief.said in seen and not brief.pinned:
            yield brief.key
        seen.add(brief.said)


def _over_budget(briefs: list[_Brief], most: int) -> Iterator[str]:
    ordered = sorted(briefs, key=lambda b: (b.pinned, b.of_use, b.key), reverse=True)
    for brief in ordered[most:]:
        if not brief.pinned:
            yield brief.key


def sweep_time(now: datetime | None) -> datetime:
    """The time of a sweep."""
    return now or datetime.now(UTC)
