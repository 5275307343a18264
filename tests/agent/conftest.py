"""A library with a little of what two users said.

It lies on SQLite: the recall loop knows no engine. What does depend on the store is marked with
`on_both_engines` of the stage.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from .stage import fill, fill_messages


def settings_of(location: str) -> Settings:
    return Settings(db=location, embedder="hash", snapshots=False)


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture(scope="session")
def filled_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SQLite file of a filled library, which tests copy."""
    file = tmp_path_factory.mktemp("stage") / "filled.db"

    async def write() -> None:
        async with await Library.open(settings_of(str(file))) as opened:
            await fill(opened)
            await opened.vectors.settle()

    asyncio.run(write())
    return file


@pytest.fixture
async def said(location: str) -> AsyncIterator[Library]:
    """A library with messages alone: `ann` speaks English, `lin` Chinese."""
    async with await Library.open(settings_of(location)) as opened:
        await fill_messages(opened)
        yield opened


@pytest.fixture
async def library(engine: str, location: str, filled_file: Path) -> AsyncIterator[Library]:
    """The same with memories of ann's."""
    if engine == "sqlite":
        shutil.copyfile(filled_file, location)
    async with await Library.open(settings_of(location)) as opened:
        if engine != "sqlite":
            await fill(opened)
        yield opened
