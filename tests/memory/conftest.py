"""A memory on a database of its own, without an embedder or a model."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memrecall.memory import AsyncMemory
from memrecall.settings import Settings

from .word_extractor import WordExtractor


def settings_for(location: str, **values: Any) -> Settings:
    """Settings that depend on nobody's machine."""
    return Settings(db=location, embedder="hash", snapshots=False, **values)


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=settings_for(location), extractor=WordExtractor()) as opened:
        yield opened
