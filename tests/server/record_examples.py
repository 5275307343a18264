"""Record the examples of the OpenAPI document: `python -m tests.server.record_examples [NAME …]`.

Names are those of operations; without any, all examples are recorded again. The requests are read
from the recorded file and sent in its order: a new operation needs its parameters and body there.
The responses are those of a service with the default embedder and an extractor in place of a model.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.server.auth import USER_HEADER
from memrecall.server.http.openapi import Example, join_lines, load_examples
from memrecall.server.http.responses import LINES_TYPE
from memrecall.store import NewRelation, PlanStep, Reading
from memrecall.types import EXTRACTION, NewMemory, NewMessage, Origin, Role
from tests.extractors import SentenceExtractor
from tests.waiting import wait_until

from .http_service import open_library, serve_in_process, write_messages

FILE = Path(__file__).parents[2] / "memrecall" / "server" / "http" / "examples.json"

DENTIST = {
    "message_id": "m_0003",
    "ts": "2026-01-25T18:05:00Z",
    "role": "user",
    "content": "The dentist moved my appointment to Friday at three",
    "speaker": "林晓",
    "session_id": "s_2",
}
MEMORIES = [
    NewMemory(content="林晓不吃辣", memory_key="mem_0001", metadata={"topic": "food"}),
    NewMemory(content="林晓的火锅要清汤的", memory_key="mem_0002", metadata={"topic": "food"}),
]
RELATION = NewRelation("李明", "advised_by", "张教授")
JOB = "job_0123456789abcdef"
RUN = "job_x0123456789abcdef0123"
SAID = NewMessage(message_id="m_0009", role=Role.USER, content="我住在杭州")
EXTRACTED = NewMemory(content="用户住在杭州", source_message_ids=("m_0009",))
EXAMPLE_USER = "u_12345"
PATH = {"user_id": EXAMPLE_USER}
OF_MEMBERS = ("/spaces", "/invitations", "space:")  # what a request names that needs its user


async def record_all() -> dict[str, Example]:
    """Send the request of every example to a new service."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as name:
        folder = Path(name)
        async with open_library(str(folder / "a.db"), folder, embedder="local") as library:
            with patch("memrecall.memory.memory.make_extractor", lambda *_: SentenceExtractor()):
                return await send_requests(library)


async def send_requests(library: Library) -> dict[str, Example]:
    """Send the request of every example and return the examples with their responses."""
    async with serve_in_process(library) as service:
        client, member = service.client(), service.client(**{USER_HEADER: EXAMPLE_USER})
        document = (await client.get("/openapi.json")).json()
        await write_messages(client, EXAMPLE_USER, DENTIST)
        await store_memories(library)
        examples: dict[str, Example] = {}
        for name, example in load_examples().items():
            request = example
            if name == "list_extractions":
                await store_run(library)
            if name == "list_invitations":
                await invite_to_spaces(library)
            if name == "read_job":
                request = Example({**PATH, "job_id": await run_job(client)})
            await library.vectors.settle()
            method, path = _find_operation(document, name)
            is_shared = any(part in f"{path} {example.parameters}" for part in OF_MEMBERS)
            response = await (member if is_shared else client).request(
                method, _fill_path(path, request), **_request_arguments(path, request)
            )
            assert response.status_code == 200, response.text
            body = _read_body(response)
            if name in ("read_job", "list_jobs"):
                for job in body.get("results", [body]):
                    job["job_id"] = JOB
            examples[name] = Example(example.parameters, example.body, body)
        return examples


async def store_memories(library: Library) -> None:
    scope = Scope(EXAMPLE_USER)
    await library.add_memories(scope, MEMORIES, origin=Origin.USER, actor="application")
    await library.store.graph(scope).add({"李明": "person", "张教授": "person"}, [RELATION])


async def store_run(library: Library) -> None:
    """Store what an extraction of stored messages leaves."""
    await library.add_messages(Scope(EXAMPLE_USER), [SAID])
    steps, reading = [PlanStep("ADD", EXTRACTED)], Reading(("m_0009",), RUN)
    await library.apply_plan(Scope(EXAMPLE_USER), steps, actor=EXTRACTION, reading=reading)


async def invite_to_spaces(library: Library) -> None:
    """Let another user invite the one of the examples to two spaces."""
    async with AsyncMemory(library=library) as memory:
        ben = memory.bind(user_id="ben")
        for space_id, name in (("chess", "Chess club"), ("choir", "Choir")):
            await ben.create_space(space_id, name=name)
            await ben.space(space_id).set_member(EXAMPLE_USER, "reader", invite=True)


async def run_job(client: httpx.AsyncClient) -> str:
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
        examples = load_examples() | {name: examples[name] for name in names}
    fields = {name: asdict(example) for name, example in examples.items()}
    FILE.write_text(json.dumps(fields, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
