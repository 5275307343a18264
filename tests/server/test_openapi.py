"""The OpenAPI document says what is so."""

import json
from collections.abc import Set
from html.parser import HTMLParser
from typing import Any

import pytest

from memrecall.agent.trace import EventKind
from memrecall.server.http.openapi import load_examples

from . import recording
from .site import Site

MEMORY_OPERATIONS = {
    "add_memories",
    "list_memories",
    "search_memories",
    "get_memory",
    "update_memory",
    "delete_memory",
    "undo_memory",
    "read_history",
    "delete_memories",
    "read_job",
    "read_graph",
    "read_state",
}
OPERATIONS = {
    "write_messages",
    "read_messages",
    "read_neighbors",
    "lexical_search",
    "semantic_search",
    "recall",
    "chat",
    *MEMORY_OPERATIONS,
    "health",
    "metrics",
}


PASSING = {"next_cursor"}
# What is made anew for every memory: its id, those of its messages, when it was written.
MADE = {"id", "memory_id", "messages", "source_message_ids", "previous_id", "other_id"}
WRITTEN = {"created_at", "updated_at", "valid_from"}


def steady(value: Any, passing: Set[str] = PASSING) -> Any:
    """An answer without what differs from database to database, or in the last digits."""
    if isinstance(value, dict):
        return {key: steady(item, passing) for key, item in value.items() if key not in passing}
    if isinstance(value, list):
        return [steady(item, passing) for item in value]
    return pytest.approx(value, abs=2e-3) if isinstance(value, float) else value


def essence(result: dict[str, Any]) -> dict[str, Any]:
    """What a recall comes to; how it searches and how sure it is, fitted weights decide."""
    best = result["memories"][0]
    told = ("memory_key", "kind", "content", "speaker", "ts", "session_id")
    return {
        "fields": sorted(result),
        "found": {name: best[name] for name in told},
        "how": {name: result[name] for name in ("stop_reason", "abstained", "model", "now")},
        "events": {event["kind"] for event in result["trace"]["events"]},
    }


def turn(answer: dict[str, Any]) -> dict[str, Any]:
    """What a chat turn comes to, without the id of the answer and how sure the recall is."""
    (recall,) = answer["tools"]
    events = json.loads(recall["content"])["events"]
    told = {name: value for name, value in answer.items() if name not in ("message_id", "tools")}
    found = [{name: event[name] for name in ("time", "speaker", "text", "key")} for event in events]
    return {**told, "call": (recall["name"], recall["arguments"], recall["forged"]), "found": found}


async def test_examples_match_the_service() -> None:
    shown, true = load_examples(), await recording.ask_all()
    assert shown.keys() == true.keys() == OPERATIONS - {"metrics"}
    for name, example in true.items():
        assert (shown[name].parameters, shown[name].body) == (example.parameters, example.body)
        if name == "recall":
            assert essence(example.answer) == essence(shown[name].answer)
        elif name == "chat":
            assert turn(example.answer) == turn(shown[name].answer)
        else:
            passing = PASSING | MADE | WRITTEN if name in MEMORY_OPERATIONS else PASSING
            assert steady(example.answer, passing) == steady(shown[name].answer, passing), name
    cursor = shown["read_messages"].answer["next_cursor"]
    assert bool(cursor) == bool(true["read_messages"].answer["next_cursor"])


async def test_openapi_document_is_complete(lite: Site) -> None:
    document = (await lite.client().get("/openapi.json")).json()
    operations = {
        operation["operationId"]: operation
        for item in document["paths"].values()
        for operation in item.values()
    }
    assert operations.keys() == OPERATIONS
    for name, operation in operations.items():
        assert "422" not in operation["responses"]
        assert operation["description"]
        if name == "health":
            continue
        assert operation["security"] == [{"key": []}]
        assert {"401", "403", "500", "503"} <= operation["responses"].keys()
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_schema_of_trace_events_describes_the_recorded_trace(lite: Site) -> None:
    schemas = (await lite.client().get("/openapi.json")).json()["components"]["schemas"]
    event_schema, kinds = schemas["TraceEvent"], schemas["EventKind"]["enum"]
    assert event_schema["properties"].keys() == {"kind", "at", "iteration", "turn"}
    assert event_schema["properties"]["kind"] == {"$ref": "#/components/schemas/EventKind"}
    assert event_schema["required"] == ["kind", "at", "iteration", "turn"]
    assert event_schema["additionalProperties"] is True
    assert set(kinds) == {kind.value for kind in EventKind}
    trace = load_examples()["recall"].answer["trace"]
    assert trace.keys() == schemas["Trace"]["properties"].keys()
    for event in trace["events"]:
        assert event.keys() > set(event_schema["required"])
        assert event["kind"] in kinds


class Links(HTMLParser):
    """What a page would load, and what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.loaded.append(tag)

    def handle_data(self, data: str) -> None:
        self.said.append(data)


async def test_docs_page_loads_no_other_resource(lite: Site) -> None:
    answer = await lite.client().get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = Links()
    page.feed(answer.text)
    assert page.loaded == []
    said = "".join(page.said)
    for path in ("/v1/users/{user_id}/messages", "/v1/messages/lexical_search", "/healthz"):
        assert path in said
    assert "不吃辣" in said
