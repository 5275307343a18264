"""Errors: one shape, stable codes, and no internal details."""

import logging
from typing import Any

import pytest

from memrecall.errors import (
    EmbedderFailed,
    EmbeddingModelMismatch,
    MemrecallError,
    ModelFailed,
    NotFound,
    StorageBusy,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnreachable,
)
from memrecall.server.errors import problem_from_error
from tests.cases import check_each

from .http_service import HttpService, check_error, make_message, write_messages

SECRET = "/srv/data/people.db"


async def test_unknown_paths_and_methods_are_refused(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    for path in ("/", "/v1", "/v1/users", "/v1/users//messages", "/v1/users/ann/messages/"):
        check_error(await client.get(path), 404, "NOT_FOUND")
    for method, path, allowed in [
        ("DELETE", "/v1/users/ann/messages", "GET, POST"),
        ("PUT", "/v1/users/ann/recall", "POST"),
        ("GET", "/v1/messages/lexical_search", "POST"),
        ("POST", "/healthz", "GET"),
        ("HEAD", "/healthz", "GET"),
    ]:
        answer = await client.request(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == allowed
        if method != "HEAD":
            check_error(answer, 405, "INVALID_ARGUMENT")


FAULTS: list[tuple[MemrecallError, int, str]] = [
    (StorageBusy(f"{SECRET}: locked"), 503, "UNAVAILABLE"),
    (StorageFull(f"{SECRET}: full"), 507, "RESOURCE_EXHAUSTED"),
    (StorageReadOnly(SECRET), 503, "UNAVAILABLE"),
    (StorageUnreachable(SECRET), 503, "UNAVAILABLE"),
    (StorageError(SECRET), 503, "UNAVAILABLE"),
    (EmbedderFailed(SECRET), 503, "UNAVAILABLE"),
    (EmbeddingModelMismatch(SECRET), 503, "UNAVAILABLE"),
    (ModelFailed(SECRET, kind="quota"), 503, "UNAVAILABLE"),
    (NotFound(SECRET), 404, "NOT_FOUND"),
]


def test_run_errors_reveal_only_their_kind() -> None:
    def check(case: tuple[MemrecallError, int, str]) -> None:
        failure, status, code = case
        problem = problem_from_error(failure)
        assert (problem.http_status, problem.code) == (status, code)
        assert SECRET not in str(problem.as_dict())
        is_for_operator = getattr(failure, "kind", None) == "quota"  # trying again does not help
        assert ("Retry-After" in problem.headers) == (status == 503 and not is_for_operator)

    check_each(FAULTS, check)


async def test_bug_reveals_only_its_request_id(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1))

    async def fail_unexpectedly(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a secret content")

    monkeypatch.setattr(sqlite_service.library, "find_messages", fail_unexpectedly)
    caplog.set_level(logging.INFO, "memrecall.server")
    query = {"user_id": "ann", "query_text": "a secret query"}

    answer = await ann.post("/v1/messages/lexical_search", json=query)

    detail = check_error(answer, 500, "INTERNAL")
    assert detail["details"] == {"request_id": answer.headers["x-request-id"]}
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    bug, line = (record.__dict__["fields"] for record in caplog.records[-2:])
    assert bug["error"] == "ZeroDivisionError"
    assert any("fail_unexpectedly" in frame for frame in bug["at"])
    assert line["status"] == 500
    assert bug["request_id"] == line["request_id"] == answer.headers["x-request-id"]
    assert "secret" not in str([record.__dict__ for record in caplog.records])
