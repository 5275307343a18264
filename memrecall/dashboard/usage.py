"""Usage over time, computed from stored counters or from a user's recalls."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from memrecall.server.metrics import estimate_percentile, latency_label, recall_labels
from memrecall.store import TraceSummary
from memrecall.store.counters import HOUR, MINUTE, QUARTER, bucket_of

LEVEL = "level"


@dataclass(frozen=True, slots=True)
class Period:
    """A period up to now, and the resolution of its buckets."""

    name: str
    length: timedelta
    resolution: int

    def start(self, now: datetime) -> datetime:
        """Return the start of the first bucket."""
        return bucket_of(now - self.length, self.resolution) + timedelta(seconds=self.resolution)

    def buckets(self, now: datetime) -> list[datetime]:
        """Return the starts of all buckets, the earliest first."""
        count = int(self.length.total_seconds()) // self.resolution
        step = timedelta(seconds=self.resolution)
        return [self.start(now) + number * step for number in range(count)]


PERIODS = {
    "hour": Period("hour", timedelta(hours=1), MINUTE),
    "day": Period("day", timedelta(days=1), QUARTER),
    "week": Period("week", timedelta(days=7), HOUR),
}


@dataclass(slots=True)
class UsageHistory:
    """Counts of a period by name, label and bucket."""

    buckets: Sequence[datetime]
    _totals: dict[str, dict[str, int]] = field(default_factory=dict)
    _by_bucket: dict[tuple[str, datetime], dict[str, int]] = field(default_factory=dict)

    def add(self, bucket: datetime, name: str, label: str, count: int = 1) -> None:
        """Add a count."""
        for counts in (
            self._totals.setdefault(name, {}),
            self._by_bucket.setdefault((name, bucket), {}),
        ):
            counts[label] = counts.get(label, 0) + count

    def by_label(self, name: str) -> dict[str, int]:
        """Return the count of each label."""
        return {label: n for label, n in self._totals.get(name, {}).items() if label != LEVEL}

    def total(self, name: str) -> int:
        """Return the count of all labels."""
        return sum(self.by_label(name).values())

    def over_time(self, name: str) -> list[int]:
        """Return the count in each bucket."""
        return [
            sum(n for label, n in self._by_bucket.get((name, bucket), {}).items() if label != LEVEL)
            for bucket in self.buckets
        ]

    def percentiles(self, name: str, share: float) -> list[float | None]:
        """Return a percentile of durations in each bucket; None for a bucket without any."""
        return [
            estimate_percentile(self._by_bucket.get((name, b), {}), share) for b in self.buckets
        ]

    def percentile(self, name: str, share: float) -> float | None:
        """Return a percentile of durations over the whole period."""
        return estimate_percentile(self.by_label(name), share)

    def levels(self, name: str) -> list[int | None]:
        """Return the stored amount at each bucket; None for a bucket that was not measured."""
        return [self._by_bucket.get((name, bucket), {}).get(LEVEL) for bucket in self.buckets]

    def level(self, name: str) -> int | None:
        """Return the latest measured amount."""
        measured = [level for level in self.levels(name) if level is not None]
        return measured[-1] if measured else None


def usage_of_recalls(
    recalls: Iterable[TraceSummary], period: Period, now: datetime
) -> UsageHistory:
    """Return the usage that one user's stored recalls describe."""
    usage = UsageHistory(period.buckets(now))
    for recall in recalls:
        bucket = bucket_of(recall.created_at, period.resolution)
        labels = {"recalls": recall.stop_reason, "recall_seconds": latency_label(recall.seconds)}
        for name, label in (labels | recall_labels(recall)).items():
            usage.add(bucket, name, label)
    return usage
