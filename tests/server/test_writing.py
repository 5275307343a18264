"""`POST /v1/users/{user_id}/messages`: feeding the service."""

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

from .site import Site, error, ids, said, serving, write

PATH = "/v1/users/ann/messages"


async def test_repeated_write_is_idempotent(ann: httpx.AsyncClient) -> None:
    batch = [said(1), said(2)]
    first = await write(ann, "ann", *batch)
    again = await write(ann, "ann", *batch, said(3))

    assert first["stored"] == 2
    assert first["items"] == [
        {"message_id": "m001", "stored": True},
        {"message_id": "m002", "stored": True},
    ]
    assert again["stored"] == 1
    assert [item["stored"] for item in again["items"]] == [False, False, True]
    assert ids(await ann.get(PATH)) == ["m003", "m002", "m001"]


async def test_conflicting_content_refuses_whole_batch(ann: httpx.AsyncClient) -> None:
    await write(ann, "ann", said(1), said(2))
    batch = [said(7), said(1, "other words"), said(2, role="system"), said(8)]

    answer = await ann.post(PATH, json={"messages": batch})

    told = error(answer, 409, "CONFLICT")
    assert told["details"]["message_ids"] == ["m001", "m002"]
    assert set(told["details"]["faults"]) == {"1", "2"}
    assert ids(await ann.get(PATH)) == ["m002", "m001"]


async def test_conflict_within_a_batch_is_reported(ann: httpx.AsyncClient) -> None:
    answer = await ann.post(PATH, json={"messages": [said(1), said(1), said(1, "other words")]})
    told = error(answer, 409, "CONFLICT")
    assert "comes twice in this batch, with another content" in told["message"]
    assert set(told["details"]["faults"]) == {"2"}
    error(await ann.get(PATH), 404, "NOT_FOUND")


async def test_read_messages_can_be_written_back(lite: Site) -> None:
    for agent in (None, "helper"):
        ann = await lite.holder("ann", agent_id=agent)
        await write(ann, "ann", said(1, message_id=f"of-{agent}", metadata={"a": 1}))
        items = [i for i in (await ann.get(PATH)).json()["items"] if i["agent_id"] == agent]
        items = items or (await ann.get(PATH)).json()["items"]
        assert (await write(ann, "ann", *items))["stored"] == 0
        for wrong in ({"user_id": "ben"}, {"agent_id": "other"}):
            answer = await ann.post(PATH, json={"messages": [said(2), said(3, **wrong)]})
            told = error(answer, 400, "INVALID_ARGUMENT")
            assert told["details"]["fields"][0]["field"] == f"messages.1.{next(iter(wrong))}"


WORDED: list[tuple[Any, str]] = [
    ([said(1)], "body: must be a JSON object"),
    ({"messages": []}, "messages: must have at least 1 item, and has 0"),
    ({"messages": [5]}, "messages.0: must be a JSON object"),
    ({"messages": [{"role": "user"}]}, "messages.0.content: is missing"),
    ({"messages": [said(1)], "mesages": 1}, "mesages: is not known here; /docs lists what is"),
]


async def test_invalid_message_is_explained(lite: Site) -> None:
    ann = await lite.holder("ann")
    for body, words in WORDED:
        told = error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")
        assert told["message"] == words
    blank = {"user_id": "ann", "query_text": "  "}
    for kind in ("lexical", "semantic"):
        answer = await ann.post(f"/v1/messages/{kind}_search", json=blank)
        assert error(answer, 400, "INVALID_ARGUMENT")["message"] == "query_text: is blank"


async def test_missing_ids_and_times_are_assigned(ann: httpx.AsyncClient) -> None:
    done = await write(ann, "ann", {"role": "user", "content": "now"})
    (item,) = (await ann.get(PATH)).json()["items"]
    assert done["items"] == [{"message_id": item["message_id"], "stored": True}]
    assert item["ts"].endswith("Z")
    assert item["session_id"] == "default"


async def test_written_messages_are_searchable_at_once(ann: httpx.AsyncClient) -> None:
    for number in range(5):
        await write(ann, "ann", said(number, f"tea number{number}"))
        body = {"user_id": "ann", "query_text": f"number{number}"}
        assert ids(await ann.post("/v1/messages/lexical_search", json=body)) == [f"m{number:03}"]
        near = await ann.post("/v1/messages/semantic_search", json={**body, "top_k": 200})
        assert len(ids(near)) == number + 1


MISTAKES: list[Any] = [
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
    {"messages": [said(1)], "user_id": "ben"},
    {"messages": [said(n) for n in range(1001)]},
    [said(1)],
    "text",
    None,
]


async def test_invalid_messages_are_refused_and_nothing_stored(lite: Site) -> None:
    ann = await lite.holder("ann")
    for body in MISTAKES:
        error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")
    error(await ann.get(PATH), 404, "NOT_FOUND")
    fault = error(
        await ann.post(PATH, json={"messages": [said(1), {"role": "user"}]}),
        400,
        "INVALID_ARGUMENT",
    )
    assert fault["details"]["fields"][0]["field"] == "messages.1.content"


async def test_read_only_key_cannot_write(lite: Site) -> None:
    await write(await lite.holder("ann"), "ann", said(1))
    reader = await lite.holder("ann", read_only=True)
    error(await reader.post(PATH, json={"messages": [said(2)]}), 403, "PERMISSION_DENIED")
    assert ids(await reader.get(PATH)) == ["m001"]


async def test_ended_sessions_and_disabled_users_refuse_writes(site: Site) -> None:
    ann = await site.holder("ann")
    await write(ann, "ann", said(1, session_id="s1"))
    owners = site.library.store.owners
    await owners.end_session("ann", "s1")
    body = {"messages": [said(2, session_id="s1")]}
    error(await ann.post(PATH, json=body), 403, "PERMISSION_DENIED")
    await owners.set_user_enabled("ann", False)
    for answer in [
        await ann.post(PATH, json={"messages": [said(3)]}),
        await ann.get(PATH),
        await ann.get(f"{PATH}/m001/neighbors"),
        await ann.post(
            "/v1/messages/lexical_search", json={"user_id": "ann", "query_text": "message"}
        ),
        await ann.post("/v1/users/ann/recall", json={"query": "message"}),
    ]:
        told = error(answer, 403, "PERMISSION_DENIED")
        assert "memrecall " not in told["message"]  # a command is of no use to a client


async def test_agent_key_writes_and_reads_its_own_messages(lite: Site) -> None:
    helper = await lite.holder("ann", agent_id="helper")
    other = await lite.holder("ann", agent_id="other")
    await write(helper, "ann", said(1, "tea for the helper"))
    await write(other, "ann", said(2, "tea for the other"))
    for client, mine in ((helper, "m001"), (other, "m002")):
        assert ids(await client.get(PATH)) == [mine]
        body = {"user_id": "ann", "query_text": "tea"}
        assert ids(await client.post("/v1/messages/lexical_search", json=body)) == [mine]
        assert ids(await client.post("/v1/messages/semantic_search", json=body)) == [mine]
        theirs = {"m001": "m002", "m002": "m001"}[mine]
        error(await client.get(f"{PATH}/{theirs}/neighbors"), 404, "NOT_FOUND")


class Moments:
    """Tells when a library begins to write for a user, and when it has written."""

    def __init__(self, library: Library) -> None:
        self.begun, self.done = defaultdict[str, Event](Event), defaultdict[str, Event](Event)
        self._add = library.add_entries

    async def add_entries(self, entries: Sequence[ScopedMessage]) -> WriteResult:
        user = entries[0].scope.user_id
        self.begun[user].set()
        written = await self._add(entries)
        self.done[user].set()
        return written


async def turns(number: int) -> None:
    """Let everybody in the event loop do so many things."""
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.concurrent
async def test_disconnect_does_not_split_a_write(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is sent and the connection dropped, at ever later moments."""
    async with serving(library) as site:
        moments = Moments(library)
        monkeypatch.setattr(library, "add_entries", moments.add_entries)
        key = await site.key(*"abcde")
        host, port = site.url.removeprefix("http://").split(":")
        content = httpx.Request("POST", site.url, json={"messages": [said(n) for n in range(200)]})
        head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nContent-Type: "
        head += f"application/json\r\nContent-Length: {len(content.content)}\r\n\r\n"
        waits = {
            "a": turns(0),
            "b": turns(3),
            "c": turns(10),
            "d": moments.begun["d"].wait(),
            "e": moments.done["e"].wait(),
        }
        for user, moment in waits.items():
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"POST /v1/users/{user}/messages {head}".encode() + content.content)
            await writer.drain()
            await asyncio.wait_for(moment, LIMIT)
            writer.transport.abort()
        await site.client(Connection="close").get("/healthz")  # the others were accepted before it
        assert site.server is not None
        await wait_until(site.server.is_idle)
        for user in "abcde":
            stored = (await library.store.count(user))["messages"]
            assert stored in ((0, 200) if user in "abc" else (200,))
            done = await write(site.client(key), user, *(said(n) for n in range(200)))
            assert done["stored"] == 200 - stored
            page = await library.store.timeline(Scope(user)).page(page_size=200)
            assert len(page.items) == 200
