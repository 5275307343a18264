"""Libraries and contexts for the tests of the memory tools."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.memory import Library
from memrecall.settings import Settings

from ..server.http_service import open_library


def open_tools_library(location: str, folder: Path) -> AbstractAsyncContextManager[Library]:
    """Open a library with all its folders in one folder."""
    folders = {"workspaces_dir": str(folder / "ws"), "backups_dir": str(folder / "backups")}
    return open_library(location, folder, **folders)


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
async def sqlite_library(tmp_path: Path) -> AsyncIterator[Library]:
    """A library on SQLite, for tests that do not depend on the engine."""
    async with open_tools_library(str(tmp_path / "lite.db"), tmp_path) as library:
        yield library


@pytest.fixture
def context(library: Library) -> ToolContext:
    return ToolContext.for_operator(library)
