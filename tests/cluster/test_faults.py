"""Nodes fail, restart and join while users write and search."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import StorageError, StorageUnreachable
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import ScopedMessage, Store
from memrecall.store.database.distribution import read_status
from tests.cluster.load import Load
from tests.cluster.nodes import LOCATION, Cluster, Node
from tests.counting import recorded_statements
from tests.server.http_service import serve_in_process
from tests.store.samples import new_message
from tests.waiting import LIMIT

pytestmark = pytest.mark.skipif(
    bool(os.environ.get(LOCATION)), reason="the cluster that the variable names is not ours to stop"
)
USERS_PER_NODE = 3
REQUESTS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/v1/users/{user}/messages", None),
    ("GET", "/v1/users/{user}/messages/m1/neighbors", None),
    ("POST", "/v1/messages/lexical_search", {"query_text": "hello"}),
    ("POST", "/v1/messages/semantic_search", {"query_text": "hello"}),
    ("POST", "/v1/memories", {"messages": "I live in Rome.", "session_id": "s"}),
    ("GET", "/v1/memories?user_id={user}", None),
    ("POST", "/v1/memories/search", {"query": "Rome"}),
    ("POST", "/v1/users/{user}/recall", {"query": "Where do I live?"}),
    ("POST", "/v1/users/{user}/chat", {"message": "Where do I live?", "session_id": "s"}),
    ("GET", "/v1/users/{user}/export", None),
]


@pytest.fixture
def whole_cluster(cluster: Cluster, location: str) -> Iterator[Cluster]:
    """The cluster, all of whose nodes run again before the test's database is emptied."""
    del location
    yield cluster
    for node in cluster.nodes:
        if not node.is_running():
            node.start()


@pytest.fixture
async def library(location: str, whole_cluster: Cluster, tmp_path: Path) -> AsyncIterator[Library]:
    """A library with the default retries."""
    settings = Settings(db=location, embedder="hash", snapshots=False, cache_dir=str(tmp_path))
    async with await Library.open(settings) as open_library:
        yield open_library


def find_users(cluster: Cluster, location: str) -> dict[int, list[str]]:
    """Return ids of users whose rows are on each worker, by its port."""
    name = location.rpartition("/")[2]
    users: dict[int, list[str]] = {node.port: [] for node in cluster.workers}
    for number in count():
        user = f"user{number}"
        where = f"get_shard_id_for_distribution_column('users', '{user}')"
        placed = f"SELECT nodeport FROM citus_shards WHERE shardid = {where}"  # noqa: S608
        (row,) = cluster.coordinator.run(name, placed)
        if len(users[row["nodeport"]]) < USERS_PER_NODE:
            users[row["nodeport"]].append(user)
        if all(len(ids) == USERS_PER_NODE for ids in users.values()):
            break
    return users


async def test_a_worker_is_killed_and_started_again(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    users = find_users(whole_cluster, location)
    victim, healthy_node = whole_cluster.workers
    lost, healthy = users[victim.port], users[healthy_node.port]
    load = Load([*lost, *healthy])
    async with serve_in_process(library) as service, load.running(service.client()):
        await load.wait_for_progress(load.users)
        await asyncio.to_thread(victim.kill)
        await load.wait_for_refusals(lost)
        await load.wait_for_progress(healthy, 10)
        await asyncio.to_thread(victim.start)
        seconds = await load.wait_for_progress(lost)
    await load.check(library, "worker killed", seconds)
    assert sum(load.users[user].refused for user in healthy) == 0


async def store_on_two_nodes(
    cluster: Cluster, location: str, library: Library
) -> tuple[Node, str, str]:
    """Store a message on each worker; return the first worker, its user and the other's."""
    users = find_users(cluster, location)
    victim, healthy_node = cluster.workers
    lost, healthy = users[victim.port][0], users[healthy_node.port][0]
    for user in (lost, healthy):
        await library.add_messages(Scope(user), [new_message("m1")])
    await library.vectors.settle()
    return victim, lost, healthy


async def test_a_lost_node_is_asked_once_by_each_later_request(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    victim, lost, healthy = await store_on_two_nodes(whole_cluster, location, library)
    read = library.store.timeline(Scope(lost)).get
    await asyncio.to_thread(victim.kill)
    with recorded_statements() as waiting, pytest.raises(StorageUnreachable) as error:
        await read("m1")
    assert len(waiting) > 5
    assert error.value.lost_node == f"127.0.0.1:{victim.port}"
    with recorded_statements() as statements:
        for _ in range(2):
            with pytest.raises(StorageUnreachable):
                await read("m1")
            assert (await library.store.timeline(Scope(healthy)).get("m1")).content == "hello"
        assert len(statements) == 4
        with pytest.raises(StorageUnreachable):
            await library.add_messages(Scope(lost), [new_message("m2")])
    await asyncio.to_thread(victim.start)
    assert (await read("m1")).content == "hello"


async def test_every_kind_of_request_of_a_lost_user_is_refused(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    victim, lost, healthy = await store_on_two_nodes(whole_cluster, location, library)
    await asyncio.to_thread(victim.kill)
    async with serve_in_process(library) as service:
        client = service.client()  # a new key would be written to all nodes
        for method, path, body in REQUESTS:
            for user, expected in ((lost, 503), (healthy, 200)):
                owner = {} if "{user}" in path else {"user_id": user}
                answer = await client.request(
                    method, path.format(user=user), json=body and {**owner, **body}
                )
                assert answer.status_code == expected, (path, answer.text)
                assert ("retry-after" in answer.headers) == (expected == 503), path
        assert (await client.get("/readyz")).status_code == 200


async def test_a_worker_that_does_not_answer_fails_its_own_users_in_time(
    whole_cluster: Cluster, location: str
) -> None:
    users = find_users(whole_cluster, location)
    victim, healthy_node = whole_cluster.workers
    lost, healthy = users[victim.port][0], users[healthy_node.port][0]
    limits: dict[str, Any] = {"statement_timeout": 1.0, "lock_timeout": 1.0, "retry_seconds": 0.1}
    async with await Store.open(location, **limits) as store:
        for user in (lost, healthy):
            await store.timeline(Scope(user)).add([new_message("m1")])
        with victim.frozen():
            async with asyncio.timeout(LIMIT):
                with pytest.raises(StorageError):
                    await store.timeline(Scope(lost)).add([new_message("m2")])
                with pytest.raises(StorageError):
                    await store.timeline(Scope(lost)).get("m1")
                assert (await store.timeline(Scope(healthy)).add([new_message("m2")])).stored == 1
        assert (await store.timeline(Scope(lost)).add([new_message("m2")])).ids == ("m2",)
        assert (await store.timeline(Scope(lost)).get("m2")).content == "hello"


async def test_what_one_worker_suffices_for(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    """With a worker down, a user of another one is erased, and the status is read."""
    users = find_users(whole_cluster, location)
    victim, healthy_node = whole_cluster.workers
    everyone = [user for ids in users.values() for user in ids]
    await library.add_entries([ScopedMessage(Scope(u), new_message("m1")) for u in everyone])
    await library.vectors.settle()
    await asyncio.to_thread(victim.kill)
    for user in users[healthy_node.port][1:]:
        await library.store.owners.erase_user(user)
    status = await read_status(library.store.database)
    reachable = {node.name.rpartition(":")[2]: node.is_reachable for node in status.nodes}
    assert reachable[str(victim.port)] is False
    assert reachable[str(healthy_node.port)] is True
    assert status.missing_tables == []
    with pytest.raises(StorageUnreachable):
        await library.store.owners.erase_user(users[victim.port][0])


async def test_the_coordinator_restarts(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    users = [user for ids in find_users(whole_cluster, location).values() for user in ids]
    load = Load(users)
    async with serve_in_process(library) as service, load.running(service.client()):
        await load.wait_for_progress(users)
        await asyncio.to_thread(whole_cluster.coordinator.kill)
        await load.wait_for_refusals(users)
        await asyncio.to_thread(whole_cluster.coordinator.start)
        seconds = await load.wait_for_progress(users)
    await load.check(library, "coordinator killed", seconds)


async def test_a_node_joins_and_shards_move_to_it(
    whole_cluster: Cluster, location: str, library: Library
) -> None:
    users = [user for ids in find_users(whole_cluster, location).values() for user in ids]
    load = Load(users)
    name = location.rpartition("/")[2]
    new: Node = await asyncio.to_thread(whole_cluster.make_node)
    try:
        async with serve_in_process(library) as service, load.running(service.client()):
            await load.wait_for_progress(users)
            await asyncio.to_thread(whole_cluster.prepare, new, name)
            add = f"SELECT citus_add_node('127.0.0.1', {new.port})"
            await asyncio.to_thread(whole_cluster.coordinator.run, name, add)
            await asyncio.to_thread(
                whole_cluster.coordinator.run, name, "SELECT rebalance_table_shards()"
            )
            seconds = await load.wait_for_progress(users)
        await load.check(library, "node added", seconds)
        status = await read_status(library.store.database)
        joined = next(node for node in status.nodes if node.name.endswith(f":{new.port}"))
        assert joined.shards > 0
    finally:
        drain = f"SELECT citus_drain_node('127.0.0.1', {new.port})"
        remove = f"SELECT citus_remove_node('127.0.0.1', {new.port})"
        await asyncio.to_thread(whole_cluster.coordinator.run, name, drain, remove)
        await asyncio.to_thread(new.kill)
