"""A library with sample data of two users.

It uses SQLite, because the recall loop does not depend on the engine. Tests that depend on the
store are marked with `on_both_engines` of `recall_helpers`.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from ..conftest import Populate
from ..databases import Databases
from ..model.conftest import server as server
from .recall_helpers import fill, fill_messages


def make_settings(location: str) -> Settings:
    return Settings(db=location, embedder="hash", snapshots=False)


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture(scope="session")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of a filled library, which tests copy."""
    file = tmp_path_factory.mktemp("stage") / "filled.db"

    async def write() -> None:
        async with await Library.open(make_settings(str(file))) as library:
            await fill(library)
            await library.vectors.settle()

    asyncio.run(write())
    return file


@pytest.fixture
async def message_library(databases: Databases) -> AsyncIterator[Library]:
    """A library with messages only: `ann` writes English, `lin` Chinese."""
    async with await Library.open(make_settings(databases.fresh())) as library:
        await fill_messages(library)
        await library.vectors.settle()
        yield library


@pytest.fixture
def location(engine: str, databases: Databases, filled_file: Path) -> str:
    """A database with messages of both users and memories of ann; on SQLite a copy of a file."""
    fresh = databases.fresh()
    if engine == "sqlite":
        shutil.copyfile(filled_file, fresh)
    return fresh


@pytest.fixture
def populate(engine: str) -> Populate:
    async def fill_other_engines(library: Library) -> None:
        if engine != "sqlite":
            await fill(library)
            await library.vectors.settle()

    return fill_other_engines
