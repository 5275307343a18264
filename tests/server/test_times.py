"""Times at the edges of the calendar: refused on input, and harmless where stored earlier."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from memrecall.scope import Scope
from memrecall.store import ScopedMessage
from memrecall.types import NewMessage, Role

from .http_service import HttpService, check_error, make_message, write_messages

ZONES = ("Pacific/Kiritimati", "Etc/GMT+12", "UTC")  # the first and the last to see a day
OFFSETS = ("Z", "+14:00", "-12:00", "+23:59", "-23:59", "")
EDGES = [f"{day}T{time}{offset}" for offset in OFFSETS for day, time in (
    ("0001-01-01", "00:00:00"), ("0001-12-30", "12:00:00"),
    ("9999-01-02", "12:00:00"), ("9999-12-31", "23:59:59.999999"),
)]  # fmt: skip
WEEKS = ["2026-W10-1", "2026w101", "2026-W10-1T10:00:00Z", "2026-03-02T12:30:60Z"]
WITHIN = [
    "2026-01-26t10:47:00z",
    "2026-06-30T23:59:60Z",
    "2026-07-01T05:29:60.5+05:30",
    "0002-01-02T00:00:00Z",
    "0002-01-02T00:00:00+14:00",
    "9998-12-30T23:59:59.999999-12:00",
]
SAID = {"role": "user", "content": "I moved to Oslo yesterday, and next year I go to Rome."}
# A valid request of each operation that takes a time.
UNDO = "POST /v1/memories/{memory_id}/undo"  # all its parameters are in the query
REQUESTS: dict[str, dict[str, Any]] = {
    "GET /v1/users/{user_id}/messages": {},
    "POST /v1/users/{user_id}/messages": {"messages": [SAID]},
    "POST /v1/messages/lexical_search": {"user_id": "ann", "query_text": "Oslo"},
    "POST /v1/messages/semantic_search": {"user_id": "ann", "query_text": "Oslo"},
    "POST /v1/memories": {"user_id": "ann", "messages": [SAID]},
    "GET /v1/memories": {"user_id": "ann"},
    "POST /v1/memories/search": {"user_id": "ann", "query": "what happened last year?"},
    "POST /v1/memories/extract": {"user_id": "ann", "dry_run": True},
    "PATCH /v1/memories/{memory_id}": {"text": "Ann lives in Oslo."},
    UNDO: {"user_id": "ann"},
    "GET /v1/graph": {"user_id": "ann", "entity": "Oslo"},
    "POST /v1/graph/extract": {"user_id": "ann", "messages": [SAID]},
    "POST /v1/users/{user_id}/recall": {"messages": [SAID]},
}


def find_times(schemas: Any, schema: Any, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to the times of a schema."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if schema.get("format") == "date-time":
        yield names
    for name, inner in schema.get("properties", {}).items():
        yield from find_times(schemas, inner, (*names, name))
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from find_times(schemas, inner, names)
    if isinstance(items := schema.get("items"), dict):
        yield from find_times(schemas, items, (*names, "0"))


def time_fields(document: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every operation that takes a time, and the names that lead to it."""
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            found = [*find_times(schemas, body.get("schema", {}), ())]
            for parameter in operation.get("parameters", ()):
                found += find_times(schemas, parameter["schema"], (parameter["name"],))
            for names in sorted(set(found)):
                yield f"{method.upper()} {path}", names


def put(value: Any, names: tuple[str, ...], time: str) -> Any:
    """Return a JSON value with a time at a place."""
    if not names:
        return time
    if names[0] == "0":
        return [put(value[0] if value else {}, names[1:], time)]
    old = value if isinstance(value, dict) else {}
    inner = old.get(names[0])
    return {**old, names[0]: put(inner, names[1:], time)}


async def send(
    client: httpx.AsyncClient, memory: str, operation: str, names: tuple[str, ...], time: str
) -> httpx.Response:
    method, path = operation.replace("{user_id}", "ann").replace("{memory_id}", memory).split()
    values = put(REQUESTS[operation], names, time)
    if method == "GET" or operation == UNDO:
        return await client.request(method, path, params=values)
    params = {"user_id": "ann"} if method == "PATCH" else {}
    return await client.request(method, path, json=values, params=params)


async def make_memory(client: httpx.AsyncClient) -> str:
    body = {"user_id": "ann", "messages": "Ann lives in Oslo.", "infer": False}
    return str((await client.post("/v1/memories", json=body)).json()["results"][0]["id"])


async def test_edges_of_the_calendar_are_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    memory = await make_memory(ann)
    document = (await ann.get("/openapi.json")).json()
    fields = [*time_fields(document)]
    assert {operation for operation, _ in fields} == set(REQUESTS)
    for operation, names in fields:
        for time in EDGES:
            answer = await send(ann, memory, operation, names, time)
            error = check_error(answer, 400, "INVALID_ARGUMENT")
            assert re.search("years (1 to 9999|2 to 9998)", error["message"]), (operation, names)
        for time in WEEKS:  # and a leap second within a day
            answer = await send(ann, memory, operation, names, time)
            assert "is not a time" in check_error(answer, 400, "INVALID_ARGUMENT")["message"]


async def test_times_within_the_calendar_are_accepted(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    memory = await make_memory(ann)
    document = (await ann.get("/openapi.json")).json()
    for zone in ZONES:
        await sqlite_service.library.store.owners.set_time_zone("ann", zone)
        for operation, names in time_fields(document):
            for time in WITHIN:
                answer = await send(ann, memory, operation, names, time)
                place = (zone, operation, names, time, answer.text)
                assert answer.status_code < 500, place
                assert not re.search("outside the years|is not a time", answer.text), place


async def test_lower_case_and_leap_seconds_are_stored_in_utc(ann: httpx.AsyncClient) -> None:
    for number, time in enumerate(WITHIN[:3]):
        await write_messages(ann, "ann", make_message(number, ts=time))
    items = (await ann.get("/v1/users/ann/messages", params={"since": WITHIN[0]})).json()["items"]
    assert [item["ts"] for item in items] == [
        "2026-07-01T00:00:00.500000Z",
        "2026-07-01T00:00:00Z",
        "2026-01-26T10:47:00Z",
    ]


async def test_rows_stored_at_the_edges_load(service: HttpService) -> None:
    ann = await service.client_with_key("ann")
    moments = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    said = NewMessage(content=SAID["content"], role=Role.USER)
    old = [
        said.model_copy(update={"ts": moment, "message_id": f"edge{at}"})  # checks nothing
        for at, moment in enumerate((*moments, moments[0] + timedelta(hours=1)))
    ]
    await service.library.add_entries([ScopedMessage(Scope("ann"), message) for message in old])
    await write_messages(ann, "ann", make_message(1, "Oslo"))
    for zone in ZONES:
        await service.library.store.owners.set_time_zone("ann", zone)
        found: list[str] = []
        cursor: dict[str, str] = {}
        while not found or cursor["cursor"]:
            page = await ann.get("/v1/users/ann/messages", params={"page_size": 1, **cursor})
            found += [item["ts"][:4] for item in page.json()["items"]]
            cursor = {"cursor": page.json()["next_cursor"]}
        assert found == ["9999", "2026", "0001", "0001"]
        for path, body in [
            ("/v1/messages/lexical_search", {"user_id": "ann", "query_text": "Oslo"}),
            ("/v1/messages/semantic_search", {"user_id": "ann", "query_text": "Oslo"}),
            ("/v1/memories/search", {"user_id": "ann", "query": "Oslo"}),
            ("/v1/users/ann/recall", {"messages": ["When did I move to Oslo?"]}),
        ]:
            answer = await ann.post(path, json=body)
            assert answer.status_code == 200, answer.text
        near = await ann.get("/v1/users/ann/messages/edge1/neighbors", params={"after": 5})
        assert near.status_code == 200
