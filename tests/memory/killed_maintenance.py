"""Processes that are killed while they reindex or restore a database, or import into one."""

import json
from pathlib import Path

from memrecall.embedding.embedders import HashEmbedder
from memrecall.library import vectors
from memrecall.memory import Library, Reindexer
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.store.backup.database import restore_database
from memrecall.store.transfer import ExportedRow

from ..store.process import Report

DIMENSIONS, PART_ROWS = 32, 25


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


def parts_of(file: Path) -> list[list[ExportedRow]]:
    """Return the lines of an export in the parts that one import after the other stores."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [rows[start : start + PART_ROWS] for start in range(0, len(rows), PART_ROWS)]


async def import_export(report: Report, location: str, user_id: str, file: str) -> None:
    """Import an export in parts; report each of them before and after it is stored."""
    async with await open_library(location, DIMENSIONS) as library:
        for part in parts_of(Path(file)):
            report("begins")
            report(await library.import_user(user_id, part))
