"""Forgetting by policy: told first, done when asked for; what is pinned stays."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
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


async def sweep(
    store: Store, scope: Scope, policy: Policy, *, dry_run: bool, purge: bool, now: datetime
) -> dict[str, Any]:
    """Find what a policy would remove and, unless it is a dry run, hide or purge it."""
    chosen = _choose([record async for record in _all(store, scope)], policy, now)
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
    return {"dry_run": dry_run, "found": len(chosen), "removed": removed, "results": results}


async def _all(store: Store, scope: Scope) -> Any:
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


def _choose(records: list[MemoryRecord], policy: Policy, now: datetime) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for record in records:
        reason = None if record.pinned else _reason(record, policy, now)
        if reason is not None:
            chosen[record.memory_key] = reason
    rest = [record for record in records if record.memory_key not in chosen]
    if policy.duplicates:
        chosen |= dict.fromkeys(_duplicates(rest), "duplicate")
        rest = [record for record in rest if record.memory_key not in chosen]
    if policy.most_memories is not None:
        chosen |= dict.fromkeys(_over_budget(rest, policy.most_memories), "over the budget")
    return chosen


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


def _duplicates(records: list[MemoryRecord]) -> Iterator[str]:
    """All but the first of those that say the same of the same now; a pinned one comes first."""
    seen: set[tuple[Any, ...]] = set()
    for record in sorted(records, key=lambda r: (not r.pinned, r.created_at, r.memory_key)):
        if record.valid_to is not None:
            continue
        said = "".join(unicodedata.normalize("NFKC", record.content).casefold().split())
        same = (said, record.agent_id, record.subject, record.speaker, record.layer)
        if same in seen and not record.pinned:
            yield record.memory_key
        seen.add(same)


def _over_budget(records: list[MemoryRecord], most: int) -> Iterator[str]:
    def of_use(record: MemoryRecord) -> tuple[bool, datetime, str]:
        last = max(filter(None, (record.last_recalled_at, record.updated_at)))
        return record.pinned, last, record.memory_key

    ordered = sorted(records, key=of_use, reverse=True)
    for record in ordered[most:]:
        if not record.pinned:
            yield record.memory_key


def sweep_time(now: datetime | None) -> datetime:
    """The time of a sweep."""
    return now or datetime.now(UTC)
