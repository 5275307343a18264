"""Services and clients for the tests of the HTTP interface."""

from collections.abc import AsyncIterator

import httpx
import pytest

from memrecall.memory import Library

from .http_service import HttpService, serve_in_process, serve_on_socket


@pytest.fixture
async def service(library: Library) -> AsyncIterator[HttpService]:
    async with serve_in_process(library) as running:
        yield running


@pytest.fixture
async def client(service: HttpService) -> httpx.AsyncClient:
    """A client with a key for all users."""
    return await service.client_with_key()


@pytest.fixture
async def ann(service: HttpService) -> httpx.AsyncClient:
    """A client with a key for the user ann only."""
    return await service.client_with_key("ann")


@pytest.fixture
async def sqlite_service(sqlite_library: Library) -> AsyncIterator[HttpService]:
    async with serve_in_process(sqlite_library) as running:
        yield running


@pytest.fixture
async def asker(sqlite_service: HttpService) -> httpx.AsyncClient:
    """A client of the user ann, who has written `CHAT`, on SQLite."""
    return await sqlite_service.client_with_chat()


@pytest.fixture
async def sqlite_server(sqlite_library: Library) -> AsyncIterator[HttpService]:
    """A service on SQLite that listens on a socket."""
    async with serve_on_socket(sqlite_library) as running:
        yield running
