"""A memory of ann with a history, on both databases; a sync one on SQLite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memrecall import AsyncMemory, Memory
from memrecall.memory import Library

from ..agent.recall_helpers import fill
from ..conftest import Populate
from ..memory.conftest import make_settings
from .contract import HISTORY


@pytest.fixture
def populate() -> Populate:
    return fill


@pytest.fixture
def memory(library: Library) -> AsyncMemory:
    """The memory of ann, with offline rules."""
    return AsyncMemory(library=library, user_id="ann")


@pytest.fixture
def sync_memory(tmp_path: Path) -> Iterator[Memory]:
    """The memory of ann with an event loop of its own."""
    settings = make_settings(str(tmp_path / "sync.db"))
    with Memory(settings=settings, user_id="ann") as memory:
        memory.add(HISTORY, session_id="talk", infer=False)
        yield memory
