"""Pages end early when they take too many bytes; metadata is limited."""

from dataclasses import replace
from itertools import chain
from typing import Any

import httpx
import pytest

from .http_service import HttpService, check_error, make_message, message_ids, write_messages

MESSAGES = "/v1/users/ann/messages"
SEARCH = "/v1/messages/lexical_search"
KILOBYTE = "茶" * 340
IDS = [f"m{number:03}" for number in range(12)]


@pytest.fixture
async def small_pages(service: HttpService) -> httpx.AsyncClient:
    """Return a client of a service with twelve messages of a kilobyte and pages of four."""
    store = service.library.store
    store.page_limits = replace(store.page_limits, most_bytes=4_500)
    ann = await service.client_with_key("ann")
    texts = [f"{KILOBYTE} tea" for _ in IDS]
    await write_messages(ann, "ann", *(make_message(n, text) for n, text in enumerate(texts)))
    return ann


async def read_all(client: httpx.AsyncClient, **search: Any) -> list[list[str]]:
    """Return the ids of all pages."""
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while not pages or cursor["cursor"]:
        if search:
            answer = await client.post(SEARCH, json={"user_id": "ann", **search, **cursor})
        else:
            answer = await client.get(MESSAGES, params=cursor)
        pages.append(message_ids(answer))
        cursor = {"cursor": answer.json()["next_cursor"]}
    return pages


async def test_range_of_large_messages_has_several_pages(small_pages: httpx.AsyncClient) -> None:
    pages = await read_all(small_pages)
    assert list(map(len, pages)) == [4, 4, 4]
    assert list(chain(*pages)) == IDS[::-1]


async def test_search_of_large_messages_has_several_pages(small_pages: httpx.AsyncClient) -> None:
    pages = await read_all(small_pages, query_text="tea")
    assert list(map(len, pages)) == [4, 4, 4]
    assert list(chain(*pages)) == IDS[::-1]
    pages = await read_all(small_pages, query_text="tea", page_size=3)
    assert list(map(len, pages)) == [3, 3, 3, 3]


async def test_neighbours_and_nearest_messages_are_cut(small_pages: httpx.AsyncClient) -> None:
    answer = await small_pages.get(f"{MESSAGES}/m006/neighbors", params={"before": 5, "after": 5})
    assert message_ids(answer) == ["m004", "m005", "m006", "m007"]
    body = {"user_id": "ann", "query_text": "tea"}
    answer = await small_pages.post("/v1/messages/semantic_search", json=body)
    assert len(message_ids(answer)) == 4
    assert answer.json()["truncated"] is True


async def test_row_above_the_limit_is_a_page_of_its_own(service: HttpService) -> None:
    store = service.library.store
    store.page_limits = replace(store.page_limits, most_bytes=500)
    ann = await service.client_with_key("ann")
    metadata = {"note": "x" * 1_000}
    messages = [make_message(n, "tea", metadata=metadata if n == 1 else {}) for n in range(3)]
    await write_messages(ann, "ann", *messages)
    assert await read_all(ann) == [["m002"], ["m001"], ["m000"]]
    assert await read_all(ann, query_text="tea") == [["m002"], ["m001"], ["m000"]]


async def test_memories_of_many_bytes_have_several_pages(service: HttpService) -> None:
    store = service.library.store
    store.page_limits = replace(store.page_limits, most_bytes=4_500)
    ann = await service.client_with_key("ann")
    texts = [f"{n} {KILOBYTE}" for n in range(6)]
    for text in texts:
        body = {"user_id": "ann", "messages": text, "infer": False}
        assert (await ann.post("/v1/memories", json=body)).status_code == 200
    found: list[str] = []
    params: dict[str, Any] = {"user_id": "ann"}
    while True:
        page = (await ann.get("/v1/memories", params=params)).json()
        assert 1 <= len(page["results"]) <= 4
        found += [item["memory"] for item in page["results"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert sorted(found) == sorted(texts)


async def test_metadata_is_limited(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    large = {"note": "x" * 1_100_000}
    messages = [make_message(1), make_message(2, metadata=large)]
    answer = await ann.post(MESSAGES, json={"messages": messages})
    error = check_error(answer, 400, "INVALID_ARGUMENT")
    assert "1,048,576" in error["message"]
    assert error["details"]["message_ids"] == ["m002"]
    body = {"user_id": "ann", "messages": "I like tea", "infer": False, "metadata": large}
    check_error(await ann.post("/v1/memories", json=body), 400, "INVALID_ARGUMENT")
    half = {"first": "x" * 600_000}
    body = {**body, "metadata": half}
    added = (await ann.post("/v1/memories", json=body)).json()
    path = f"/v1/memories/{added['results'][0]['id']}?user_id=ann"
    more = {"metadata": {"second": "x" * 600_000}}
    check_error(await ann.patch(path, json=more), 400, "INVALID_ARGUMENT")
    assert (await ann.patch(path, json={"metadata": {"second": "x"}})).status_code == 200
