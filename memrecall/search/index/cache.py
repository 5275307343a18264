"""The indexes that are in memory, always current. The only room of search that asks the store.

Every use asks for the user's mark first, one small query, and fetches what is new: a write by any
process is seen at once. All users together stay within a byte budget; the least recently used go.
"""

import asyncio
import ctypes
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memrecall.search.index.columns import Columns
from memrecall.search.index.external import ExternalUserVectors, ExternalVectors
from memrecall.search.index.snapshot import SnapshotFolder
from memrecall.store import ChangeFeed, KnowledgeFeed, Store, UserVersion


@cache
def _trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library, musl for one
        return None


def release_freed_memory() -> None:
    """Give freed blocks back to the system where the C library can."""
    trim = _trim()
    if trim is not None:
        trim(0)


_Feed = ChangeFeed | KnowledgeFeed
_Current = tuple[UserVersion, Columns] | None

# Below this many new rows, building again is faster than writing and reading a file.
_WORTH_SAVING = 500
# Taking in this many rows leaves tens of megabytes of freed memory behind.
_WORTH_RELEASING = 5_000


@dataclass(slots=True)
class _Slot:
    """One user's place in the cache."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    columns: Columns | None = None
    saved_rows: int = 0
    users: int = 0
    nbytes: int = 0


class IndexCache:
    """Current columns by user, within a byte budget."""

    def __init__(
        self,
        store: Store,
        model: str | None,
        snapshots: SnapshotFolder | None,
        byte_budget: int,
        outside: ExternalVectors | None = None,
    ) -> None:
        self._store = store
        self._model = model
        self._snapshots = snapshots
        self._byte_budget = byte_budget
        self._outside = outside
        self._slots: OrderedDict[str, _Slot] = OrderedDict()

    def current(self, user_id: str) -> AbstractAsyncContextManager[_Current]:
        """The user's mark and columns, held still while in use; None for an unknown user."""
        return self._current(self._store.feed(user_id))

    def current_knowledge(self, agent_id: str) -> AbstractAsyncContextManager[_Current]:
        """The same of what an agent knows; None for an agent that knows nothing."""
        return self._current(self._store.knowledge_feed(agent_id))

    @asynccontextmanager
    async def _current(self, feed: _Feed) -> AsyncIterator[_Current]:
        mark = await feed.version()
        if mark is None:
            self.forget(feed.owner)
            yield None
            return
        slot = self._slots.setdefault(feed.owner, _Slot())
        self._slots.move_to_end(feed.owner)
        slot.users += 1
        try:
            async with slot.lock:
                columns = await self._refresh(feed, slot, mark)
                yield mark, columns
        finally:
            slot.users -= 1
            self._shrink()

    async def bring(
        self, mark: UserVersion, columns: Columns, question: npt.NDArray[np.float32] | None
    ) -> None:
        """Before a search by meaning: have at hand what lies outside of this process."""
        if self._outside is not None and question is not None:
            await self._outside.bring(columns, mark, question)

    def forget(self, owner: str) -> None:
        """Drop what is kept of a user, in memory and on disk."""
        slot = self._slots.get(owner)
        if slot is not None and not slot.users:
            del self._slots[owner]
        if self._snapshots is not None:
            self._snapshots.forget(owner)

    def nbytes(self) -> int:
        """How much memory the indexes take together."""
        return sum(slot.nbytes for slot in self._slots.values())

    async def _refresh(self, feed: _Feed, slot: _Slot, mark: UserVersion) -> Columns:
        columns = slot.columns
        # Given up until it is current again: a caller that goes away in the middle must not leave
        # half of a change behind, which a thread may still be working on.
        slot.columns = None
        if columns is not None and self._has_outgrown(feed, columns):
            columns = None
        if columns is None or columns.epoch != mark.epoch or columns.version > mark.version:
            columns = await self._load(feed, slot, mark)
        if columns.version < mark.version:
            rows = columns.rows
            await self._catch_up(feed, columns, mark.version)
            await self._save_if_grown(feed.owner, slot, columns)
            if columns.rows - rows > _WORTH_RELEASING:
                await asyncio.to_thread(release_freed_memory)
        slot.columns = columns
        slot.nbytes = columns.nbytes()
        return columns

    async def _load(self, feed: _Feed, slot: _Slot, mark: UserVersion) -> Columns:
        """The saved columns if they fit this user's history, else empty ones."""
        slot.saved_rows = 0
        fresh = Columns(mark.epoch)
        outside = self._outside if isinstance(feed, ChangeFeed) else None
        if outside is not None and await outside.wants(feed.owner):
            fresh.vectors = ExternalUserVectors(feed.owner)
        if self._snapshots is None:
            return fresh
        title = self._title(fresh)
        saved = await asyncio.to_thread(self._snapshots.load, feed.owner, mark.epoch, title)
        if saved is None or not await self._is_past_of(feed, saved, mark):
            return fresh
        if isinstance(fresh.vectors, ExternalUserVectors):
            saved.vectors = fresh.vectors
        slot.saved_rows = saved.rows
        return saved

    def _has_outgrown(self, feed: _Feed, columns: Columns) -> bool:
        """Whether a user's vectors should lie elsewhere now; what an agent knows never does."""
        if self._outside is None or not isinstance(feed, ChangeFeed):
            return False
        return self._outside.outgrown(columns)

    def _title(self, columns: Columns) -> str | None:
        """What a snapshot is told apart by: one without its vectors is not one that has them."""
        outside = isinstance(columns.vectors, ExternalUserVectors)
        return f"{self._model} outside" if outside else self._model

    async def _is_past_of(self, feed: _Feed, saved: Columns, mark: UserVersion) -> bool:
        """Whether the database still has the snapshot's last row as the snapshot knows it.

        After a restored backup the numbers may have been given out again, to other rows.
        """
        if saved.version > mark.version:
            return False
        last = saved.last_row()
        return last is None or await feed.has(*last)

    async def _catch_up(self, feed: _Feed, columns: Columns, version: int) -> None:
        changes = feed.changes(columns.version, version, self._model)
        async for run in changes:
            # Array work on thousands of rows would keep the event loop from other users.
            if len(run.messages) + len(run.vectors) + len(run.knowledge) > 200:
                await asyncio.to_thread(columns.apply, run)
            else:
                columns.apply(run)
        columns.tidy()

    async def _save_if_grown(self, owner: str, slot: _Slot, columns: Columns) -> None:
        grown = columns.rows - slot.saved_rows
        if self._snapshots is None or grown < max(_WORTH_SAVING, slot.saved_rows // 10):
            return
        await asyncio.to_thread(self._snapshots.save, owner, columns, self._title(columns))
        slot.saved_rows = columns.rows

    def _shrink(self) -> None:
        """Drop the least recently used indexes that nobody is using, down to the budget."""
        total = self.nbytes()
        for user_id in list(self._slots):
            if total <= self._byte_budget:
                return
            slot = self._slots[user_id]
            if not slot.users:
                total -= slot.nbytes
                del self._slots[user_id]
