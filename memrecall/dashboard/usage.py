"""Counters and traces as figures over time; nothing is drawn here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from memrecall.server.counters import class_of, percentile, tenth_of
from memrecall.store import CounterRow, TraceSummary
from memrecall.store.counters import HOUR, MINUTE, QUARTER, bucket_of

LEVEL = "level"


@dataclass(frozen=True, slots=True)
class TimeRange:
    """How far back one looks, and how finely."""

    name: str
    length: timedelta
    resolution: int

    def begin(self, now: datetime) -> datetime:
        """Where it begins."""
        return bucket_of(now - self.length, self.resolution) + timedelta(seconds=self.resolution)

    def buckets(self, now: datetime) -> list[datetime]:
        """The buckets of it, the earliest first."""
        count = int(self.length.total_seconds()) // self.resolution
        step = timedelta(seconds=self.resolution)
        return [self.begin(now) + number * step for number in range(count)]


SPANS = {
    "hour": TimeRange("hour", timedelta(hours=1), MINUTE),
    "day": TimeRange("day", timedelta(days=1), QUARTER),
    "week": TimeRange("week", timedelta(days=7), HOUR),
}


@dataclass(slots=True)
class Figures:
    """What was counted in a span."""

    buckets: Sequence[datetime]
    _labels: dict[str, dict[str, int]] = field(default_factory=dict)
    _places: dict[tuple[str, datetime], dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[CounterRow], buckets: Sequence[datetime]) -> "Figures":
        """From rows of counters."""
        made = cls(buckets)
        for row in rows:
            made.count(row.bucket, row.name, row.label, row.count)
        return made

    def count(self, bucket: datetime, name: str, label: str, count: int = 1) -> None:
        """Take something in."""
        for place in (
            self._labels.setdefault(name, {}),
            self._places.setdefault((name, bucket), {}),
        ):
            place[label] = place.get(label, 0) + count

    def by_label(self, name: str) -> dict[str, int]:
        """How often each kind of something happened."""
        return {label: n for label, n in self._labels.get(name, {}).items() if label != LEVEL}

    def total(self, name: str) -> int:
        """How often something happened."""
        return sum(self.by_label(name).values())

    def over_time(self, name: str) -> list[int]:
        """How often it happened in each bucket."""
        return [
            sum(n for label, n in self._places.get((name, bucket), {}).items() if label != LEVEL)
            for bucket in self.buckets
        ]

    def percentiles(self, name: str, share: float) -> list[float | None]:
        """The percentile of a time in each bucket; None where nothing was timed."""
        return [percentile(self._places.get((name, b), {}), share) for b in self.buckets]

    def percentile(self, name: str, share: float) -> float | None:
        """The percentile of a time over the whole span."""
        return percentile(self.by_label(name), share)

    def levels(self, name: str) -> list[int | None]:
        """How much there was in each bucket; a bucket that was not measured has none."""
        return [self._places.get((name, bucket), {}).get(LEVEL) for bucket in self.buckets]

    def level(self, name: str) -> int | None:
        """How much there was at last."""
        measured = [level for level in self.levels(name) if level is not None]
        return measured[-1] if measured else None


def figures_of_recalls(found: Iterable[TraceSummary], span: TimeRange, now: datetime) -> Figures:
    """The same figures from one user's stored recalls."""
    made = Figures(span.buckets(now))
    told: tuple[tuple[str, Callable[[TraceSummary], str]], ...] = (
        ("recalls", lambda item: item.stop_reason),
        ("recall_seconds", lambda item: class_of(item.seconds)),
        ("iterations", lambda item: str(item.iterations)),
        ("confidence", lambda item: tenth_of(item.confidence)),
        ("abstained", lambda item: "yes" if item.abstained else "no"),
    )
    for item in found:
        bucket = bucket_of(item.created_at, span.resolution)
        for name, label in told:
            made.count(bucket, name, label(item))
    return made
