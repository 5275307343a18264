"""Vectors of stored rows: a row is stored first and embedded afterwards, never the reverse.

A row can be found by its words as soon as it is stored. Rows without a vector are the backlog,
which outlives every process. A service looks for users with such rows among those who changed
something since it last found none; others learn of them by writes and searches. Rows are embedded
in small pieces, the users who got least first, in one process of a database at a time. If
the embedder fails, they wait for the next write, search or look, or for `memrecall reindex`.
"""

import asyncio
import logging
import os
import secrets
import time
from bisect import bisect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import accumulate
from typing import TypeVar

import numpy as np

from memrecall.embedding import Embedder
from memrecall.embedding.base import (
    TEXT_CHARACTERS,
    EmbedderBreaker,
    EmbedderTooSlow,
    ThreadedEmbedder,
    Vectors,
    embedder_in_time,
)
from memrecall.errors import (
    EmbedderFailed,
    EmbeddingModelMismatch,
    InvalidArgument,
    MemrecallError,
    StorageError,
    describe_for_log,
)
from memrecall.plugins import find_plugin, require_plugin
from memrecall.search.index import Floats
from memrecall.search.index.external import VectorDB
from memrecall.store import PendingText, Store
from memrecall.store.vectors import KnowledgeVectors, PendingEntry
from memrecall.timing import current_deadline, in_background, seconds_left

log = logging.getLogger(__name__)

# The characters of a piece take the local model half a second.
_PIECE_ROWS, _PIECE_CHARACTERS, _PIECE_USERS = 256, 16_000, 64
_BATCHES = 4  # of a piece: each is stored when it comes back
_PIECE_SECONDS = 60.0  # after which the embedder counts as failed
_FAST = 0.25  # of these seconds: after such a piece, the next one may be larger
_TURN = 100  # what a turn costs besides its characters, even if it fails
_AT_ONCE = 20  # rows that a search embeds itself, for a share of the time that it has
_CATCH_UP_SHARE, _CATCH_UP_SECONDS = 0.25, 20.0
_DELAY = 0.25  # seconds in which a small piece grows: a transaction costs more than its rows
_START_SECONDS = 2.0  # that a service waits for the size of the vectors
_LEASE = 5.0  # seconds for which one process embeds, unless it extends them
_PAUSE = 1.0  # seconds until another process asks again
_MOST_FAILURES = 3  # in a row, before a longer pause
_RETRY = 30.0  # seconds
_REMEMBERED_USERS = 10_000
_LOOK_USERS, _LOOK_PAUSE = 500, 300.0  # at once, and seconds until the next look
_OVERLAP = timedelta(minutes=10)  # of two looks: transactions may take long, and clocks differ
_TOKEN = secrets.token_hex(8)

_FAILURES = (EmbedderFailed, EmbeddingModelMismatch, StorageError)
_Item = TypeVar("_Item", PendingText, PendingEntry)


def find_vector_db(spec: str) -> Callable[[Store], VectorDB | None]:
    """Return what makes the vector database that a setting names; "", "memory": none."""
    if spec in ("", "memory"):
        return lambda _: None
    if spec == "pgvector" and find_plugin("vector_dbs", spec) is None:
        hint = "Unset vector_db, and drop the tables far_vectors and far_marks"
        raise InvalidArgument("the vector database 'pgvector' was removed", hint=hint)
    make, argument = require_plugin("vector_dbs", spec, ("memory",))
    return partial(make, argument)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a user without vectors; others are missing only after the change `through`."""

    user_id: str
    rows: list[PendingText]
    characters: int
    through: int
    has_more: bool


class VectorWriter:
    """Embeds stored rows in the background."""

    def __init__(self, store: Store, embedder: Embedder | None, breaker: EmbedderBreaker) -> None:
        self._store = store
        self._embedder = None if store.database.is_read_only else embedder
        self._breaker = breaker  # of the searches
        self._claimed = False
        self._waiting: dict[str, int] = {}  # users with rows to embed, and about how many
        self._current: dict[str, int] = {}  # the same, of the piece in progress
        self._entries = 0  # of knowledge bases, about
        self._piece_rows = _PIECE_ROWS  # fewer for a slow embedder
        self._spent: Counter[str] = Counter()  # characters of each user since there is a backlog
        self._least_spent = 0  # where a new user begins: nobody saves up turns
        self._through: dict[str, int] = {}  # the change up to which a user's rows have vectors
        self._process = f"{_TOKEN}-{os.getpid()}"  # a forked child has another id
        self._lease_end = 0.0
        self._task: asyncio.Task[None] | None = None
        self._look: asyncio.Task[None] | None = None  # for rows that others have left
        self._hurry = asyncio.Event()
        self._is_closed = False
        self.failure = ""

    @property
    def backlogs(self) -> tuple[int, int]:
        """About how many rows wait for vectors, and how many of the user with the most of them."""
        by_user = Counter(self._waiting) + Counter(self._current)
        return by_user.total() + self._entries, max(by_user.values(), default=0)

    async def prepare(self) -> None:
        """Claim the database for this model; reject vectors of another one before any write."""
        if self._embedder is not None and not self._claimed:
            await self._store.vectors(self._embedder.model).ensure_model()
            self._claimed = True

    async def require_same_embedder(self) -> None:
        """Raise EmbeddingModelMismatch if another embedder made the database's vectors.

        Its size is not known if it does not answer soon.
        """
        await self.prepare()
        if self._embedder is None:
            return
        vectors = self._store.vectors(self._embedder.model)
        if await vectors.check_model() is not None:
            with suppress(EmbedderFailed):
                if not isinstance(self._embedder, ThreadedEmbedder):  # it would be loaded
                    async with embedder_in_time(_START_SECONDS):
                        await self._embedder.embed([])
                await vectors.check_model(self._embedder.dimensions)

    def expect(self, rows: Mapping[str, int], entries: int = 0) -> None:
        """Embed new rows of each user and entries of knowledge soon; nobody waits."""
        if self._embedder is None:
            return
        self._entries += entries
        for user_id in filter(rows.get, rows):
            self._waiting[user_id] = self._waiting.get(user_id, 0) + rows[user_id]
            self._spent[user_id] = max(self._spent[user_id], self._least_spent)
        is_idle = self._task is None or self._task.done()
        if self._has_work and not self._is_closed and is_idle:
            self._task = in_background(self._run(self._embedder))

    @property
    def _has_work(self) -> bool:
        return bool(self._waiting or self._entries)

    def expect_missing(self, user_id: str, count: int) -> None:
        """Embed rows that a search found without vectors; they may be old."""
        if count and not self._is_expected(user_id):
            self.forget(user_id)
            self.expect({user_id: count})

    def resume(self) -> None:
        """Embed what other processes have left, now and every few minutes."""
        if self._embedder is not None and not self._is_closed:
            self._look = in_background(self._find_backlog(self._embedder))

    async def _find_backlog(self, embedder: Embedder) -> None:
        vectors, begin = self._store.vectors(embedder.model), datetime.now(UTC)
        found: set[str] = set()
        try:
            since = await vectors.mark()
            self.expect({}, entries=1)
            async for page in self._store.owners.pages(_LOOK_USERS, since):
                for user_id, count in (await vectors.count_by_user(page)).items():
                    self.expect_missing(user_id, count)
                    found.add(user_id)
                if not await self._until_few(found, _REMEMBERED_USERS):
                    break
            if await self._until_few(found, 0):
                await vectors.set_mark(begin - _OVERLAP)
        except MemrecallError as error:
            self._note_failure(error)
        asyncio.get_running_loop().call_later(_LOOK_PAUSE, self.resume)

    async def _until_few(self, users: set[str], most: int) -> bool:
        """Wait until at most `most` of the users have rows to embed; False if that failed."""
        while is_more := sum(map(self._is_expected, users)) > most:
            if self._task is None or self._task.done():
                break
            await asyncio.wait([self._task], timeout=_PAUSE)
        return not is_more

    def forget(self, user_id: str) -> None:
        """Look at all rows of a user the next time."""
        self._through.pop(user_id, None)

    async def catch_up(self, user_id: str) -> None:
        """Embed what a user has just written here if it is little, so that a search finds it."""
        if self._embedder is None or self._breaker.is_open or not self._is_expected(user_id):
            return
        self._store.database.owner.require_current()
        try:
            part = await self._pending(self._embedder, user_id, _AT_ONCE, _PIECE_CHARACTERS)
            if not part.has_more:
                seconds = _CATCH_UP_SHARE * seconds_left(_CATCH_UP_SECONDS)
                await self._embed(self._embedder, [part], seconds)
        except _FAILURES as error:
            self._note_failure(error)

    async def catch_up_entries(self, agent_id: str) -> bool:
        """Embed what a knowledge base lacks, if a part of the time is enough; False if not."""
        if self._embedder is None or self._breaker.is_open:
            return False
        try:
            await self.prepare()
            seconds = _CATCH_UP_SHARE * seconds_left(_CATCH_UP_SECONDS)
            await self._embed_entries(self._embedder, seconds, _PIECE_ROWS, agent_id)
        except _FAILURES as error:
            self._note_failure(error)
            return False
        return True

    async def settle(self, seconds: float | None = None) -> None:
        """Wait until the rows are embedded, or that has failed, or the time is over."""
        limit = current_deadline()
        if limit is not None:
            seconds = limit.left if seconds is None else min(seconds, limit.left)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                # The look for rows of others may begin to embed some.
                while tasks := [
                    each for each in (self._look, self._task) if each and not each.done()
                ]:
                    self._store.database.owner.require_current()
                    self._hurry.set()
                    await asyncio.wait(tasks)

    async def close(self, seconds: float) -> None:
        """Embed for some seconds more; other processes may embed the rest."""
        await self.settle(0.0 if self._breaker.is_open else seconds)
        self._is_closed = True
        for task in filter(None, (self._look, self._task)):
            task.cancel()
            await asyncio.wait([task])
        if self._embedder is not None and time.monotonic() < self._lease_end:
            with suppress(StorageError):  # It ends by itself.
                await self._claim(self._embedder, 0.0)

    async def embed_all(self, progress: Callable[[int], None]) -> int:
        """Embed every row that has no vector of this model; can be interrupted and resumed."""
        if self._embedder is None:
            raise EmbedderFailed("no embedder is configured", hint="Set MEMRECALL_EMBEDDER")
        self._through.clear()
        total = 0
        async for page in self._store.owners.pages(_LOOK_USERS):
            for user_id in await self._store.vectors(self._embedder.model).count_by_user(page):
                embed = partial(self._embed_next, self._embedder, user_id)
                while count := await self._in_smaller_pieces(embed):
                    total += count
                    progress(count)
        embed = partial(self._embed_entries, self._embedder, _PIECE_SECONDS)
        while count := await self._in_smaller_pieces(embed):
            total += count
            progress(count)
        return total

    async def _embed_next(self, embedder: Embedder, user_id: str, most: int) -> int:
        """Embed the next rows of a user; return how many."""
        part = await self._pending(embedder, user_id, most, _PIECE_CHARACTERS)
        await self._embed(embedder, [part], _PIECE_SECONDS)
        return len(part.rows)

    async def _in_smaller_pieces(self, embed: Callable[[int], Awaitable[int]]) -> int:
        """Embed a piece; a smaller one after a timeout, until one row alone takes too long."""
        while True:
            most = self._piece_rows
            try:
                return await embed(most)
            except EmbedderTooSlow:
                if most == 1:
                    raise

    def _is_expected(self, user_id: str) -> bool:
        return user_id in self._waiting or user_id in self._current

    async def _run(self, embedder: Embedder) -> None:
        failures, is_full = 0, False
        while self._has_work and failures < _MOST_FAILURES:
            if not is_full:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), _DELAY)
            try:
                # One user's text may be the reason of a failure, which must not affect others.
                is_full = await self._embed_piece(embedder, 1 if failures else _PIECE_USERS)
                failures = 0
            except MemrecallError as error:
                failures += 1
                self._note_failure(error)
        self._spent.clear()
        self._least_spent = 0
        self._hurry.clear()
        if self._has_work:
            asyncio.get_running_loop().call_later(_RETRY, self.expect, {})

    async def _embed_piece(self, embedder: Embedder, most_users: int) -> bool:
        """Embed some rows of the users who got least; return whether it left others for later."""
        try:
            await self.prepare()
            if self._entries:
                await self._embed_next_entries(embedder)
            parts = await self._take(embedder, most_users)
            is_full = bool(self._waiting) or any(part.has_more for part in parts)
            if not any(part.rows for part in parts) or await self._may_embed(embedder):
                await self._embed(embedder, parts, _PIECE_SECONDS)
                for part in parts:
                    rest = max(1, self._current[part.user_id] - len(part.rows))
                    self._current[part.user_id] = rest if part.has_more else 0
            else:
                await asyncio.sleep(_PAUSE)
            return is_full
        finally:
            for user_id, count in self._current.items():
                if count:
                    self._waiting[user_id] = self._waiting.get(user_id, 0) + count
            self._current = {}

    async def _take(self, embedder: Embedder, most_users: int) -> list[_Part]:
        """Return the next rows of the users who got least, small jobs first."""
        parts: list[_Part] = []
        rows, characters = self._piece_rows, _PIECE_CHARACTERS
        while self._waiting and rows > 0 and characters > 0 and len(parts) < most_users:
            user_id = min(self._waiting, key=lambda user: (self._spent[user], self._waiting[user]))
            self._least_spent = self._spent[user_id]
            self._current[user_id] = self._waiting.pop(user_id)
            self._spent[user_id] += _TURN
            part = await self._pending(embedder, user_id, rows, characters)
            parts.append(part)
            self._spent[user_id] += part.characters
            rows -= len(part.rows)
            characters -= part.characters
        return parts

    async def _pending(self, embedder: Embedder, user_id: str, most: int, characters: int) -> _Part:
        """Return the next rows of a user that have no vectors."""
        vectors = self._store.vectors(embedder.model)
        rows, through = await vectors.pending(user_id, most + 1, self._through.get(user_id, 0))
        sums = list(accumulate((min(len(row.text), TEXT_CHARACTERS) for row in rows), initial=0))
        count = min(most, len(rows), max(1, bisect(sums, characters) - 1))
        has_more = count < len(rows)
        through = rows[count - 1].change_no if has_more else through
        return _Part(user_id, rows[:count], sums[count], through, has_more)

    async def _may_embed(self, embedder: Embedder) -> bool:
        """Return whether this process embeds now; if not, another one learns of its users."""
        now = time.monotonic()
        if now >= self._lease_end - _LEASE / 2:
            others = await self._claim(embedder, _LEASE)
            if others is None:
                return False
            self._lease_end = now + _LEASE
            self.expect(dict.fromkeys(others, 1))
        return True

    async def _claim(self, embedder: Embedder, seconds: float) -> list[str] | None:
        users = [*self._current, *self._waiting]
        return await self._store.vectors(embedder.model).claim(self._process, seconds, users)

    async def _embed(self, embedder: Embedder, parts: Sequence[_Part], seconds: float) -> None:
        rows = [item for part in parts for item in part.rows]
        if rows:
            vectors = self._store.vectors(embedder.model)
            await self._embed_each(seconds, embedder, rows, vectors.write)
        if len(self._through) > _REMEMBERED_USERS:
            self._through.clear()
        for part in parts:
            known = self._through.get(part.user_id, 0)
            self._through[part.user_id] = max(known, part.through)

    async def _embed_next_entries(self, embedder: Embedder) -> None:
        known, self._entries = self._entries, 0  # More may come while these are embedded.
        try:
            most = self._piece_rows
            count = await self._embed_entries(embedder, _PIECE_SECONDS, most)
        # The rows of users do not wait because of an entry.
        except (EmbedderFailed, EmbeddingModelMismatch) as error:
            self._note_failure(error)
            if isinstance(error, EmbedderTooSlow) and most > 1:
                self._entries += known  # Fewer at once may be in time.
        else:
            self._entries += max(1, known - count) if count == most else 0

    async def _embed_entries(
        self, embedder: Embedder, seconds: float, most: int, agent_id: str | None = None
    ) -> int:
        """Embed some entries of knowledge that have no vectors; return how many."""
        vectors = KnowledgeVectors(self._store.database, embedder.model)
        entries = await vectors.pending(most, agent_id)
        if entries:
            await self._embed_each(seconds, embedder, entries, vectors.write)
        return len(entries)

    async def _embed_each(
        self,
        seconds: float,
        embedder: Embedder,
        items: Sequence[_Item],
        write: Callable[[Sequence[_Item], Vectors], Awaitable[None]],
    ) -> None:
        """Store a vector for each item, batch by batch: what came back stays if others fail."""
        with suppress(EmbedderFailed):  # Not known yet: the first vectors say it.
            await self._store.vectors(embedder.model).check_model(embedder.dimensions)
        # A message and the memory made of it have the same text, which is embedded once. Texts of
        # similar length cost least together.
        texts = sorted({item.text for item in items}, key=len, reverse=True)
        size = -(-self._piece_rows // _BATCHES)
        is_full = len(texts) >= self._piece_rows
        clock = asyncio.get_running_loop().time
        spent = 0.0
        for start in range(0, len(texts), size):
            batch, begin = texts[start : start + size], clock()
            found = await self._embed_batch(seconds, spent, embedder, batch)
            spent += clock() - begin
            done = [item for item in items if item.text in found]
            await write(done, np.stack([found[item.text] for item in done]))
        if is_full and spent < _FAST * _PIECE_SECONDS:
            self._piece_rows = min(_PIECE_ROWS, 2 * self._piece_rows)

    async def _embed_batch(
        self, seconds: float, spent: float, embedder: Embedder, texts: list[str]
    ) -> dict[str, Floats]:
        """Return the vectors of texts; the batches before have spent a part of the seconds."""
        try:
            async with embedder_in_time(seconds - spent):
                vectors = await embedder.embed(texts)
        except EmbedderTooSlow as error:
            if seconds < _PIECE_SECONDS:  # as of a search
                raise
            self._piece_rows = max(1, self._piece_rows // _BATCHES)
            problem = f"the embedder took longer than {seconds:g} s for some texts"
            raise EmbedderTooSlow(problem, hint=error.hint) from None
        self._breaker.close()
        return dict(zip(texts, vectors, strict=True))

    def _note_failure(self, error: MemrecallError) -> None:
        self.failure = str(error)
        log.warning("rows are stored but not embedded yet: %s", describe_for_log(error))
