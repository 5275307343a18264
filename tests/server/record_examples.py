"""Record the examples of the OpenAPI document: `python -m tests.server.record_examples [NAME …]`.

Names are those of operations; without any, all examples are recorded again.
The responses are those of a service with the default embedder and no model.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.server.http.openapi import Example, join_lines, load_examples
from memrecall.server.http.responses import LINES_TYPE
from memrecall.store import NewRelation
from memrecall.types import NewMemory, Origin
from tests.waiting import wait_until

from .http_service import open_library, serve_in_process, write_messages

FILE = Path(__file__).parents[2] / "memrecall" / "server" / "http" / "examples.json"

MESSAGES: list[dict[str, Any]] = [
    {
        "message_id": "m_0001",
        "ts": "2026-01-24T09:30:00Z",
        "role": "user",
        "content": "我不吃辣，火锅要清汤的",
        "speaker": "林晓",
        "session_id": "s_1",
    },
    {
        "message_id": "m_0002",
        "ts": "2026-01-24T09:30:20Z",
        "role": "assistant",
        "content": "好的，记住了：不吃辣，清汤火锅。",
        "session_id": "s_1",
    },
    {
        "message_id": "m_0003",
        "ts": "2026-01-25T18:05:00Z",
        "role": "user",
        "content": "The dentist moved my appointment to Friday at three",
        "speaker": "林晓",
        "session_id": "s_2",
    },
]
MEMORIES = [
    NewMemory(content="林晓不吃辣", memory_key="mem_0001", metadata={"topic": "food"}),
    NewMemory(content="林晓的火锅要清汤的", memory_key="mem_0002", metadata={"topic": "food"}),
]
RELATION = NewRelation("李明", "advised_by", "张教授")
JOB = "job_0123456789abcdef"
EXAMPLE_USER = "u_12345"
MOVED_USER = "u_67890"
_STAMPS = {"create_time": "2026-01-24T09:30:00Z", "update_time": "2026-01-24T09:30:00Z"}
EXPORT = [
    {"format": 1, "table": table, "row": {"user_id": MOVED_USER, **row}}
    for table, row in (
        (
            "users",
            {
                "agent_id": "default",
                "user_name": None,
                "user_type": None,
                "profile": None,
                "time_zone": "Asia/Shanghai",
                "status": 1,
                **_STAMPS,
                "last_active_time": "2026-01-24T09:30:00Z",
            },
        ),
        (
            "sessions",
            {
                "session_id": "s_1",
                "agent_id": "default",
                "session_name": None,
                "session_type": None,
                "context": None,
                "status": 1,
                **_STAMPS,
                "end_time": None,
                "last_sequence_no": 1,
                "last_create_time": "2026-01-24T09:30:00Z",
            },
        ),
        (
            "messages",
            {
                "message_id": "m_0001",
                "agent_id": "default",
                "session_id": "s_1",
                "role": "user",
                "speaker": "林晓",
                "content": "不吃辣",
                "content_type": "text",
                "metadata": {},
                "parent_message_id": None,
                "ts": "2026-01-24T09:30:00Z",
                "create_time": "2026-01-24T09:30:00Z",
                "sequence_no": 1,
                "deleted_at": None,
            },
        ),
    )
]
PATH = {"user_id": EXAMPLE_USER}
REQUESTS = {
    "write_messages": Example(PATH, {"messages": MESSAGES[:2]}),
    "read_messages": Example({**PATH, "since": "2026-01-01T00:00:00Z", "page_size": 2}),
    "read_message": Example({**PATH, "message_id": "m_0002"}),
    "read_neighbors": Example({**PATH, "message_id": "m_0002", "before": 1, "after": 1}),
    "lexical_search": Example(
        body={
            "user_id": EXAMPLE_USER,
            "query_text": '"不吃辣"',
            "filter": {
                "time_range": {"since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"},
                "role": "user",
            },
            "page_size": 50,
        }
    ),
    "semantic_search": Example(
        body={
            "user_id": EXAMPLE_USER,
            "query_text": "不吃辣",
            "filter": {"role": "user", "time_range": {"since": "2026-01-01T00:00:00Z"}},
            "top_k": 1,
        }
    ),
    "recall": Example(
        PATH, {"query": "When is my dentist appointment?", "as_of": "2026-01-26T10:47:00Z"}
    ),
    "chat": Example(
        PATH,
        {
            "message": "When is my dentist appointment?",
            "message_id": "m_0004",
            "session_id": "s_3",
            "language": "en",
        },
    ),
    "health": Example(),
    "readiness": Example(),
    "add_memories": Example(
        body={
            "user_id": EXAMPLE_USER,
            "messages": [
                {
                    "role": "user",
                    "content": "I moved to Rome, and I am allergic to peanuts.",
                    "message_id": "m_0005",
                    "ts": "2026-01-26T09:00:00Z",
                },
                {"role": "assistant", "content": "Noted.", "message_id": "m_0006"},
            ],
            "session_id": "s_4",
            "metadata": {"topic": "profile"},
        }
    ),
    "list_memories": Example({**PATH, "filters": '{"topic": "food"}', "limit": 1}),
    "search_memories": Example(body={"user_id": EXAMPLE_USER, "query": "清汤火锅", "limit": 1}),
    "get_memory": Example({**PATH, "memory_id": "mem_0001"}),
    "update_memory": Example(
        {**PATH, "memory_id": "mem_0001"}, {"memory": "林晓不吃辣，微辣也不行", "pinned": True}
    ),
    "delete_memory": Example({**PATH, "memory_id": "mem_0001"}),
    "undo_memory": Example({**PATH, "memory_id": "mem_0001"}),
    "read_history": Example({**PATH, "memory_id": "mem_0001"}),
    "read_job": Example({**PATH, "job_id": JOB}),
    "list_jobs": Example(PATH),
    "read_graph": Example({**PATH, "entity": "李明"}),
    "read_state": Example({**PATH, "session_id": "s_1", "max_tokens": 200}),
    "delete_memories": Example({**PATH, "filters": '{"topic": "food"}', "dry_run": True}),
    "extract_relations": Example(
        body={"user_id": EXAMPLE_USER, "messages": "My sister Clara works at Helix Labs."}
    ),
    "merge_entities": Example(body={"user_id": EXAMPLE_USER, "name": "Clara", "alias": "克拉拉"}),
    "split_entity": Example(body={"user_id": EXAMPLE_USER, "alias": "克拉拉"}),
    "correct_relation": Example(
        body={
            "user_id": EXAMPLE_USER,
            "source": "李明",
            "relationship": "advised_by",
            "destination": "张教授",
            "correction": {"destination": "王教授"},
        }
    ),
    "read_profile": Example(PATH),
    "summarize_session": Example({"session_id": "s_1"}, {"user_id": EXAMPLE_USER}),
    "end_session": Example({"session_id": "s_4"}, {"user_id": EXAMPLE_USER, "success": True}),
    "sweep_memories": Example(body={"user_id": EXAMPLE_USER, "most_memories": 5}),
    "merge_memories": Example(
        {"memory_id": "mem_0001"},
        {"user_id": EXAMPLE_USER, "others": ["mem_0002"], "data": "林晓不吃辣，火锅要清汤的"},
    ),
    "purge_memory": Example({**PATH, "memory_id": "mem_0002"}),
    "delete_message": Example({**PATH, "message_id": "m_0003"}),
    "import_user": Example({"user_id": MOVED_USER}, EXPORT),
    "export_user": Example({"user_id": MOVED_USER}),
    "erase_user": Example({"user_id": MOVED_USER}),
}


async def record_all() -> dict[str, Example]:
    """Send the request of every example to a new service."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as name:
        folder = Path(name)
        async with open_library(str(folder / "a.db"), folder, embedder="local") as library:
            return await send_requests(library)


async def send_requests(library: Library) -> dict[str, Example]:
    """Send the request of every example and return the examples with their responses."""
    async with serve_in_process(library) as service:
        client = service.client()
        document = (await client.get("/openapi.json")).json()
        await write_messages(client, EXAMPLE_USER, *MESSAGES[2:])
        await _store_memories(library)
        examples: dict[str, Example] = {}
        for name, example in REQUESTS.items():
            request = example
            if name == "read_job":
                request = Example({**PATH, "job_id": await _run_job(client)})
            await library.vectors.settle()
            method, path = _find_operation(document, name)
            response = await client.request(
                method, _fill_path(path, request), **_request_arguments(path, request)
            )
            assert response.status_code == 200, response.text
            body = _read_body(response)
            if name in ("read_job", "list_jobs"):
                for job in body.get("results", [body]):
                    job["job_id"] = JOB
            examples[name] = Example(example.parameters, example.body, body)
        return examples


async def _store_memories(library: Library) -> None:
    scope = Scope(EXAMPLE_USER)
    await library.add_memories(scope, MEMORIES, origin=Origin.USER, actor="application")
    await library.store.graph(scope).add({"李明": "person", "张教授": "person"}, [RELATION])


async def _run_job(client: httpx.AsyncClient) -> str:
    """Add a text in the background, wait for the job and return its id."""
    body = {"user_id": EXAMPLE_USER, "messages": "我住在杭州。", "background": True}
    response = (await client.post("/v1/memories", json=body)).json()
    job_id = str(response["job"]["job_id"])

    async def is_done() -> bool:
        state = (await client.get(f"/v1/jobs/{job_id}", params=PATH)).json()["state"]
        return bool(state == "done")

    await wait_until(is_done)
    return job_id


def _find_operation(document: dict[str, Any], name: str) -> tuple[str, str]:
    (operation,) = [
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, description in item.items()
        if description["operationId"] == name
    ]
    return operation


def _fill_path(path: str, example: Example) -> str:
    for parameter, value in example.parameters.items():
        path = path.replace(f"{{{parameter}}}", str(value))
    return path


def _request_arguments(path: str, example: Example) -> dict[str, Any]:
    query = {name: value for name, value in example.parameters.items() if f"{{{name}}}" not in path}
    if isinstance(example.body, list):
        headers = {"Content-Type": LINES_TYPE}
        return {"params": query, "content": join_lines(example.body), "headers": headers}
    return {"params": query, **({} if example.body is None else {"json": example.body})}


def _read_body(response: httpx.Response) -> Any:
    """Return the value of a JSON response, or the list of those of its lines."""
    if response.headers["content-type"].startswith(LINES_TYPE):
        return [json.loads(line) for line in response.text.splitlines()]
    return response.json()


def main(names: list[str]) -> None:
    """Write `examples.json`; with names, only the examples of these operations."""
    examples = asyncio.run(record_all())
    if names:
        known = load_examples()
        examples = {
            name: example if name in names else known.get(name, example)
            for name, example in examples.items()
        }
    fields = {name: asdict(example) for name, example in examples.items()}
    FILE.write_text(json.dumps(fields, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
