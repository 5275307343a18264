"""`memrecall serve --workers N`: real processes on one port."""

import asyncio
import contextlib
import math
import re
import signal
import socket
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect

from memrecall.scope import Permission
from memrecall.server.supervisor import ServiceProcess, _stop
from memrecall.store import Grant, Store
from tests.waiting import block_until, wait_until

from ..deploy.local_cluster import is_alive
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


async def sum_of(client: httpx.AsyncClient, metric: str) -> float:
    text = (await client.get("/metrics")).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(metric))


def find_workers(server: ServerProcess) -> list[psutil.Process]:
    children = psutil.Process(server.process.pid).children()
    return [child for child in children if is_worker(child)]


def is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # killed, and not yet waited for by its parent
        return False


async def post(client: httpx.AsyncClient, user: str, number: int) -> None:
    """Store a message of a user."""
    body = {"messages": [make_message(number, f"I like green tea, says {user}")]}
    answer = await client.post(PATH.format(user), json=body)
    assert answer.status_code == 200, answer.text


async def search_everywhere(server: ServerProcess, key: str) -> None:
    """Search as all users until each worker has answered, on one connection for each request."""
    workers: set[str] = set()
    async with asyncio.timeout(TIMEOUT):
        while workers < {"0", "1"}:
            for user in USERS:
                async with client_of(server, key) as client:
                    question = {"user_id": user, "query_text": "tea"}
                    answer = await client.post("/v1/messages/lexical_search", json=question)
                    assert len(answer.json()["items"]) == 1
            workers |= {line["worker"] for line in server.log_lines() if "route" in line}


async def add_in_background(server: ServerProcess, key: str) -> None:
    """Start a job and read it on other connections, until it is done in every answer."""
    body = {"messages": "My sister lives in Lisbon.", "background": True}
    async with client_of(server, key) as client:
        job = (await client.post("/v1/memories", json=body)).json()["job"]["job_id"]

    async def is_done() -> bool:
        async with client_of(server, key) as other:
            answers = [(await other.get(f"/v1/jobs/{job}")).json() for _ in range(4)]
        assert {answer["job_id"] for answer in answers} == {job}
        return all(answer["state"] == "done" and answer["result"] for answer in answers)

    await wait_until(is_done)


async def test_workers_share_a_port_jobs_metrics_and_the_end(location: str, tmp_path: Path) -> None:
    key, key_of_one = await make_key(location), await make_key(location, "u1")
    options = ("--db", location, "--workers", 2)
    with run_server(tmp_path, *options, **WITHOUT_DASHBOARD) as server:
        async with client_of(server, key) as client:
            for user in USERS:
                await post(client, user, 1)
        await search_everywhere(server, key)
        for _ in range(2):
            await add_in_background(server, key_of_one)
        async with client_of(server, key) as client:
            assert await sum_of(client, "memrecall_messages_stored_total") == len(USERS) + 2
            route = 'memrecall_http_requests_total{method="POST",route="/v1/messages/lexical'
            assert await sum_of(client, route) >= len(USERS)
            assert await sum_of(client, "memrecall_index_bytes") > 0
        acknowledged = await post_until_stopped(server, key)
        lines = [line for line in server.log_lines() if line["event"] == "shutdown"]
        assert {line["worker"] for line in lines} == {"0", "1"}
    async with await Store.open(location) as store:
        for user in USERS:
            count = (await store.count(user))["messages"] - 1 - 2 * (user == "u1")
            assert acknowledged[user] <= count <= acknowledged[user] + 1


async def post_until_stopped(server: ServerProcess, key: str) -> dict[str, int]:
    """Post for all users while SIGTERM arrives; return how many posts of each were acknowledged."""
    acknowledged = dict.fromkeys(USERS, 0)

    async def post_as(user: str) -> None:
        async with client_of(server, key) as client:
            while True:
                body = {"messages": [make_message(2, message_id=f"n{acknowledged[user]}")]}
                try:
                    answer = await client.post(PATH.format(user), json=body)
                except httpx.TransportError:
                    return
                if answer.status_code == 503:
                    return
                assert answer.status_code == 200, answer.text
                acknowledged[user] += 1
                if sum(acknowledged.values()) == 5 * len(USERS):
                    server.process.send_signal(signal.SIGTERM)

    await asyncio.gather(*map(post_as, USERS))
    assert await asyncio.to_thread(server.process.wait, TIMEOUT) == 0
    return acknowledged


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_worker_that_is_killed_or_frozen_is_replaced(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The others serve on. A new worker is replaced too, before it has started."""
    db = tmp_path / "a.db"
    key = await make_key(str(db))
    with run_server(tmp_path, "--db", db, "--workers", 2, **WITHOUT_DASHBOARD) as server:
        async with client_of(server, key) as client:
            await post(client, "u0", 1)
        first, other = find_workers(server)
        first.send_signal(number)
        second = await find_replacement(server, first, other)
        second.send_signal(number)
        third = await find_replacement(server, second, other)
        lines = [line for line in server.log_lines() if line["event"] == "worker ended"]
        assert [line["pid"] for line in lines] == [first.pid, second.pid]
        assert {line["exit_code"] for line in lines} == {-signal.SIGKILL}
        async with client_of(server, key) as client:
            await post(client, "u0", 2)
            assert await sum_of(client, "memrecall_messages_stored_total") == 2
        assert server.stop(signal.SIGINT) == 0
    assert not any(map(is_alive, (first, second, third, other)))


def test_stopped_worker_is_noticed_at_once_and_does_not_delay_the_end() -> None:
    with socket.socket() as listener:
        worker = ServiceProcess("0", ("time", "sleep"), listener)
        worker.start()
        process = psutil.Process(worker.process.pid)
        process.suspend()
        block_until(lambda: process.status() == psutil.STATUS_STOPPED)
        worker._beat.value = math.inf  # Its silence would tell it later.
        block_until(lambda: worker.has_failed)
        _stop([worker], [], drain_seconds=1_000)
        assert worker.process.exitcode == -signal.SIGKILL


async def find_replacement(
    server: ServerProcess, victim: psutil.Process, other: psutil.Process
) -> psutil.Process:
    """Wait for the process that replaces another, while the third one answers requests."""
    async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:

        async def is_replaced() -> bool:
            with contextlib.suppress(httpx.TransportError):  # The victim had the connection.
                assert (await client.get("/healthz", timeout=2)).status_code == 200
            return len({*find_workers(server)} - {victim, other}) == 1

        await wait_until(is_replaced)
    (replacement,) = {*find_workers(server)} - {victim, other}
    return replacement


async def test_dashboard_has_its_own_process_and_all_end_with_their_supervisor(
    tmp_path: Path,
) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db", "--workers", 2) as server:
        dashboard = server.info["dashboard"].rstrip("/")
        assert dashboard != server.url
        page = await asyncio.to_thread(httpx.get, f"{dashboard}/recalls", timeout=TIMEOUT)
        client_id = re.search(r"'client_id': '([^']+)'", page.text)
        assert client_id is not None, page.text
        query = f"client_id={client_id[1]}&EIO=4&transport=websocket"
        socket_url = f"{dashboard.replace('http', 'ws')}/_nicegui_ws/socket.io/?{query}"
        async with connect(socket_url, origin=dashboard) as websocket:
            assert str(await websocket.recv()).startswith("0{")
        elsewhere = await asyncio.to_thread(httpx.get, f"{server.url}/recalls", timeout=TIMEOUT)
        assert elsewhere.status_code == 404
        workers = find_workers(server)
        assert len(workers) == 3
        server.process.kill()
        block_until(lambda: not any(map(is_alive, workers)))


def test_worker_that_cannot_start_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that fail once the service is announced are started again, others are not."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if '--multiprocessing-fork' in sys.orig_argv:\n"
        "    sys.modules['memrecall.server.runner'] = None\n"
    )
    completed = run_command(tmp_path, "serve", "--workers", 2, "--port", 0, **WITHOUT_DASHBOARD)
    assert completed.returncode == 2
    assert "ended while it started" in completed.stderr


def test_number_of_workers_is_checked(tmp_path: Path) -> None:
    completed = run_command(tmp_path, "serve", "--workers", 0)
    assert completed.returncode == 2
    assert "--workers" in completed.stderr
