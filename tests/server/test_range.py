"""`GET /v1/users/{user_id}/messages`: messages by time."""

from typing import Any
from urllib.parse import quote

import httpx

from tests.cases import read_rows

from .http_service import (
    HttpService,
    check_error,
    make_message,
    message_ids,
    timestamp,
    write_messages,
)

FIELDS = {"message_id", "ts", "user_id", "role", "content"}
PATH = "/v1/users/ann/messages"


async def test_message_is_returned_unchanged(ann: httpx.AsyncClient) -> None:
    metadata = {"source": "phone", "nested": {"list": [1, None, 2.5]}}
    message = make_message(1, "我不吃辣 🌶", speaker="安", session_id="s1", metadata=metadata)
    await write_messages(ann, "ann", message)

    (item,) = (await ann.get(PATH)).json()["items"]

    assert item.keys() >= FIELDS
    assert {name: item[name] for name in message} == message
    assert item["user_id"] == "ann"
    assert (await ann.get(f"{PATH}/m001")).json() == item


async def test_one_message_is_read_by_its_user_only(service: HttpService) -> None:
    ann, ben = await service.client_with_key("ann"), await service.client_with_key("ben")
    agent = await service.client_with_key("ann", agent_id="other")
    await write_messages(ann, "ann", make_message(1, message_id="a/1"), make_message(2))
    await write_messages(ben, "ben", make_message(3))
    await ann.delete(f"{PATH}/m002")
    assert (await ann.get(f"{PATH}/a%2F1")).json()["message_id"] == "a/1"
    for client, path in [
        *((ann, f"{PATH}/{key}") for key in ("m002", "m003", "never")),  # erased, Ben's, none
        *((other, f"{PATH}/a%2F1") for other in (ben, agent)),
        (ben, "/v1/users/ben/messages/a%2F1"),
    ]:
        check_error(await client.get(path), 404, "NOT_FOUND")


async def test_user_of_the_key_without_messages_has_empty_pages(service: HttpService) -> None:
    own, all_users = await service.client_with_key("ann", "ben"), await service.client_with_key()
    query = {"user_id": "ann", "query_text": "tea"}

    async def ask(client: httpx.AsyncClient) -> list[httpx.Response]:
        kinds = ("lexical", "semantic")
        searches = [await client.post(f"/v1/messages/{kind}_search", json=query) for kind in kinds]
        return [await client.get(PATH), *searches]

    for answer in await ask(own):
        assert message_ids(answer) == []
        assert answer.json().get("next_cursor") is None
    check_error(await own.get(f"{PATH}/m001/neighbors"), 404, "NOT_FOUND")
    check_error(await own.get("/v1/users/eve/messages"), 404, "NOT_FOUND")
    for answer in await ask(all_users):  # it names any user, so the name may be misspelt
        check_error(answer, 404, "NOT_FOUND")


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [5, 4, 3, 2, 1]),
    ({"since": timestamp(3)}, [5, 4, 3]),
    ({"until": timestamp(3)}, [2, 1]),
    ({"since": timestamp(2), "until": timestamp(4)}, [3, 2]),
    ({"since": timestamp(2), "until": timestamp(2)}, []),
    ({"role": "user"}, [5, 3, 1]),
    ({"role": "assistant", "since": timestamp(3)}, [4]),
    ({"role": "system"}, []),
    ({"since": "2026-01-26T20:03:00+08:00"}, [5, 4, 3]),
    ({"page_size": 2}, [5, 4]),
    ({"order": "asc", "page_size": 2}, [1, 2]),
    ({"order": "desc", "session_id": "odd"}, [5, 3, 1]),
    ({"order": "asc", "session_id": "odd", "since": timestamp(2)}, [3, 5]),
    ({"session_id": "none"}, []),
    ({"page_size": 200}, [5, 4, 3, 2, 1]),
]


async def test_range_filters_select_messages(client: httpx.AsyncClient) -> None:
    sessions = ("even", "odd")
    batch = [make_message(n, session_id=sessions[n % 2]) for n in range(1, 6)]
    await write_messages(client, "ann", *batch)
    for query, expected in FILTERS:
        answer = await client.get(PATH, params=query)
        assert message_ids(answer) == [f"m{n:03}" for n in expected], query


async def test_default_page_has_fifty_messages(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *(make_message(n) for n in range(60)))
    first = await ann.get(PATH)
    second = await ann.get(PATH, params={"cursor": first.json()["next_cursor"]})
    ids = [f"m{n:03}" for n in reversed(range(60))]
    assert (message_ids(first), message_ids(second)) == (ids[:50], ids[50:])
    assert second.json()["next_cursor"] is None


async def test_invalid_parameter_is_named(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    for query, field in read_rows("http", "range refused"):
        detail = check_error(await ann.get(PATH, params=query), 400, "INVALID_ARGUMENT")
        assert detail["details"]["fields"][0]["field"] == field
        assert detail["message"].startswith(field)


async def test_whole_numbers_are_digits_only(service: HttpService) -> None:
    ann = await service.client_with_key("ann")
    document = (await ann.get("/openapi.json")).json()
    checked = set()
    for path, operations in document["paths"].items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            types = [parameter["schema"], *parameter["schema"].get("anyOf", ())]
            if "integer" not in [schema.get("type") for schema in types]:
                continue
            checked.add(name := parameter["name"])
            target = path.replace("{user_id}", "ann").replace("{message_id}", "m001")
            for value in ("1_0", "3.0", "+5", " 5", "1e1", "٣"):
                answer = await ann.get(target, params={name: value})
                error = check_error(answer, 400, "INVALID_ARGUMENT")
                assert error["message"].startswith(f"{name}: "), (path, value)
    assert checked >= {"page_size", "before", "after", "limit", "top_k", "depth", "max_tokens"}


async def test_unknown_and_repeated_parameters_are_explained(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    recall = "/v1/users/ann/recall"
    for method, path, words in [
        ("GET", f"{PATH}?limit=5", "limit: is not a known field; see /docs"),
        ("GET", f"{PATH}?role=user&role=assistant", "role: is given more than once"),
        ("GET", f"{PATH}?since=2026-01-26T10:00:00+08:00", "a + in a query is written %2B"),
        ("POST", f"{recall}?stream=1", "this endpoint has none"),
    ]:
        answer = await ann.request(method, path, json={"query": "x"} if method == "POST" else None)
        assert words in check_error(answer, 400, "INVALID_ARGUMENT")["message"]
    assert (await ann.get(f"{PATH}?since=2026-01-26T10:00:00%2B08:00")).status_code == 200


async def test_inverted_range_is_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    answer = await ann.get(PATH, params={"since": timestamp(2), "until": timestamp(1)})
    assert "since" in check_error(answer, 400, "INVALID_ARGUMENT")["message"]


async def test_any_id_can_be_used_in_a_path(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    for name in ("a/b", "张三", "x y", "100%", "a+b&c=d?e#f", "%2F", "a%00b", "//"):
        await check_user_id(client, name)


async def check_user_id(client: httpx.AsyncClient, user: str) -> None:
    path = f"/v1/users/{quote(user, safe='')}/messages"
    answer = await client.post(path, json={"messages": [make_message(1, message_id=user)]})
    assert answer.status_code == 200, answer.text
    (item,) = (await client.get(path)).json()["items"]
    assert (item["user_id"], item["message_id"]) == (user, user)
    around = f"{path}/{quote(user, safe='')}/neighbors"
    assert message_ids(await client.get(around)) == [user]


async def test_invalid_id_in_path_is_refused(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    for user in ("%20x", "x" * 65, "a%00b", "%0A"):
        check_error(await client.get(f"/v1/users/{user}/messages"), 400, "INVALID_ARGUMENT")
