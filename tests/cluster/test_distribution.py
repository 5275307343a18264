"""Distributing a database, what it refuses, migrations of a distributed one, and its status."""

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import inspect

from memrecall.errors import Conflict, InvalidArgument, StorageBusy
from memrecall.importers.importer import Importer
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.store import ScopedMessage, Store
from memrecall.store.database import distribution
from memrecall.store.database.distribution import distribute, read_status
from memrecall.store.database.engine import Database
from memrecall.store.database.tables import metadata
from memrecall.store.knowledge import NewKnowledge
from memrecall.store.messages import write_messages
from memrecall.store.texts import rebuild_search_text
from memrecall.types import NewMessage, Role
from tests.cases import check_each_async
from tests.cli.conftest import Shell
from tests.cluster.databases import SHARDS
from tests.cluster.nodes import Cluster
from tests.databases import Databases
from tests.store.samples import new_message
from tests.store.test_migrations import CHECKS, make_old


def entries(*users: str, **fields: str) -> list[ScopedMessage]:
    return [ScopedMessage(Scope(user), new_message("m1", **fields)) for user in users]


async def read_foreign_keys(store: Store) -> list[tuple[str | None, tuple[str, ...], str]]:
    keys = await store.database.inspect(lambda c: inspect(c).get_multi_foreign_keys())
    return sorted(
        (table, tuple(key["constrained_columns"]), key["referred_table"])
        for (_, table), items in keys.items()
        for key in items
    )


async def test_an_interrupted_distribution_is_continued(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = databases.fresh(migrated=False)
    async with await Store.open(location) as store:
        await write_messages(store.database, entries("ann", "ben"))
        expected = await read_foreign_keys(store)
        place = distribution._place
        placed: list[object] = []

        def place_some(*args: object, **options: object) -> bool:
            if len(placed) == 9:
                raise RuntimeError("interrupted")
            placed.append(args)
            return place(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(distribution, "_place", place_some)
        with pytest.raises(RuntimeError, match="interrupted"):
            await distribute(store.database, SHARDS)
        monkeypatch.undo()
        missing = (await read_status(store.database)).missing_tables
        assert len(missing) >= len(metadata.tables) - len(distribution.LOCAL_TABLES) - 9
        # Two processes that continue it at once distribute each table once.
        first, second = await asyncio.gather(distribute(store.database), distribute(store.database))
        assert len(first + second) == len(metadata.tables) - len(distribution.LOCAL_TABLES) - 9
        assert set(first + second) <= set(missing)
        assert await distribute(store.database) == []
        assert (await read_status(store.database)).missing_tables == []
        assert await read_foreign_keys(store) == expected
        with pytest.raises(InvalidArgument, match="in 4 shards already"):
            await distribute(store.database, 8)
        assert (await store.timeline(Scope("ben")).get("m1")).content == "hello"
    async with await Store.open(location) as store:
        assert store.database.is_distributed
        assert (await store.find_damage(deep=True)) == {
            "integrity": [],
            "tables": [],
            "references": [],
        }


async def test_migrations_distribute_the_tables_that_they_create(databases: Databases) -> None:
    location = databases.fresh(migrated=False)
    await make_old(location, 1)
    database = Database(location)
    try:
        await distribution.distribute(database, SHARDS)
    finally:
        await database.close()
    async with await Store.open(databases.fresh()) as store:
        expected = await read_foreign_keys(store)
    async with await Store.open(location) as store:
        assert await distribute(store.database) == []
        assert await read_foreign_keys(store) == expected
        await check_each_async(CHECKS, lambda check: check(store), lambda check: check.__name__)


async def test_a_process_that_opened_the_database_before_goes_on_writing(
    databases: Databases,
) -> None:
    location = databases.fresh(migrated=False)
    users = [f"user{number}" for number in range(8)]
    async with await Store.open(location) as stale, await Store.open(location) as store:
        await write_messages(stale.database, entries("ann"))
        await distribute(store.database, SHARDS)
        results = await asyncio.gather(
            *(write_messages(stale.database, entries(user)) for user in users)
        )
        assert all(result.created == (True,) for result in results)
        with pytest.raises(StorageBusy, match="restart this process"):
            await write_messages(stale.database, entries("ben", "cay", "dan", "eve"))
        assert (await store.count())["messages"] == 9


def test_shards_move_to_workers_that_join_later(cluster: Cluster, shell: Shell) -> None:
    name, worker = cluster.create_alone(), cluster.workers[0]
    location, own = cluster.coordinator.location(name), cluster.coordinator.port
    shell("db", "distribute", "--shards", 2, "--db", location)
    assert shell("db", "distribute", "--db", location, "--json").json == {"tables": []}
    cluster.prepare(worker, name)
    cluster.coordinator.run(
        name,
        f"SELECT citus_set_coordinator_host('127.0.0.1', {own})",
        f"SELECT citus_add_node('127.0.0.1', {worker.port})",
    )
    assert _count_shards(shell, location) == [(True, 2), (False, 0)]
    cluster.coordinator.run(name, "SELECT rebalance_table_shards()")
    assert _count_shards(shell, location) == [(True, 1), (False, 1)]
    cluster.drop(name)


def _count_shards(shell: Shell, location: str) -> list[tuple[bool, int]]:
    status = shell("db", "status", "--db", location, "--json").json
    return [(node["is_coordinator"], node["shards"]) for node in status["nodes"]]


async def test_status_counts_shards_and_bytes_by_node(store: Store) -> None:
    users = [f"user{number}" for number in range(40)]
    await write_messages(store.database, entries(*users))
    status = await read_status(store.database)
    assert status.is_distributed
    assert sum(node.shards for node in status.nodes) == SHARDS
    assert all(node.is_reachable for node in status.nodes)
    assert [node.is_coordinator for node in status.nodes] == [True, False, False]
    assert all(node.bytes > 0 for node in status.nodes if node.shards)


async def test_messages_of_several_users_are_stored_user_by_user(store: Store) -> None:
    await write_messages(store.database, entries("ben"))
    batch = [
        *entries("cay", "ann"),
        ScopedMessage(Scope("ben"), new_message("m1", "another")),
        *entries("dan"),
    ]
    with pytest.raises(Conflict) as conflict:
        await write_messages(store.database, batch)
    assert conflict.value.details["stored_users"] == ["ann"]
    assert list(conflict.value.details["faults"]) == [2]
    again = await write_messages(
        store.database, [entry for entry in batch if entry.scope.user_id != "ben"]
    )
    assert again.created == (True, False, True)
    assert again.ids == ("m1", "m1", "m1")


@pytest.mark.parametrize("strict", [False, True])
async def test_an_import_reports_which_users_were_stored(
    library: Library, tmp_path: Path, strict: bool
) -> None:
    await library.add_entries(entries("ben"))
    file = tmp_path / "chat.jsonl"
    fields = {"role": "user", "content": "said", "ts": "2026-01-24T09:30:00Z"}
    pairs = [("ann", "m1"), ("ben", "m1"), ("cay", "m1"), ("ben", "m2")]
    lines = [{"user_id": user, "message_id": key, **fields} for user, key in pairs]
    file.write_text("\n".join(map(json.dumps, lines)))
    report = await Importer(library).run(file, strict=strict)
    assert [bad.line for bad in report.bad] == [2]
    # With `strict`, all lines of a user are stored or none.
    assert (report.stored, report.users) == (
        (2, {"ann", "cay"}) if strict else (3, {"ann", "ben", "cay"})
    )
    assert not report.refused
    assert (await Importer(library).run(file)).repeated == report.stored


async def test_writers_of_one_agents_knowledge_take_turns(store: Store) -> None:
    scope = Scope("ann", "helper", None, frozenset({Permission.KNOWLEDGE}))
    knowledge = store.knowledge(scope)
    new = [NewKnowledge(content=f"fact {number}") for number in range(12)]
    keys = await asyncio.gather(*(knowledge.add(entry) for entry in new))
    assert len(set(keys)) == await knowledge.count() == 12
    version = await store.knowledge_feed("helper").version()
    assert version is not None
    assert version.version == 12


async def test_a_new_agent_of_many_users_is_created_once(store: Store) -> None:
    scopes = [Scope(f"user{number}", f"agent{number % 2}") for number in range(10)]
    message = NewMessage(role=Role.USER, content="tea")
    results = await asyncio.gather(
        *(write_messages(store.database, [ScopedMessage(scope, message)]) for scope in scopes)
    )
    assert sum(result.stored for result in results) == 10
    page = await store.owners.list_agents()
    assert [item["agent_id"] for item in page.items] == ["agent0", "agent1"]


async def test_listings_of_all_users_page_stably(store: Store) -> None:
    users = sorted(f"user{number}" for number in range(25))
    await write_messages(store.database, entries(*users))
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await store.owners.list_users(after=after, limit=4)
        seen += [item["user_id"] for item in page.items]
        after = page.next_after
        if len(seen) == 8:  # one that sorts before the page changes nothing
            await write_messages(store.database, entries("aaa"))
    assert seen == users
    assert await store.owners.find_users("user1") == [u for u in users if u.startswith("user1")]
    assert (await store.count())["messages"] == 26
    levels = await store.estimate_counts()
    assert (levels["users"], levels["messages"]) == (26, 26)


async def test_operators_change_all_users_and_shared_tables_at_once(store: Store) -> None:
    await write_messages(store.database, entries("ann", "ben"))
    before = await store.feed("ann").version()
    assert sum([count async for count in rebuild_search_text(store.database)]) == 2
    after = await store.feed("ann").version()
    assert before is not None
    assert after is not None
    assert before.epoch != after.epoch
    with pytest.raises(Conflict, match="still has users"):
        await store.owners.erase_agent("default")
    for user in ("ann", "ben"):
        await store.owners.erase_user(user)
    await store.owners.erase_agent("default")
    assert (await store.owners.list_agents()).items == ()
