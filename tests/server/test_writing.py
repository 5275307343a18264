"""`POST /v1/users/{user_id}/messages`: storing messages."""

import asyncio
from asyncio import Event
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import ScopedMessage, WriteResult
from tests.waiting import LIMIT, wait_until

from .http_service import (
    HttpService,
    check_error,
    make_message,
    message_ids,
    serve_on_socket,
    write_messages,
)

PATH = "/v1/users/ann/messages"


async def test_repeated_write_is_idempotent(ann: httpx.AsyncClient) -> None:
    batch = [make_message(1), make_message(2)]
    first = await write_messages(ann, "ann", *batch)
    repeated = await write_messages(ann, "ann", *batch, make_message(3))

    assert first["stored"] == 2
    assert first["items"] == [
        {"message_id": "m001", "stored": True, "status": "new"},
        {"message_id": "m002", "stored": True, "status": "new"},
    ]
    assert repeated["stored"] == 1
    assert [item["stored"] for item in repeated["items"]] == [False, False, True]
    assert [item["status"] for item in repeated["items"]] == ["same", "same", "new"]
    assert message_ids(await ann.get(PATH)) == ["m003", "m002", "m001"]


async def test_erased_id_is_never_answered_as_if_it_were_stored(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", make_message(1, "a secret"), make_message(2))
    await ann.post("/v1/memories/m001/purge")
    for content in ("a secret", "other words"):  # nothing is left to compare the content with
        batch = [make_message(1, content), make_message(2), make_message(1, "third words")]
        receipt = await write_messages(ann, "ann", *batch)
        assert receipt["stored"] == 0
        assert [item["status"] for item in receipt["items"]] == ["erased", "same", "erased"]
        assert not any(item["stored"] for item in receipt["items"])
    refused = await ann.post(PATH, json={"messages": [make_message(1), make_message(2, "other")]})
    details = check_error(refused, 409, "CONFLICT")["details"]
    assert details["items"] == [{"message_id": "m002", "stored": False, "status": "conflict"}]
    assert message_ids(await ann.get(PATH)) == ["m002"]


async def test_hidden_message_that_is_sent_again_stays_hidden(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", make_message(1), make_message(2))
    await ann.delete(f"{PATH}/m001")
    receipt = await write_messages(ann, "ann", make_message(1))
    assert receipt["items"] == [{"message_id": "m001", "stored": False, "status": "same"}]
    assert message_ids(await ann.get(PATH)) == ["m002"]
    answer = await ann.post(PATH, json={"messages": [make_message(1, "other words")]})
    check_error(answer, 409, "CONFLICT")


async def test_conflicting_content_refuses_whole_batch(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", make_message(1), make_message(2))
    batch = [
        make_message(7),
        make_message(1, "other words"),
        make_message(2, role="system"),
        make_message(8),
    ]

    answer = await ann.post(PATH, json={"messages": batch})

    detail = check_error(answer, 409, "CONFLICT")
    assert detail["details"]["message_ids"] == ["m001", "m002"]
    assert set(detail["details"]["faults"]) == {"1", "2"}
    assert message_ids(await ann.get(PATH)) == ["m002", "m001"]


async def test_conflict_within_a_batch_is_reported(ann: httpx.AsyncClient) -> None:
    answer = await ann.post(
        PATH, json={"messages": [make_message(1), make_message(1), make_message(1, "other words")]}
    )
    detail = check_error(answer, 409, "CONFLICT")
    assert "occurs twice in this batch, with another content" in detail["message"]
    assert set(detail["details"]["faults"]) == {"2"}
    assert message_ids(await ann.get(PATH)) == []


async def test_read_messages_can_be_written_back(sqlite_service: HttpService) -> None:
    for agent in (None, "helper"):
        ann = await sqlite_service.client_with_key("ann", agent_id=agent)
        await write_messages(
            ann, "ann", make_message(1, message_id=f"of-{agent}", metadata={"a": 1})
        )
        items = [i for i in (await ann.get(PATH)).json()["items"] if i["agent_id"] == agent]
        items = items or (await ann.get(PATH)).json()["items"]
        assert (await write_messages(ann, "ann", *items))["stored"] == 0
        for fields in ({"user_id": "ben"}, {"agent_id": "other"}):
            answer = await ann.post(
                PATH, json={"messages": [make_message(2), make_message(3, **fields)]}
            )
            detail = check_error(answer, 400, "INVALID_ARGUMENT")
            assert detail["details"]["fields"][0]["field"] == f"messages.1.{next(iter(fields))}"


ERROR_MESSAGES: list[tuple[Any, str]] = [
    ([make_message(1)], "body: must be a JSON object"),
    ({"messages": []}, "messages: must have at least 1 item, and has 0"),
    ({"messages": [5]}, "messages.0: must be a JSON object"),
    ({"messages": [{"role": "user"}]}, "messages.0.content: is missing"),
    ({"messages": [], "user_id": "ann"}, "user_id: is not a known field; see /docs"),
    ({"messages": [], "mesages": 1}, "mesages: is not a known field; did you mean `messages`?"),
]


async def test_invalid_message_is_explained(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    for body, words in ERROR_MESSAGES:
        detail = check_error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")
        assert detail["message"] == words
    blank = {"user_id": "ann", "query_text": "  "}
    for kind in ("lexical", "semantic"):
        answer = await ann.post(f"/v1/messages/{kind}_search", json=blank)
        assert check_error(answer, 400, "INVALID_ARGUMENT")["message"] == "query_text: is blank"


async def test_written_messages_are_searchable_at_once(ann: httpx.AsyncClient) -> None:
    for number in range(5):
        await write_messages(ann, "ann", make_message(number, f"tea number{number}"))
        body = {"user_id": "ann", "query_text": f"number{number}"}
        assert message_ids(await ann.post("/v1/messages/lexical_search", json=body)) == [
            f"m{number:03}"
        ]
        nearest = await ann.post("/v1/messages/semantic_search", json={**body, "top_k": 200})
        assert len(message_ids(nearest)) == number + 1


INVALID_MESSAGES: list[Any] = [
    {},
    {"messages": []},
    {"messages": {}},
    {"messages": [{}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "user", "content": "a\0b"}]},
    {"messages": [{"role": "user", "content": "x" * 1_000_001}]},
    {"messages": [{"role": "user", "content": "x", "message_id": ""}]},
    {"messages": [{"role": "user", "content": "x", "user_id": "ben"}]},
    {"messages": [{"role": "user", "content": "x", "ts": 5}]},
    {"messages": [{"role": "user", "content": "x", "metadata": []}]},
    {"messages": [make_message(1)], "user_id": "ben"},
    {"messages": [make_message(n) for n in range(1001)]},
    [make_message(1)],
    "text",
    None,
]


async def test_invalid_messages_are_refused_and_nothing_stored(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    for body in INVALID_MESSAGES:
        check_error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")
    assert message_ids(await ann.get(PATH)) == []
    fault = check_error(
        await ann.post(PATH, json={"messages": [make_message(1), {"role": "user"}]}),
        400,
        "INVALID_ARGUMENT",
    )
    assert fault["details"]["fields"][0]["field"] == "messages.1.content"


async def test_read_only_key_cannot_write(sqlite_service: HttpService) -> None:
    await write_messages(await sqlite_service.client_with_key("ann"), "ann", make_message(1))
    reader = await sqlite_service.client_with_key("ann", read_only=True)
    check_error(
        await reader.post(PATH, json={"messages": [make_message(2)]}), 403, "PERMISSION_DENIED"
    )
    assert message_ids(await reader.get(PATH)) == ["m001"]


async def test_ended_sessions_and_disabled_users_refuse_writes(service: HttpService) -> None:
    ann = await service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1, session_id="s1"))
    owners = service.library.store.owners
    await owners.end_session("ann", "s1")
    body = {"messages": [make_message(2, session_id="s1")]}
    check_error(await ann.post(PATH, json=body), 403, "PERMISSION_DENIED")
    await owners.set_user_enabled("ann", False)
    for answer in [
        await ann.post(PATH, json={"messages": [make_message(3)]}),
        await ann.get(PATH),
        await ann.get(f"{PATH}/m001/neighbors"),
        await ann.post(
            "/v1/messages/lexical_search", json={"user_id": "ann", "query_text": "message"}
        ),
        await ann.post("/v1/users/ann/recall", json={"query": "message"}),
    ]:
        detail = check_error(answer, 403, "PERMISSION_DENIED")
        assert "memrecall " not in detail["message"]  # HTTP clients cannot run commands


async def test_agent_key_writes_and_reads_its_own_messages(sqlite_service: HttpService) -> None:
    helper = await sqlite_service.client_with_key("ann", agent_id="helper")
    other = await sqlite_service.client_with_key("ann", agent_id="other")
    await write_messages(helper, "ann", make_message(1, "tea for the helper"))
    await write_messages(other, "ann", make_message(2, "tea for the other"))
    for client, own_id in ((helper, "m001"), (other, "m002")):
        assert message_ids(await client.get(PATH)) == [own_id]
        body = {"user_id": "ann", "query_text": "tea"}
        assert message_ids(await client.post("/v1/messages/lexical_search", json=body)) == [own_id]
        assert message_ids(await client.post("/v1/messages/semantic_search", json=body)) == [own_id]
        other_id = {"m001": "m002", "m002": "m001"}[own_id]
        check_error(await client.get(f"{PATH}/{other_id}/neighbors"), 404, "NOT_FOUND")


class WriteObserver:
    """Sets an event for each user before and after a write."""

    def __init__(self, library: Library) -> None:
        self.begun, self.done = defaultdict[str, Event](Event), defaultdict[str, Event](Event)
        self._add = library.add_entries

    async def add_entries(self, entries: Sequence[ScopedMessage]) -> WriteResult:
        user = entries[0].scope.user_id
        self.begun[user].set()
        result = await self._add(entries)
        self.done[user].set()
        return result


async def run_event_loop(number: int) -> None:
    """Run the event loop for a number of iterations."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.concurrent
async def test_disconnect_does_not_split_a_write(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is dropped at later and later points of the request."""
    async with serve_on_socket(library) as service:
        moments = WriteObserver(library)
        monkeypatch.setattr(library, "add_entries", moments.add_entries)
        key = await service.create_key(*"abcde")
        host, port = service.url.removeprefix("http://").split(":")
        content = httpx.Request(
            "POST", service.url, json={"messages": [make_message(n) for n in range(200)]}
        )
        head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: "
        head += f"application/json\r\nContent-Length: {len(content.content)}\r\n\r\n"
        waits = {
            "a": run_event_loop(0),
            "b": run_event_loop(3),
            "c": run_event_loop(10),
            "d": moments.begun["d"].wait(),
            "e": moments.done["e"].wait(),
        }
        for user, moment in waits.items():
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"POST /v1/users/{user}/messages {head}".encode() + content.content)
            await writer.drain()
            await asyncio.wait_for(moment, LIMIT)
            writer.transport.abort()
        await service.client(Connection="close").get(
            "/healthz"
        )  # the server accepted the other connections before
        assert service.server is not None
        await wait_until(service.server.is_idle)
        for user in "abcde":
            stored_count = (await library.store.count(user))["messages"]
            assert stored_count in ((0, 200) if user in "abc" else (200,))
            receipt = await write_messages(
                service.client(key), user, *(make_message(n) for n in range(200))
            )
            assert receipt["stored"] == 200 - stored_count
            page = await library.store.timeline(Scope(user)).page(page_size=200)
            assert len(page.items) == 200
