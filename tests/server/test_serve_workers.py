"""`memrecall serve --workers N`: real processes on one port."""

import asyncio
import re
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect

from memrecall.scope import Permission
from memrecall.store import Grant, Store
from tests.waiting import block_until, wait_until

from .http_service import make_message
from .server_process import TIMEOUT, WITHOUT_DASHBOARD, ServerProcess, run_command, run_server

pytestmark = [pytest.mark.concurrent, pytest.mark.service]
USERS = [f"u{number}" for number in range(8)]
PATH = "/v1/users/{}/messages"


async def make_key(location: str, *users: str) -> str:
    """Return a key of these users; without any, one of all users and of the operator."""
    grant = Grant(frozenset(users) or None, permissions=frozenset({Permission.OPERATOR}))
    async with await Store.open(location) as store:
        return (await store.keys.create(grant))[1]


def client_of(server: ServerProcess, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=server.url, headers=headers, timeout=TIMEOUT)


async def ask(client: httpx.AsyncClient, user: str, method: str, path: str, **options: Any) -> Any:
    """Send a request, labelled with the user, on the client's connection; return the answer."""
    answer = await client.request(method, path, headers={"X-Request-Id": user}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json() if "json" in answer.headers["content-type"] else answer.text


def workers_by_user(server: ServerProcess) -> dict[str, set[int]]:
    """Return which workers answered the requests that are labelled with each user."""
    workers: dict[str, set[int]] = defaultdict(set)
    for line in server.log_lines():
        if line["event"] == "request" and line["request_id"] in USERS:
            workers[line["request_id"]].add(line["worker"])
    return workers


async def sum_of(client: httpx.AsyncClient, metric: str) -> float:
    text = (await client.get("/metrics")).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric))


def find_workers(server: ServerProcess) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


async def use(client: httpx.AsyncClient, user: str) -> None:
    """Store, search and recall as a user."""
    messages = {"messages": [make_message(1, f"I like green tea, says {user}")]}
    await ask(client, user, "POST", PATH.format(user), json=messages)
    question = {"user_id": user, "query_text": "tea"}
    found = await ask(client, user, "POST", "/v1/messages/lexical_search", json=question)
    assert len(found["items"]) == 1
    await ask(client, user, "GET", "/v1/memories", params={"user_id": user})
    headers = {"Accept": "text/event-stream", "X-Request-Id": user}
    recall = {"query": "which tea?"}
    async with client.stream(
        "POST", f"/v1/users/{user}/recall", json=recall, headers=headers
    ) as answer:
        events = [line async for line in answer.aiter_lines() if line.startswith("event: ")]
    assert (events[0], events[-1]) == ("event: start", "event: done")


async def add_in_background(client: httpx.AsyncClient, server: ServerProcess, key: str) -> None:
    """Start a job and read it on other connections, which name no user."""
    messages = [{"role": "user", "content": "My sister lives in Lisbon."}]
    body = {"messages": messages, "background": True}
    job = (await client.post("/v1/memories", json=body)).json()["job"]
    for _ in range(4):
        async with client_of(server, key) as other:
            assert (await other.get(f"/v1/jobs/{job['job_id']}")).json()["job_id"] == job["job_id"]


async def test_user_has_one_worker_and_limits_and_metrics_are_common(
    location: str, tmp_path: Path
) -> None:
    key, key_of_one = await make_key(location), await make_key(location, "u1")
    variables = {**WITHOUT_DASHBOARD, "MEMRECALL_ADDRESS_RATE": "0.001"}
    with run_server(tmp_path, "--db", location, "--workers", 2, **variables) as server:
        async with client_of(server, key) as client:
            assert (await client.get("/readyz")).json()["checks"]["processes"] == "ok"
            for user in USERS:  # on one connection, which goes to and fro
                await use(client, user)
            await asyncio.gather(*(use_afresh(server, key, user) for user in USERS))
            assert await sum_of(client, "memrecall_messages_stored_total") == len(USERS)
            route = 'memrecall_http_requests_total{method="POST",route="/v1/messages/lexical'
            assert await sum_of(client, route) == 2 * len(USERS)
            count = "memrecall_http_request_seconds_count"
            assert await sum_of(client, count) >= 6 * len(USERS)
            assert await sum_of(client, "process_resident_memory_bytes{worker=") > 2e7
            async with client_of(server, key_of_one) as one:
                await add_in_background(one, server, key_of_one)
            async with client_of(server, "wrong") as stranger:
                answers = [await stranger.get(PATH.format(user)) for user in USERS]
        assert [answer.status_code for answer in answers] == [401] + [429] * (len(USERS) - 1)
        workers = workers_by_user(server)
        assert {len(workers[user]) for user in USERS} == {1}
        assert set.union(*workers.values()) == {0, 1}
        acknowledged = await post_until_stopped(server, key)
        lines = [line for line in server.log_lines() if line["event"] == "shutdown"]
        assert {line["worker"] for line in lines} == {0, 1}
    async with await Store.open(location) as store:
        for user in USERS:
            stored = (await store.count(user))["messages"]
            assert acknowledged[user] <= stored - 1 - (user == "u1")
            assert stored <= acknowledged[user] + 2 + (user == "u1")


async def use_afresh(server: ServerProcess, key: str, user: str) -> None:
    async with client_of(server, key) as client:
        question = {"user_id": user, "query_text": "tea"}
        found = await ask(client, user, "POST", "/v1/messages/lexical_search", json=question)
        assert len(found["items"]) == 1
        page = await ask(client, f"range-{user}", "GET", PATH.format(user))
        assert len(page["items"]) == 1


async def post_until_stopped(server: ServerProcess, key: str) -> dict[str, int]:
    """Post for all users while SIGTERM arrives; return how many posts of each were acknowledged."""
    acknowledged = dict.fromkeys(USERS, 0)

    async def post(user: str) -> None:
        async with client_of(server, key) as client:
            while True:
                body = {"messages": [make_message(2, message_id=f"m{acknowledged[user]}")]}
                try:
                    answer = await client.post(PATH.format(user), json=body)
                except httpx.ConnectError:
                    return
                if answer.status_code == 503:
                    return
                assert answer.status_code == 200, answer.text
                acknowledged[user] += 1
                if sum(acknowledged.values()) == 5 * len(USERS):
                    server.process.send_signal(signal.SIGTERM)

    await asyncio.gather(*map(post, USERS))
    assert await asyncio.to_thread(server.process.wait, TIMEOUT) == 0
    return acknowledged


async def test_worker_that_dies_is_replaced_and_its_counters_are_kept(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    key = await make_key(str(db))
    with run_server(tmp_path, "--db", db, "--workers", 2, **WITHOUT_DASHBOARD) as server:
        async with client_of(server, key) as client:
            for user in USERS:
                await ask(client, user, "POST", PATH.format(user), json=posts(1))
        victim = find_workers(server)[1]
        victim.kill()
        await wait_until(lambda: ended_lines(server))
        (line,) = ended_lines(server)
        assert (line["pid"], line["exit_code"]) == (victim.pid, -signal.SIGKILL)
        assert line["restart_seconds"] == 0.5
        async with client_of(server, key) as client:
            for user in USERS:
                await ask(client, user, "POST", PATH.format(user), json=posts(2))

            async def is_ready() -> bool:
                return (await client.get("/readyz")).status_code == 200

            await wait_until(is_ready)
            for user in USERS:
                await ask(client, user, "POST", PATH.format(user), json=posts(3))
            assert await sum_of(client, "memrecall_messages_stored_total") == 3 * len(USERS)
        assert len(find_workers(server)) == 2
        workers = find_workers(server)
        assert server.stop(signal.SIGINT) == 0
        assert set.union(*workers_by_user(server).values()) == {0, 1}
    assert not [worker for worker in workers if worker.is_running()]


def posts(number: int) -> dict[str, Any]:
    return {"messages": [make_message(number, message_id=f"m{number}")]}


def ended_lines(server: ServerProcess) -> list[dict[str, Any]]:
    return [line for line in server.log_lines() if line["event"] == "worker ended"]


async def test_dashboard_is_in_one_worker_and_workers_end_with_their_supervisor(
    tmp_path: Path,
) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db", "--workers", 2) as server:
        for _ in range(4):  # each on a connection that any worker may have accepted
            page = await asyncio.to_thread(httpx.get, f"{server.url}/recalls", timeout=TIMEOUT)
            client_id = re.search(r"'client_id': '([^']+)'", page.text)
            assert page.status_code == 200
            assert client_id is not None
            address = server.url.replace("http", "ws")
            query = f"client_id={client_id[1]}&EIO=4&transport=websocket"
            socket_url = f"{address}/_nicegui_ws/socket.io/?{query}"
            async with connect(socket_url, origin=server.url) as websocket:  # type: ignore[arg-type]
                assert str(await websocket.recv()).startswith("0{")
        pages = [line for line in server.log_lines() if line.get("route") == "unmatched"]
        assert {line["worker"] for line in server.log_lines() if "route" in line} == {0}, pages
        workers = find_workers(server)
        assert len(workers) == 2
        server.process.kill()
        block_until(lambda: not any(map(is_alive, workers)))


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_number_of_workers_is_checked(tmp_path: Path) -> None:
    completed = run_command(tmp_path, "serve", "--workers", 0)
    assert completed.returncode == 2
    assert "--workers" in completed.stderr
