"""A PostgreSQL server that restarts, freezes, or has no connection left: typed errors, no loss."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.util import await_only

import memrecall.store.feed
from memrecall.errors import StorageBusy, StorageError, StorageUnreachable
from memrecall.memory import Library
from memrecall.retries import DatabaseRetries
from memrecall.scope import Scope
from memrecall.server.http.context import Readiness
from memrecall.settings import Settings
from memrecall.store import Store
from memrecall.types import NewMessage, Role

from ..databases import DISCONNECT_OTHERS, OwnServer, start_postgresql
from ..server.http_service import make_message, serve_in_process
from ..waiting import wait_until
from .contention import lock_of_another_writer, wait_for_blocked
from .samples import ANN, ids, new_message, numbered_messages, read_tables

pytestmark = [pytest.mark.concurrent, pytest.mark.service]

WRITERS = 8
MESSAGES = "/v1/users/ann/messages"
SEARCH = {"user_id": "ann", "query_text": "hello"}
TIMEOUT = 100.0  # of a test that hangs


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    with start_postgresql() as server:
        yield server


@pytest.fixture
def own_location(own_server: OwnServer) -> Iterator[str]:
    name = own_server.create(migrated=True)
    yield own_server.location(name)
    own_server.drop([name])


class Writers:
    """Tasks that write numbered messages without end, each in a session of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.acknowledged: list[str] = []
        self.errors: list[Exception] = []

    async def run(self, writer: int) -> None:
        """Write one message after the other; every second one without an id."""
        scope, number = Scope(f"user{writer % 2}", session_id=f"s{writer}"), 0
        while True:
            text = f"{writer}-{number}"
            key = None if number % 2 else text
            number += 1
            message = NewMessage(message_id=key, content=text, role=Role.USER)
            try:
                await self._store.timeline(scope).add([message])
            except Exception as error:
                self.errors.append(error)
                await asyncio.sleep(0.01)
            else:
                self.acknowledged.append(text)

    async def wait_for(self, count: int) -> None:
        """Wait until this many more writes are acknowledged."""
        target = len(self.acknowledged) + count
        await wait_until(lambda: len(self.acknowledged) >= target)


@asynccontextmanager
async def run_writers(store: Store) -> AsyncIterator[Writers]:
    writers = Writers(store)
    tasks = [asyncio.create_task(writers.run(number)) for number in range(WRITERS)]
    try:
        yield writers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def stored_texts(store: Store) -> list[str]:
    return [row["content"] for row in (await read_tables(store.database))["messages"]]


async def test_restart_loses_and_duplicates_nothing(
    own_server: OwnServer, own_location: str
) -> None:
    async with await Store.open(own_location) as store:
        async with run_writers(store) as writers:
            for _ in range(2):
                await writers.wait_for(20)
                await asyncio.to_thread(own_server.stop)
                await asyncio.to_thread(own_server.start)
            await writers.wait_for(20)

        texts = await stored_texts(store)
        assert [repr(e) for e in writers.errors if not isinstance(e, StorageError)] == []
        assert sorted(set(writers.acknowledged) - set(texts)) == []
        assert len(set(texts)) == len(texts)


async def test_writes_wait_for_a_server_that_restarts(
    own_server: OwnServer, own_location: str
) -> None:
    async with await Store.open(own_location, retry_seconds=TIMEOUT) as store:
        async with run_writers(store) as writers:
            await writers.wait_for(20)
            await asyncio.to_thread(own_server.stop)
            await asyncio.to_thread(own_server.start)
            await writers.wait_for(20)
        assert writers.errors == []


async def test_stopped_server_is_unreachable_and_nothing_is_stored(
    own_server: OwnServer, own_location: str
) -> None:
    async with await Store.open(own_location, retry_seconds=0.2) as store:
        await store.timeline(ANN).add([new_message("m")])
        await asyncio.to_thread(own_server.stop)
        try:
            with pytest.raises(StorageUnreachable, match="postgresql"):
                await store.timeline(ANN).add([new_message("n")])
            with pytest.raises(StorageUnreachable):
                await ids(store.timeline(ANN))
        finally:
            await asyncio.to_thread(own_server.start)
        assert await ids(store.timeline(ANN)) == ["m"]


async def test_service_answers_503_while_the_server_is_down(
    own_server: OwnServer, own_location: str
) -> None:
    settings = Settings(db=own_location, embedder="none", snapshots=False)
    async with await Library.open(settings) as library, serve_in_process(library) as service:
        library.store.database.retries = DatabaseRetries(0.1)
        client = await service.client_with_key()
        message = make_message(1)
        requests: list[Callable[[], Awaitable[Any]]] = [
            lambda: client.post(MESSAGES, json={"messages": [message]}),
            lambda: client.get(MESSAGES),
            lambda: client.post("/v1/messages/lexical_search", json=SEARCH),
        ]
        assert [(await request()).is_success for request in requests] == [True] * 3
        await asyncio.to_thread(own_server.stop)
        try:
            answers = [await request() for request in requests]
        finally:
            await asyncio.to_thread(own_server.start)
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "UNAVAILABLE")
            assert int(answer.headers["Retry-After"]) > 0
        assert [(await request()).is_success for request in requests] == [True] * 3


async def test_frozen_server_is_unreachable_in_time(
    own_server: OwnServer, own_location: str
) -> None:
    options: dict[str, Any] = {"statement_timeout": 0.3, "lock_timeout": 0.3, "retry_seconds": 0.1}
    async with await Store.open(own_location, **options) as store:
        await store.timeline(ANN).add([new_message("m")])
        with own_server.frozen():
            async with asyncio.timeout(TIMEOUT):
                with pytest.raises(StorageUnreachable, match="no answer"):
                    await store.timeline(ANN).add([new_message("n")])
                with pytest.raises(StorageUnreachable, match="no answer"):
                    await ids(store.timeline(ANN))
        assert await ids(store.timeline(ANN)) == ["m"]
        assert (await store.timeline(ANN).add([new_message("n")])).stored == 1


async def test_exhausted_connections_are_waited_for(
    own_server: OwnServer, own_location: str
) -> None:
    others = await take_all_connections(own_server)
    attempts: list[object] = []

    def count(*arguments: object) -> None:
        attempts.append(arguments)

    event.listen(Engine, "do_connect", count)
    try:
        with pytest.raises(StorageBusy, match="too many clients"):
            await Store.open(own_location, retry_seconds=0.2)
        attempts.clear()
        opening = asyncio.create_task(Store.open(own_location, retry_seconds=TIMEOUT))
        await wait_until(lambda: len(attempts) > 2)
    finally:
        event.remove(Engine, "do_connect", count)
        for connection in others:
            await connection.close()
    async with await opening as store:
        assert (await store.timeline(ANN).add([new_message("m")])).stored == 1


@pytest.mark.parametrize("has_read", [False, True])
async def test_service_without_a_connection_for_writes_is_not_ready(
    own_server: OwnServer, own_location: str, has_read: bool
) -> None:
    """Connections that it has already, for reads, do not hide it."""
    settings = Settings(db=own_location, embedder="none", snapshots=False)
    async with await Library.open(settings) as library, serve_in_process(library) as service:
        database = library.store.database
        client = service.client()
        if has_read:
            assert (await client.get(MESSAGES)).status_code == 404
        await database._writer.dispose()
        if not has_read:
            await database._engine.dispose()
        others = await take_all_connections(own_server)
        try:
            answer = await client.get("/readyz")
            error = answer.json()["error"]
            assert (answer.status_code, error["message"]) == (503, "not ready: database")
        finally:
            for connection in others:
                await connection.close()
        service.app.service.readiness = Readiness(service.app.service.readiness.checks)
        assert (await client.get("/readyz")).status_code == 200


async def take_all_connections(server: OwnServer) -> list[Any]:
    """Connect until the server accepts no more, not even its administrator."""
    connections = []
    while True:
        try:
            connections.append(await asyncpg.connect(server.uri))
        except asyncpg.TooManyConnectionsError:
            return connections


async def test_lost_acknowledgement_is_looked_up(own_server: OwnServer, own_location: str) -> None:
    async with await Store.open(own_location, retry_seconds=TIMEOUT) as store:
        await store.timeline(ANN).add([new_message("m")])
        commits: list[str] = []

        def lose_answer(connection: Any, outcome: str) -> None:
            raw = connection.connection.driver_connection
            await_only(raw.execute(outcome))
            raw.terminate()
            commits.append(outcome)

        for outcome in ("COMMIT", "ROLLBACK"):
            lose = partial(lose_answer, outcome=outcome)
            event.listen(store.database.write_engine, "commit", lose, once=True)
            assert (await store.timeline(ANN).add([new_message(None, outcome)])).stored == 1

        assert commits == ["COMMIT", "ROLLBACK"]
        assert sorted(await stored_texts(store)) == ["COMMIT", "ROLLBACK", "hello"]


async def test_index_is_read_on_after_connections_were_cut(
    own_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memrecall.store.feed, "CHANGES_PER_READ", 1)
    async with await Store.open(own_location) as store:
        await store.timeline(ANN).add(numbered_messages("m", 3))
        feed = store.feed(ANN.user_id)
        version = await feed.version()
        assert version is not None
        changes = feed.changes(0, version.version, None)
        await anext(changes)
        connection = await asyncpg.connect(own_location.replace("+asyncpg", ""))
        await connection.execute(DISCONNECT_OTHERS)
        await connection.close()
        assert [row.key for row in (await anext(changes)).messages] == ["m1"]


async def test_slow_statement_is_ended(own_location: str) -> None:
    async with await Store.open(own_location, statement_timeout=0.2, lock_timeout=0.2) as store:
        with pytest.raises(StorageBusy, match="statement timeout"):
            async with store.database.autocommit() as connection:
                await connection.exec_driver_sql("SELECT pg_sleep(100)")
        assert await ids(store.timeline(ANN)) == []


async def test_reads_do_not_wait_for_waiting_writers(own_location: str) -> None:
    async with await Store.open(own_location, lock_timeout=TIMEOUT) as store:
        await store.timeline(ANN).add([new_message("m")])
        async with lock_of_another_writer(own_location):
            writes = [
                asyncio.create_task(store.timeline(ANN).add([new_message(f"w{number}")]))
                for number in range(40)
            ]
            await wait_for_blocked(store, 5)
            async with asyncio.timeout(TIMEOUT / 2):  # the pool of the writers stays exhausted
                assert await ids(store.timeline(ANN)) == ["m"]
        assert sum(result.stored for result in await asyncio.gather(*writes)) == 40


async def test_damaged_pages_are_found_by_a_deep_check(
    own_server: OwnServer, own_location: str
) -> None:
    async with await Store.open(own_location) as store:
        await store.timeline(ANN).add(numbered_messages("m", 500))
        async with store.database.autocommit() as connection:
            statement = "SELECT pg_relation_filepath('messages')"
            path = (await connection.exec_driver_sql(statement)).scalar()
    await asyncio.to_thread(own_server.stop)
    file = own_server.folder / str(path)
    data = bytearray(file.read_bytes())
    data[8192 : 8192 + 64] = b"\xa5" * 64
    file.write_bytes(data)
    await asyncio.to_thread(own_server.start)
    async with await Store.open(own_location) as store:
        with pytest.raises(StorageError, match="invalid page") as error:
            await store.find_damage(deep=True)
    assert "restore a backup" in error.value.hint
