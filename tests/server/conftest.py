"""A service on each engine, fresh for every test, asked in process."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from memrecall.memory import Library

from .site import Site, in_process, opened, serving


@pytest.fixture
async def site(library: Library) -> AsyncIterator[Site]:
    async with in_process(library) as running:
        yield running


@pytest.fixture
async def client(site: Site) -> httpx.AsyncClient:
    """A trusted back end: its key opens every user."""
    return await site.holder()


@pytest.fixture
async def ann(site: Site) -> httpx.AsyncClient:
    """Ann, who may ask for herself alone."""
    return await site.holder("ann")


@pytest.fixture
async def lite_library(tmp_path: Path) -> AsyncIterator[Library]:
    """On SQLite alone, for what the engine has no part in."""
    async with opened(str(tmp_path / "lite.db"), tmp_path) as made:
        yield made


@pytest.fixture
async def lite(lite_library: Library) -> AsyncIterator[Site]:
    async with in_process(lite_library) as running:
        yield running


@pytest.fixture
async def served_lite(lite_library: Library) -> AsyncIterator[Site]:
    """The same on a socket."""
    async with serving(lite_library) as running:
        yield running
