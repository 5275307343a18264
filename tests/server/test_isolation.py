"""Every endpoint there is, called with another user's key: no byte of Ann's comes back."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx

from memrecall.scope import Permission, Scope
from memrecall.store import NewRelation
from memrecall.types import NewMemory, Origin

from .site import Site, said, write

CANARY = "zqcanaryzq"
PUBLIC = {"/healthz", "/metrics"}
EVERYTHING = frozenset(Permission)


def substituted(template: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    assert "{" not in template, f"the test does not know a parameter of {template}"
    return template


def bodies(document: dict[str, Any], operation: dict[str, Any], user: str) -> Iterator[Any]:
    """Bodies for an operation, for that user where it names one."""
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        yield None
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


async def ask_everything(
    client: httpx.AsyncClient, user: str, ids: dict[str, str]
) -> list[tuple[str, httpx.Response]]:
    """Every operation of the document, as that user's, for the things of those ids."""
    document = (await client.get("/openapi.json")).json()
    answers = []
    for template, item in document["paths"].items():
        if template in PUBLIC:
            continue
        path = substituted(template, {"user_id": user, **ids})
        for method, operation in item.items():
            query = queries(operation, user)
            streams = "text/event-stream" in operation["responses"]["200"]["content"]
            for body in bodies(document, operation, user):
                for accept in ("application/json", "text/event-stream")[: 1 + streams]:
                    answer = await client.request(
                        method, path, params=query, json=body, headers={"Accept": accept}
                    )
                    answers.append((f"{method} {template} {accept}", answer))
    return answers


def queries(operation: dict[str, Any], user: str) -> dict[str, Any]:
    """The query parameters that name somebody, or that keep a deletion from being one."""
    given = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
    known = {"user_id": user, "dry_run": True, "entity": CANARY}
    return {name: value for name, value in known.items() if name in given}


async def remember(site: Site, user: str, text: str) -> dict[str, str]:
    """A memory, a relation and finished background work of a user; their ids."""
    scope = Scope(user)
    memory = NewMemory(content=text, memory_key=f"k-{user}")
    await site.library.add_memories(scope, [memory], origin=Origin.USER, actor="test")
    await site.library.store.graph(scope).add({}, [NewRelation(text, "is", text)])
    owner = await site.holder(user)
    body = {"messages": f"I live in {text}.", "background": True}
    begun = (await owner.post("/v1/memories", json=body)).json()
    await site.app.service.memory.job(begun["job"]["job_id"], wait=True)
    return {"memory_id": f"k-{user}", "job_id": begun["job"]["job_id"]}


async def test_no_endpoint_returns_data_of_other_users(site: Site) -> None:
    owner = await site.holder("ann")
    await write(owner, "ann", *(said(n, f"{CANARY} {n}", speaker=CANARY) for n in range(5)))
    hers = await remember(site, "ann", CANARY)
    memory = NewMemory(content=CANARY, memory_key="k", sensitive=True)
    await site.library.add_memories(Scope("ann"), [memory], origin=Origin.USER, actor="test")
    stranger = await site.holder("ben", permissions=EVERYTHING)
    await write(stranger, "ben", said(1, "hello"))
    his = await remember(site, "ben", "Oslo")
    before = await site.library.store.count("ann")

    asked = 0
    for user in ("ann", "ben"):
        for ids in (hers, his, dict.fromkeys(hers, CANARY)):
            for message in ("m001", CANARY):
                walk = await ask_everything(stranger, user, {"message_id": message, **ids})
                for name, answer in walk:
                    asked += 1
                    leaked = json.dumps(answer.text).count(CANARY)
                    # A recall tells its asker what was asked: that is Ben's own word.
                    own = json.dumps(answer.request.content.decode()).count(CANARY)
                    assert not leaked or (own and user == "ben"), (name, answer.text)
                    if user == "ann":
                        assert answer.status_code == 404, (name, answer.text)
                        assert "m00" not in answer.text

    assert asked > 200
    assert await site.library.store.count("ann") == before


async def test_endpoint_walk_returns_own_data(lite: Site) -> None:
    """The test above would pass if nothing worked at all."""
    ann = await lite.holder("ann")
    await write(ann, "ann", *(said(n, f"{CANARY} {n}") for n in range(5)))
    hers = await remember(lite, "ann", CANARY)
    answers = await ask_everything(ann, "ann", {"message_id": "m001", **hers})
    assert {answer.status_code for _, answer in answers} == {200}
    seen = {" ".join(name.split()[:2]) for name, answer in answers if CANARY in answer.text}
    blind = {" ".join(name.split()[:2]) for name, _ in answers} - seen
    assert blind == {
        "post /v1/users/{user_id}/messages",
        "post /v1/memories",
        "delete /v1/memories",
        "delete /v1/memories/{memory_id}",
        "patch /v1/memories/{memory_id}",
        "post /v1/memories/{memory_id}/undo",
        "post /v1/users/{user_id}/chat",
    }  # those that write


async def test_scores_do_not_depend_on_other_users(lite: Site) -> None:
    client = await lite.holder()
    await write(client, "ann", *(said(n, f"tea {n}") for n in range(5)))
    query = {"user_id": "ann", "query_text": "tea"}
    alone = (await client.post("/v1/messages/lexical_search", json=query)).json()
    await write(client, "ben", *(said(n, "tea tea tea") for n in range(50)))
    lite.library.cache.forget("ann")
    assert (await client.post("/v1/messages/lexical_search", json=query)).json() == alone
