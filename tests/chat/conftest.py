"""A library on each database, with a little of what a user and a team said."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from memrecall.memory import Library
from memrecall.settings import Settings

from ..conftest import Populate
from ..model.openai_server import ModelServer, serve
from .stage import fill


@pytest.fixture
def populate() -> Populate:
    return fill


@pytest.fixture
async def sensible(location: str) -> AsyncIterator[Library]:
    """With the embedder that everybody has: what is found means something."""
    settings = Settings(db=location, embedder="local", snapshots=False)
    async with await Library.open(settings) as opened:
        await fill(opened)
        yield opened


@pytest.fixture
async def lite(tmp_path: Path) -> AsyncIterator[Library]:
    """On SQLite alone, for what the engine has no part in."""
    settings = Settings(db=str(tmp_path / "lite.db"), embedder="hash", snapshots=False)
    async with await Library.open(settings) as opened:
        await fill(opened)
        yield opened


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serve() as running:
        yield running
