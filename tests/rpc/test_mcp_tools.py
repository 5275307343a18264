"""MCP tools as an agent developer meets them: arguments, errors, defaults and result sizes."""

import json
import secrets
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import Client

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.trace import CallEvent, stream_events
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.server.mcp import server as mcp_server
from memrecall.server.tools import in_workspaces, open_backups
from memrecall.store import Grant, NewKnowledge
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async

from ..server.http_service import HttpService
from ..waiting import wait_until
from .mcp_clients import Mode, add_user_messages, call_failing_tool, call_tool, over_http

pytestmark = pytest.mark.concurrent
OPERATOR = frozenset({Permission.OPERATOR, Permission.KNOWLEDGE})
KEYS: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("ann",), {}),
    (("ann",), {"read_only": True}),
    (("ann",), {"permissions": frozenset({Permission.KNOWLEDGE})}),
    (("ann",), {"permissions": OPERATOR}),
    (("ann",), {"permissions": OPERATOR, "read_only": True}),
    (("ann", "ben"), {}),
    (("never seen",), {}),
    ((), {"permissions": OPERATOR}),
]
WRONG_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "recall",
        {"text": "tea"},
        "there is no argument 'text'; the arguments are: query, time; query is missing",
    ),
    (
        "search_messages",
        {"query": "tea", "top_k": 3},
        "there is no argument 'top_k'; the arguments are: query, limit, cursor, time",
    ),
    ("memory_get_status", {"x": 1}, "there is no argument 'x'; the arguments are: none"),
    (
        "recall",
        {"query": "tea", "user_id": "ben"},
        "'user_id' cannot be given: the user is fixed and no tool can change it",
    ),
    ("recall", {"query": 5}, "query: must be text"),
    ("recall", {"query": ""}, "query: must have at least 1 character"),
]


async def test_errors_name_the_wrong_argument(service: HttpService) -> None:
    async with over_http(service.url, await service.create_key("ann")) as client:

        async def check(case: tuple[str, dict[str, Any], str]) -> None:
            tool, arguments, message = case
            assert await call_failing_tool(client, tool, **arguments) == message

        await check_each_async(WRONG_ARGUMENTS, check)


async def test_recall_still_takes_a_question(service: HttpService) -> None:
    async with over_http(service.url, await service.create_key("ann")) as client:
        (recall,) = [tool for tool in (await client.list_tools()).tools if tool.name == "recall"]
        assert list(recall.input_schema["properties"]) == ["query", "time"]
        for name in ("query", "question"):
            answer = await call_tool(client, "recall", **{name: "What is my dog called?"})
            assert answer["memories"]
            prompt = await client.get_prompt("recall", {name: "What is my dog called?"})
            assert "Rex" in getattr(prompt.messages[0].content, "text", "")


async def test_time_is_a_period_of_recall_and_search(service: HttpService) -> None:
    async with over_http(service.url, await service.create_key("ann")) as client:
        for period in ("today", "今天", "in 2019", "2019年"):
            is_now = "2019" not in period
            found = await call_tool(client, "search_messages", query="tea", time=period)
            assert bool(found["messages"]) == ("nearest" not in found) == is_now
            answer = await call_tool(client, "recall", query="my dog?", time=period)
            assert bool(answer["memories"]) == is_now
            assert (f"Nothing is stored for “{period}”" in str(answer)) != is_now


async def test_listed_tools_work_with_required_arguments_only(service: HttpService) -> None:
    async def check(case: tuple[tuple[str, ...], dict[str, Any]]) -> None:
        users, fields = case
        async with over_http(service.url, await service.create_key(*users, **fields)) as client:
            for tool in (await client.list_tools()).tools:
                names = [*tool.input_schema.get("required", [])]
                if tool.name == "update_knowledge":  # an update of nothing is refused
                    names.append("content")
                values = {
                    name: await _valid_argument(service.library, users, tool.name, name)
                    for name in names
                }
                await call_tool(client, tool.name, **values)
            await client.list_resources()
            await client.list_prompts()

    await check_each_async(KEYS, check)


async def _valid_argument(library: Library, users: tuple[str, ...], tool: str, name: str) -> str:
    """Return a value for a required argument, and create what it names."""
    operator = ToolContext.for_operator(library)
    if name == "memory_key":
        memory = NewMemory(content=f"for {tool}")
        added = await library.add_memories(
            Scope(users[0]), [memory], origin=Origin.USER, actor="test"
        )
        return added.ids[0]
    if name == "kb_id":
        return await operator.knowledge.add(NewKnowledge("content", "summary", (), actor="test"))
    if name == "backup_path":
        return str(await (await open_backups(operator)).backup())
    if name == "task_id":
        task_id = f"task-{secrets.token_hex(4)}"
        if tool == "memory_cleanup":
            await in_workspaces(operator, lambda workspaces: workspaces.create(task_id))
        return task_id
    return "tea"


LONG = (
    "Our holiday in the mountains was quiet. " * 700
    + "The hut costs 4711 francs. "
    + "Fog. " * 3_000
)


async def test_results_have_a_budget_and_a_way_to_read_on(service: HttpService) -> None:
    await add_user_messages(service.library, "ann", LONG)
    async with over_http(service.url, await service.create_key("ann")) as client:
        memory = await call_tool(client, "remember", content=f"Note: {LONG}", summary="The hut")
        recalled = await call_tool(client, "recall", query="How many francs does the hut cost?")
        found = await call_tool(client, "search_messages", query="hut costs francs")
        for item in (*recalled["memories"], *found["messages"]):
            assert len(item["content"]) <= 610
        (evidence, *_) = recalled["memories"]
        assert evidence["characters"] > 40_000
        assert "4711" in evidence["content"]
        content, parts = "", 0
        offset: int | None = 0
        while offset is not None:
            arguments = {"memory_key": memory["memory_key"], "offset": offset}
            part = await call_tool(client, "read_memory", **arguments)
            content, offset, parts = content + part["content"], part["next_offset"], parts + 1
        assert (content, parts) == (f"Note: {LONG}".strip(), 6)
        assert "no memory or message" in await call_failing_tool(
            client, "read_memory", memory_key="none"
        )


async def test_searches_read_on_by_cursor(service: HttpService) -> None:
    await add_user_messages(service.library, "ann", *(f"tea number {n}" for n in range(7)))
    async with over_http(service.url, await service.create_key("ann")) as client:
        first = await call_tool(client, "search_messages", query="tea", limit=5)
        second = await call_tool(
            client, "search_messages", query="tea", limit=5, cursor=first["next_cursor"]
        )
        ids = [m["message_id"] for page in (first, second) for m in page["messages"]]
        assert len(ids) == len(set(ids)) == 8
        assert second["next_cursor"] is None


async def test_resources_have_readable_names_and_parts(service: HttpService) -> None:
    async with over_http(service.url, await service.create_key("ann")) as client:
        await call_tool(client, "remember", content="Ann likes\n茶", summary="")
        long = await call_tool(client, "remember", content=LONG, summary="The hut in the mountains")
        names = {r.uri: r.name for r in (await client.list_resources()).resources}
        uri = f"memrecall://memories/{long['memory_key']}"
        assert names[uri] == "The hut in the mountains"
        assert "Ann likes 茶" in names.values()
        listing = await _read(client, "memrecall://memories")
        assert all(len(item["content"]) <= 601 for item in listing)
        assert uri in [item["uri"] for item in listing]
        content, next_uri = "", uri
        while next_uri:
            part = await _read(client, next_uri)
            assert len(part["content"]) <= 8_000
            content, next_uri = content + part["content"], part["next"]
        assert content == LONG.strip()


async def _read(client: Client, uri: str) -> Any:
    (contents,) = (await client.read_resource(uri)).contents
    return json.loads(getattr(contents, "text", ""))


async def test_trace_resources_have_parts(
    service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_http(service.url, await service.create_key("ann")) as client:
        await call_tool(client, "recall", query="What is my dog called?")
        (trace,) = await _read(client, "memrecall://traces")
        uri = f"memrecall://traces/{trace['trace_id']}"
        whole = await _read(client, uri)
        assert whole["next"] is None
        monkeypatch.setattr(mcp_server, "_TRACE_LENGTH", 1)
        events, next_uri = [], uri
        while next_uri:
            part = await _read(client, next_uri)
            events += part["body"]["events"]
            next_uri = part["next"]
        assert events == whole["body"]["events"]


async def test_a_revoked_key_ends_a_recall_that_reports_progress(
    service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await service.library.store.keys.create(Grant(frozenset({"ann"})))
    steps: list[str | None] = []

    async def lose(run: Any) -> AsyncGenerator[Any, None]:
        async for item in stream_events(run):
            yield item
            if isinstance(item, CallEvent):
                await service.library.store.keys.revoke(key.key_id)

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    monkeypatch.setattr(mcp_server, "stream_events", lose)
    async with over_http(service.url, secret) as client:
        arguments = {"query": "What is my dog called?"}
        result = await client.call_tool("recall", arguments, progress_callback=note)
        assert result.is_error
        assert "the key was revoked or has expired" in str(result.content)
        await wait_until(lambda: steps != [])
    assert len(steps) == 1


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_recall_reports_progress(service: HttpService, mode: Mode) -> None:
    steps: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, message))

    async with over_http(service.url, await service.create_key("ann"), mode) as client:
        arguments = {"query": "What is my dog called?"}
        result = await client.call_tool("recall", arguments, progress_callback=note)
        assert result.structured_content
        assert result.structured_content["memories"]
        await wait_until(lambda: len(steps) > 1)
    assert [progress for progress, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[0][1] == "search_memories"
    assert steps[-1][1] == "handoff"
