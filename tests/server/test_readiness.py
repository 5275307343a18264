"""`/healthz` and `/readyz`: the process is alive, and what requests need is ready."""

import asyncio

import pytest

from memrecall.errors import EmbedderFailed, StorageUnreachable
from memrecall.server.http import context
from memrecall.server.http.context import Check, Readiness

from .http_service import HttpService, check_error


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
