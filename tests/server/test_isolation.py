"""No endpoint returns data of one user to the key of another."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx

from memrecall.scope import Permission, Scope
from memrecall.store import NewRelation, Reading
from memrecall.types import NewMemory, NewMessage, Origin, Role

from .http_service import HttpService, make_message, write_messages

CANARY = "zqcanaryzq"
OF_SPACES = ("/v1/spaces", "/v1/invitations")
PUBLIC = {"/healthz", "/readyz", "/metrics"}
ERASURE = "erase_user"  # would leave nothing to walk through; tests/server/test_users.py has it
ALL_PERMISSIONS = frozenset(Permission)
EXAMPLE_RELATION = ("李明", "advised_by", "张教授")  # which the document's example corrects


def fill_template(template: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    assert "{" not in template, f"the test does not know a parameter of {template}"
    return template


def bodies(document: dict[str, Any], operation: dict[str, Any], user: str) -> Iterator[Any]:
    """Yield request bodies of an operation that name this user."""
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        yield None
        return
    if "application/json" not in content:
        yield content["application/octet-stream"]["example"]
        return
    media = content["application/json"]
    schema = document["components"]["schemas"][media["schema"]["$ref"].rpartition("/")[2]]
    body = dict(media["example"])
    if "user_id" in schema["properties"]:
        body["user_id"] = user
    yield body
    for name in ("query_text", "query"):
        if name in body:
            yield {**body, name: CANARY}


async def call_every_operation(
    client: httpx.AsyncClient, user: str, ids: dict[str, str]
) -> list[tuple[str, httpx.Response]]:
    """Call every operation of the document for this user with these ids."""
    document = (await client.get("/openapi.json")).json()
    answers = []
    for template, item in document["paths"].items():
        if template in PUBLIC or template.startswith(OF_SPACES):  # test_spaces.py has these
            continue
        names = {"user_id": user, **ids}
        path = fill_template(template, names)
        for method, operation in item.items():
            if operation["operationId"] == ERASURE:
                continue
            query = queries(operation, user)
            media_types = operation["responses"]["200"]["content"]
            for body in bodies(document, operation, user):
                for accept in media_types:
                    is_lines = isinstance(body, str)
                    content = {"content": body} if is_lines else {"json": body}
                    headers = {"Accept": accept}
                    if is_lines:
                        headers["Content-Type"] = "application/x-ndjson"
                    answer = await client.request(
                        method, path, params=query, headers=headers, **content
                    )
                    answers.append((f"{method} {template} {accept}", answer))
    return answers


def queries(operation: dict[str, Any], user: str) -> dict[str, Any]:
    """Return the query parameters that name the user, and those that make a deletion a dry run."""
    names = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
    fixed_values = {"user_id": user, "dry_run": True, "entity": CANARY}
    return {name: value for name, value in fixed_values.items() if name in names}


async def store_user_data(service: HttpService, user: str, text: str) -> dict[str, str]:
    """Store a memory, a relation and a finished job of a user, and return their ids."""
    scope = Scope(user)
    memories = [
        NewMemory(content=text, memory_key=f"k-{user}"),
        NewMemory(content=text, memory_key=f"p-{user}", subject="user", field="motto"),
    ]
    await service.library.add_memories(scope, memories, origin=Origin.USER, actor="test")
    relations = [NewRelation(text, "is", text), NewRelation(*EXAMPLE_RELATION)]
    await service.library.store.graph(scope).add({}, relations)
    owner = await service.client_with_key(user)
    body = {"messages": f"Remember that my motto is {text}.", "background": True}
    report = (await owner.post("/v1/memories", json=body)).json()
    await service.app.service.memory.job(report["job"]["job_id"], wait=True)
    scope, run = Scope(user, session_id="of the run"), f"job_x{user}"
    message = NewMessage(message_id=f"x-{user}", content=text, role=Role.USER)
    await service.library.add_messages(scope, [message])
    await service.library.apply_plan(scope, [], actor="test", reading=Reading([f"x-{user}"], run))
    ids = {"memory_id": f"k-{user}", "session_id": "default", "run": run}
    return {**ids, "job_id": report["job"]["job_id"]}


async def test_no_endpoint_returns_data_of_other_users(service: HttpService) -> None:
    owner = await service.client_with_key("ann")
    await write_messages(
        owner, "ann", *(make_message(n, f"{CANARY} {n}", speaker=CANARY) for n in range(5))
    )
    ann_ids = await store_user_data(service, "ann", CANARY)
    memory = NewMemory(content=CANARY, memory_key="k", sensitive=True)
    await service.library.add_memories(Scope("ann"), [memory], origin=Origin.USER, actor="test")
    other_user = await service.client_with_key("ben", permissions=ALL_PERMISSIONS)
    await write_messages(other_user, "ben", make_message(1, "hello"))
    ben_ids = await store_user_data(service, "ben", "Oslo")
    await service.library.vectors.settle()
    before = await service.library.store.count("ann")

    requests = 0
    for user in ("ann", "ben"):
        for ids in (ann_ids, ben_ids, dict.fromkeys(ann_ids, CANARY)):
            for message in ("m001", CANARY):
                answers = await call_every_operation(
                    other_user, user, {"message_id": message, **ids}
                )
                for name, answer in answers:
                    requests += 1
                    leaked = json.dumps(answer.text).count(CANARY)
                    # A recall returns its own question, which is Ben's.
                    own = json.dumps(answer.request.content.decode()).count(CANARY)
                    assert not leaked or (own and user == "ben"), (name, answer.text)
                    if user == "ann":
                        assert answer.status_code == 404, (name, answer.text)
                        assert "m00" not in answer.text

    assert requests > 200
    assert await service.library.store.count("ann") == before


async def test_endpoint_walk_returns_own_data(sqlite_service: HttpService) -> None:
    """Without this, the previous test would also pass if every request failed."""
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *(make_message(n, f"{CANARY} {n}") for n in range(5)))
    ann_ids = await store_user_data(sqlite_service, "ann", CANARY)
    answers = await call_every_operation(ann, "ann", {"message_id": "m001", **ann_ids})
    assert {answer.status_code for _, answer in answers} == {200}
    operations = {" ".join(name.split()[:2]) for name, answer in answers if CANARY in answer.text}
    without_data = {" ".join(name.split()[:2]) for name, _ in answers} - operations
    assert without_data == {
        "post /v1/users/{user_id}/messages",
        "delete /v1/users/{user_id}/messages/{message_id}",
        "post /v1/memories",
        "delete /v1/memories",
        "delete /v1/memories/{memory_id}",
        "patch /v1/memories/{memory_id}",
        "post /v1/memories/{memory_id}/undo",
        "post /v1/memories/{memory_id}/purge",
        "post /v1/memories/extract",
        "get /v1/extractions",
        "post /v1/extractions/{run}/undo",
        "post /v1/graph/extract",
        "post /v1/sessions/{session_id}/end",
        "post /v1/sweep",
        "post /v1/users/{user_id}/import",
        "get /v1/memories/{memory_id}/who_can_see",
        "get /v1/memories/{memory_id}/why_seen",
        "post /v1/users/{user_id}/chat",  # nothing stored answers its question
    }  # operations that write, or return no contents


async def test_scores_do_not_depend_on_other_users(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key()
    await write_messages(client, "ann", *(make_message(n, f"tea {n}") for n in range(5)))
    query = {"user_id": "ann", "query_text": "tea"}
    expected = (await client.post("/v1/messages/lexical_search", json=query)).json()
    await write_messages(client, "ben", *(make_message(n, "tea tea tea") for n in range(50)))
    sqlite_service.library.cache.forget("ann")
    assert (await client.post("/v1/messages/lexical_search", json=query)).json() == expected
