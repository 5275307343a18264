"""`GET /v1/users/{user_id}/messages/{message_id}/neighbors`: messages around a message."""

from typing import Any

import httpx

from .http_service import HttpService, check_error, make_message, message_ids, write_messages


async def get_neighbors(client: httpx.AsyncClient, key: str, **query: Any) -> httpx.Response:
    return await client.get(f"/v1/users/ann/messages/{key}/neighbors", params=query)


def numbered_ids(numbers: range) -> list[str]:
    return [f"m{n:03}" for n in numbers]


async def test_neighbors_default_to_twenty_before(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *(make_message(n) for n in range(60)))
    for key, query, expected in [
        ("m030", {}, range(10, 31)),
        ("m030", {"before": 2, "after": 3}, range(28, 34)),
        ("m030", {"before": 0}, range(30, 31)),
        ("m030", {"before": 0, "after": 2}, range(30, 33)),
        ("m005", {"after": 1}, range(7)),
        ("m059", {"before": 1, "after": 200}, range(58, 60)),
        ("m000", {"before": 200, "after": 200}, range(60)),
    ]:
        assert message_ids(await get_neighbors(ann, key, **query)) == numbered_ids(expected), (
            key,
            query,
        )


async def test_neighbors_span_sessions(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *(make_message(n, session_id=f"s{n % 2}") for n in range(4)))
    assert message_ids(await get_neighbors(ann, "m002", after=1)) == numbered_ids(range(4))


async def test_neighbors_of_unknown_message_are_not_found(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    check_error(await get_neighbors(ann, "m999"), 404, "NOT_FOUND")
    for query in (
        {"before": -1},
        {"before": 201},
        {"after": 201},
        {"after": "x"},
        {"role": "user"},
    ):
        check_error(await get_neighbors(ann, "m001", **query), 400, "INVALID_ARGUMENT")
