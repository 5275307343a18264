"""Vectors of stored rows: a row is stored first and embedded afterwards, never the reverse.

A row can be found by its words as soon as it is stored. If the embedder fails, the row stays
pending: a later search of its user, or `memrecall reindex`, embeds it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from memrecall.embedding import Embedder
from memrecall.errors import EmbedderFailed, StorageError
from memrecall.plugins import require_plugin
from memrecall.progress import Advance, progress_bar
from memrecall.search.index.external import VectorDB
from memrecall.store import PendingText, Store
from memrecall.store.pgvector import PgVectors

log = logging.getLogger(__name__)

BATCH = 256
TOP_UP = 128  # pending rows that one search embeds in the background
_MAX_LARGE_JOBS = 2  # one with the embedder, one with the store
_SMALL = 64  # rows of a small job, which never waits behind an import
_DELAY = 0.25  # seconds that a small job waits for more rows, unless a search needs it


VECTOR_CHOICES = ("memory", "pgvector")


async def make_vector_db(spec: str, store: Store) -> VectorDB | None:
    """Return the vector database that a setting names; None if vectors are in memory only."""
    if spec in ("", "memory"):
        return None
    if spec == "pgvector":
        vectors = PgVectors(store.database)
        await vectors.prepare()  # Reports a server without the extension now.
        return vectors
    make, rest = require_plugin("vector_dbs", spec, VECTOR_CHOICES)
    vector_db: VectorDB = make(rest, store)
    return vector_db


class VectorWriter:
    """Embeds stored rows in the background."""

    def __init__(self, store: Store, embedder: Embedder | None) -> None:
        self._store = store
        self._embedder = embedder
        self._claimed = False
        self._jobs: dict[asyncio.Task[None], set[str]] = {}
        self._delayed: list[PendingText] = []
        self._delayed_users: set[str] = set()
        self._hurry = asyncio.Event()
        self._top_up_jobs: set[str] = set()  # users with such a job
        self._top_up_requests: set[str] = set()
        self._remaining = 0  # rows in progress
        self._observers: list[Advance] = []
        self.failure = ""

    async def prepare(self) -> None:
        """Claim the database for this model; reject vectors of another one before any write."""
        if self._embedder is not None and not self._claimed:
            await self._store.vectors(self._embedder.model).ensure_model()
            self._claimed = True

    async def submit(self, rows: Sequence[PendingText]) -> None:
        """Embed rows soon; wait only while large jobs are running already."""
        if self._embedder is None or not rows:
            return
        self._remaining += len(rows)
        if len(rows) <= _SMALL:
            self._delay(self._embedder, rows)
            return
        while len(self._jobs) >= _MAX_LARGE_JOBS:
            await asyncio.wait(self._jobs, return_when=asyncio.FIRST_COMPLETED)
        self._start(self._embed(self._embedder, rows), {item.row.user_id for item in rows})

    async def top_up(self, user_id: str) -> None:
        """Embed a few of a user's pending rows in the background, in one job per user."""
        if self._embedder is None:
            return
        self._top_up_requests.add(user_id)
        if user_id not in self._top_up_jobs:
            self._top_up_jobs.add(user_id)
            self._start(self._top_up(user_id), {user_id})

    async def embed_pending(self, user_ids: Iterable[str]) -> None:
        """Embed all pending rows of some users, after the running jobs."""
        await self.settle()
        for user_id in sorted(user_ids):
            while await self._embed_user(user_id, BATCH):
                pass

    async def settle(self, user_id: str | None = None) -> None:
        """Wait for the jobs that are running now, or only those with rows of one user."""
        jobs = [job for job, users in self._jobs.items() if user_id is None or user_id in users]
        if not jobs:
            return
        self._store.database.owner.require_current()
        self._hurry.set()
        # A chat turn is not worth a progress bar.
        progress = False if self._remaining <= _SMALL else None
        with progress_bar(progress, "embedding", self._remaining, unit="rows") as advance:
            self._observers.append(advance)
            try:
                await asyncio.wait(jobs)
            finally:
                self._observers.remove(advance)

    async def embed_all(self, progress: Callable[[int], None]) -> int:
        """Embed every row that has no vector of this model; can be interrupted and resumed."""
        if self._embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        total = 0
        while count := await self._embed_batch(self._embedder, BATCH):
            total += count
            progress(count)
        return total

    def _delay(self, embedder: Embedder, rows: Sequence[PendingText]) -> None:
        """Collect the rows of several turns: a transaction costs more than its rows."""
        users = {item.row.user_id for item in rows}
        if not self._delayed:
            self._hurry.clear()
            self._delayed_users = users
            self._start(self._embed_delayed(embedder), users)
        self._delayed_users |= users
        self._delayed += rows

    async def _embed_delayed(self, embedder: Embedder) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), _DELAY)
        rows, self._delayed = self._delayed, []
        await self._embed(embedder, rows)

    def _start(self, work: "asyncio._CoroutineLike[None]", users: set[str]) -> None:
        job = asyncio.create_task(work)
        self._jobs[job] = users
        job.add_done_callback(self._jobs.pop)

    async def _embed(self, embedder: Embedder, rows: Sequence[PendingText]) -> None:
        vectors = self._store.vectors(embedder.model)
        remaining = len(rows)
        try:
            for start in range(0, len(rows), BATCH):
                part = rows[start : start + BATCH]
                # A message and the memory made of it have the same text, which is embedded once.
                texts = list(dict.fromkeys(item.text for item in part))
                matrix = await embedder.embed(texts)
                positions = {text: at for at, text in enumerate(texts)}
                stale = await vectors.write(part, matrix[[positions[item.text] for item in part]])
                remaining -= len(part)
                self._remaining -= len(part)
                for advance in self._observers:
                    advance(len(part))
                for user_id in sorted({row.user_id for row in stale}):
                    await self._embed_user(user_id, TOP_UP)
        except (EmbedderFailed, StorageError) as error:
            self._note_failure(error)
        finally:
            self._remaining -= remaining  # Rows that failed are no longer in progress.

    async def _top_up(self, user_id: str) -> None:
        try:
            # Rows that became pending during a round need another round.
            while user_id in self._top_up_requests:
                self._top_up_requests.discard(user_id)
                await self._embed_user(user_id, TOP_UP)
        finally:
            self._top_up_jobs.discard(user_id)

    async def _embed_user(self, user_id: str, limit: int) -> int:
        """Embed up to `limit` of a user's pending rows; 0 if there are none, or it fails."""
        if self._embedder is None:
            return 0
        try:
            await self.prepare()
            return await self._embed_batch(self._embedder, limit, user_id)
        except (EmbedderFailed, StorageError) as error:
            self._note_failure(error)
            return 0

    async def _embed_batch(self, embedder: Embedder, limit: int, user_id: str | None = None) -> int:
        vectors = self._store.vectors(embedder.model)
        pending = await vectors.pending(limit, user_id)
        if pending:
            matrix = await embedder.embed([item.text for item in pending])
            await vectors.write(pending, matrix)
        return len(pending)

    def _note_failure(self, error: EmbedderFailed | StorageError) -> None:
        self.failure = str(error)
        log.warning("rows are stored but not embedded yet: %s", error)
