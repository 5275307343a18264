"""Messages say their place in the session, by every way to read them."""

import json
from typing import cast

from memrecall.memory import AsyncMemory
from memrecall.memory.results import StoredItem
from memrecall.scope import Scope

from .http_service import HttpService, make_message, write_messages


async def test_every_way_to_read_messages_has_their_sequence_number(service: HttpService) -> None:
    client = await service.client_with_key()
    # Said in another order than stored, in two sessions.
    for minute, session in ((3, "s"), (2, "s"), (1, "t"), (0, "s")):
        message = make_message(minute, f"tea at {minute}", session_id=session)
        await write_messages(client, "ann", message)
    await service.library.vectors.settle()
    expected = {"m003": 1, "m002": 2, "m001": 1, "m000": 3}

    pages = {
        "range": await client.get("/v1/users/ann/messages"),
        "neighbors": await client.get("/v1/users/ann/messages/m003/neighbors"),
        "lexical": await client.post(
            "/v1/messages/lexical_search", json={"user_id": "ann", "query_text": "tea"}
        ),
        "semantic": await client.post(
            "/v1/messages/semantic_search", json={"user_id": "ann", "query_text": "tea"}
        ),
    }
    for name, answer in pages.items():
        items = answer.json()["items"]
        assert {item["message_id"]: item["sequence_no"] for item in items} == expected, name
    query = {"user_id": "ann", "query_text": "tea", "return_fields": ["sequence_no"]}
    selected = (await client.post("/v1/messages/lexical_search", json=query)).json()["items"]
    assert {tuple(sorted(item)) for item in selected} == {("message_id", "sequence_no")}

    memory = AsyncMemory(library=service.library, user_id="ann")
    listed = (await memory.get_all(kinds="messages"))["results"]
    found = (await memory.search("tea", kinds="message", threshold=0.0))["results"]
    for results in (listed, found):
        assert {item["id"]: item["sequence_no"] for item in results} == expected
    assert cast(StoredItem, await memory.get("m000"))["sequence_no"] == 3
    rows = [json.loads(line)["row"] async for line in memory.export()]
    messages = [row for row in rows if "message_id" in row]
    assert {row["message_id"]: row["sequence_no"] for row in messages} == expected


async def test_sequence_numbers_are_never_used_again(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    for number in (1, 2):
        await write_messages(client, "ann", make_message(number, session_id="s"))
    lines = (await client.get("/v1/users/ann/export")).content
    await client.delete("/v1/users/ann")
    headers = {"Content-Type": "application/x-ndjson"}
    await client.post("/v1/users/ann/import", content=lines, headers=headers)

    # A message that was read can be written back; its number is the service's own.
    stored = (await client.get("/v1/users/ann/messages")).json()["items"]
    assert (await write_messages(client, "ann", *stored))["stored"] == 0
    copy = {**stored[0], "message_id": "m003", "sequence_no": 99, "session_id": "s"}
    await write_messages(client, "ann", copy)
    timeline = sqlite_service.library.store.timeline(Scope("ann"))
    assert (await timeline.get("m003")).sequence_no == 3
