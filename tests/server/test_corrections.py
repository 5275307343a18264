"""Corrections over HTTP: relations, changes of others, the audit log and refused keys."""

import httpx
import pytest

from memrecall.scope import Scope
from memrecall.store import AuditEntry

from .http_service import HttpService, check_error
from .test_memories import add, add_verbatim, list_memories

RELATION = {"source": "Tom", "relationship": "works_at", "destination": "Equinor"}


async def entries(service: HttpService) -> list[AuditEntry]:
    """Return the audit log of ann, oldest first."""
    page = await service.library.store.audit(Scope("ann")).page(limit=50)
    return list(reversed(page.items))


async def test_change_of_another_client_is_a_conflict(ann: httpx.AsyncClient) -> None:
    key = await add_verbatim(ann, "likes tea")
    path = f"/v1/memories/{key}"
    read = {"unchanged_since": (await ann.get(path)).json()["updated_at"]}
    assert (await ann.patch(path, json={"memory": "likes coffee", **read})).status_code == 200
    late = await ann.patch(path, json={"memory": "likes water", **read})
    assert check_error(late, 409, "CONFLICT")["details"]["reason"] == "changed"
    undo = await ann.post(f"{path}/undo", params=read)
    assert check_error(undo, 409, "CONFLICT")["details"]["reason"] == "changed"
    check_error(await ann.patch(path, json=read), 400, "INVALID_ARGUMENT")
    assert await list_memories(ann) == ["likes coffee"]


async def test_relation_is_corrected_and_removed(ann: httpx.AsyncClient) -> None:
    await add(ann, [{"role": "user", "content": "My brother Tom works at Equinor."}])
    body = {**RELATION, "correction": {"destination": "Statoil"}}
    answer = (await ann.post("/v1/graph/correct", json=body)).json()
    assert (answer["found"], answer["relation"]["destination"]) == (1, "Statoil")
    check_error(await ann.post("/v1/graph/correct", json=RELATION), 404, "NOT_FOUND")
    removal = await ann.post("/v1/graph/correct", json={**RELATION, "destination": "Statoil"})
    (key,) = removal.json()["ids"]
    assert removal.json() == {"ids": [key], "found": 1, "relation": None, "message": "removed"}
    assert await employers_of_tom(ann) == set()
    for number in (key, answer["ids"][0]):
        undone = await ann.post(f"/v1/memories/{number}/undo")
        assert undone.json() == {"id": number, "event": "UNDO", "message": "undone"}
    assert "Equinor" in await employers_of_tom(ann)
    check_error(await ann.post(f"/v1/memories/{key}/undo"), 404, "NOT_FOUND")


async def employers_of_tom(ann: httpx.AsyncClient) -> set[str]:
    relations = (await ann.get("/v1/graph", params={"entity": "Tom"})).json()["relations"]
    return {r["destination"] for r in relations if r["relationship"] == "works_at"}


async def test_read_only_key_cannot_correct(service: HttpService) -> None:
    writer = await service.client_with_key("ann")
    key = await add_verbatim(writer, "stays")
    reader = await service.client_with_key("ann", read_only=True)
    for refusal in (
        await reader.patch(f"/v1/memories/{key}", json={"memory": "goes"}),
        await reader.post("/v1/graph/correct", json=RELATION),
    ):
        assert check_error(refusal, 403, "PERMISSION_DENIED")["details"]["reason"] == "read_only"
    assert await entries(service) == []


async def test_audit_log_names_the_key_and_erasure_is_in_the_service_log(
    service: HttpService, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await service.client_with_key("ann")
    key = await add_verbatim(ann, "likes tea")
    await ann.delete(f"/v1/memories/{key}")
    await ann.get("/v1/users/ann/export")
    await ann.post(f"/v1/memories/{key}/purge")
    log = await entries(service)
    assert [entry.action for entry in log] == ["delete", "export", "purge"]
    (actor,) = {entry.actor for entry in log}
    assert actor.startswith("key ")
    with caplog.at_level("INFO", "memrecall.server"):
        assert (await ann.delete("/v1/users/ann")).json()["derived"] >= 3
    (record,) = [record for record in caplog.records if record.message == "audit"]
    assert record.__dict__["fields"] == {
        "action": "erase_user",
        "key": actor.removeprefix("key "),
        "user": "ann",
    }
    assert await entries(service) == []
