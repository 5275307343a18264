"""`project` over HTTP: a parameter of reads and searches, a field of what is written."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from .http_service import HttpService, check_error, make_message, write_messages

SHOP, BLOG = "github.com/acme/shop", "/home/ann/blog"
SECRET = "Zephyr"
MESSAGES = "/v1/users/ann/messages"
ASKED = "which release is deployed"
READS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "range": ("GET", MESSAGES, {"project": ...}),
    "neighbors": ("GET", f"{MESSAGES}/m003/neighbors", {"project": ...}),
    "lexical": (
        "POST",
        "/v1/messages/lexical_search",
        {"user_id": "ann", "query_text": "release", "project": ...},
    ),
    "semantic": (
        "POST",
        "/v1/messages/semantic_search",
        {"user_id": "ann", "query_text": ASKED, "project": ...},
    ),
    "memories": ("GET", "/v1/memories", {"user_id": "ann", "project": ...}),
    "memory search": ("POST", "/v1/memories/search", {"query": ASKED, "project": ...}),
    "recall": ("POST", "/v1/users/ann/recall", {"query": ASKED, "project": ...}),
    "state": ("GET", "/v1/state", {"session_id": "s1", "project": ...}),
    "export": ("GET", "/v1/users/ann/export", {"project": ...}),
}


async def send(client: httpx.AsyncClient, name: str, project: str) -> httpx.Response:
    method, path, fields = READS[name]
    named = {key: project if value is ... else value for key, value in fields.items()}
    if method == "GET":
        return await client.get(path, params=named)
    return await client.post(path, json=named)


@pytest.fixture
async def ann(service: HttpService) -> httpx.AsyncClient:
    """A client of Ann, who has said something in two projects and something outside."""
    client = await service.client_with_key("ann")
    said = f"the {SECRET} release is deployed at noon"
    await write_messages(
        client,
        "ann",
        make_message(1, said, project=SHOP, session_id="s1"),
        make_message(2, "the blog is made with hugo", project=BLOG, session_id="s1"),
        make_message(3, "I like green tea", session_id="s1"),
    )
    body = {"messages": [f"we keep the {SECRET} release"], "infer": False, "session_id": "s1"}
    assert (await client.post("/v1/memories", json={**body, "project": SHOP})).status_code == 200
    return client


@pytest.mark.parametrize("name", READS)
async def test_reads_are_restricted_to_a_project(ann: httpx.AsyncClient, name: str) -> None:
    for project, is_read in ((BLOG, False), (SHOP, True)):
        answer = await send(ann, name, project)
        assert answer.status_code == 200, answer.text
        assert (SECRET in answer.text) == is_read, answer.text


@pytest.mark.parametrize("name", READS)
async def test_header_restricts_reads_to_a_project(ann: httpx.AsyncClient, name: str) -> None:
    method, path, fields = READS[name]
    named = {key: value for key, value in fields.items() if value is not ...}
    body: dict[str, Any] = {"params": named} if method == "GET" else {"json": named}
    for project, is_read in ((BLOG, False), (SHOP, True)):
        headers = {"X-Memrecall-Project": quote(project, safe="")}
        answer = await ann.request(method, path, headers=headers, **body)
        assert answer.status_code == 200, answer.text
        assert (SECRET in answer.text) == is_read, answer.text


async def test_wrong_header_is_refused(ann: httpx.AsyncClient) -> None:
    for value, params in (("%FF", {}), ("x" * 300, {}), ("", {}), ("shop", {"project": BLOG})):
        headers = {"X-Memrecall-Project": value}
        answer = await ann.get("/v1/memories", headers=headers, params=params)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")


async def test_records_have_their_project(ann: httpx.AsyncClient) -> None:
    items = (await ann.get(MESSAGES, params={"session_id": "s1", "order": "asc"})).json()["items"]
    assert [item["project"] for item in items[:3]] == [SHOP, BLOG, None]
    written_back = await write_messages(ann, "ann", *items[:3])
    assert {item["status"] for item in written_back["items"]} == {"same"}
    found = (await ann.get("/v1/memories", params={"project": SHOP})).json()["results"]
    assert SHOP in {item["project"] for item in found}
    only = {"filters": f'{{"project": "{SHOP}"}}'}
    found = (await ann.get("/v1/memories", params=only)).json()["results"]
    assert {item["project"] for item in found} == {SHOP}


async def test_a_project_is_erased(service: HttpService, ann: httpx.AsyncClient) -> None:
    reader = await service.client_with_key("ann", read_only=True)
    erase = {"project": SHOP}
    check_error(await reader.delete("/v1/users/ann", params=erase), 403, "PERMISSION_DENIED")
    erased = (await ann.delete("/v1/users/ann", params=erase)).json()
    assert (erased["messages"], erased["memories"]) == (2, 1)
    exported = (await ann.get("/v1/users/ann/export")).text
    assert SECRET not in exported
    assert "hugo" in exported
    check_error(await ann.delete("/v1/users/ann", params=erase), 404, "NOT_FOUND")


async def test_names_are_checked(ann: httpx.AsyncClient) -> None:
    for name in ("", "x" * 256):
        check_error(await ann.get(MESSAGES, params={"project": name}), 400, "INVALID_ARGUMENT")
