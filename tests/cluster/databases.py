"""Distributed databases for tests, emptied and lent to the next test."""

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from memrecall.store import Store
from memrecall.store.database.distribution import distribute
from memrecall.store.database.tables import meta, metadata
from tests.cluster.nodes import Cluster
from tests.databases import DISCONNECT_OTHERS, run_in_thread

SHARDS = 4  # few, because each is emptied after each test


class ClusterDatabases:
    """Databases of a running cluster, or the one database that is named."""

    def __init__(self, cluster: Cluster | None = None, location: str = "") -> None:
        self._cluster = cluster
        self._location = location
        self._free: list[str] = []
        self._in_use: list[str] = []

    def fresh(self, *, migrated: bool = True) -> str:
        """Return the location of a distributed database without rows, or of one without tables."""
        if not migrated:
            return self._create()
        location = self._free.pop() if self._free else self._create_distributed()
        self._in_use.append(location)
        return location

    def release(self) -> None:
        """Empty the databases of a test."""
        for location in self._in_use:
            run_in_thread(_empty(location))
        self._free += self._in_use
        self._in_use = []

    def _create_distributed(self) -> str:
        location = self._location or self._create()
        run_in_thread(_distribute(location))
        return location

    def _create(self) -> str:
        if self._cluster is None:
            pytest.skip("TESTS LEFT OUT: a named cluster has one database, they need another")
        return self._cluster.coordinator.location(self._cluster.create())


async def _distribute(location: str) -> None:
    async with await Store.open(location) as store:
        await distribute(store.database, None if store.database.is_distributed else SHARDS)
    await _empty(location)


async def _empty(location: str) -> None:
    url = make_url(location).set(drivername="postgresql")
    connection = await asyncpg.connect(url.render_as_string(hide_password=False))
    try:
        await connection.execute(DISCONNECT_OTHERS)
        # Not TRUNCATE, which takes seconds for some tables with a few rows.
        for table in reversed(metadata.sorted_tables):
            if table is not meta:
                await connection.execute(f"DELETE FROM {table.name}")  # noqa: S608
        await connection.execute("DELETE FROM memrecall_meta WHERE name = 'embedding_model'")
    finally:
        await connection.close()
