"""Databases for the benchmarks, filled through the library."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.corpus import Turn
from benchmarks.report import Stopwatch, Time
from memrecall.embedding import Embedder
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import ScopedMessage, Store

BATCH = 1_000
EMPTY_USER = "bench-nobody"  # a user with a single message
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Place:
    """A database and the folder for its derived files."""

    location: str
    folder: Path

    def disk_bytes(self) -> int:
        """Return the size of a closed SQLite database, without its snapshots."""
        return sum(file.stat().st_size for file in self.folder.glob("bench.db*") if file.is_file())

    def snapshot_bytes(self) -> int:
        """Return the size of the snapshots."""
        return sum(file.stat().st_size for file in self.folder.rglob("*.npz"))


@contextmanager
def new_place(location: str | None = None) -> Iterator[Place]:
    """Create a SQLite file in a temporary folder, or use another database with such a folder."""
    with tempfile.TemporaryDirectory(prefix="memrecall-benchmark-") as name:
        folder = Path(name)
        yield Place(location or str(folder / "bench.db"), folder)


@asynccontextmanager
async def opened(place: Place, embedder: Embedder | None) -> AsyncIterator[Library]:
    """Open a library on a database; leave its embedder open for the next one."""
    settings = Settings(db=place.location, cache_dir=str(place.folder), index_memory_mb=4096)
    library = Library(await Store.open(place.location), embedder, settings)
    try:
        yield library
    finally:
        await library.vectors.settle()
        await library.store.close()


async def write(library: Library, user: str, turns: Iterable[Turn], first: int = 0) -> Time:
    """Store a user's turns with their vectors; return the time it took."""
    watch = Stopwatch()
    for batch in in_batches(enumerate(turns, first)):
        await library.add_entries(
            [ScopedMessage(Scope(user, session_id=t.session), t.to_message(n)) for n, t in batch]
        )
    await library.vectors.settle()
    return watch.read()


def in_batches(items: Iterable[Item], size: int = BATCH) -> Iterator[Sequence[Item]]:
    """Yield the items in lists of at most `size`."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
