"""Libraries that save snapshots of their index."""

from pathlib import Path

import pytest

from memrecall.embedding.embedders import HashEmbedder
from memrecall.memory import Library
from memrecall.settings import Settings
from memrecall.store import Store


async def open_library(location: str, folder: Path, *, snapshots: bool = True) -> Library:
    settings = Settings(db=location, cache_dir=str(folder), snapshots=snapshots)
    return Library(await Store.open(location), HashEmbedder(), settings)


@pytest.fixture
def library_settings(location: str, tmp_path: Path) -> Settings:
    return Settings(db=location, embedder="hash", cache_dir=str(tmp_path / "cache"))
