"""A memory on its own database, without an embedder or a model."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from memrecall.memory import AsyncMemory
from memrecall.settings import Settings

from .word_extractor import WordExtractor


def make_settings(location: str, **values: Any) -> Settings:
    """Return settings that do not depend on the machine."""
    fixed = {"embedder": "hash", "snapshots": False, "durability": "normal"}
    return Settings(db=location, **{**fixed, **values})


async def get_item(memory: AsyncMemory, key: str, **options: Any) -> Mapping[str, Any]:
    """Return a memory, which must exist."""
    item = await memory.get(key, **options)
    assert item is not None
    return item


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(
        settings=make_settings(location), extractor=WordExtractor()
    ) as async_memory:
        yield async_memory
