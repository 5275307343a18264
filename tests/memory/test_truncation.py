"""A memory above the size limit says through every interface that it is stored in part."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.server.mcp.server import make_context
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async

from ..rpc.test_remember import call as call_mcp
from ..server.http_service import serve_in_process
from .conftest import get_item

LIMIT = 64  # bytes; the real limit makes these tests slow
LONG = "The lighthouse keeper's log. " + "Nothing happened that night. " * 8
SHORT = "The lighthouse keeper is Ada."
QUERY = "lighthouse keeper's log"
Write = Callable[[str], Awaitable[Any]]
Read = Callable[[str], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memrecall.store.texts.MEMORY_BYTES", LIMIT)


def is_truncated(answer: Any) -> bool:
    """Return what an answer, or its only item, says; an event says so only if it is."""
    if not isinstance(answer, dict):
        return bool(answer.truncated)
    items = answer.get("results") or answer.get("memories") or [answer]
    return bool(items[0].get("truncated", False))


async def test_every_write_says_that_it_truncated(library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="ann")
    context = make_context(library, Scope("ann"))
    known = (await memory.add("Rome.", infer=False))["results"][0]["id"]
    async with serve_in_process(library) as service:
        client = service.client()

        async def post(text: str) -> Any:
            body = {"messages": text, "user_id": "ann", "infer": False}
            return (await client.post("/v1/memories", json=body)).json()

        async def patch(text: str) -> Any:
            return (
                await client.patch(f"/v1/memories/{known}?user_id=ann", json={"text": text})
            ).json()

        writes: dict[str, Write] = {
            "add": lambda text: memory.add(text, infer=False),
            "update": lambda text: memory.update(known, text),
            "remember over MCP": lambda text: call_mcp(context, "remember", content=text),
            "remember over MCP, again": lambda text: call_mcp(context, "remember", content=text),
            "POST": post,
            "PATCH": patch,
        }

        async def check(name: str) -> None:
            for text in (LONG, SHORT):
                answer = await writes[name](f"{name}: {text}")
                says_so = is_truncated(answer)
                assert says_so == (text is LONG), str(answer)[-300:]

        await check_each_async(list(writes), check)


async def test_stored_text_of_an_add_is_what_it_returns(library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="ann")
    (item,) = (await memory.add(LONG, infer=False))["results"]
    assert item["memory"] == (await get_item(memory, item["id"]))["memory"] == LONG[:LIMIT]


async def test_every_read_says_what_is_truncated(library: Library) -> None:
    memory = AsyncMemory(library=library)
    for user, text in (("ann", LONG), ("ben", SHORT)):
        new = NewMemory(content=text, memory_key=f"log-{user}")
        await library.add_memories(Scope(user), [new], origin=Origin.USER, actor="test")
    await library.vectors.settle()
    async with serve_in_process(library) as service:
        client = service.client()

        async def get(path: str) -> Any:
            return (await client.get(path)).json()

        async def post(path: str, **body: Any) -> Any:
            return (await client.post(path, json=body)).json()

        async def mcp(user: str, tool: str, **arguments: Any) -> Any:
            return await call_mcp(make_context(library, Scope(user)), tool, **arguments)

        async def recall(user: str) -> Any:
            return (await memory.recall(QUERY, user)).memories[0]

        reads: dict[str, Read] = {
            "get": lambda user: memory.get(f"log-{user}", user_id=user),
            "get_all": lambda user: memory.get_all(user),
            "search": lambda user: memory.search(QUERY, user),
            "recall": recall,
            "GET": lambda user: get(f"/v1/memories/log-{user}?user_id={user}"),
            "GET, list": lambda user: get(f"/v1/memories?user_id={user}"),
            "POST search": lambda user: post("/v1/memories/search", query=QUERY, user_id=user),
            "POST recall": lambda user: post(f"/v1/users/{user}/recall", query=QUERY),
            "read_memory over MCP": lambda user: mcp(user, "read_memory", memory_key=f"log-{user}"),
            "recall over MCP": lambda user: mcp(user, "recall", query=QUERY),
        }

        async def check(name: str) -> None:
            for user in ("ann", "ben"):
                answer = await reads[name](user)
                says_so = is_truncated(answer)
                assert says_so == (user == "ann"), str(answer)[-300:]

        await check_each_async(list(reads), check)
