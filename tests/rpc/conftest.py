"""The memory tools over a database of their own."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.memory import Library
from memrecall.settings import Settings

from ..server.site import opened


def open_library(location: str, folder: Path) -> AbstractAsyncContextManager[Library]:
    """A library whose folders are all in one."""
    folders = {"workspaces_dir": str(folder / "ws"), "backups_dir": str(folder / "backups")}
    return opened(location, folder, **folders)


@pytest.fixture
def library_settings(location: str, tmp_path: Path) -> Settings:
    return Settings(
        db=location,
        embedder="hash",
        durability="normal",
        cache_dir=str(tmp_path),
        workspaces_dir=str(tmp_path / "ws"),
        backups_dir=str(tmp_path / "backups"),
    )


@pytest.fixture
async def lite_library(tmp_path: Path) -> AsyncIterator[Library]:
    """On SQLite alone, for what the engine has no part in."""
    async with open_library(str(tmp_path / "lite.db"), tmp_path) as made:
        yield made


@pytest.fixture
def context(library: Library) -> ToolContext:
    return ToolContext.for_operator(library)
