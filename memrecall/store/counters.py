"""Counters of the service in buckets of time: fine ones for hours, coarse ones for long.

They name no user. Several processes add to the same buckets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import column, delete, func, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.store.database.cursors import require_limit
from memrecall.store.database.engine import Database
from memrecall.store.database.memory_tables import knowledge
from memrecall.store.database.statements import upsert
from memrecall.store.database.tables import counters, memories, messages, users
from memrecall.types import ID_LENGTH

MINUTE, QUARTER, HOUR = 60, 900, 3600
MOST_COUNTER_DAYS = 3650
# Fine buckets show the present; a setting says how long the coarsest are stored.
_FINE = {MINUTE: timedelta(hours=3), QUARTER: timedelta(days=3)}
_ESTIMATE_FROM = 1_000_000  # rows from which the planner's estimate is good enough
_classes = table("pg_class", column("relname"), column("reltuples"))
_LEVELS = {"users": users, "messages": messages, "memories": memories, "knowledge": knowledge}

Counts = Mapping[tuple[str, str], tuple[int, float]]


@dataclass(frozen=True, slots=True)
class CounterRow:
    """How often something happened in a bucket, and the sum of its measurements."""

    bucket: datetime
    name: str
    label: str
    count: int
    total: float


class Counters:
    """The counters of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, counts: Counts, at: datetime, keep_days: int) -> None:
        """Add counts to the buckets of a time, and drop what is older than `keep_days`."""
        require_limit("keep_days", keep_days, MOST_COUNTER_DAYS)
        rows = [_to_row(key, value) for key, value in counts.items()]
        await self._database.transact(lambda c: _write(c, rows, at, keep_days, add=True))

    async def set_levels(self, levels: Mapping[str, int], at: datetime, keep_days: int) -> None:
        """Record how much of something there is at a time."""
        require_limit("keep_days", keep_days, MOST_COUNTER_DAYS)
        rows = [_to_row((name, "level"), (value, 0.0)) for name, value in levels.items()]
        await self._database.transact(lambda c: _write(c, rows, at, keep_days, add=False))

    async def read(self, resolution: int, since: datetime) -> list[CounterRow]:
        """Return the buckets of a resolution since a time, oldest first."""
        columns = [counters.c[name] for name in CounterRow.__slots__]
        statement = select(*columns).where(
            counters.c.resolution == resolution, counters.c.bucket >= since
        )
        ordered = statement.order_by(counters.c.bucket, counters.c.name, counters.c.label)
        return [CounterRow(**row._mapping) for row in await self._database.fetch(ordered)]

    async def measure_levels(self) -> dict[str, int]:
        """Return about how many users, messages, memories and knowledge entries there are."""
        estimates = await self._estimate_levels()
        levels: dict[str, int] = {}
        for name, counted in _LEVELS.items():
            if estimates.get(name, 0) >= _ESTIMATE_FROM:
                levels[name] = estimates[name]
                continue
            statement = select(func.count().label("rows")).select_from(counted)
            levels[name] = int((await self._database.fetch(statement))[0].rows)
        return levels

    async def _estimate_levels(self) -> dict[str, int]:
        """Return the rows of each table as PostgreSQL's planner knows them."""
        if self._database.file is not None:
            return {}
        columns = (_classes.c.relname.label("name"), _classes.c.reltuples.label("rows"))
        statement = select(*columns).where(_classes.c.relname.in_(list(_LEVELS)))
        return {row.name: int(row.rows) for row in await self._database.fetch(statement)}


def bucket_of(at: datetime, resolution: int) -> datetime:
    """Return the beginning of the bucket that a time falls into."""
    seconds = int(at.timestamp()) // resolution * resolution
    return datetime.fromtimestamp(seconds, UTC)


def _to_row(key: tuple[str, str], value: tuple[int, float]) -> dict[str, Any]:
    name, label = key
    return {"name": name, "label": label[:ID_LENGTH], "count": value[0], "total": value[1]}


async def _write(
    connection: AsyncConnection,
    rows: list[dict[str, Any]],
    at: datetime,
    keep_days: int,
    *,
    add: bool,
) -> None:
    for resolution, age in {**_FINE, HOUR: timedelta(days=keep_days)}.items():
        bucket = {"resolution": resolution, "bucket": bucket_of(at, resolution)}
        if rows:
            statement = upsert(connection, counters, ("count", "total"), add=add)
            await connection.execute(statement, [{**bucket, **row} for row in rows])
        is_old = (counters.c.resolution == resolution, counters.c.bucket < at - age)
        await connection.execute(delete(counters).where(*is_old))
