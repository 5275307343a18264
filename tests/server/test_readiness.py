"""`/healthz` and `/readyz`: the process is alive, and what requests need is ready."""

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from memrecall.errors import EmbedderFailed, StorageFull, StorageUnreachable
from memrecall.server.http import context
from memrecall.server.http.context import Check, Readiness
from memrecall.server.metrics import STATES
from memrecall.store.database.write_state import WriteState

from ..databases import PostgresqlServer
from ..store.contention import lock_of_another_writer, wait_for_blocked
from .http_service import (
    HttpService,
    check_error,
    make_message,
    open_library,
    serve_in_process,
    write_messages,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


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


async def test_deleted_database_is_not_ready(sqlite_service: HttpService) -> None:
    file = sqlite_service.library.store.file
    assert file is not None
    file.rename(file.with_name("moved"))
    detail = check_error(await sqlite_service.client().get("/readyz"), 503, "UNAVAILABLE")
    assert detail["message"] == "not ready: database"


async def read_state(service: HttpService) -> tuple[str, str | None]:
    """Return status and reason of `/readyz`, and check that the metric says the same."""
    answer = (await service.client().get("/readyz")).json()
    service.app.service.measure()
    metrics = service.app.service.metrics.render().decode()
    for state in STATES:
        value = 1.0 if state == answer["status"] else 0.0
        assert f'memrecall_state{{state="{state}"}} {value}\n' in metrics
    return answer["status"], answer.get("reason")


async def test_failed_write_is_told_until_one_succeeds(service: HttpService) -> None:
    database = service.library.store.database

    async def fail(_: object) -> None:
        raise StorageFull("no space is left")

    async def change_nothing(_: object) -> None:
        return None

    ann = await service.client_with_key("ann")
    assert await read_state(service) == ("ready", None)
    with pytest.raises(StorageFull):
        await database.transact(fail)
    assert await read_state(service) == ("read-only", "disk full")
    if service.library.store.file is not None:  # a server writes every commit to its log
        await database.transact(change_nothing)
        assert await read_state(service) == ("read-only", "disk full")
    await write_messages(ann, "ann", make_message(1))
    assert await read_state(service) == ("ready", None)


async def test_space_that_is_free_again_ends_it_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    state = WriteState(tmp_path / "a.db")
    state.record_failure(StorageFull("no space is left"))
    assert state.problem() == "disk full"
    state.record_success()  # of a small write
    assert state.problem() == "disk full"
    usage.free = 100_000_000
    assert state.problem() is None
    state.record_failure(StorageFull("above a quota"))  # which the file system does not show
    assert state.problem() == "disk full"


async def test_lost_log_is_told_before_a_write_fails(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))
    file = sqlite_service.library.store.file
    assert file is not None
    file.with_name(file.name + "-wal").unlink()
    assert await read_state(sqlite_service) == ("read-only", "log lost")
    body = {"messages": [make_message(2)]}
    answer = await ann.post("/v1/users/ann/messages", json=body)
    check_error(answer, 503, "UNAVAILABLE")
    assert await read_state(sqlite_service) == ("read-only", "log lost")


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
async def test_server_that_refuses_writes_is_read_only(
    location: str, tmp_path: Path, postgresql_server: PostgresqlServer
) -> None:
    name = location.rpartition("/")[2].partition("?")[0]
    setting = f'ALTER DATABASE "{name}" SET default_transaction_read_only'
    async with open_library(location, tmp_path) as library, serve_in_process(library) as service:
        ann = await service.client_with_key("ann")
        postgresql_server.run(f"{setting} = on")
        await library.store.database.close()  # so that connections are opened anew
        assert await read_state(service) == ("read-only", "read-only setting")
        answer = await ann.post("/v1/users/ann/messages", json={"messages": [make_message(1)]})
        check_error(answer, 503, "UNAVAILABLE")
        postgresql_server.run(f"{setting} = off")
        await library.store.database.close()
        await write_messages(ann, "ann", make_message(1))
        service.app.service.readiness = Readiness(service.app.service.readiness.checks)
        assert await read_state(service) == ("ready", None)


@pytest.mark.concurrent
async def test_probes_do_not_wait_for_a_writer(location: str, tmp_path: Path) -> None:
    async with (
        open_library(location, tmp_path, lock_timeout=600.0) as library,
        serve_in_process(library) as service,
    ):
        ann = await service.client_with_key("ann")
        await write_messages(ann, "ann", make_message(1))
        async with lock_of_another_writer(location):
            body = {"messages": [make_message(2)]}
            write = asyncio.create_task(ann.post("/v1/users/ann/messages", json=body))
            await wait_for_blocked(library.store, 1)
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


async def test_check_that_hangs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CHECK_SECONDS", 0.01)
    readiness = Readiness({"database": Check(asyncio.Event().wait)})
    assert await readiness.outcomes() == {"database": False}
