"""`/healthz` and `/readyz`: the process is alive, and what requests need is ready."""

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import select

from memrecall.errors import EmbedderFailed, StorageFull, StorageUnreachable
from memrecall.scope import Permission
from memrecall.server.http import context
from memrecall.server.http.context import Check, Readiness, _library_checks
from memrecall.server.metrics import STATES
from memrecall.store.database.engine import WriteState

from ..databases import PostgresqlServer
from ..store.contention import lock_of_another_writer, wait_for_blocked
from ..waiting import LIMIT
from .http_service import Clock, HttpService, check_error, make_message, write_messages
from .test_deadlines import wait_for_embedder


class Dependency:
    """Something that a check asks, and that fails while `error` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None

    async def respond(self) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


async def test_probes_need_no_key(service: HttpService) -> None:
    await service.create_key("ann")
    stranger = service.client()
    assert (await stranger.get("/healthz")).json()["status"] == "ok"
    answer = await stranger.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "checks": {"database": "ok", "embedder": "ok", "workers": "ok"},
    }


_REQUESTS = (
    ("GET", "/v1/users/ann/messages", None),
    ("POST", "/v1/users/ann/messages", {"messages": [make_message(1)]}),
    ("POST", "/v1/users/ann/recall", {"query": "tea"}),
    ("GET", "/v1/users", None),
    ("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ("GET", "/docs", None),
    ("GET", "/openapi.json", None),
    ("GET", "/unknown", None),
)


async def test_service_that_loads_refuses_requests_at_once(sqlite_service: HttpService) -> None:
    clients = [await sqlite_service.client_with_key("ann"), sqlite_service.client("wrong")]
    operator = await sqlite_service.client_with_key(permissions=frozenset({Permission.OPERATOR}))
    loaded = asyncio.Event()

    async def load() -> None:
        await loaded.wait()

    loading = asyncio.create_task(load())
    sqlite_service.app.service.loading = loading
    for method, path, body in _REQUESTS:
        for client in clients:
            answer = await client.request(method, path, json=body)
            detail = check_error(answer, 503, "UNAVAILABLE")
            assert (detail["message"], detail["details"]) == (
                "not ready: loading",
                {"reason": "loading"},
            )
            assert answer.headers["retry-after"] == "1"
    assert (await operator.get("/healthz")).status_code == 200
    assert (await operator.get("/metrics")).status_code == 200
    loaded.set()
    await loading
    assert (await clients[0].get("/readyz")).status_code == 200
    assert (await clients[0].get("/v1/users/ann/messages")).json()["items"] == []  # none was stored


async def test_failing_database_is_not_ready_but_alive(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StorageUnreachable("/srv/people.db: connection refused")

    monkeypatch.setattr(sqlite_service.library.store.keys._database, "fetch", fail)
    answer = await sqlite_service.client().get("/readyz")
    detail = check_error(answer, 503, "UNAVAILABLE")
    assert detail["message"] == "not ready: database"
    assert detail["details"] == {
        "checks": {"database": "failed", "embedder": "ok", "workers": "ok"}
    }
    assert answer.headers["retry-after"] == "1"
    assert "people" not in answer.text
    assert (await sqlite_service.client().get("/healthz")).status_code == 200


async def read_state(service: HttpService) -> tuple[str, str | None]:
    """Return status and reason of `/readyz` by new checks, which the metric must agree with."""
    service.app.service.readiness = Readiness(service.app.service.readiness.checks)
    answer = (await service.client().get("/readyz")).json()
    status = answer.get("status", "unavailable")
    service.app.service.measure()
    metrics = service.app.service.metrics.render().decode()
    for state in STATES:
        assert f'memrecall_state{{state="{state}"}} {float(state == status)}\n' in metrics
    return status, answer.get("reason")


async def test_failed_write_is_told_until_one_succeeds(service: HttpService) -> None:
    database = service.library.store.database

    def fail(_: object) -> None:
        raise StorageFull("no space is left")

    ann = await service.client_with_key("ann")
    assert await read_state(service) == ("ready", None)
    with pytest.raises(StorageFull):
        await database.transact(fail)
    assert await read_state(service) == ("read-only", "disk full")
    if service.library.store.file is not None:  # a server writes every commit to its log
        await database.transact(lambda connection: connection.scalar(select(1)))
        assert await read_state(service) == ("read-only", "disk full")
    await write_messages(ann, "ann", make_message(1))
    assert await read_state(service) == ("ready", None)


async def test_space_that_is_free_again_ends_it_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    state = WriteState(tmp_path / "a.db")
    assert state.problem() == "disk full"  # before a write fails
    state.record_failure(StorageFull("no space is left"))
    assert state.problem() == "disk full"
    state.record_success()  # of a small write
    assert state.problem() == "disk full"
    usage.free = 100_000_000
    assert state.problem() is None
    state.record_failure(StorageFull("above a quota"))  # which the file system does not show
    assert state.problem() == "disk full"


async def test_lost_log_is_told_before_a_write_fails_and_so_is_a_lost_file(
    sqlite_service: HttpService,
) -> None:
    await write_messages(await sqlite_service.client_with_key("ann"), "ann", make_message(1))
    file = sqlite_service.library.store.file
    assert file is not None
    file.with_name(file.name + "-wal").unlink()
    assert await read_state(sqlite_service) == ("read-only", "log lost")
    file.rename(file.with_name("moved"))
    assert await read_state(sqlite_service) == ("unavailable", None)


async def test_service_whose_log_was_cut_is_not_ready_and_says_why(
    sqlite_service: HttpService,
) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    file = sqlite_service.library.store.file
    assert file is not None
    os.truncate(file.with_name(file.name + "-wal"), 4_000)
    sqlite_service.app.service.readiness = Readiness(_library_checks(sqlite_service.library))
    detail = check_error(await ann.get("/readyz"), 503, "UNAVAILABLE")
    assert detail["details"]["checks"]["database"] == "failed"
    assert detail["details"]["reason"] == "log lost"


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
async def test_server_that_refuses_writes_is_read_only(
    service: HttpService, postgresql_server: PostgresqlServer
) -> None:
    database = service.library.store.database
    ann = await service.client_with_key("ann")
    name = database.location.rpartition("/")[2].partition("?")[0]
    read_only = ("read-only", "read-only setting")
    change = f'ALTER DATABASE "{name}" SET default_transaction_read_only'
    connections = f"FROM pg_stat_activity WHERE datname = '{name}'"
    for setting, state, status in (("on", read_only, 503), ("off", ("ready", None), 200)):
        # Connections have the setting of the time when they were opened.
        end = f"SELECT pg_terminate_backend(pid, 60000) {connections}"
        postgresql_server.run(f"{change} = {setting}", end)
        answer = await ann.post("/v1/users/ann/messages", json={"messages": [make_message(1)]})
        assert answer.status_code == status
        assert await read_state(service) == state


@pytest.mark.concurrent
async def test_probes_do_not_wait_for_a_writer(service: HttpService, location: str) -> None:
    ann = await service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    async with lock_of_another_writer(location):
        body = {"messages": [make_message(2)]}
        write = asyncio.create_task(ann.post("/v1/users/ann/messages", json=body))
        await wait_for_blocked(service.library.store, 1)
        for path in ("/healthz", "/readyz"):
            assert (await service.client().get(path)).status_code == 200
        assert not write.done()
    assert (await write).status_code == 200


async def test_failed_check_is_repeated_and_a_success_is_valid_for_a_time() -> None:
    clock, dependency = Clock(), Dependency()
    readiness = Readiness({"embedder": Check(dependency.respond, seconds=30.0)}, clock)
    dependency.error = EmbedderFailed("no answer")
    assert await readiness.outcomes() == {"embedder": False}
    dependency.error = None
    assert await readiness.outcomes() == {"embedder": False}
    clock.now += 1.5
    assert await readiness.outcomes() == {"embedder": True}
    dependency.error = EmbedderFailed("no answer")
    clock.now += 29.0
    assert await readiness.outcomes() == {"embedder": True}
    assert dependency.calls == 2
    clock.now += 2.0
    assert await readiness.outcomes() == {"embedder": False}


async def test_callers_share_a_check_and_others_can_be_added() -> None:
    dependency = Dependency()
    readiness = Readiness({"database": Check(dependency.respond)}, Clock())
    outcomes = await asyncio.gather(*(readiness.outcomes() for _ in range(20)))
    assert outcomes == [{"database": True}] * 20
    assert dependency.calls == 1
    readiness.checks["workers"] = Check(dependency.respond)
    assert await readiness.outcomes() == {"database": True, "workers": True}


async def test_service_whose_embedder_hangs_is_ready(
    service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CHECK_SECONDS", 0.5)
    wait = wait_for_embedder(service.library, monkeypatch)
    operator = service.client()
    service.app.service.readiness = Readiness(_library_checks(service.library))
    assert (await operator.get("/metrics")).status_code == 200
    assert wait.entered == 0
    answer = (await operator.get("/readyz")).raise_for_status().json()
    assert (answer["status"], answer["checks"]["embedder"]) == ("ready", "failed")
    assert wait.entered == 1
    assert service.app.service.state == "ready"


@pytest.mark.parametrize("gives_up", [True, False])
async def test_check_that_hangs_fails(monkeypatch: pytest.MonkeyPatch, gives_up: bool) -> None:
    monkeypatch.setattr(context, "CHECK_SECONDS", 0.01)
    is_free = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not gives_up:  # like a driver whose server is frozen
                await is_free.wait()

    readiness = Readiness({"database": Check(hang)})
    async with asyncio.timeout(LIMIT):
        assert await readiness.outcomes() == {"database": False}
    is_free.set()


def test_a_check_takes_a_second_at_most() -> None:
    assert context.CHECK_SECONDS == 1.0
