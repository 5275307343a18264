"""The OpenAPI document: recorded examples, schemas and the HTML page."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.tools.table import Interface, tools_for
from memrecall.agent.trace import EventKind
from memrecall.dashboard.page import WORDS
from memrecall.server.http.openapi import load_examples

from . import record_examples
from .http_service import HttpService

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "http.md"
OPERATIONS = {*load_examples(), "read_metrics"}  # an operation without an example fails

# These differ from run to run.
GENERATED_IDS = {
    "id",
    "memory_id",
    "messages",
    "source_message_ids",
    "sources",
    "previous_id",
    "other_id",
    "evidence",
    "experience",
    "ids",
    "entry_id",
    "at",
}
VOLATILE = {
    "next_cursor",
    "created_at",
    "updated_at",
    "valid_from",
    "since",
    "invited_at",
    *GENERATED_IDS,
}


def without_volatile(value: Any) -> Any:
    """Return a response without volatile fields, with approximate numbers."""
    if isinstance(value, dict):
        return {key: without_volatile(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [without_volatile(item) for item in value]
    return pytest.approx(value, abs=2e-3) if isinstance(value, float) else value


def summarize_recall(result: dict[str, Any]) -> dict[str, Any]:
    """Return the stable parts of a recall; searches and confidence depend on fitted weights."""
    best = result["memories"][0]
    fields = ("memory_key", "kind", "content", "speaker", "ts", "session_id")
    return {
        "fields": sorted(result),
        "found": {name: best[name] for name in fields},
        "how": {name: result[name] for name in ("stop_reason", "abstained", "model", "now")},
        "events": {event["kind"] for event in result["trace"]["events"]},
    }


def summarize_turn(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the stable parts of a chat turn."""
    (recall,) = answer["tools"]
    events = json.loads(recall["content"])["events"]
    fields = {name: value for name, value in answer.items() if name not in ("message_id", "tools")}
    event_keys = [
        {name: event[name] for name in ("time", "speaker", "text", "key")} for event in events
    ]
    return {
        **fields,
        "call": (recall["name"], recall["arguments"], recall["forged"]),
        "found": event_keys,
    }


async def test_examples_match_the_service() -> None:
    recorded, current = load_examples(), await record_examples.record_all()
    for name, example in current.items():
        if name == "recall_memories":
            assert summarize_recall(example.answer) == summarize_recall(recorded[name].answer)
        elif name == "answer_message":
            assert summarize_turn(example.answer) == summarize_turn(recorded[name].answer)
        else:
            assert without_volatile(example.answer) == without_volatile(recorded[name].answer), name
    cursor = recorded["read_messages"].answer["next_cursor"]
    assert bool(cursor) == bool(current["read_messages"].answer["next_cursor"])


async def test_openapi_document_is_complete(sqlite_service: HttpService) -> None:
    document = (await sqlite_service.client().get("/openapi.json")).json()
    operations = {
        operation["operationId"]: operation
        for item in document["paths"].values()
        for operation in item.values()
    }
    assert operations.keys() == OPERATIONS
    for name, operation in operations.items():
        assert "422" not in operation["responses"]
        assert operation["description"]
        if name in ("read_health", "read_readiness"):
            continue
        assert operation["security"] == [{"key": []}]
        assert {"401", "403", "500", "503"} <= operation["responses"].keys()
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_every_endpoint_is_documented(sqlite_service: HttpService) -> None:
    document = (await sqlite_service.client().get("/openapi.json")).json()
    text = DOCUMENTATION.read_text("utf-8")
    ends = {path: f"…/{path.rpartition('/')[2]}`" for path in document["paths"]}
    assert [path for path, end in ends.items() if f"{path}`" not in text and end not in text] == []


async def test_endpoints_that_forget_are_as_documented(sqlite_service: HttpService) -> None:
    """The table of docs/forgetting.md names endpoints, tools and buttons that exist."""
    text = DOCUMENTATION.with_name("forgetting.md").read_text("utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| (`[A-Z]+ /v1.*?) \| .*? \| (.*?) \| (.*?) \|$", text, re.M)
    assert [row[0] for row in rows] == ["delete", "undo", "purge", "delete all", "erase user"]
    assert "Over HTTP `sources=false` keeps the messages" in text
    paths = (await sqlite_service.client().get("/openapi.json")).json()["paths"]
    labels = {english for english, _ in WORDS.values()}
    for verb, endpoints, tool, buttons in rows:
        for method, path in re.findall(r"`([A-Z]+) (/v1[^`]*)`", endpoints):
            operation = paths[path][method.lower()]
            parameters = {parameter["name"] for parameter in operation["parameters"]}
            is_of_memories = path.startswith("/v1/memories") and verb != "undo"
            assert ("sources" in parameters) == is_of_memories, path
        assert tool == "–" or tool.strip("`") in tools_for(Interface.MCP)
        assert buttons == "–" or set(buttons.split(", ")) <= labels


async def test_schema_of_trace_events_describes_the_recorded_trace(
    sqlite_service: HttpService,
) -> None:
    schemas = (await sqlite_service.client().get("/openapi.json")).json()["components"]["schemas"]
    event_schema, kinds = schemas["TraceEvent"], schemas["EventKind"]["enum"]
    assert event_schema["properties"].keys() == {"kind", "at", "iteration", "turn"}
    assert event_schema["properties"]["kind"] == {"$ref": "#/components/schemas/EventKind"}
    assert event_schema["required"] == ["kind", "at", "iteration", "turn"]
    assert event_schema["additionalProperties"] is True
    assert set(kinds) == {kind.value for kind in EventKind}
    trace = load_examples()["recall_memories"].answer["trace"]
    assert trace.keys() == schemas["Trace"]["properties"].keys()
    for event in trace["events"]:
        assert event.keys() > set(event_schema["required"])
        assert event["kind"] in kinds


class PageContent(HTMLParser):
    """The text of a page, and the resources that it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.loaded.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


async def test_docs_page_loads_no_other_resource(sqlite_service: HttpService) -> None:
    answer = await sqlite_service.client().get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = PageContent()
    page.feed(answer.text)
    assert page.loaded == []
    text = "".join(page.texts)
    for path in ("/v1/users/{user_id}/messages", "/v1/messages/lexical_search", "/healthz"):
        assert path in text
