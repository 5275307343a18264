"""A library over a fresh database of each kind, with an embedder that needs no loading."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memrecall.embedding.local import HashEmbedder
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Store
from tests.store.recycling import databases, recycled, sqlite_template

__all__ = ["databases", "library", "recycled", "sqlite_template"]


async def open_library(location: str, folder: Path, *, snapshots: bool = True) -> Library:
    settings = Settings(db=location, cache_dir=str(folder), snapshots=snapshots)
    return Library(await Store.open(location), HashEmbedder(), settings)


@pytest.fixture
async def library(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    async with await open_library(location, tmp_path / "cache") as opened:
        yield opened
