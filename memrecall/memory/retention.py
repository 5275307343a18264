"""Retention: policies, the sweeps that apply them, and the times of recall that they need."""

import hashlib
import logging
import unicodedata
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from memrecall.errors import InvalidArgument, StorageError
from memrecall.library.library import Library
from memrecall.scope import Scope
from memrecall.settings import Settings, parse_object
from memrecall.store import MemoryQuery, Store
from memrecall.types import MemoryRecord

_log = logging.getLogger(__name__)

_SWEEP, _EXPIRED = "sweep", "expired"
_PAGE = 500
MOST_PENDING = 500  # times of recall that are written at once
_DAY = timedelta(days=1)
_EXAMPLE = '{"hours": 24, "older_than_days": 90, "purge": false}'


@dataclass(frozen=True, slots=True)
class Policy:
    """What a sweep removes; None and False disable a rule. Days count back from the sweep."""

    older_than_days: float | None = None  # since it was written or last updated
    not_recalled_days: float | None = None  # since it was last recalled, or else written
    superseded_days: float | None = None  # since it was superseded
    expired: bool = True
    duplicates: bool = True
    most_memories: int | None = None  # per user; the least recently used are removed

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value < 0:
                raise InvalidArgument(
                    f"{item.name} {value} is negative", hint="Use 0 or more, or None"
                )


@dataclass(frozen=True, slots=True)
class SweepSchedule:
    """The sweeps of a service: the time between two of them, and what they do."""

    hours: float
    policy: Policy
    purge: bool = False

    @classmethod
    def of(cls, settings: Settings) -> "SweepSchedule | None":
        """Return the schedule of the settings, None if they have none."""
        rules = parse_object("sweep", settings.sweep, _EXAMPLE)
        if not rules:
            return None
        hours, purge = rules.pop("hours", 0), bool(rules.pop("purge", False))
        try:
            schedule = cls(float(hours), Policy(**rules), purge)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"sweep {settings.sweep!r}: {error}", hint=f"Write it like {_EXAMPLE}"
            ) from None
        if not schedule.hours > 0:
            raise InvalidArgument(
                f"sweep {settings.sweep!r} has no hours", hint=f"Write it like {_EXAMPLE}"
            )
        return schedule


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """A policy and how a sweep applies it."""

    policy: Policy
    dry_run: bool
    purge: bool
    now: datetime

    def __post_init__(self) -> None:
        for name, kind in (("policy", Policy), ("now", datetime)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise InvalidArgument(
                    f"{name} {value!r} of a sweep is a {type(value).__name__}",
                    hint=f"Pass a {kind.__name__}",
                )


class RecallTimes:
    """Pending updates of when memories were last recalled, written in batches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[str, set[str]] = {}

    def add(self, user_id: str, keys: Iterable[str]) -> bool:
        """Note recalled memories; return True if it is time to flush."""
        if new := set(keys):  # users without hits would be remembered without end
            self._pending.setdefault(user_id, set()).update(new)
        return sum(map(len, self._pending.values())) >= MOST_PENDING

    def discard(self, user_id: str) -> None:
        """Drop the pending updates of a user."""
        self._pending.pop(user_id, None)

    async def flush(self) -> None:
        """Write the pending updates; a database that cannot be written is only logged."""
        pending, self._pending = self._pending, {}
        if self._store.database.is_read_only:
            return
        now = datetime.now(UTC)
        for user_id, keys in pending.items():
            try:
                await self._store.memories(Scope.of_owner(user_id)).mark_recalled(sorted(keys), now)
            except StorageError as error:
                _log.warning("the times of the last recall were not stored: %s", error)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The fields of a memory that selection needs; small, as all of a user's are loaded."""

    key: str
    pinned: bool
    created_at: datetime
    last_used: datetime
    fingerprint: bytes | None  # equal for duplicates; None if the memory is superseded


async def sweep_scope(library: Library, scope: Scope, options: SweepOptions) -> dict[str, Any]:
    """Find what a policy removes and, unless it is a dry run, hide or purge it."""
    reasons = await _select(library.store, scope, options)
    removed = 0
    if not options.dry_run:
        changes = library.changes(scope)
        for reason in sorted(set(reasons.values())):
            keys = [key for key, key_reason in reasons.items() if key_reason == reason]
            gone = reason == _EXPIRED  # the others leave room: the messages are still true
            if options.purge:
                removal = await library.purge(scope, keys, sources=gone, actor=_SWEEP)
            else:
                removal = await changes.delete(
                    keys, actor=_SWEEP, reason=reason, sources=gone, digests=gone
                )
            removed += len(removal.memories)
    return {
        "dry_run": options.dry_run,
        "found": len(reasons),
        "removed": removed,
        "reasons": Counter(reasons.values()),
        "results": [{"id": key, "reason": reason} for key, reason in reasons.items()],
    }


async def _select(store: Store, scope: Scope, options: SweepOptions) -> dict[str, str]:
    policy = options.policy
    reasons: dict[str, str] = {}
    rest: list[_Candidate] = []
    async for record in _iterate_memories(store, scope):
        reason = None if record.pinned else _reason_to_remove(record, policy, options.now)
        if reason is not None:
            reasons[record.memory_key] = reason
        else:
            rest.append(_candidate(record))
    if policy.duplicates:
        reasons |= dict.fromkeys(_duplicates(rest), "duplicate")
        rest = [candidate for candidate in rest if candidate.key not in reasons]
    if policy.most_memories is not None:
        rest.sort(key=lambda c: (c.pinned, c.last_used, c.key), reverse=True)
        over = [c.key for c in rest[policy.most_memories :] if not c.pinned]
        reasons |= dict.fromkeys(over, "over the budget")
    return reasons


async def _iterate_memories(store: Store, scope: Scope) -> AsyncIterator[MemoryRecord]:
    """Yield every memory that is not deleted, superseded ones included."""
    cursor: str | None = None
    while True:
        page = await store.memories(scope).page(
            MemoryQuery(superseded=True), limit=_PAGE, cursor=cursor
        )
        for record in page.items:
            yield record
        cursor = page.next_cursor
        if cursor is None:
            return


def _candidate(record: MemoryRecord) -> _Candidate:
    fingerprint = None
    if record.valid_to is None:
        text = "".join(unicodedata.normalize("NFKC", record.content).casefold().split())
        place = (record.agent_id, record.project, record.subject, record.speaker, record.layer)
        fingerprint = hashlib.sha256(repr((text, *place)).encode()).digest()[:16]
    last_used = max(filter(None, (record.last_recalled_at, record.updated_at)))
    return _Candidate(record.memory_key, record.pinned, record.created_at, last_used, fingerprint)


def _reason_to_remove(record: MemoryRecord, policy: Policy, now: datetime) -> str | None:
    def is_past(moment: datetime | None, days: float | None) -> bool:
        # A timedelta of the days could overflow; a quotient cannot.
        return moment is not None and days is not None and (now - moment) / _DAY >= days

    if policy.expired and is_past(record.expires_at, 0):
        return _EXPIRED
    if is_past(record.valid_to, policy.superseded_days):
        return "superseded"
    if is_past(record.updated_at, policy.older_than_days):
        return "old"
    if is_past(record.last_recalled_at or record.created_at, policy.not_recalled_days):
        return "not recalled"
    return None


def _duplicates(candidates: list[_Candidate]) -> Iterator[str]:
    """Yield all but the first of each group of duplicates; pinned memories are kept."""
    seen: set[bytes] = set()
    for candidate in sorted(candidates, key=lambda c: (not c.pinned, c.created_at, c.key)):
        if candidate.fingerprint is None:
            continue
        if candidate.fingerprint in seen and not candidate.pinned:
            yield candidate.key
        seen.add(candidate.fingerprint)
