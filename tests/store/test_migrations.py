"""Databases of earlier versions open and keep their data.

`history/` has a sample of each schema version, frozen once released: plain INSERTs, with at least
the rows that the tests below ask for. `BYTES'00ff'` stands for a literal of bytes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from memrecall.errors import Disabled, SchemaTooNew, StorageError
from memrecall.scope import Permission, Scope
from memrecall.store import VECTOR_DTYPE, Grant, MessageFilter, Store
from memrecall.store.database.dialects import SQLITE
from memrecall.store.database.engine import Database
from memrecall.store.database.migrations import LATEST, schema_version, upgrade
from memrecall.store.database.tables import memories, messages, meta, traces
from memrecall.text import analyze
from memrecall.types import Origin, Role

from ..cases import check_each_async
from . import process
from .children import run_together
from .samples import ANN, BEN, Rows, ids, new_message, new_trace, read_tables

HISTORY = Path(__file__).with_name("history")


def sample(version: int, *, sqlite: bool) -> list[str]:
    """Return the frozen rows of a schema version as statements for one engine."""
    script = (HISTORY / f"{version:04}.sql").read_text("utf-8")
    script = script.replace(
        "BYTES'", "X'" if sqlite else r"'\x"
    )  # the only difference between the dialects
    return [statement for statement in script.split(";\n") if statement.strip()]


async def make_old(location: str, version: int) -> None:
    """Create a database as memrecall of that schema version left it."""
    database = Database(location)

    def fill(connection: Any) -> None:
        for statement in sample(version, sqlite=database.dialect is SQLITE):
            connection.exec_driver_sql(statement)

    try:
        await upgrade(database, target=version)
        if version:
            await database.transact(fill)
    finally:
        await database.close()


@asynccontextmanager
async def old_store(location: str, version: int) -> AsyncIterator[Store]:
    """Open a database that memrecall of that schema version left."""
    await make_old(location, version)
    async with await Store.open(location) as store:
        yield store


async def test_empty_database_gets_the_latest_schema(empty_location: str) -> None:
    async with old_store(empty_location, 0) as store:
        assert await store.schema_version() == LATEST
        assert await store.count() == dict.fromkeys(await store.count(), 0)


async def messages_are_read_unchanged(store: Store) -> None:
    message = await store.timeline(ANN).get("m1")

    assert message.model_dump() == {
        "message_id": "m1",
        "ts": datetime(2026, 1, 26, 10, 46, 0, 123456, tzinfo=UTC),
        "user_id": "ann",
        "role": Role.USER,
        "content": "我不喝咖啡 ☕",
        "speaker": "Ann",
        "session_id": "open",
        "agent_id": "helper",
        "content_type": "text",
        "parent_message_id": None,
        "metadata": {"tokens": 7, "nested": {"list": [1, None, True]}},
        "create_time": datetime(2026, 1, 26, 10, 47, tzinfo=UTC),
        "sequence_no": 1,
        "project": None,
        "author": None,
    }
    assert await ids(store.timeline(ANN)) == ["m1", "m2", "m3"]
    assert await ids(store.timeline(ANN), MessageFilter(session_id="closed")) == ["m3"]
    assert await ids(store.timeline(BEN)) == ["m1"]
    assert (await store.timeline(ANN).get("m2")).parent_message_id == "m1"


async def memories_are_read_unchanged(store: Store) -> None:
    trusted = Scope("ann", permissions=frozenset({Permission.SENSITIVE}))
    drinks, secret = sorted(
        await store.memories(trusted).get_many(["drinks", "secret"]),
        key=lambda memory: memory.memory_key,
    )

    assert (drinks.summary, drinks.content) == ("No coffee", "Ann drinks no coffee")
    assert [(k.keyword, k.weight) for k in drinks.keywords] == [("coffee", 0.5)]
    assert drinks.source_message_ids == ("m1",)
    assert drinks.valid_from == datetime(2026, 1, 26, tzinfo=UTC)
    assert drinks.provenance.origin == Origin.USER
    assert drinks.created_at == datetime(2026, 1, 26, 10, 48, tzinfo=UTC)
    assert (secret.layer, secret.sensitive, secret.truncated) == ("short", True, True)
    assert len(await store.memories(ANN).get_many(["drinks", "secret"])) == 1


async def owners_and_vectors_are_read_unchanged(store: Store) -> None:
    (agent,) = (await store.owners.list_agents()).items
    ann, ben = (await store.owners.list_users()).items
    ended, active = (await store.owners.list_sessions("ann")).items
    feed_version = await store.feed("ann").version()
    assert feed_version is not None
    changes = [c async for c in store.feed("ann").changes(0, feed_version.version, "embedder-1")]

    assert (agent["agent_name"], agent["config"]) == ("The helper", {"model": "m"})
    assert (ann["user_name"], ann["profile"]) == ("Ann 安", {"city": "北京"})
    assert (ann["status"], ben["status"]) == (1, 0)
    assert (ended["status"], active["context"]) == (0, {"topic": "tea"})
    assert (feed_version.version, feed_version.epoch, feed_version.time_zone) == (
        6,
        "0123456789abcdef",
        "Asia/Shanghai",
    )
    (vector,) = changes[0].vectors
    assert np.frombuffer(vector.vector, VECTOR_DTYPE).tolist() == [1.0, 2.0]


async def messages_are_numbered_on(store: Store) -> None:
    timeline = store.timeline(Scope("ann", session_id="open"))
    await timeline.add([new_message("m4")])

    message = await timeline.get("m4")
    assert message.sequence_no == 3
    assert message.create_time > datetime(2026, 1, 26, 10, 47, 0, 1, tzinfo=UTC)
    feed_version = await store.feed("ann").version()
    assert feed_version is not None
    assert feed_version.version == 7
    with pytest.raises(Disabled):
        await store.timeline(Scope("ann", session_id="closed")).add([new_message("m5")])
    with pytest.raises(Disabled):
        await store.timeline(BEN).add([new_message("m5")])


async def test_schema_2_traces_are_read_unchanged(empty_location: str) -> None:
    async with old_store(empty_location, 2) as store:
        drinks, dog = await store.traces(ANN).get("t1"), await store.traces(ANN).get("t2")

        assert asdict(drinks) == {
            "trace_id": "t1",
            "agent_id": "helper",
            "session_id": "unwritten",
            "created_at": datetime(2026, 1, 26, 10, 50, 0, 1, tzinfo=UTC),
            "query": "我喝什么？",
            "stop_reason": "handoff",
            "confidence": 0.75,
            "abstained": False,
            "iterations": 2,
            "model_calls": 3,
            "tool_calls": 4,
            "seconds": 1.5,
            "model": "",
            "body": {"events": [{"kind": "search", "query": "咖啡"}]},
        }
        assert (dog.session_id, dog.abstained, dog.body) == (None, True, {})
        page = await store.traces(ANN).page()
        assert [trace.trace_id for trace in page.items] == ["t2", "t1"]


async def test_schema_8_traces_get_the_model_of_their_body(empty_location: str) -> None:
    await make_old(empty_location, 8)
    database = Database(empty_location)
    try:
        of_trace = update(traces).where(traces.c.trace_id == "t1")
        body = {"model": "小模型" + "x" * 300, "events": []}
        await database.transact(lambda c: c.execute(of_trace.values(body=body)))
    finally:
        await database.close()

    async with await Store.open(empty_location) as store:
        models = {t.trace_id: t.model for t in (await store.traces(ANN).page()).items}
        assert models == {"t1": ("小模型" + "x" * 300)[:255], "t2": ""}


async def test_schema_9_feedback_and_audit_log_are_read_unchanged(empty_location: str) -> None:
    async with old_store(empty_location, 9) as store:
        (label,) = await store.feedback_list.labelled()
        assert asdict(label) == {
            "user_id": "ann",
            "trace_id": "t1",
            "agent_id": "helper",
            "query": "我喝什么？",
            "asked_at": datetime(2026, 1, 26, 10, 50, 0, 1, tzinfo=UTC),
            "is_right": False,
            "evidence": ("m1",),
            "in_evaluation": True,
            "actor": "key 0011",
            "updated_at": datetime(2026, 1, 26, 10, 55, tzinfo=UTC),
        }
        assert (await store.traces(ANN).get("t1")).model == "tiny"
        (entry,) = (await store.audit(ANN).page(limit=5)).items
        assert (entry.action, entry.actor, entry.target) == ("delete_message", "key k1", "erased")


async def test_schema_9_rows_take_their_workspace_as_project(empty_location: str) -> None:
    folder = "/home/ann/tea " + "x" * 300
    await make_old(empty_location, 9)
    database = Database(empty_location)
    values = {
        "m1": {"workspace": folder},
        "m2": {"workspace": ["no", "text"]},
        "m3": {"workspace": ""},
    }
    notes = {"drinks": {"workspace": "/home/ann/tea"}, "rome": {"workspace": "/home/ann/tea"}}

    def fill(connection: Any) -> None:
        for table, key, rows in ((messages, "message_id", values), (memories, "memory_key", notes)):
            for name, metadata in rows.items():
                of_row = (table.c.user_id == "ann", table.c[key] == name)
                connection.execute(update(table).where(*of_row).values(metadata=metadata))

    try:
        await database.transact(fill)
    finally:
        await database.close()

    async with await Store.open(empty_location) as store:
        stored = await store.timeline(ANN).get_many(["m1", "m2", "m3"])
        assert {m.message_id: m.project for m in stored} == {
            "m1": folder[:255], "m2": None, "m3": None
        }  # fmt: skip
        drinks, rome = [await store.memories(ANN).get(key) for key in ("drinks", "rome")]
        assert (drinks.project, rome.project) == ("/home/ann/tea", None)  # she lives there
        in_tea = Scope("ann", project="/home/ann/tea")
        assert await ids(store.timeline(in_tea)) == ["m2", "m3"]
        assert (await store.traces(in_tea).page()).items == ()


async def test_schema_10_projects_are_read_unchanged(empty_location: str) -> None:
    async with old_store(empty_location, 10) as store:
        (project,) = await store.owners.list_projects("ann")
        assert (project.project, project.messages, project.memories) == ("github.com/ann/tea", 1, 1)
        traces_of = store.traces(Scope("ann", project=project.project))
        assert [trace.trace_id for trace in (await traces_of.page()).items] == ["t2"]


async def traces_are_taken_and_threads_followed(store: Store) -> None:
    before = await store.feed("ann").version()
    await store.traces(ANN).add(new_trace("new"), keep_days=30)

    assert (await store.traces(ANN).get("new")).query == "which tea?"
    assert await store.feed("ann").version() == before
    thread = await store.timeline(ANN).thread(session_id="open", limit=9)
    assert [message.message_id for message in thread] == ["m1", "m2"]
    with pytest.raises(Disabled):
        await store.traces(BEN).add(new_trace(), keep_days=30)


async def test_schema_3_keys_stay_valid(empty_location: str) -> None:
    async with old_store(empty_location, 3) as store:
        key = await store.keys.verify("mr_0011223344556677_abc123")

        assert key is not None
        assert key.as_dict() == {
            "key_id": "0011223344556677",
            "name": "Ann's 手机",
            "users": ["ann"],
            "agent_id": "helper",
            "read_only": True,
            "permissions": ["sensitive"],
            "created_at": datetime(2026, 1, 26, 10, tzinfo=UTC),
            "expires_at": datetime(2999, 1, 1, tzinfo=UTC),
            "revoked_at": None,
        }
        assert await store.keys.verify("mr_8899aabbccddeeff_abc123") is None


async def test_schema_4_graph_summaries_and_history_are_read_unchanged(empty_location: str) -> None:
    scope = Scope("ann", "helper", "open")
    async with old_store(empty_location, 4) as store:
        home = await store.memories(ANN).get("home")
        assert (home.subject, home.field, home.pinned) == ("user", "home", True)
        assert (home.superseded_by, home.superseded_reason) == ("rome", "she moved")
        addition, update = await store.memories(ANN).history("home")
        assert (addition.new_text, update.event, update.other_key) == ("Paris", "UPDATE", "rome")
        await store.changes(ANN).undo("home", actor="ann")
        assert (await store.memories(ANN).get("home")).valid_to is None
        assert await store.memories(ANN).get_many(["rome"]) == []

        (ann,) = await store.graph(scope).entities(["安"])
        assert (ann.name, ann.aliases) == ("Ann", ("Ann", "安"))
        ((_, _, relation),) = await store.graph(scope).around([ann.entity_id])
        assert (relation.relationship, relation.destination) == ("lives_in", "罗马")
        (summary,) = await store.session_state(scope).summaries()
        assert (summary.level, summary.text) == (0, "茶 and coffee")
        checkpoint = await store.session_state(scope).latest()
        assert checkpoint is not None
        assert checkpoint.state == {"items": [], "scratch": {"步": 1}}
        assert (await store.knowledge(scope).get("dose")).content == "三次一天"


async def test_knowledge_before_schema_5_is_indexed(empty_location: str) -> None:
    async with old_store(empty_location, 4) as store:
        feed_version = await store.knowledge_feed("helper").version()
        assert feed_version is not None
        assert (feed_version.version, feed_version.status, feed_version.time_zone) == (1, 1, "UTC")
        (run,) = [c async for c in store.knowledge_feed("helper").changes(0, 1, "embedder-1")]
        (row,) = run.knowledge
        assert (row.key, row.change_no) == ("dose", 1)
        assert row.search_text == analyze("三次一天").to_search_text()
        assert run.vectors == []


async def test_schema_5_knowledge_is_read_unchanged(empty_location: str) -> None:
    async with old_store(empty_location, 5) as store:
        feed_version = await store.knowledge_feed("helper").version()
        assert feed_version is not None
        assert (feed_version.version, feed_version.epoch) == (4, "fedcba9876543210")
        (run,) = [c async for c in store.knowledge_feed("helper").changes(0, 4, "embedder-1")]
        assert np.frombuffer(run.vectors[0].vector, VECTOR_DTYPE).tolist() == [1.0, 2.0]
        graph = store.knowledge(Scope("ann", "helper"))
        assert (await graph.get("dose")).tags == ["药"]
        assert await graph.was_restored("re1")


async def test_schema_8_hidden_and_erased_messages_stay_so(empty_location: str) -> None:
    async with old_store(empty_location, 8) as store:
        assert (await store.timeline(ANN).add([new_message("erased")])).created == (False,)
        assert await store.timeline(ANN).get_many(["hidden", "erased"]) == []


async def memories_are_changed_and_changed_back(store: Store) -> None:
    await store.changes(ANN).update("drinks", {"content": "drinks tea"}, actor="ann")
    assert [step.event for step in await store.memories(ANN).history("drinks")] == ["ADD", "UPDATE"]
    await store.changes(ANN).undo("drinks", actor="ann")
    assert (await store.memories(ANN).get("drinks")).content == "Ann drinks no coffee"


async def keys_are_taken(store: Store) -> None:
    key, text = await store.keys.create(Grant(frozenset({"ann"})))
    assert await store.keys.verify(text) == key


async def earlier_messages_are_unread(store: Store) -> None:
    unread = {session.session_id for session in await store.unread(ANN).sessions()}
    runs = await store.unread(ANN).runs()
    assert unread == ({"closed"} if runs else {"closed", "open"})
    assert runs in ([], [("job_x0000000000001", 1)])


CHECKS = [  # read-only checks come first
    earlier_messages_are_unread,
    messages_are_read_unchanged,
    memories_are_read_unchanged,
    owners_and_vectors_are_read_unchanged,
    traces_are_taken_and_threads_followed,
    keys_are_taken,
    messages_are_numbered_on,
    memories_are_changed_and_changed_back,
]


@pytest.mark.parametrize("version", range(1, LATEST + 1))
async def test_old_database_is_read_unchanged_and_writable(
    empty_location: str, version: int
) -> None:
    async with old_store(empty_location, version) as store:
        assert await store.schema_version() == LATEST
        await check_each_async(CHECKS, lambda check: check(store), lambda check: check.__name__)


async def rewrite_meta(location: str, name: str, value: str) -> Rows:
    """Change a value of the metadata table and return all rows."""
    database = Database(location)
    stated = update(meta).where(meta.c.name == name).values(value=value)
    try:
        await database.transact(lambda connection: connection.execute(stated))
        return await read_tables(database)
    finally:
        await database.close()


@pytest.mark.parametrize("name", ["schema_version", "text_version"])
async def test_newer_database_is_refused_untouched(location: str, name: str) -> None:
    async with await Store.open(location) as store:
        await store.timeline(ANN).add([new_message("m1")])
    before = await rewrite_meta(location, name, "99")

    with pytest.raises(SchemaTooNew, match="99") as refusal:
        await Store.open(location)

    assert "pip install -U memrecall-agent" in str(refusal.value)
    assert await rewrite_meta(location, name, "99") == before


async def test_database_of_another_application_is_refused_untouched(empty_location: str) -> None:
    database = Database(empty_location)
    try:
        await database.transact(lambda c: c.exec_driver_sql("CREATE TABLE users (name TEXT)"))

        with pytest.raises(StorageError, match="of another program"):
            await Store.open(empty_location)

        async with database.read() as connection:
            assert await connection.run_sync(schema_version) == 0
    finally:
        await database.close()


@pytest.mark.concurrent
async def test_concurrent_opens_of_an_empty_database(empty_location: str) -> None:
    stores = await asyncio.gather(*(Store.open(empty_location) for _ in range(8)))

    versions = [await store.schema_version() for store in stores]
    database_ids = {store.facts.database_id for store in stores}
    for store in stores:
        await store.close()

    assert versions == [LATEST] * 8
    assert len(database_ids) == 1


@pytest.mark.concurrent
def test_concurrent_processes_open_an_empty_database(empty_location: str) -> None:
    reports = run_together(process.open_only, [[empty_location]] * 6)

    assert reports == [[LATEST]] * 6
