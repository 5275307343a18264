"""The overview: stored data, and what the service does over a period; the first visit."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from nicegui import ui

from memrecall.dashboard.layout import register_page
from memrecall.dashboard.page import Page
from memrecall.dashboard.sample import load_sample
from memrecall.dashboard.trace_view import stop_text
from memrecall.dashboard.widgets import (
    PALETTE,
    TIME_AXIS,
    axis,
    card,
    chart,
    chip_link,
    dim_label,
    draw_button,
    format_duration,
    row,
    select_user,
    show_code,
    show_empty,
    show_fact,
    show_title,
    xy_chart,
)
from memrecall.errors import NotFound
from memrecall.scope import Permission
from memrecall.server.auth import Principal
from memrecall.server.metrics import estimate_percentile, latency_label, recall_labels
from memrecall.store import TraceSummary
from memrecall.store.counters import HOUR, MINUTE, QUARTER, bucket_of

MAX_RECALLS = 5_000
_LEVELS = ("users", "messages", "memories", "knowledge")
_HORIZONTAL = frozenset({"recalls", "leaks", "errors"})
_MAX_SYMBOLS = 30
_PERCENTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
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


class UsageHistory:
    """Counts of a period by name, bucket and label."""

    def __init__(self, buckets: Sequence[datetime]) -> None:
        self.buckets = buckets
        self._counts: dict[str, dict[datetime, Counter[str]]] = defaultdict(
            lambda: {bucket: Counter() for bucket in buckets}
        )

    def add(self, bucket: datetime, name: str, label: str, count: int = 1) -> None:
        """Add a count."""
        self._counts[name].setdefault(bucket, Counter())[label] += count

    def by_label(self, name: str) -> Counter[str]:
        """Return the count of each label."""
        return sum(self._counts[name].values(), Counter())

    def over_time(self, name: str) -> list[int]:
        """Return the count in each bucket."""
        return [self._counts[name][bucket].total() for bucket in self.buckets]

    def percentiles(self, name: str, share: float) -> list[float | None]:
        """Return a percentile of durations in each bucket; None for a bucket without any."""
        counts = self._counts[name]
        return [estimate_percentile(counts[bucket], share) for bucket in self.buckets]

    def levels(self, name: str) -> list[int | None]:
        """Return the stored amount at each bucket; None for a bucket that was not measured."""
        return [self._counts[name][bucket].get(LEVEL) for bucket in self.buckets]


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


@register_page("/", "overview")
async def show_overview(page: Page) -> None:
    """Show the whole service to an operator, one user to others, and where to begin."""
    show_title(page.text("overview"))
    principal = await page.principal()
    if principal.users is None and not page.user and not await page.find_users():
        _draw_welcome(page, principal)
        return
    period = PERIODS.get(page.query.get("span", ""), PERIODS["day"])
    with row():
        for name in PERIODS:
            target = page.link_here(span=name)
            chip_link(page.text(f"span_{name}"), target, is_current=name == period.name)
    if Permission.OPERATOR in principal.permissions and not page.user:
        await _draw_service(page, period)
    elif await select_user(page):
        await _draw_user(page, period)


async def _draw_service(page: Page, period: Period) -> None:
    now = datetime.now(UTC)
    usage = UsageHistory(period.buckets(now))
    for each in await page.library.store.counters.read(period.resolution, period.start(now)):
        usage.add(each.bucket, each.name, each.label, each.count)
    if page.service.counters is None:
        show_empty(page.text("not_counted"))
    stored = await page.library.store.counters.measure_levels()
    with ui.element("div").classes("mr-tiles"):
        for name in _LEVELS:
            _draw_tile(page.text(name), stored[name], usage.levels(name))
    _draw_totals(page, usage)
    with ui.element("div").classes("mr-grid"):
        _draw_activity(page, usage, ("searches", "recalls", "turns"))
        _draw_latency(page, usage, "recall_seconds")
        _draw_latency(page, usage, "search_seconds")
        for name in ("recalls", "iterations", "windows", "confidence", "leaks", "errors"):
            _draw_distribution(page, usage, name)


async def _draw_user(page: Page, period: Period) -> None:
    scope, now = await page.scope(), datetime.now(UTC)
    store = page.library.store
    recalls = await store.traces(scope).since(period.start(now), MAX_RECALLS)
    usage = usage_of_recalls(recalls, period, now)
    counts = await store.count(scope.user_id)
    counts["current_memories"] = await store.memories(scope).count()
    with ui.element("div").classes("mr-tiles"):
        for name in ("sessions", "messages", "memories", "current_memories", "traces"):
            _draw_tile(page.text(name), counts[name], [])
    _draw_totals(page, usage)
    with ui.element("div").classes("mr-grid"):
        _draw_activity(page, usage, ("recalls",))
        _draw_latency(page, usage, "recall_seconds")
        for name in ("recalls", "iterations", "confidence"):
            _draw_distribution(page, usage, name)


def _draw_welcome(page: Page, principal: Principal) -> None:
    """Draw what a visitor of an empty database can do."""
    with card(page.text("welcome")):
        ui.label(page.text("welcome_hint"))
    with ui.element("div").classes("mr-grid mr-halves"):
        if not principal.read_only:
            _draw_sample(page)
        for name, code in _ways_in(page, principal).items():
            with card(page.text(f"way_{name}")):
                ui.label(page.text(f"way_{name}_hint"))
                show_code(page, code)


def _draw_sample(page: Page) -> None:
    async def load() -> None:
        principal = await page.principal()
        principal.require_write()
        if principal.users is not None:
            raise NotFound("the key has no access to the users of the sample")
        button.props("loading")
        await load_sample(page.library)
        ui.navigate.to(page.link("/explorer", user="lin" if page.language == "zh" else "maya"))

    with card(page.text("sample")):
        ui.label(page.text("sample_hint"))
        button = draw_button(page, "load_sample", load, "download", "unelevated")


def _ways_in(page: Page, principal: Principal) -> dict[str, str]:
    """Return the commands that store data here; only operators see the path of the database."""
    location = page.database_file(principal) or "memory.db"
    option = f"--db {shlex.quote(location)}"
    return {
        "import": f"memrecall import conversations.json --user me {option}",
        "python": (
            "from memrecall import Memory\n\n"
            f"memory = Memory(db={json.dumps(location, ensure_ascii=False)})\n"
            'memory.add("I am allergic to peanuts.", user_id="me")\n'
            'print(memory.search("What can I not eat?", user_id="me"))'
        ),
        "mcp": f"claude mcp add memrecall -- memrecall mcp --user me {option}",
    }


def _draw_tile(name: str, value: int, over_time: Sequence[int | None]) -> None:
    with ui.card().classes("mr-card mr-tile"):
        dim_label(name)
        ui.label(f"{value:,}").classes("mr-number")
        if sum(level is not None for level in over_time) > 1:
            _draw_sparkline(name, over_time)


def _draw_sparkline(name: str, over_time: Sequence[int | None]) -> None:
    line = {"type": "line", "data": list(over_time), "showSymbol": False, "connectNulls": True}
    chart(
        {
            "grid": {"left": 0, "right": 0, "top": 4, "bottom": 4},
            "xAxis": {"type": "category", "show": False},
            "yAxis": {"type": "value", "scale": True, "show": False},
            "series": [line],
        },
        name,
    ).classes("mr-trend")


def _draw_totals(page: Page, usage: UsageHistory) -> None:
    """Draw the totals of the whole period in one row."""
    recalls = usage.by_label("recalls").total()
    abstained = usage.by_label("abstained")["yes"]
    totals = {
        "searches": f"{usage.by_label('searches').total():,}",
        "recalls": f"{recalls:,}",
        "abstentions": f"{abstained:,}" + (f" ({abstained / recalls:.0%})" if recalls else ""),
        "errors": f"{usage.by_label('errors').total():,}",
    }
    for share, name in _PERCENTILES:
        seconds = estimate_percentile(usage.by_label("recall_seconds"), share)
        totals[f"recall_{name}"] = "–" if seconds is None else format_duration(seconds)
    with card(), row():
        for name, value in totals.items():
            show_fact(page.text(name), value).props(f"data-figure={name}")


def _timestamps(usage: UsageHistory) -> list[float]:
    return [bucket.timestamp() * 1000 for bucket in usage.buckets]


def _draw_activity(page: Page, usage: UsageHistory, names: Sequence[str]) -> None:
    with card(page.text("activity")):
        series = []
        for name in names:
            points = zip(_timestamps(usage), usage.over_time(name), strict=True)
            bars = {"type": "bar", "stack": "all", "data": [list(point) for point in points]}
            series.append({**bars, "name": page.text(name)})
        xy_chart(page.text("activity"), TIME_AXIS, axis(minInterval=1), series)


def _draw_latency(page: Page, usage: UsageHistory, name: str) -> None:
    with card(page.text(name)):
        if not usage.by_label(name):
            show_empty(page.text("nothing_yet"))
            return
        series = []
        for share, label in _PERCENTILES:
            values = usage.percentiles(name, share)
            points = [
                [time, None if seconds is None else round(seconds * 1000, 1)]
                for time, seconds in zip(_timestamps(usage), values, strict=True)
            ]
            line = {"type": "line", "name": label, "data": points, "connectNulls": True}
            series.append({**line, "showSymbol": len(points) - values.count(None) <= _MAX_SYMBOLS})
        xy_chart(page.text(name), TIME_AXIS, axis(), series)


def _draw_distribution(page: Page, usage: UsageHistory, name: str) -> None:
    """Draw a bar chart of the counts by label."""
    heading = page.text(f"by_{name}")
    counts = usage.by_label(name)
    with card(heading):
        if not counts:
            show_empty(page.text("nothing_yet"))
            return
        labels = _sort_labels(counts)
        style = {"color": PALETTE[3 if name in ("leaks", "errors") else 0]}
        names = [_name_label(page, name, label) for label in labels]
        bars = {"type": "bar", "barMaxWidth": 28, "itemStyle": style}
        x_axis = axis(type="category", data=names, splitLine={"show": False})
        y_axis = axis(minInterval=1)
        if name in _HORIZONTAL:  # long labels are at the left of their bars, the first one on top
            x_axis["inverse"] = True
            x_axis, y_axis = y_axis, x_axis
        xy_chart(heading, x_axis, y_axis, [{**bars, "data": [counts[label] for label in labels]}])


def _name_label(page: Page, name: str, label: str) -> str:
    if name == "confidence":
        return f"{label}+"
    return stop_text(page, label) if name == "recalls" else label


def _sort_labels(counts: Mapping[str, int]) -> list[str]:
    """Sort numbers by value, names by count."""
    try:
        return sorted(counts, key=float)
    except ValueError:
        return sorted(counts, key=lambda label: -counts[label])[:8]
