"""Processes that are killed while they reindex or restore a database."""

from pathlib import Path

from memrecall.embedding.embedders import HashEmbedder
from memrecall.library import vectors
from memrecall.memory import Library, Reindexer
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.store.backup.database import restore_database

from ..store.process import Report


async def open_library(location: str, dimensions: int) -> Library:
    """Open a database with an embedder, whose model and size are named by a number."""
    settings = Settings(db=location, snapshots=False)
    return Library(await Store.open(location), HashEmbedder(dimensions), settings)


async def reindex(report: Report, location: str, dimensions: int) -> None:
    """Embed all rows again in pieces of a few rows, and report each of them."""
    vectors._PIECE_ROWS = 8
    async with await open_library(location, dimensions) as library:
        report(await Reindexer(library).run(report))


async def restore(report: Report, location: str, file: str) -> None:
    """Replace all rows by those of a backup; report each table and the end."""
    async with await Store.open(location) as store:
        report(await restore_database(store, Path(file), report, overwrite=True))
