"""The HTTP API lets a model read stored messages, in a job."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memrecall.memory import Library
from tests.cli.test_extract import read_facts
from tests.model.openai_server import ModelServer, Reply, memrecall_client, serve, text
from tests.waiting import wait_until

from .http_service import HttpService, make_message, serve_in_process, write_messages

MESSAGES = [make_message(n, f"I like tea {n}.", session_id=f"s{n}") for n in (1, 3, 5)]


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    with serve() as server:
        server.answer = read_facts
        yield server


@pytest.fixture
async def service(library: Library, model: ModelServer) -> AsyncIterator[HttpService]:
    client = memrecall_client(model)
    async with serve_in_process(library, model_client=client) as running:
        yield running
    await client.close()


async def wait_for_job(client: httpx.AsyncClient, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = {}

    async def is_done() -> bool:
        job.update((await client.get(f"/v1/jobs/{job_id}")).json())
        return bool(job["state"] == "done")

    await wait_until(is_done)
    return job


async def test_job_reads_and_is_undone(service: HttpService, model: ModelServer) -> None:
    ann, ben = [await service.client_with_key(user) for user in ("ann", "ben")]
    await write_messages(ann, "ann", *MESSAGES)
    await write_messages(ben, "ben", make_message(1, "I like jazz."))
    dry = (await ann.post("/v1/memories/extract", json={"dry_run": True})).json()
    assert (dry["run"], dry["job"], dry["messages"], dry["calls"]) == (None, None, 3, 3)
    assert model.requests == []

    started = (await ann.post("/v1/memories/extract", json={"since": MESSAGES[1]["ts"]})).json()
    run = started["run"]
    assert (started["job"], started["messages"]) == ({"job_id": run, "state": "running"}, 2)
    job = await wait_for_job(ann, run)
    assert (job["kind"], job["read"], job["messages"]) == ("extraction", 2, 2)
    assert (job["result"]["added"], job["result"]["unread"], job["result"]["problems"]) == (
        2,
        0,
        [],
    )
    assert (await ann.get("/v1/jobs")).json() == {"results": [job]}
    listed = (await ann.get("/v1/extractions")).json()
    assert listed == {"results": [{"run": run, "messages": 2}]}
    assert (await ben.get("/v1/extractions")).json() == {"results": []}
    assert (await ben.get(f"/v1/jobs/{run}")).status_code == 404
    assert (await ben.post(f"/v1/extractions/{run}/undo")).status_code == 404
    assert (await ben.post("/v1/memories/extract", json={"user_id": "ann"})).status_code == 404

    undone = (await ann.post(f"/v1/extractions/{run}/undo")).json()
    assert undone == {"run": run, "memories": 2, "messages": 2}
    assert (await ann.get("/v1/memories")).json()["results"] == []
    assert (await ann.post(f"/v1/extractions/{run}/undo")).status_code == 404


async def test_failures_are_told_without_their_messages(
    service: HttpService, model: ModelServer
) -> None:
    ann = await service.client_with_key("ann")
    await write_messages(ann, "ann", *MESSAGES)
    model.answer = lambda request: text("secret, and no JSON")
    run = (await ann.post("/v1/memories/extract", json={})).json()["run"]
    job = await wait_for_job(ann, run)
    assert (job["result"]["read"], job["result"]["unread"]) == (0, 3)
    assert job["result"]["problems"]
    assert "secret" not in str(job)


async def test_second_job_of_a_user_is_refused(service: HttpService, model: ModelServer) -> None:
    ann = await service.client_with_key("ann")
    await write_messages(ann, "ann", *MESSAGES)
    model.answer = lambda request: Reply(seconds=60)
    assert (await ann.post("/v1/memories/extract", json={})).status_code == 200
    refused = await ann.post("/v1/memories/extract", json={})
    assert refused.status_code == 409
    assert refused.json()["error"]["details"]["reason"] == "running"


async def test_read_only_key_and_missing_model_are_refused(library: Library) -> None:
    async with serve_in_process(library) as service:
        ann = await service.client_with_key("ann")
        await write_messages(ann, "ann", *MESSAGES)
        refused = await ann.post("/v1/memories/extract", json={})
        assert refused.status_code == 400
        assert "MEMRECALL_MODEL" in refused.text
        reader = await service.client_with_key("ann", read_only=True)
        assert (await reader.post("/v1/memories/extract", json={})).status_code == 403
        assert (await reader.get("/v1/extractions")).status_code == 200
