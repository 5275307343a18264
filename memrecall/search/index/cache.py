"""The indexes in memory, brought up to date on every use; the only search module that reads rows.

A search reads the user's version first and the cache fetches the changes up to it: a write by any
process is visible at once. All indexes together stay within a byte budget; the least recently used
ones are evicted.
"""

import asyncio
import ctypes
import hashlib
import json
import os
import sys
import zipfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.search.index import Floats
from memrecall.search.index.columns import FIELDS, Columns, RowTable
from memrecall.search.index.external import ExternalVectors
from memrecall.search.index.postings import Segment
from memrecall.search.index.vectors import ExternalUserVectors, VectorBlocks
from memrecall.search.request import KINDS
from memrecall.store import ChangeFeed, KnowledgeFeed, UserVersion
from memrecall.text import TEXT_VERSION
from memrecall.workers import in_thread

IndexFeed = ChangeFeed | KnowledgeFeed

# Below this many new rows, building again is faster than writing and reading a file.
_ROWS_WORTH_SAVING = 500
# Adding this many rows leaves tens of megabytes of freed memory behind.
_ROWS_WORTH_RELEASING = 5_000
FORMAT = 5  # of snapshots
_SEGMENT = ("keys", "offsets", "docs", "frequencies", "lengths", "atoms", "atom_offsets")


@dataclass(frozen=True, slots=True)
class SnapshotFolder:
    """The snapshots of one database."""

    folder: Path
    database_id: str

    @classmethod
    def of_database(cls, database_id: str, file: Path | None, caches: Path) -> "SnapshotFolder":
        """Return a folder next to a SQLite file, which copies do not share, or in the caches."""
        if file is not None:
            return cls(file.with_name(file.name + "-index"), database_id)
        return cls(caches / "index" / database_id, database_id)

    def path(self, user_id: str) -> Path:
        """Return the path of a user's snapshot, which does not contain the id."""
        return self.folder / (hashlib.sha256(user_id.encode()).hexdigest()[:40] + ".npz")

    def save(self, user_id: str, columns: Columns, model: str | None) -> bool:
        """Replace a user's snapshot; return False if the folder cannot be written."""
        columns.merge_all_segments()
        segment = columns.segments[0]
        header = {
            "title": self._identity(user_id, model),
            "epoch": columns.epoch,
            "version": columns.version,
        }
        arrays: dict[str, Any] = {
            "about": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "terms": _pack(columns.vocabulary),
            "row_keys": _pack(columns.table.keys),
            "names": _pack(columns.table.names),
            "vectors": columns.vectors.dump(columns.rows),
            **{f"row_{name}": getattr(columns.table, name) for name in FIELDS},
            **{f"segment_{name}": getattr(segment, name) for name in _SEGMENT},
        }
        target = self.path(user_id)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(temporary, "wb", opener=partial(os.open, mode=0o600)) as file:
                np.savez(file, **arrays)
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            return False
        return True

    def load(self, user_id: str, epoch: str, model: str | None) -> Columns | None:
        """Return the saved columns if they are of this database, history and model."""
        try:
            with (
                self.path(user_id).open("rb") as file,
                np.load(file, allow_pickle=False) as archive,
            ):
                header = json.loads(archive["about"].tobytes())
                if header["title"] != self._identity(user_id, model) or header["epoch"] != epoch:
                    return None
                return _from_arrays(header, archive)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
            return None

    def forget(self, user_id: str) -> None:
        """Delete a user's snapshot."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self.path(user_id).unlink()

    def _identity(self, user_id: str, model: str | None) -> list[object]:
        return [FORMAT, TEXT_VERSION, self.database_id, user_id, model]


def _from_arrays(header: dict[str, Any], archive: Any) -> Columns:
    table = RowTable()
    fields = {name: archive[f"row_{name}"] for name in FIELDS}
    table.load(fields, _unpack(archive["row_keys"]), _unpack(archive["names"]))
    vectors = VectorBlocks()
    vectors.load(archive["vectors"])
    segment = Segment(len(table), *(archive[f"segment_{name}"] for name in _SEGMENT))
    columns = Columns(header["epoch"])
    columns.restore(header["version"], _unpack(archive["terms"]), table, segment, vectors)
    return columns


def _pack(strings: Iterable[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(list(strings)).encode(), dtype=np.uint8)


def _unpack(data: npt.NDArray[np.uint8]) -> list[str]:
    strings: list[str] = json.loads(data.tobytes())
    return strings


@cache
def _malloc_trim() -> Callable[[int], object]:
    """Return the function that gives freed blocks back to the system, where there is one."""
    if sys.platform.startswith("linux"):
        with suppress(AttributeError):  # another C library, such as musl
            return ctypes.CDLL(None).malloc_trim
    return lambda padding: None


@dataclass(slots=True)
class _Slot:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    columns: Columns | None = None
    loading: tuple[Columns, int] | None = None  # being brought up to a version
    saved_rows: int = 0
    users: int = 0
    nbytes: int = 0


class IndexCache:
    """Current columns by user, within a byte budget."""

    def __init__(
        self,
        model: str | None,
        snapshots: SnapshotFolder | None,
        byte_budget: int,
        external: ExternalVectors | None = None,
    ) -> None:
        self._model = model
        self._snapshots = snapshots
        self._byte_budget = byte_budget
        self._external = external
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._nbytes = 0  # of all slots: adding them up at each search would take milliseconds

    @asynccontextmanager
    async def open(self, feed: IndexFeed, version: UserVersion) -> AsyncIterator[Columns | None]:
        """Yield the columns of a feed, locked while in use; None if its owner was erased.

        They contain everything up to `version`, and more if another search has just added it.
        """
        slot = self._slots.setdefault(feed.owner, _Slot())
        self._slots.move_to_end(feed.owner)
        slot.users += 1
        try:
            async with slot.lock:
                yield await self._refresh(feed, slot, version)
        finally:
            slot.users -= 1
            if slot.columns is None and not slot.users:  # erased, or they could not be read
                self._drop(feed.owner)
            if self._nbytes > self._byte_budget:
                self._evict()

    def loaded_share(self, owner: str) -> float | None:
        """Return how much of an owner's index is loaded, 0 to 1; None if it is not being loaded."""
        slot = self._slots.get(owner)
        if slot is None or slot.loading is None:
            return None
        columns, version = slot.loading
        return min(columns.version / version, 1.0)

    async def fetch_products(self, columns: Columns, query: Floats | None) -> None:
        """Fetch the products with external vectors, which a semantic search needs."""
        if self._external is not None and query is not None:
            await self._external.fetch_products(columns, query)

    def forget(self, owner: str) -> None:
        """Drop the index of a user, in memory and on disk."""
        slot = self._slots.get(owner)
        if slot is not None and not slot.users:
            self._drop(owner)
        self.forget_snapshot(owner)

    def forget_snapshot(self, owner: str) -> None:
        """Delete the file of a user's index."""
        if self._snapshots is not None:
            self._snapshots.forget(owner)

    def nbytes(self) -> int:
        """Return how much memory the indexes take together."""
        return self._nbytes

    def __len__(self) -> int:
        """Return how many indexes are in memory."""
        return len(self._slots)

    async def _refresh(
        self, feed: IndexFeed, slot: _Slot, version: UserVersion | None
    ) -> Columns | None:
        columns = slot.columns
        # Absent while a batch is applied: a failure must not leave half of a change behind.
        slot.columns = None
        # The vectors of an agent's knowledge are always in memory.
        external = self._external if isinstance(feed, ChangeFeed) else None
        if columns is not None and external is not None and external.has_outgrown(columns):
            columns = None
        if columns is not None and not _precedes(columns, version):
            # Another search has moved ahead since the version was read, or the history changed.
            version = await feed.version()
        if version is None:
            self.forget(feed.owner)
            return None
        if columns is None or not _precedes(columns, version):
            columns = await self._load(feed, slot, version)
        if columns.version < version.version:
            rows, reached = columns.rows, columns.version
            slot.loading = (columns, version.version)
            try:
                changes = feed.changes(columns.version, version.version, self._model)
                async for batch in changes:
                    reached = batch.through
                    await in_thread(columns.apply, batch)
            finally:
                slot.loading = None
                if columns.version == reached:  # Who stops here leaves the rest to the next one.
                    self._keep(slot, columns)
            columns.merge_small_segments()
            await self._save_if_grown(feed.owner, slot, columns)
            if columns.rows - rows > _ROWS_WORTH_RELEASING:
                await in_thread(_malloc_trim(), 0)
        self._keep(slot, columns)
        return columns

    def _keep(self, slot: _Slot, columns: Columns) -> None:
        slot.columns = columns
        nbytes = columns.cached("nbytes", columns.nbytes)  # until the next change
        self._nbytes += nbytes - slot.nbytes
        slot.nbytes = nbytes

    async def _load(self, feed: IndexFeed, slot: _Slot, version: UserVersion) -> Columns:
        """Return the saved columns if they fit this user's history, else empty ones."""
        slot.saved_rows = 0
        empty = Columns(version.epoch)
        external = self._external if isinstance(feed, ChangeFeed) else None
        if external is not None and await external.applies_to(feed.owner):
            empty.vectors = ExternalUserVectors(feed.owner)
        if self._snapshots is None:
            return empty
        label = self._label(empty)
        saved = await in_thread(self._snapshots.load, feed.owner, version.epoch, label)
        if saved is None or saved.version > version.version:
            return empty
        if saved.rows:
            # After a restored backup, change numbers may have been assigned again to other rows:
            # the database must still have the newest row of the snapshot.
            table, at = saved.table, int(np.argmax(saved.table.born))
            last = (KINDS[table.kind[at]], table.keys[at], int(table.born[at]))
            if not await feed.has(*last):
                return empty
        if isinstance(empty.vectors, ExternalUserVectors):
            saved.vectors = empty.vectors
        slot.saved_rows = saved.rows
        return saved

    def _label(self, columns: Columns) -> str | None:
        """Return what distinguishes snapshots: the model, and whether vectors are included."""
        is_external = isinstance(columns.vectors, ExternalUserVectors)
        return f"{self._model} outside" if is_external else self._model

    async def _save_if_grown(self, owner: str, slot: _Slot, columns: Columns) -> None:
        if self._snapshots is None:
            return
        if columns.has_erased:
            # Its postings and words still contain what was erased.
            await in_thread(self._snapshots.forget, owner)
            return
        grown = columns.rows - slot.saved_rows
        if grown < max(_ROWS_WORTH_SAVING, slot.saved_rows // 10):
            return
        await in_thread(self._snapshots.save, owner, columns, self._label(columns))
        slot.saved_rows = columns.rows

    def _evict(self) -> None:
        """Drop the least recently used indexes that are not in use, down to the budget."""
        excess = self._nbytes - self._byte_budget
        evicted = []
        for owner, slot in self._slots.items():
            if excess <= 0:
                break
            if not slot.users:
                excess -= slot.nbytes
                evicted.append(owner)
        for owner in evicted:
            self._drop(owner)

    def _drop(self, owner: str) -> None:
        self._nbytes -= self._slots.pop(owner).nbytes


def _precedes(columns: Columns, version: UserVersion | None) -> bool:
    if version is None:
        return False
    return columns.epoch == version.epoch and columns.version <= version.version
