"""Vectors follow the rows: stored first, embedded next, and never the other way round.

A row is found by its words as soon as it is stored. If the embedder fails, the row waits: a later
search of its user, or `memrecall reindex`, has it embedded.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed, StorageError
from memrecall.progress import Advance, Progress, progress_bar
from memrecall.store import PendingText, Store, VectorStore

log = logging.getLogger(__name__)

BATCH = 256
TOP_UP = 128  # rows left over that one search has embedded in passing
_AT_ONCE = 2  # large jobs under way: one with the embedder, one with the store
_SMALL = 64  # a chat turn never waits behind an import
_LINGER = 0.05  # seconds that a chat turn's rows wait for those of the next, unless one searches


class VectorWriter:
    """Embeds stored rows in the background."""

    def __init__(self, store: Store, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder
        self._claimed = False
        self._jobs: dict[asyncio.Task[None], set[str]] = {}
        self._lingering: list[PendingText] = []
        self._lingering_users: set[str] = set()
        self._hurry = asyncio.Event()
        self._topping_up: set[str] = set()  # users with such a job
        self._top_up_wanted: set[str] = set()
        self._left = 0  # rows under way
        self._watchers: list[Advance] = []
        self.failure = ""

    async def prepare(self) -> None:
        """Before anything is written: refuse a database whose vectors another model made."""
        if self._embedder is not None and not self._claimed:
            await self._store.vectors(self._embedder.model).ensure_model()
            self._claimed = True

    async def submit(self, rows: Sequence[PendingText]) -> None:
        """Have these rows embedded soon. Waits only while large jobs are under way already."""
        if self._embedder is None or not rows:
            return
        vectors = self._store.vectors(self._embedder.model)
        self._left += len(rows)
        if len(rows) <= _SMALL:
            self._linger(vectors, self._embedder, rows)
            return
        while len(self._jobs) >= _AT_ONCE:
            await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)
        self._start(
            self._embed(vectors, self._embedder, list(rows)), {item.row.user_id for item in rows}
        )

    async def top_up(self, user_id: str) -> None:
        """Embed a few of a user's left-over rows in the background, one job per user."""
        if self._embedder is None:
            return
        self._top_up_wanted.add(user_id)
        if user_id not in self._topping_up:
            self._topping_up.add(user_id)
            self._start(self._top_up(user_id), {user_id})

    async def embed_left_over(self, user_ids: Iterable[str]) -> None:
        """Embed all rows of some users that have been left over, after the jobs under way."""
        await self.settle()
        for user_id in sorted(user_ids):
            while await self._embed_left_over(user_id, BATCH):
                pass

    async def settle(self, user_id: str | None = None, *, progress: Progress = None) -> None:
        """Wait for the jobs under way now, perhaps only those with rows of one user."""
        jobs = [job for job, users in self._jobs.items() if user_id is None or user_id in users]
        if not jobs:
            return
        self._hurry.set()
        if progress is None and self._left <= _SMALL:
            progress = False  # a chat turn is not worth a bar
        with progress_bar(progress, "embedding", self._left, unit="rows") as advance:
            self._watchers.append(advance)
            try:
                await asyncio.wait(jobs)
            finally:
                self._watchers.remove(advance)

    async def catch_up(self, progress: Callable[[int], None]) -> int:
        """Embed every row that has no vector of this model. Can be stopped and goes on later."""
        if self._embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        vectors = self._store.vectors(self._embedder.model)
        done = 0
        while count := await self._embed_pending(vectors, self._embedder, BATCH, None):
            done += count
            progress(count)
        return done

    def _linger(
        self, vectors: VectorStore, embedder: Embedder, rows: Sequence[PendingText]
    ) -> None:
        """Rows of several turns become one write: a transaction costs more than what is in it."""
        users = {item.row.user_id for item in rows}
        if not self._lingering:
            self._hurry.clear()
            self._lingering_users = users
            self._start(self._embed_lingering(vectors, embedder), users)
        self._lingering_users |= users
        self._lingering += rows

    async def _embed_lingering(self, vectors: VectorStore, embedder: Embedder) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), _LINGER)
        rows, self._lingering = self._lingering, []
        await self._embed(vectors, embedder, rows)

    def _start(self, work: "asyncio._CoroutineLike[None]", users: set[str]) -> None:
        job = asyncio.create_task(work)
        self._jobs[job] = users
        job.add_done_callback(self._jobs.pop)

    async def _embed(
        self, vectors: VectorStore, embedder: Embedder, rows: list[PendingText]
    ) -> None:
        left = len(rows)
        try:
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                # A message that is kept as a memory has its words twice, and one vector.
                texts = list(dict.fromkeys(item.text for item in part))
                matrix = await embedder.embed(texts)
                places = {text: at for at, text in enumerate(texts)}
                stale = await vectors.write(part, matrix[[places[item.text] for item in part]])
                left -= len(part)
                self._tell(len(part))
                for user_id in sorted({row.user_id for row in stale}):
                    await self._embed_left_over(user_id, TOP_UP)
        except (EmbedderFailed, StorageError) as error:
            self._leave_for_later(error)
        finally:
            self._left -= left  # what failed is not under way any more

    def _tell(self, count: int) -> None:
        self._left -= count
        for advance in self._watchers:
            advance(count)

    async def _top_up(self, user_id: str) -> None:
        try:
            # Rows that were left over after a round has looked for them need another round.
            while user_id in self._top_up_wanted:
                self._top_up_wanted.discard(user_id)
                await self._embed_left_over(user_id, TOP_UP)
        finally:
            self._topping_up.discard(user_id)

    async def _embed_left_over(self, user_id: str, limit: int) -> int:
        """Embed up to `limit` of a user's rows; 0 if there are none, or it fails."""
        if self._embedder is None:
            return 0
        try:
            await self.prepare()
            vectors = self._store.vectors(self._embedder.model)
            return await self._embed_pending(vectors, self._embedder, limit, user_id)
        except (EmbedderFailed, StorageError) as error:
            self._leave_for_later(error)
            return 0

    async def _embed_pending(
        self, vectors: VectorStore, embedder: Embedder, limit: int, user_id: str | None
    ) -> int:
        pending = await vectors.pending(limit, user_id)
        if pending:
            matrix = await embedder.embed([item.text for item in pending])
            await vectors.write(pending, matrix)
        return len(pending)

    def _leave_for_later(self, error: EmbedderFailed | StorageError) -> None:
        self.failure = str(error)
        log.warning("rows are stored but wait for their vectors: %s", error)
