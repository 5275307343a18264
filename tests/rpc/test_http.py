"""`POST /rpc`: the same tools, to each key what it may."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.table import tools_for
from memrecall.memory import Library
from memrecall.scope import Permission

from ..server.site import in_process

OPERATOR = frozenset({Permission.OPERATOR})
KNOWLEDGE = frozenset({Permission.KNOWLEDGE})
CALLS: dict[str, list[Any]] = {
    "memory_init_workspace": ["t"],
    "memory_add": ["content of knowledge", "summary"],
    "memory_query": ["knowledge"],
    "memory_delete": ["kb-none"],
    "memory_cleanup": ["t"],
    "memory_get_status": [],
    "memory_dump": ["kb"],
    "memory_search": ["knowledge", "kb"],
    "memory_backup": [],
    "memory_restore": ["memory_backup_19990101_000000.json"],
}
ALWAYS = {"memory_query", "memory_get_status", "memory_search"}
FORBIDDEN = 1003


async def ask(client: httpx.AsyncClient, method: str, params: Any) -> Any:
    message = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
    answer = await client.post("/rpc", json=message)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


async def refused(client: httpx.AsyncClient) -> set[str]:
    """The tools that a key may not use."""
    found = set()
    for method, params in CALLS.items():
        told = await ask(client, method, params)
        if told.get("error", {}).get("code") == FORBIDDEN:
            found.add(method)
    return found


async def test_each_key_may_what_it_may(library: Library) -> None:
    assert set(CALLS) == set(tools_for(Interface.RPC))
    writing = {"memory_add", "memory_delete"}
    async with in_process(library) as site:
        ann = await site.holder("ann")
        assert await refused(ann) == set(tools_for(Interface.RPC)) - ALWAYS
        assert await refused(await site.holder(permissions=KNOWLEDGE)) == (
            set(tools_for(Interface.RPC)) - ALWAYS - writing
        )
        assert await refused(await site.holder(permissions=OPERATOR)) == set()
        looking = await site.holder(permissions=OPERATOR | KNOWLEDGE, read_only=True)
        assert await refused(looking) == {
            name for name, tool in tools_for(Interface.RPC).items() if tool.writes
        }
        for level in ("workspace", "all"):
            assert (await ask(ann, "memory_search", ["x", level]))["error"]["code"] == FORBIDDEN
        assert (await ask(ann, "memory_search", ["x"]))["error"]["code"] == FORBIDDEN


async def test_a_key_is_bound_to_its_agent(library: Library) -> None:
    async with in_process(library) as site:
        cook = await site.holder(agent_id="cook", permissions=KNOWLEDGE)
        doctor = await site.holder(agent_id="doctor", permissions=KNOWLEDGE)
        added = (await ask(cook, "memory_add", ["salt the water", "Salt"]))["result"]
        assert (await ask(doctor, "memory_query", ["salt"]))["result"] == {"results": []}
        assert (await ask(doctor, "memory_delete", [added["id"]]))["error"]["code"] == 1001
        assert (await ask(cook, "memory_query", ["salt"]))["result"]["results"] != []


async def test_who_needs_no_key_is_an_operator(lite_library: Library) -> None:
    async with in_process(lite_library) as site:
        assert await refused(site.client()) == set()
        page = site.client(Origin="http://evil.example")
        assert (await page.post("/rpc", json={})).status_code == 403


async def test_the_protocol_over_http(lite_library: Library) -> None:
    async with in_process(lite_library) as site:
        client = await site.holder(permissions=OPERATOR)
        kind = {"Content-Type": "application/json"}
        for body, code in ((b"{", -32700), (b"[]", -32600), (b"", -32700)):
            answer = await client.post("/rpc", content=body, headers=kind)
            assert answer.json()["error"]["code"] == code
        quiet = json.dumps({"jsonrpc": "2.0", "method": "memory_get_status"}).encode()
        for body in (quiet, b"[" + quiet + b"]"):
            answer = await client.post("/rpc", content=body, headers=kind)
            assert (answer.status_code, answer.content) == (204, b"")
        assert (await client.get("/rpc")).status_code == 405
        assert (await client.post("/rpc", content=b"{}")).status_code == 415
        large = await client.post("/rpc", content=b" " * 1_100_000, headers=kind)
        assert large.status_code == 413
        assert (await site.client().post("/rpc", json={})).status_code == 401


async def test_the_worlds_faults_are_told_by_kind_alone(
    lite_library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.errors import StorageFull
    from memrecall.store.backup.folder import BackupFolder

    def fail(*_given: object) -> None:
        raise StorageFull(f"no space is left in {tmp_path}")

    async with in_process(lite_library) as site:
        client = await site.holder(permissions=OPERATOR)
        monkeypatch.setattr(BackupFolder, "write", fail)
        told = await ask(client, "memory_backup", [])
    assert told["error"]["code"] == 1005
    assert str(tmp_path) not in json.dumps(told)


async def test_a_bug_is_told_by_an_id(
    lite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.library.knowledge import KnowledgeBase

    async def fail(*_given: object) -> None:
        raise RuntimeError("secret words")

    async with in_process(lite_library) as site:
        client = await site.holder(permissions=OPERATOR)
        monkeypatch.setattr(KnowledgeBase, "search", fail)
        told = await ask(client, "memory_query", ["x"])
    assert told["error"]["code"] == -32603
    assert "secret" not in json.dumps(told)


async def test_backups_go_on_while_others_write(library: Library) -> None:
    import asyncio

    async with in_process(library) as site:
        client = await site.holder(permissions=OPERATOR)

        async def write(number: int) -> Any:
            return await ask(client, "memory_add", [f"content {number}", f"summary {number}"])

        async def save() -> Any:
            return await ask(client, "memory_backup", [])

        done = await asyncio.gather(*(work for n in range(10) for work in (write(n), save())))
        assert all("result" in told for told in done)
        paths = {told["result"].get("backup_path") for told in done} - {None}
        assert len(paths) == 10
        restored = await ask(client, "memory_restore", [max(paths)])
        assert "result" in restored


async def test_without_the_sdk_there_is_no_mcp(
    lite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.http.app.find_spec", lambda _name: None)
    async with in_process(lite_library) as site:
        assert (await site.client().post("/mcp", json={})).status_code == 404
        assert "result" in await ask(site.client(), "memory_get_status", [])
