"""Several worker processes: which one answers, how connections are passed on, what they share."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess

import h11
import httpx
import pytest

from memrecall.errors import WorkerFailed
from memrecall.memory import Library
from memrecall.server import cluster as cluster_module
from memrecall.server.cluster import Cluster, Supervisor
from memrecall.server.connections import ConnectionLimits
from memrecall.server.http.middleware import BodyLimits
from memrecall.server.limits import BURST_SECONDS, SharedTimes, TokenBuckets
from tests.cases import check_each
from tests.waiting import LIMIT, wait_until

from .http_service import HttpService, serve_on_socket

USERS = [f"user {number}" for number in range(200)]
KEY = b"Bearer k"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three workers that are ready, as seen by the first."""
    cluster = Cluster.create(3, "", has_dashboard=True)
    for index in range(3):
        cluster.for_worker(index).beat()
    yield cluster
    for pair in cluster.inboxes:
        for end in pair:
            end.close()


def make_request(
    target: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> h11.Request:
    items = {"Host": "x", **(headers or {})}
    return h11.Request(method=method, target=target, headers=list(items.items()))


def owner_of(cluster: Cluster, user: str) -> int:
    return cluster.find_worker(make_request(f"/v1/users/{user.replace(' ', '%20')}/recall"), b"")


def user_of(cluster: Cluster, worker: int) -> str:
    """Return a user of this worker whose id needs no quoting."""
    return next(n for n in map(str, range(1_000)) if owner_of(cluster, n) == worker)


def test_every_way_to_name_a_user_leads_to_the_same_worker(cluster: Cluster) -> None:
    cluster.learn_users(KEY, frozenset({"张 三"}))
    cluster.learn_users(b"Bearer many", frozenset({"a", "b"}))
    post = partial(make_request, method="POST")
    cases = [
        (make_request("/v1/users/%E5%BC%A0%20%E4%B8%89/traces?limit=3"), b""),
        (post("/v1/users/%E5%BC%A0%20%E4%B8%89/messages"), b""),
        (make_request("/v1/memories?limit=3&user_id=%E5%BC%A0+%E4%B8%89"), b""),
        (post("/v1/memories/search"), '{"query": "x", "user_id" : "张 三"}'.encode()),
        (post("/v1/memories"), b'{"user_id":"\\u5f20 \\u4e09"}'),
        (post("/rpc", {"X-Memrecall-User": "%E5%BC%A0%20%E4%B8%89"}), b"{}"),
        (make_request("/v1/memories", {"Authorization": KEY.decode()}), b""),
        (post("/mcp", {"Authorization": KEY.decode()}), b"{}"),
    ]
    expected = {cluster.find_worker(*cases[0])}
    check_each(cases, lambda case: assert_equal({cluster.find_worker(*case)}, expected))
    for index in range(3):  # whichever worker has read the head
        view = cluster.for_worker(index)
        assert {view.find_worker(*case) for case in cases[:6]} == expected
        many = make_request("/v1/memories", {"Authorization": "Bearer many"})
        assert view.find_worker(many, b"") == index


def assert_equal(value: object, expected: object) -> None:
    assert value == expected


def test_users_are_spread_and_only_those_of_an_absent_worker_move(cluster: Cluster) -> None:
    before = {user: owner_of(cluster, user) for user in USERS}
    sizes = [list(before.values()).count(index) for index in range(3)]
    assert min(sizes) > len(USERS) / 6
    cluster.leave(1)
    assert cluster.absent() == [1]
    during = {user: owner_of(cluster, user) for user in USERS}
    assert {during[user] for user in USERS if before[user] == 1} == {0, 2}
    assert all(during[user] == before[user] for user in USERS if before[user] != 1)
    cluster.for_worker(1).beat()
    assert {user: owner_of(cluster, user) for user in USERS} == before


def test_requests_without_a_user_have_their_place(cluster: Cluster) -> None:
    second = cluster.for_worker(1)
    job = second.name_job("job_1")
    cases = {
        "/healthz": 1,
        "/metrics": 1,
        "/v1/memories": 1,  # of an unknown key
        "/v1/users/ann/messages?page_size=3": 1,  # read without an index
        "/v1/users/bob/messages/m1/neighbors": 1,
        "/v1/users/cat/messages": 1,
        "/": 0,  # the dashboard
        "/_nicegui_ws/socket.io/?client_id=7": 0,
        f"/v1/jobs/{job}": 1,
        "/v1/jobs/job_1.2?user_id=ann": 2,
        "/v1/jobs/job_1.9": 1,
    }
    check_each(
        cases.items(),
        lambda case: assert_equal(second.find_worker(make_request(case[0]), b""), case[1]),
    )
    without = replace(second, has_dashboard=False)
    assert without.find_worker(make_request("/"), b"") == 1
    cluster.leave(2)
    assert second.find_worker(make_request("/v1/jobs/job_1.2"), b"") == 1


def test_body_is_awaited_only_if_it_may_name_the_user(cluster: Cluster) -> None:
    length = {"Content-Length": "40"}
    cases = [
        ("/v1/memories", length, b"", True),
        ("/v1/memories", length, b'{"query": "x"', True),
        ("/v1/memories", length, b'{"user_id": "ann",', False),
        ("/v1/memories", length, b" " * 40, False),
        ("/v1/memories", {"Content-Length": "4000000"}, b"", False),
        ("/v1/memories", {"Transfer-Encoding": "chunked"}, b"", False),
        ("/v1/memories", {**length, "Expect": "100-continue"}, b"", False),
        ("/v1/memories?user_id=ann", length, b"", False),
        ("/v1/users/ann/recall", length, b"", False),
        ("/sign-in", length, b"", False),
        ("/v1/memories", {}, b"", False),
    ]
    check_each(
        cases,
        lambda case: assert_equal(
            cluster.needs_body(make_request(case[0], case[1], "POST"), case[2]), case[3]
        ),
    )


def test_a_full_inbox_and_a_long_request_are_refused(cluster: Cluster) -> None:
    request = make_request("/v1/users/ann/messages")
    with socket.socket() as connection:
        assert not cluster.send(1, request, b"x" * 200_000, connection.fileno())
        sent = 0
        while cluster.send(1, request, b"x" * 10_000, connection.fileno()):
            sent += 1
    received = []
    while batch := list(cluster.for_worker(1).receive()):
        received += batch
    assert len(received) == sent > 5
    assert received[0][1].endswith(b"\r\n\r\n" + b"x" * 10_000)
    for copy, _ in received:
        copy.close()


@pytest.mark.concurrent
async def test_connection_is_passed_on_between_two_requests(
    sqlite_library: Library, cluster: Cluster
) -> None:
    """The test is the second worker."""
    second = cluster.for_worker(1)
    here, there = user_of(cluster, 0), user_of(cluster, 1)
    async with serve_on_socket(sqlite_library, cluster=cluster) as service:
        reader, writer = await connect(service)
        writer.write(f"GET /v1/users/{here}/messages HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b"404" in await reader.readline()
        await skip_response(reader)
        head = (
            f"POST /v1/messages/lexical_search HTTP/1.1\r\nHost: localhost\r\nX-Odd: a  b\r\n"
            f"Content-Length: {len(there) + 15}\r\n\r\n"
        )
        writer.write(head.encode())
        await writer.drain()
        body = f'{{"user_id": "{there}"}}'.encode()
        writer.write(body)
        received: list[tuple[socket.socket, bytes]] = []

        def has_received() -> bool:
            received.extend(second.receive())
            return bool(received)

        await wait_until(has_received)
        ((connection, data),) = received
        assert data == head.encode() + body
        assert service.server is not None
        connections = service.server.server_state.connections
        await wait_until(lambda: not connections)
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        async with asyncio.timeout(LIMIT):
            assert (await reader.read()).endswith(b"\r\n\r\nhi")
        writer.close()
    metrics = service.app.service.metrics
    assert metrics._registry.get_sample_value(
        "memrecall_http_requests_total",
        {"method": "GET", "route": "/v1/users/{user_id}/messages", "status": "404"},
    )


@pytest.mark.concurrent
async def test_body_that_does_not_arrive_is_answered_where_its_head_was_read(
    sqlite_library: Library, cluster: Cluster
) -> None:
    async with serve_on_socket(
        sqlite_library,
        cluster=cluster,
        connection_limits=ConnectionLimits(user_seconds=0.01),
        body_limits=BodyLimits(seconds=0.05),
    ) as service:
        reader, writer = await connect(service)
        head = "POST /v1/memories HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{"
        writer.write(head.encode())
        async with asyncio.timeout(LIMIT):
            assert b" 408 " in await reader.readline()
        writer.close()
    assert not list(cluster.for_worker(1).receive())


async def connect(service: HttpService) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = httpx.URL(service.url)
    return await asyncio.open_connection(url.host, url.port)


async def skip_response(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))


async def test_ready_only_if_all_workers_are(sqlite_library: Library, cluster: Cluster) -> None:
    async with serve_on_socket(sqlite_library, cluster=cluster) as service:
        client = service.client()
        assert (await client.get("/readyz")).json()["checks"]["processes"] == "ok"
        cluster.leave(2)
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["error"]["details"]["checks"]["processes"] == "failed"
        with pytest.raises(WorkerFailed, match="worker 2 is not ready"):
            await cluster.require_all()
        cluster.beats[2] = time.monotonic() - 60  # it does not respond
        assert cluster.absent() == [2]


def test_rate_limits_hold_over_processes(cluster: Cluster) -> None:
    rate = 2.0
    buckets = [
        TokenBuckets(rate, lambda: 100.0, SharedTimes(cluster.for_worker(index).rates, "key"))
        for index in range(3)
    ]
    admitted = 0
    for number in range(90):
        bucket = buckets[number % 3]
        if not bucket.wait_seconds("a"):
            bucket.take("a")
            admitted += 1
    assert admitted == rate * BURST_SECONDS
    assert [bucket.wait_seconds("a") for bucket in buckets] == [0.5] * 3
    assert not any(buckets[0].wait_seconds(user) for user in USERS)
    addresses = TokenBuckets(rate, lambda: 100.0, SharedTimes(cluster.rates, "address"))
    assert not addresses.wait_seconds("a")


@pytest.mark.concurrent
async def test_processes_that_end_are_replaced_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "_FIRST_PAUSE", 0.01)
    reports: list[tuple[int, int | None, float]] = []

    def report(number: int, process: BaseProcess, pause: float) -> None:
        reports.append((number, process.exitcode, pause))
        if [item[0] for item in reports].count(1) == 3:
            supervisor.stop()

    supervisor = Supervisor(os._exit, [(4,), (7,)], report)
    async with asyncio.timeout(LIMIT):
        await supervisor.run()
    assert [item[1:] for item in reports if item[0] == 1] == [(7, 0.01), (7, 0.02), (7, 0.04)]
    assert {code for number, code, _ in reports if number == 0} <= {4}


@pytest.mark.concurrent
async def test_stop_ends_processes_that_ignore_it_at_once_if_asked() -> None:
    supervisor = Supervisor(time.sleep, [(1_000.0,)], lambda *_: None)
    running = asyncio.create_task(supervisor.run())
    await wait_until(lambda: supervisor._processes)
    supervisor.stop()
    supervisor.stop(at_once=True)
    with suppress(TimeoutError):
        await asyncio.wait_for(running, LIMIT)
    assert running.done()
    assert not running.cancelled()
