"""Whatever users, keys, agents and queries a service has seen, it remembers a limited number."""

import gc
from collections import deque
from functools import _lru_cache_wrapper
from logging import Logger
from sqlite3 import Connection
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import httpx
import pytest

from .http_service import HttpService

MOST = 6  # entries of each cache in this test
CALLERS = 2 * MOST  # in each round
BOUNDS = (
    "memrecall.library.library._MAX_ENTRIES",
    "memrecall.library.vectors._REMEMBERED_USERS",
    "memrecall.memory.retention.MOST_PENDING",
    "memrecall.search.engine._CACHED_QUERIES",
    "memrecall.server.limits._MAX_CALLERS",
)
# What belongs to all services of a process, or counts its entries itself.
SHARED = (
    ModuleType,
    type,
    FunctionType,
    BuiltinFunctionType,
    CodeType,
    FrameType,
    _lru_cache_wrapper,
    Connection,
    Logger,
)


async def call_everything(service: HttpService, shared: httpx.AsyncClient, caller: str) -> None:
    """Send requests of a new user with a new key, a new agent, and words that nobody used."""
    key = await service.create_key(caller)
    headers = {"Authorization": f"Bearer {key}"}
    query = {"user_id": caller, "query_text": f"tea {caller}"}
    message = {"role": "user", "content": f"I like tea {caller}", "session_id": f"s-{caller}"}
    memory = {"user_id": caller, "agent_id": f"a-{caller}", "messages": f"I like {caller} cake."}
    requests: list[tuple[str, str, Any, int]] = [
        ("POST", f"/v1/users/{caller}/messages", {"messages": [message]}, 200),
        ("POST", "/v1/messages/lexical_search", query, 200),
        ("POST", "/v1/messages/semantic_search", query, 200),
        ("POST", "/v1/memories", memory, 200),
        ("POST", "/v1/memories/search", {"user_id": caller, "query": f"{caller} cake"}, 200),
        ("POST", f"/v1/users/{caller}/recall", {"query": f"Which cake of {caller}?"}, 200),
        ("GET", f"/v1/{caller}", None, 404),
        ("X" + caller.upper(), "/v1/memories", None, 405),
    ]
    for method, path, body, status in requests:
        answer = await shared.request(method, path, json=body, headers=headers)
        assert answer.status_code == status, (path, answer.text)
    wrong = {"Authorization": f"Bearer {key[:-4]}{caller}"}
    assert (await shared.get("/v1/memories", headers=wrong)).status_code == 401


def find_containers(root: object) -> list[tuple[Any, int]]:
    """Return the containers that objects of a service refer to, and their sizes."""
    found, pending = {id(root): root}, [root]
    while pending:
        for item in gc.get_referents(pending.pop()):
            if id(item) not in found and not isinstance(item, SHARED):
                found[id(item)] = item
                pending.append(item)
    containers = [item for item in found.values() if isinstance(item, dict | set | list | deque)]
    return [(item, len(item)) for item in containers if len(item) >= CALLERS]


async def test_no_container_grows_with_the_callers(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BOUNDS:
        monkeypatch.setattr(name, MOST)
    library = sqlite_service.library
    monkeypatch.setattr(library.cache, "_byte_budget", MOST * 10_000)
    shared = sqlite_service.client()
    containers: list[tuple[Any, int]] = []
    for number in range(3):
        containers = find_containers(sqlite_service.app) if number == 2 else containers
        for caller in range(CALLERS):
            await call_everything(sqlite_service, shared, f"c{number}x{caller}")
        await library.vectors.settle()
    grown = [item for item, size in containers if len(item) - size >= CALLERS // 2]
    assert [f"{next(iter(item))!r:.100}" for item in grown] == []
    assert 0 < len(library.cache) <= MOST
