"""The memory tools over a database of their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memrecall.memory import Library
from memrecall.server.tools import ToolDesk

from ..server.site import opened


@pytest.fixture
async def library(location: str, tmp_path: Path) -> AsyncIterator[Library]:
    folders = {"workspaces_dir": str(tmp_path / "ws"), "backups_dir": str(tmp_path / "backups")}
    async with opened(location, tmp_path, **folders) as made:
        yield made


@pytest.fixture
def desk(library: Library) -> ToolDesk:
    return ToolDesk(library)
