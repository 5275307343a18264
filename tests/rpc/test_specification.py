"""Every example in the specification of the memory tools."""

import asyncio
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.agent.tools.table import Interface, tools_for
from memrecall.errors import StorageError
from memrecall.library.knowledge import LONGEST_ENTRY, KnowledgeBase
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.server.rpc import answer, dispatcher, report_bug
from memrecall.server.tools import workspaces_root
from memrecall.store import NewKnowledge
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.restore import Backups, Stage
from memrecall.store.workspaces import Workspaces

REQUESTS = "请求库"
PYTHON = NewKnowledge(
    "在 Python 中，使用 `requests` 库可以方便地发送 HTTP 请求。",
    f"Python HTTP {REQUESTS}",
    ("python", "http", "requests"),
    key="kb-001",
)
COOKING = NewKnowledge("红烧肉要小火慢炖。", "做菜", key="kb-002")
FASTAPI = NewKnowledge(
    "FastAPI 是一个现代、快速（高性能）的 Web 框架，用于构建 API。",
    "Python Web 框架",
    ("python", "fastapi", "web"),
    key="kb-003",
)
DOCKER = {
    "content": "Docker 是一个开源的应用容器引擎，让开发者可以打包他们的应用以及依赖包到一个"
    "可移植的容器中。",
    "summary": "Docker 容器化技术",
    "tags": ["docker", "container", "devops"],
}


async def call_method(context: ToolContext, method: str, params: Any, id_: Any = 1) -> Any:
    request = {"jsonrpc": "2.0", "method": method, "params": params, "id": id_}
    reply = await answer(
        json.dumps(request, ensure_ascii=False).encode(), dispatcher(context), report_bug
    )
    assert reply is not None
    message = json.loads(reply)
    assert (message["jsonrpc"], message["id"]) == ("2.0", id_)
    return message


async def call_tool(context: ToolContext, method: str, params: Any, id_: Any = 1) -> Any:
    message = await call_method(context, method, params, id_)
    assert "result" in message, message
    return message["result"]


async def call_error_code(context: ToolContext, method: str, params: Any) -> int:
    message = await call_method(context, method, params)
    assert "error" in message, message
    return int(message["error"]["code"])


def write_file(workspace: str, path: str, data: bytes) -> None:
    """Write a file into a workspace, as a task does."""
    file = Path(workspace, path)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)


@pytest.fixture
async def filled_context(context: ToolContext) -> ToolContext:
    """A context with the entries of the specification in its knowledge base."""
    scope = Scope("ops", permissions=frozenset({Permission.KNOWLEDGE}))
    base = KnowledgeBase(context.library, scope)
    for entry in (PYTHON, COOKING, FASTAPI):
        await base.add(entry)
    return context


def test_tools_of_the_specification_are_offered() -> None:
    assert tools_for(Interface.RPC).keys() >= {
        "memory_init_workspace", "memory_add", "memory_query", "memory_delete", "memory_cleanup",
        "memory_get_status", "memory_dump", "memory_search", "memory_backup", "memory_restore",
    }  # fmt: skip


async def test_init_workspace_and_cleanup(context: ToolContext, tmp_path: Path) -> None:
    path = str(tmp_path / "workspaces" / "task-12345-abcde")
    task = {"task_id": "task-12345-abcde"}

    assert await call_tool(context, "memory_init_workspace", task, 1) == {"path": path}
    assert os.stat(path).st_mode & 0o777 == 0o700
    assert await call_error_code(context, "memory_init_workspace", task) == 1002
    assert await call_tool(context, "memory_cleanup", task, 5) == {
        "status": "success",
        "path": path,
    }
    assert os.listdir(tmp_path / "workspaces") == [".lock"]
    assert await call_error_code(context, "memory_cleanup", task) == 1001


async def test_add(context: ToolContext) -> None:
    entry = await call_tool(context, "memory_add", DOCKER, 2)
    assert re.fullmatch(r"kb-[0-9a-f]+", entry.pop("id"))
    assert entry == {"summary": "Docker 容器化技术"}
    results = await call_tool(context, "memory_query", {"query": "容器"})
    assert results["results"][0]["content"] == DOCKER["content"]


async def test_same_entry_is_added_once(context: ToolContext) -> None:
    first, second = await asyncio.gather(*(call_tool(context, "memory_add", DOCKER) for _ in "ab"))
    retagged = {**DOCKER, "tags": [tag.upper() for tag in reversed(DOCKER["tags"])]}
    third = await call_tool(context, "memory_add", retagged)
    spaced = {**DOCKER, "content": f"{DOCKER['content']} \n\u3000"}
    assert first == second == third == await call_tool(context, "memory_add", spaced)
    assert await context.knowledge.count() == 1
    other = await call_tool(context, "memory_add", {**DOCKER, "tags": ["docker"]})
    assert other["id"] != first["id"]
    await call_tool(context, "memory_delete", [first["id"]])
    again = await call_tool(context, "memory_add", DOCKER)
    assert again["id"] not in (first["id"], other["id"])
    assert await context.knowledge.count() == 2


async def test_query(filled_context: ToolContext) -> None:
    params = {"query": "python http", "top_k": 1}
    (match,) = (await call_tool(filled_context, "memory_query", params, 3))["results"]
    assert 0 < match.pop("score") <= 1
    assert match.pop("tags") == list(PYTHON.tags)
    assert match == {"id": "kb-001", "summary": PYTHON.summary, "content": PYTHON.content}
    assert await call_tool(filled_context, "memory_query", {"query": "zzz qqq"}) == {"results": []}
    assert len((await call_tool(filled_context, "memory_query", ["python"]))["results"]) == 2


async def test_query_filters_by_tags(filled_context: ToolContext) -> None:
    for tags, keys in (
        (["web"], ["kb-003"]),
        (["python", "http"], ["kb-001"]),
        (["python"], ["kb-001", "kb-003"]),
        (["PYTHON", "Http"], ["kb-001"]),
        (["ｐｙｔｈｏｎ", "ＨＴＴＰ"], ["kb-001"]),
        (["python", "none"], []),
    ):
        params = {"query": "python", "tags": tags}
        results = (await call_tool(filled_context, "memory_query", params))["results"]
        assert sorted(match["id"] for match in results) == keys
    assert await call_error_code(filled_context, "memory_query", ["python", 3, [" "]]) == -32602


async def test_update(filled_context: ToolContext) -> None:
    changed = await call_tool(
        filled_context, "memory_update", {"kb_id": "kb-002", "content": "清蒸鲈鱼要大火蒸八分钟。"}
    )
    assert changed == {"id": "kb-002", "summary": COOKING.summary}
    assert (await call_tool(filled_context, "memory_query", ["红烧肉"]))["results"] == []
    (match,) = (await call_tool(filled_context, "memory_query", ["鲈鱼"]))["results"]
    assert match["id"] == "kb-002"
    await call_tool(filled_context, "memory_update", {"kb_id": "kb-002", "tags": ["fish"]})
    entry = await call_tool(filled_context, "memory_read", ["kb-002"])
    assert (entry["content"], entry["tags"]) == ("清蒸鲈鱼要大火蒸八分钟。", ["fish"])
    assert await call_error_code(filled_context, "memory_update", ["kb-none", "x"]) == 1001
    message = await call_method(filled_context, "memory_update", ["kb-002"])
    assert message["error"]["code"] == -32602
    assert "content, summary or tags" in str(message["error"]["data"])
    await call_tool(filled_context, "memory_delete", ["kb-002"])
    assert await call_error_code(filled_context, "memory_update", ["kb-002", "x"]) == 1001


async def test_long_entry_is_read_in_parts(context: ToolContext) -> None:
    content = "".join(f"第 {number} 行\n" for number in range(3_000))
    added = await call_tool(context, "memory_add", {"content": content, "summary": "行"})
    parts: list[str] = []
    offset: int | None = 0
    while offset is not None:
        part = await call_tool(context, "memory_read", [added["id"], offset])
        assert part["characters"] == len(content)
        parts.append(part["content"])
        offset = part["next_offset"]
    assert len(parts) > 2
    assert "".join(parts) == content


async def test_content_above_the_limit_is_refused(context: ToolContext) -> None:
    for content, summary, name in (
        ("知" * (LONGEST_ENTRY + 1), "s", "content"),
        ("c", "s" * 200_000, "summary"),
    ):
        reply = await call_method(context, "memory_add", [content, summary])
        assert reply["error"]["code"] == -32602
        reason = reply["error"]["data"]["reason"]
        assert name in reason
        assert str(LONGEST_ENTRY) in reason
    added = await call_tool(context, "memory_add", ["知" * LONGEST_ENTRY, "s"])
    assert (await call_tool(context, "memory_read", [added["id"]]))["characters"] == LONGEST_ENTRY


async def test_delete(filled_context: ToolContext) -> None:
    assert await call_tool(filled_context, "memory_delete", {"kb_id": "kb-002"}, 4) == {
        "status": "success",
        "id": "kb-002",
    }
    for missing_id in ("kb-002", "kb-none", "", "x" * 1_000, "'; DROP TABLE knowledge; --"):
        assert await call_error_code(filled_context, "memory_delete", {"kb_id": missing_id}) == 1001


async def test_get_status(filled_context: ToolContext) -> None:
    clean = {"status": "ok", "kb_status": "loaded", "workspace_status": "clean"}
    assert await call_tool(filled_context, "memory_get_status", {}, 6) == clean
    assert not workspaces_root(filled_context).exists()  # reading creates nothing
    await call_tool(filled_context, "memory_init_workspace", {"task_id": "t"})
    active = {**clean, "workspace_status": "active"}
    assert await call_tool(filled_context, "memory_get_status", {}, 6) == active
    assert await call_tool(filled_context, "memory_get_status", [], 6) == active


async def test_dump(filled_context: ToolContext) -> None:
    await call_tool(filled_context, "memory_delete", ["kb-002"])
    await call_tool(filled_context, "memory_delete", ["kb-003"])
    expected = {
        "kb-001": {
            "content": PYTHON.content,
            "summary": PYTHON.summary,
            "tags": ["python", "http", "requests"],
        }
    }
    assert await call_tool(filled_context, "memory_dump", {"level": "kb"}, 7) == {
        "status": "ok",
        "data": expected,
    }
    path = (await call_tool(filled_context, "memory_init_workspace", ["t"]))["path"]
    write_file(path, "notes/a.txt", "tea 茶".encode())
    write_file(path, "b.bin", b"\0\1")
    files = {
        "b.bin": {"size": 2, "left_out": "binary files"},
        "notes/a.txt": {"size": 7, "text": "tea 茶"},
    }
    assert await call_tool(filled_context, "memory_dump", {"level": "workspace"}) == {
        "status": "ok",
        "data": {"t": files},
        "left_out": {"binary files": 1},
    }
    all_data = {"kb": expected, "workspace": {"t": files}}
    assert (await call_tool(filled_context, "memory_dump", {}))["data"] == all_data
    assert (await call_tool(filled_context, "memory_dump", {"level": "all"}))["data"] == all_data


async def test_search(filled_context: ToolContext) -> None:
    hit = {
        "source": "kb",
        "key": "kb-003",
        "value": {
            "content": FASTAPI.content,
            "summary": "Python Web 框架",
            "tags": ["python", "fastapi", "web"],
        },
    }
    assert await call_tool(
        filled_context, "memory_search", {"query": "fastapi", "level": "kb"}, 8
    ) == {"status": "ok", "results": [hit]}
    path = (await call_tool(filled_context, "memory_init_workspace", ["t"]))["path"]
    write_file(path, "deep/a.md", b"first\nI use FastAPI here\n")
    file = {
        "source": "workspace",
        "key": "t/deep/a.md",
        "value": {"line": 2, "snippet": "I use FastAPI here"},
    }
    assert await call_tool(filled_context, "memory_search", ["fastapi", "workspace"]) == {
        "status": "ok",
        "results": [file],
    }
    assert (await call_tool(filled_context, "memory_search", {"query": "fastapi"}))["results"] == [
        hit,
        file,
    ]
    assert (await call_tool(filled_context, "memory_search", {"query": "qqq"}))["results"] == []


async def test_backup_and_restore(filled_context: ToolContext, tmp_path: Path) -> None:
    path = (await call_tool(filled_context, "memory_init_workspace", ["t"]))["path"]
    write_file(path, "a.txt", b"tea")
    before = await call_tool(filled_context, "memory_dump", {})

    response = await call_tool(filled_context, "memory_backup", {}, 9)
    backup = response.pop("backup_path")
    assert response == {"status": "ok", "message": "Backup successful."}
    assert Path(backup).parent == tmp_path / "backups"
    assert re.fullmatch(r"memory_backup_\d{8}_\d{6}\.json", Path(backup).name)
    assert f"_{datetime.now(UTC):%Y%m%d}_" in backup

    await call_tool(filled_context, "memory_delete", ["kb-001"])
    await call_tool(filled_context, "memory_add", DOCKER)
    await call_tool(filled_context, "memory_cleanup", ["t"])
    between = await call_tool(filled_context, "memory_dump", {})
    restored = await call_tool(filled_context, "memory_restore", {"backup_path": backup}, 10)

    former_state = restored.pop("former_state")
    assert restored == {"status": "ok", "message": f"从 {backup} 恢复成功"}
    assert await call_tool(filled_context, "memory_dump", {}) == before
    assert (await call_tool(filled_context, "memory_query", ["requests"]))["results"][0][
        "id"
    ] == "kb-001"
    await call_tool(filled_context, "memory_restore", [former_state])
    assert await call_tool(filled_context, "memory_dump", {}) == between
    assert (
        await call_error_code(
            filled_context, "memory_restore", ["memory_backup_19990101_000000.json"]
        )
        == 1001
    )
    assert await call_error_code(filled_context, "memory_restore", ["/etc/passwd"]) == -32602


async def test_interrupted_restore_is_finished_by_next_call(
    filled_context: ToolContext, tmp_path: Path
) -> None:
    await call_tool(filled_context, "memory_init_workspace", ["t"])
    response = await call_tool(filled_context, "memory_backup", {})
    before = await call_tool(filled_context, "memory_dump", {})
    await call_tool(filled_context, "memory_cleanup", ["t"])
    await call_tool(filled_context, "memory_delete", ["kb-001"])

    def fail(*_: object) -> None:
        raise OSError("pulled out")

    permissions = frozenset({Permission.KNOWLEDGE})
    spaces, folder = Workspaces(tmp_path / "workspaces"), BackupFolder(tmp_path / "backups", 10**6)
    store = filled_context.library.store
    backups = Backups(store, Scope("ops", permissions=permissions), spaces, folder, software="x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "finish", fail)  # once the database has decided the restore
        with pytest.raises(StorageError):
            await backups.restore(response["backup_path"])
    assert os.listdir(tmp_path / "workspaces") != [".lock"]  # the staging folder still exists

    assert await call_tool(filled_context, "memory_dump", {}) == before


INVALID_CALLS: list[tuple[str, Any]] = [
    ("memory_init_workspace", {}),
    ("memory_init_workspace", {"task_id": 1}),
    ("memory_init_workspace", {"task_id": None}),
    ("memory_init_workspace", {"task_id": "a", "root": "/"}),
    ("memory_init_workspace", ["a", "b"]),
    ("memory_init_workspace", ["../a"]),
    ("memory_cleanup", [".."]),
    ("memory_add", {"content": "x"}),
    ("memory_add", {"summary": "x"}),
    ("memory_add", {"content": "", "summary": "x"}),
    ("memory_add", {"content": "x", "summary": "y", "tags": "z"}),
    ("memory_add", {"content": "x", "summary": "y", "tags": [1]}),
    ("memory_add", {"content": "x", "summary": "y", "tags": None}),
    ("memory_add", {"content": "a\0", "summary": "y"}),
    ("memory_add", {"content": "x", "summary": "y", "agent_id": "other"}),
    ("memory_query", {}),
    ("memory_query", {"query": ""}),
    ("memory_query", {"query": "x", "top_k": 0}),
    ("memory_query", {"query": "x", "top_k": 101}),
    ("memory_query", {"query": "x", "top_k": "3"}),
    ("memory_query", {"query": "x", "top_k": 1.5}),
    ("memory_query", {"query": "x", "top_k": True}),
    ("memory_query", {"query": "x" * 10_001}),
    ("memory_delete", {}),
    ("memory_get_status", {"x": 1}),
    ("memory_get_status", [1]),
    ("memory_dump", {"level": "everything"}),
    ("memory_dump", {"level": None}),
    ("memory_search", {"level": "kb"}),
    ("memory_search", {"query": " "}),
    ("memory_backup", {"path": "/tmp/x"}),  # noqa: S108 -- refused
    ("memory_restore", {}),
    ("memory_restore", {"backup_path": ["x"]}),
]


async def test_invalid_parameters_are_refused(context: ToolContext) -> None:
    for method, params in INVALID_CALLS:
        assert await call_error_code(context, method, params) == -32602, (method, params)
    assert os.listdir(workspaces_root(context)) == []  # the root exists and is empty


async def test_knowledge_survives_a_restart(filled_context: ToolContext) -> None:
    before = await call_tool(filled_context, "memory_dump", {"level": "kb"})
    async with await Library.open(filled_context.library.settings) as reopened:
        assert (
            await call_tool(ToolContext.for_operator(reopened), "memory_dump", {"level": "kb"})
            == before
        )


async def test_knowledge_is_separated_by_agent(filled_context: ToolContext) -> None:
    other = ToolContext.for_operator(filled_context.library, "other")
    assert await call_tool(other, "memory_query", ["python"]) == {"results": []}
    await call_tool(other, "memory_add", DOCKER)
    assert await call_tool(filled_context, "memory_query", ["docker"]) == {"results": []}
    assert await call_error_code(other, "memory_delete", ["kb-001"]) == 1001


async def test_dump_reports_omitted_entries(
    filled_context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.server.tools.DUMP_ENTRIES", 1)
    dumped = await call_tool(filled_context, "memory_dump", {"level": "kb"})
    assert (list(dumped["data"]), dumped["left_out"]) == (["kb-001"], {"entries": 2})


async def test_unusable_root_is_reported(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "workspaces").write_text("not a folder")
    assert await call_error_code(context, "memory_init_workspace", ["t"]) in (-32602, 1006)
    assert (await call_tool(context, "memory_get_status", {}))["workspace_status"] == "clean"
