"""Four services behind a proxy: `deploy/local-cluster` with each of the configurations."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import psutil
import pytest

from tests.server.http_service import make_message
from tests.waiting import wait_until

from .local_cluster import (
    PROXIES,
    STOP_SECONDS,
    LocalCluster,
    client_of,
    is_alive,
    postgresql_folder,
    require_citus,
    require_program,
    run_local_cluster,
    start_script,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
USERS = ["a/b", "100%", *(f"user {number} 张三" for number in range(10))]
SEARCH = "/v1/messages/lexical_search"
SEARCHES = re.compile(rf'memrecall_http_requests_total{{.*route="{SEARCH}".*}} (\S+)')


@pytest.fixture(scope="module", params=PROXIES)
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Four services on a plain PostgreSQL behind each of the proxies."""
    require_program(request.param)
    options = ("--plain", "--proxy", request.param)
    with run_local_cluster(postgresql_folder(), *options) as running:
        yield running


async def count_searches(cluster: LocalCluster) -> list[float]:
    """Return how many searches each service has answered."""
    counts = []
    for url in cluster.services:
        async with client_of(cluster, url) as client:
            text = (await client.get("/metrics")).text
        counts.append(sum(map(float, SEARCHES.findall(text))))
    return counts


async def store(client: httpx.AsyncClient, user: str, number: int = 1) -> None:
    path = f"/v1/users/{quote(user, safe='')}/messages"
    answer = await client.post(path, json={"messages": [make_message(number, "green tea")]})
    assert answer.status_code == 200, answer.text


def search(client: httpx.AsyncClient, user: str) -> asyncio.Task[httpx.Response]:
    headers = {"X-Memrecall-User": quote(user, safe="")}
    question = {"user_id": user, "query_text": "tea"}
    return asyncio.create_task(client.post(SEARCH, json=question, headers=headers))


async def test_user_has_one_service_and_all_services_have_users(cluster: LocalCluster) -> None:
    services = Counter[int]()
    async with client_of(cluster) as client:
        for user in USERS:
            await store(client, user)
            before = await count_searches(cluster)
            for _ in range(3):  # on connections of their own, too
                assert len((await search(client, user)).json()["items"]) == 1
                async with client_of(cluster) as other:
                    assert len((await search(other, user)).json()["items"]) == 1
            after = await count_searches(cluster)
            changed = [n for n in range(4) if after[n] != before[n]]
            assert len(changed) == 1, (user, before, after)
            services[changed[0]] += 1
        assert (await client.get("/metrics")).status_code == 404
        await wait_until(lambda: is_ready(client))
    assert len(services) >= 3, services  # twelve users miss two of four with a chance of 1:680


async def test_path_and_header_lead_to_the_same_service(cluster: LocalCluster) -> None:
    """A recall loads the user's index in the service that the path leads to."""
    recalls = re.compile(r"memrecall_recalls_total{.*} (\S+)")

    async def count_recalls() -> list[float]:
        counts = []
        for url in cluster.services:
            async with client_of(cluster, url) as client:
                text = (await client.get("/metrics")).text
            counts.append(sum(map(float, recalls.findall(text))))
        return counts

    def find_changed(before: list[float], after: list[float]) -> list[int]:
        return [n for n in range(4) if after[n] != before[n]]

    async with client_of(cluster) as client:
        for user in USERS[:4]:
            await store(client, user)
            recalled, searched = await count_recalls(), await count_searches(cluster)
            path = f"/v1/users/{quote(user, safe='')}/recall"
            answer = await client.post(path, json={"query": "which tea?"})
            assert answer.status_code == 200, answer.text
            await search(client, user)
            by_path = find_changed(recalled, await count_recalls())
            assert by_path == find_changed(searched, await count_searches(cluster))
            assert len(by_path) == 1


@asynccontextmanager
async def searching(cluster: LocalCluster) -> AsyncIterator[Counter[str]]:
    """Search and read for all users while the block runs; yield the counts of the outcomes."""
    outcomes = Counter[str]()
    is_over = asyncio.Event()

    async def ask(user: str) -> None:
        async with client_of(cluster) as client:
            while not is_over.is_set():
                path = f"/v1/users/{quote(user, safe='')}/messages"
                for answer in (await search(client, user), await client.get(path)):
                    items = answer.json().get("items") if answer.status_code == 200 else ()
                    outcomes["ok" if items else f"{answer.status_code} {answer.text}"] += 1

    tasks = [asyncio.create_task(ask(user)) for user in USERS]
    try:
        yield outcomes
    finally:
        is_over.set()
        await asyncio.gather(*tasks)


async def test_no_request_fails_when_a_service_leaves_and_joins(cluster: LocalCluster) -> None:
    async with client_of(cluster) as client:
        for user in USERS:
            await store(client, user)
    async with searching(cluster) as outcomes:
        await wait_until(lambda: outcomes["ok"] > 50)
        counts = await count_searches(cluster)
        busiest = counts.index(max(counts))
        leaving = cluster.service_process(busiest)
        leaving.terminate()
        await wait_until(lambda: not is_alive(leaving))
        during = outcomes["ok"]
        await wait_until(lambda: outcomes["ok"] > during + 50)
        async with client_of(cluster, cluster.services[busiest]) as direct:
            await wait_until(lambda: is_ready(direct))
        await wait_until(lambda: has_answered(cluster, busiest))  # The proxy has noticed.
    assert set(outcomes) == {"ok"}


@asynccontextmanager
async def writing(cluster: LocalCluster) -> AsyncIterator[Counter[int]]:
    """Store messages of all users while the block runs; yield the counts of the statuses.

    In the end every acknowledged message is stored once, and no other.
    """
    statuses = Counter[int]()
    is_over = asyncio.Event()

    async def write(user: str) -> None:
        path, acknowledged = f"/v1/users/{quote(user, safe='')}/messages", 0
        async with client_of(cluster) as client:
            before = await count_stored(client, user)
            while not is_over.is_set():
                said = {"role": "user", "content": "black coffee"}  # without an id: never merged
                answer = await client.post(path, json={"messages": [said]})
                statuses[answer.status_code] += 1
                acknowledged += answer.status_code == 200
                assert answer.status_code != 503 or "Retry-After" in answer.headers
            assert await count_stored(client, user) == before + acknowledged

    tasks = [asyncio.create_task(write(user)) for user in USERS]
    try:
        yield statuses
    finally:
        is_over.set()
        await asyncio.gather(*tasks)


async def count_stored(client: httpx.AsyncClient, user: str) -> int:
    """Return how many of the written messages a user has."""
    answer = await client.get(f"/v1/users/{quote(user, safe='')}/export")
    return answer.text.count('"black coffee"')


async def end_service(cluster: LocalCluster, statuses: Counter[int]) -> None:
    """Stop the second service; return when the others have taken over and it is back."""
    await wait_until(lambda: statuses[200] > 50)
    leaving = cluster.service_process(1)
    leaving.terminate()
    await wait_until(lambda: not is_alive(leaving))
    during = statuses[200]
    await wait_until(lambda: statuses[200] > during + 50)
    async with client_of(cluster, cluster.services[1]) as direct:
        await wait_until(lambda: is_ready(direct))


async def test_writes_are_stored_or_refused_when_a_service_leaves(cluster: LocalCluster) -> None:
    async with writing(cluster) as statuses:
        await end_service(cluster, statuses)
    # nginx learns that a service drains only from what it answers.
    assert set(statuses) <= ({200, 503} if cluster.proxy_name == "nginx" else {200}), statuses


async def test_no_write_fails_after_nginx_reloads(cluster: LocalCluster) -> None:
    if cluster.proxy_name != "nginx":
        pytest.skip("only nginx is told by a reload that a service leaves")
    proxy = cluster.proxy_process()
    servers = Path(proxy.cmdline()[proxy.cmdline().index("-c") + 1]).parent / "servers.conf"
    lines = servers.read_text().splitlines(keepends=True)
    async with writing(cluster) as statuses:
        workers = set(proxy.children())
        servers.write_text("".join(lines[:1] + lines[2:]))
        proxy.send_signal(signal.SIGHUP)  # as `nginx -s reload`
        await wait_until(lambda: not workers & set(proxy.children()))  # They have answered all.
        await end_service(cluster, statuses)
        servers.write_text("".join(lines))
        proxy.send_signal(signal.SIGHUP)
    assert set(statuses) == {200}


async def is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def has_answered(cluster: LocalCluster, number: int) -> bool:
    """Return True if a service has answered a search since it was started."""
    return (await count_searches(cluster))[number] > 0


async def test_others_answer_for_a_service_that_is_killed(cluster: LocalCluster) -> None:
    async with client_of(cluster) as client:
        for user in USERS:
            await store(client, user)
        cluster.service_process(1).kill()
        # Reads are sent again. What a POST has done is unknown, so the first one may fail.
        for user in USERS:
            page = await client.get(f"/v1/users/{quote(user, safe='')}/messages")
            assert page.json()["items"]
        for user in USERS:
            assert (await search(client, user)).json()["items"]
            await store(client, user, number=2)


async def test_services_on_a_distributed_database() -> None:
    require_program("nginx")
    with run_local_cluster(require_citus(), "--proxy", "nginx", "--services", 2) as cluster:
        async with client_of(cluster) as client:
            for user in USERS:
                await store(client, user)
            for user in USERS:
                assert len((await search(client, user)).json()["items"]) == 1
        for url in cluster.services:  # the one that did not write as well
            async with client_of(cluster, url) as direct:
                for user in USERS:
                    assert len((await search(direct, user)).json()["items"]) == 1


def test_failed_start_says_what_is_missing(tmp_path: Path) -> None:
    for arguments, message in (
        ((tmp_path,), "initdb is missing: name the folder of a PostgreSQL installation"),
        ((postgresql_folder(), "--proxy", "none"), "has no Citus extension"),
    ):
        process = start_script(*arguments)
        _, errors = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 1
        assert message in errors


def test_signal_during_the_start_stops_everything() -> None:
    process = start_script(postgresql_folder(), "--plain", "--proxy", "none")
    try:
        while not (children := psutil.Process(process.pid).children(recursive=True)):
            assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0
    assert not [child for child in children if is_alive(child)]
