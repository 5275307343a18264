"""What a service counted, in buckets of time: coarse ones for long, fine ones for hours.

Nobody's data: no user is named. Several processes add to the same buckets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import column, delete, func, select, table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from memrecall.errors import InvalidArgument
from memrecall.store.database.engine import Database
from memrecall.store.database.memory_tables import knowledge
from memrecall.store.database.tables import counters, memories, messages, users
from memrecall.types import ID_LENGTH

MINUTE, QUARTER, HOUR = 60, 900, 3600
LONGEST_KEPT = 3650  # days
# Fine buckets are for looking at now; the coarsest are kept as long as the setting says.
_FINE = {MINUTE: timedelta(hours=3), QUARTER: timedelta(days=3)}
_ESTIMATED = 1_000_000  # rows from which PostgreSQL's own estimate will do
_LEVELS = {"users": users, "messages": messages, "memories": memories, "knowledge": knowledge}

Counted = Mapping[tuple[str, str], tuple[int, float]]


@dataclass(frozen=True, slots=True)
class CounterRow:
    """How often something happened in a bucket, and the sum of what was measured of it."""

    bucket: datetime
    name: str
    label: str
    count: int
    total: float


class Counters:
    """The counters of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, counted: Counted, at: datetime, keep_days: int) -> None:
        """Add what happened about then, and drop what is older than `keep_days`."""
        _check_days(keep_days)
        rows = [_row(key, value) for key, value in counted.items()]
        await self._database.transact(lambda c: _write(c, rows, at, keep_days, sums=True))

    async def set_levels(self, levels: Mapping[str, int], at: datetime, keep_days: int) -> None:
        """Note how much there is of something at a time."""
        _check_days(keep_days)
        rows = [_row((name, "level"), (value, 0.0)) for name, value in levels.items()]
        await self._database.transact(lambda c: _write(c, rows, at, keep_days, sums=False))

    async def read(self, resolution: int, since: datetime) -> list[CounterRow]:
        """The buckets of a resolution from a time on, the earliest first."""
        named = [counters.c[name] for name in CounterRow.__slots__]
        wanted = select(*named).where(
            counters.c.resolution == resolution, counters.c.bucket >= since
        )
        ordered = wanted.order_by(counters.c.bucket, counters.c.name, counters.c.label)
        rows = await self._database.fetch(ordered)
        return [CounterRow(**row._mapping) for row in rows]

    async def measure_levels(self) -> dict[str, int]:
        """How many users, messages, memories and knowledge entries there are, about."""
        estimates = {} if self._database.is_sqlite else await self._estimates()
        levels: dict[str, int] = {}
        for name, counted in _LEVELS.items():
            if estimates.get(name, 0) >= _ESTIMATED:
                levels[name] = estimates[name]
                continue
            wanted = select(func.count().label("rows")).select_from(counted)
            levels[name] = int((await self._database.fetch(wanted))[0].rows)
        return levels

    async def _estimates(self) -> dict[str, int]:
        known = table("pg_class", column("relname"), column("reltuples"))
        wanted = select(known.c.relname, known.c.reltuples)
        rows = await self._database.fetch(wanted.where(known.c.relname.in_(list(_LEVELS))))
        return {row.relname: int(row.reltuples) for row in rows}


def bucket_of(at: datetime, resolution: int) -> datetime:
    """Where the bucket begins that a time falls into."""
    seconds = int(at.timestamp()) // resolution * resolution
    return datetime.fromtimestamp(seconds, UTC)


def _row(key: tuple[str, str], value: tuple[int, float]) -> dict[str, Any]:
    name, label = key
    return {"name": name, "label": label[:ID_LENGTH], "count": value[0], "total": value[1]}


async def _write(
    connection: AsyncConnection,
    rows: list[dict[str, Any]],
    at: datetime,
    keep_days: int,
    *,
    sums: bool,
) -> None:
    kept = {**_FINE, HOUR: timedelta(days=keep_days)}
    for resolution, span in kept.items():
        bucket = {"resolution": resolution, "bucket": bucket_of(at, resolution)}
        if rows:
            placed = [{**bucket, **row} for row in rows]
            await connection.execute(_upsert(connection, sums=sums), placed)
        old = delete(counters).where(
            counters.c.resolution == resolution, counters.c.bucket < at - span
        )
        await connection.execute(old)


def _upsert(connection: AsyncConnection, *, sums: bool) -> Any:
    """Insert a bucket's row; one that is there is added to, or replaced by a level."""
    dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(counters)
    new = statement.excluded
    changed = {"count": new.count, "total": new.total}
    if sums:
        changed = {name: counters.c[name] + new[name] for name in changed}
    return statement.on_conflict_do_update(
        index_elements=["resolution", "bucket", "name", "label"], set_=changed
    )


def _check_days(keep_days: int) -> None:
    if not 1 <= keep_days <= LONGEST_KEPT:
        raise InvalidArgument(
            f"keep_days {keep_days} is out of range", hint=f"Use 1 to {LONGEST_KEPT}"
        )
