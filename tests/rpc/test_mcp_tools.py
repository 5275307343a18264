"""MCP tools as an agent developer meets them: arguments, errors, defaults and result sizes."""

import secrets
from typing import Any

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge
from memrecall.types import NewMemory, Origin
from tests.cases import check_each_async

from ..server.http_service import HttpService
from .mcp_clients import call_failing_tool, call_tool, over_http

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
        "there is no argument 'text'; the arguments are: query; query is missing",
    ),
    (
        "search_messages",
        {"query": "tea", "top_k": 3},
        "there is no argument 'top_k'; the arguments are: query, limit",
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
        assert list(recall.input_schema["properties"]) == ["query"]
        for name in ("query", "question"):
            answer = await call_tool(client, "recall", **{name: "What is my dog called?"})
            assert answer["memories"]
            prompt = await client.get_prompt("recall", {name: "What is my dog called?"})
            assert "Rex" in getattr(prompt.messages[0].content, "text", "")


async def test_listed_tools_work_with_required_arguments_only(service: HttpService) -> None:
    async def check(case: tuple[tuple[str, ...], dict[str, Any]]) -> None:
        users, fields = case
        async with over_http(service.url, await service.create_key(*users, **fields)) as client:
            for tool in (await client.list_tools()).tools:
                names = tool.input_schema.get("required", [])
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
        return str(await (await operator.open_backups()).backup())
    if name == "task_id":
        task_id = f"task-{secrets.token_hex(4)}"
        if tool == "memory_cleanup":
            await operator.in_workspaces(lambda workspaces: workspaces.create(task_id))
        return task_id
    return "tea"
