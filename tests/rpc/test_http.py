"""`POST /rpc`: the tools over HTTP, within the permissions of a key."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from memrecall.agent.tools.table import TOOLS, Interface, tools_for
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.types import NewMessage, Role

from ..server.http_service import check_error, serve_in_process

OPERATOR = frozenset({Permission.OPERATOR})
KNOWLEDGE = frozenset({Permission.KNOWLEDGE})
CALLS: dict[str, list[Any]] = {
    "memory_init_workspace": ["t"],
    "memory_add": ["content of knowledge", "summary"],
    "memory_query": ["knowledge"],
    "memory_update": ["kb-none", "content"],
    "memory_read": ["kb-none"],
    "memory_delete": ["kb-none"],
    "memory_cleanup": ["t"],
    "memory_get_status": [],
    "memory_dump": ["kb"],
    "memory_search": ["knowledge", "kb"],
    "memory_backup": [],
    "memory_restore": ["memory_backup_19990101_000000.json"],
}
PUBLIC_METHODS = {"memory_query", "memory_read", "memory_get_status", "memory_search"}
FORBIDDEN = 1003


async def call_method(client: httpx.AsyncClient, method: str, params: Any) -> Any:
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
    answer = await client.post("/rpc", json=message)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def forbidden_methods(client: httpx.AsyncClient) -> set[str]:
    """Return the methods that a key may not call."""
    methods = set()
    for method, params in CALLS.items():
        reply = await call_method(client, method, params)
        if reply.get("error", {}).get("code") == FORBIDDEN:
            methods.add(method)
    return methods


async def test_methods_require_permissions_of_the_key(library: Library) -> None:
    tools = tools_for(Interface.RPC).items()
    assert set(CALLS) == {name for name, tool in tools if not tool.needs_user}
    writing = {"memory_add", "memory_update", "memory_delete"}
    async with serve_in_process(library) as service:
        ann = await service.client_with_key("ann")
        assert await forbidden_methods(ann) == set(CALLS) - PUBLIC_METHODS
        assert await forbidden_methods(await service.client_with_key(permissions=KNOWLEDGE)) == (
            set(CALLS) - PUBLIC_METHODS - writing
        )
        assert await forbidden_methods(await service.client_with_key(permissions=OPERATOR)) == set()
        reader = await service.client_with_key(permissions=OPERATOR | KNOWLEDGE, read_only=True)
        assert await forbidden_methods(reader) == {
            name for name, tool in tools if tool.writes and name in CALLS
        }
        for level in ("workspace", "all"):
            assert (await call_method(ann, "memory_search", ["x", level]))["error"][
                "code"
            ] == FORBIDDEN
        default = await call_method(ann, "memory_search", ["knowledge"])
        assert {hit["source"] for hit in default["result"]["results"]} == {"kb"}


async def test_tool_of_a_user_has_the_user_of_the_key(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = replace(TOOLS["search_messages"], interfaces=frozenset({Interface.RPC}))
    monkeypatch.setitem(TOOLS, tool.name, tool)
    for user in ("ann", "ben"):
        message = NewMessage(content=f"tea of {user}", role=Role.USER)
        await library.add_messages(Scope(user), [message])

    async def find(client: httpx.AsyncClient) -> Any:
        reply = await call_method(client, "search_messages", {"query": "tea"})
        if "error" in reply:
            return reply["error"]["code"]
        return [item["content"] for item in reply["result"]["messages"]]

    async with serve_in_process(library) as service:
        assert await find(await service.client_with_key("ann")) == ["tea of ann"]
        both = await service.client_with_key("ann", "ben")
        assert await find(both) == FORBIDDEN
        both.headers["X-Memrecall-User"] = "ben"
        assert await find(both) == ["tea of ben"]
        both.headers["X-Memrecall-User"] = "eve"
        answer = await both.post("/rpc", json={"jsonrpc": "2.0", "method": "x", "id": 1})
        check_error(answer, 403, "PERMISSION_DENIED")


async def test_key_is_limited_to_its_agent(library: Library) -> None:
    async with serve_in_process(library) as service:
        cook = await service.client_with_key(agent_id="cook", permissions=KNOWLEDGE)
        doctor = await service.client_with_key(agent_id="doctor", permissions=KNOWLEDGE)
        entry = (await call_method(cook, "memory_add", ["salt the water", "Salt"]))["result"]
        assert (await call_method(doctor, "memory_query", ["salt"]))["result"] == {"results": []}
        assert (await call_method(doctor, "memory_delete", [entry["id"]]))["error"]["code"] == 1001
        assert (await call_method(cook, "memory_query", ["salt"]))["result"]["results"] != []


async def test_local_caller_without_key_is_an_operator(sqlite_library: Library) -> None:
    async with serve_in_process(sqlite_library) as service:
        assert await forbidden_methods(service.client()) == set()
        page = service.client(Origin="http://evil.example")
        assert (await page.post("/rpc", json={})).status_code == 403


async def test_http_status_of_errors_and_notifications(sqlite_library: Library) -> None:
    async with serve_in_process(sqlite_library) as service:
        client = await service.client_with_key(permissions=OPERATOR)
        kind = {"Content-Type": "application/json"}
        for body, code in ((b"{", -32700), (b"[]", -32600), (b"", -32700)):
            answer = await client.post("/rpc", content=body, headers=kind)
            assert answer.json()["error"]["code"] == code
        notification = json.dumps({"jsonrpc": "2.0", "method": "memory_get_status"}).encode()
        for body in (notification, b"[" + notification + b"]"):
            answer = await client.post("/rpc", content=body, headers=kind)
            assert (answer.status_code, answer.content) == (204, b"")
        assert (await client.get("/rpc")).status_code == 405
        assert (await client.post("/rpc", content=b"{}")).status_code == 415
        large = await client.post("/rpc", content=b" " * 1_100_000, headers=kind)
        assert large.status_code == 413
        assert (await service.client().post("/rpc", json={})).status_code == 401


async def test_failures_reveal_only_their_kind_and_bugs_nothing(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.errors import StorageFull
    from memrecall.library.knowledge import KnowledgeBase
    from memrecall.store.backup.folder import BackupFolder

    def fill_up(*_arguments: object) -> None:
        raise StorageFull("no space is left in /secret")

    async def fail(*_arguments: object) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(BackupFolder, "write", fill_up)
    monkeypatch.setattr(KnowledgeBase, "search", fail)
    async with serve_in_process(sqlite_library) as service:
        client = await service.client_with_key(permissions=OPERATOR)
        failure = await call_method(client, "memory_backup", [])
        bug = await call_method(client, "memory_query", ["x"])
    assert (failure["error"]["code"], bug["error"]["code"]) == (1005, -32603)
    assert "secret" not in json.dumps([failure, bug])


@pytest.mark.concurrent
async def test_backups_run_beside_writes(library: Library) -> None:
    import asyncio

    async with serve_in_process(library) as service:
        client = await service.client_with_key(permissions=OPERATOR)

        async def write(number: int) -> Any:
            return await call_method(
                client, "memory_add", [f"content {number}", f"summary {number}"]
            )

        async def save() -> Any:
            return await call_method(client, "memory_backup", [])

        replies = await asyncio.gather(*(work for n in range(10) for work in (write(n), save())))
        assert [reply for reply in replies if "result" not in reply] == []
        paths = {reply["result"].get("backup_path") for reply in replies} - {None}
        assert len(paths) == 10
        assert "result" in (await call_method(client, "memory_restore", [max(paths)]))


async def test_mcp_endpoint_requires_the_sdk(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.http.app.find_spec", lambda _name: None)
    async with serve_in_process(sqlite_library) as service:
        assert (await service.client().post("/mcp", json={})).status_code == 404
        assert "result" in await call_method(service.client(), "memory_get_status", [])
