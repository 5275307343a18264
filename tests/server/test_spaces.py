"""Spaces over HTTP: every operation with every role, strangers, and members who left."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memrecall.agent.driver import stream_recall
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.server.auth import MAX_SPACES, SPACES_HEADER, USER_HEADER
from memrecall.server.http import chat, recall, users
from memrecall.server.http.openapi import ROLE_OF_OPERATION
from memrecall.store import Grant, NewRelation, Reading
from memrecall.types import NewMemory, Origin

from ..counting import recorded_statements
from .http_service import (
    HttpService,
    check_error,
    make_message,
    serve_in_process,
    serve_on_socket,
    write_messages,
)
from .test_isolation import CANARY, EXAMPLE_RELATION, PUBLIC, bodies, fill_template, queries

ROLES = ("reader", "contributor", "admin")
# What each role may call beyond the roles before it.
LEAST = {
    "reader": {
        "read_messages",
        "read_neighbors",
        "read_message",
        "search_messages_by_words",
        "search_messages_by_meaning",
        "list_memories",
        "search_memories",
        "get_memory",
        "read_history",
        "list_jobs",
        "read_job",
        "recall_memories",
        "read_graph",
        "read_profile",
        "read_state",
        "list_viewers",
        "list_extractions",
        "explain_access",
        "read_space",
        "list_members",
        "read_space_audit",
        "remove_member",
    },
    "contributor": {
        "write_messages",
        "delete_message",
        "add_memories",
        "update_memory",
        "delete_memory",
        "undo_memory",
        "purge_memory",
        "extract_relations",
        "summarize_session",
        "extract_stored",
        "undo_extraction",
        "answer_message",
        "promote_memory",
        "demote_memory",
    },
    "admin": {
        "delete_memories",
        "sweep_memories",
        "export_user",
        "import_user",
        "erase_user",
        "set_member",
        "delete_space",
        "end_session",
    },
}
OF_NO_SPACE = {
    "list_spaces",
    "create_space",
    "list_invitations",
    "accept_invitation",
    "decline_invitation",
}
LAST = ("erase_user", "delete_space", "remove_member")  # they end what the others need
TEAM = "team-x"


@pytest.fixture
async def service(library: Library) -> AsyncIterator[HttpService]:
    """A service with a space of ann, who shares what she wrote with nobody yet."""
    async with serve_in_process(library) as running:
        ann = await running.client_with_key("ann", permissions=frozenset({Permission.SENSITIVE}))
        await make_space(running, ann, TEAM)
        yield running


async def make_space(service: HttpService, admin: httpx.AsyncClient, name: str) -> None:
    answer = await admin.post("/v1/spaces", json={"space_id": name, "name": f"The {name}"})
    assert answer.status_code == 200, answer.text


async def add_member(
    service: HttpService, admin: httpx.AsyncClient, space: str, member: str, role: str
) -> None:
    """Invite a user, who accepts, or change the role of a member."""
    answer = await admin.put(f"/v1/spaces/{space}/members/{member}", json={"role": role})
    assert answer.status_code == 200, answer.text
    if answer.json()["status"] == "invited":
        await service.library.store.spaces.accept(member, space)


async def fill_space(
    service: HttpService, writer: httpx.AsyncClient, user: str, space: str, key: str | None = None
) -> dict[str, str]:
    """Store messages, memories, relations and a job in a space, and return their ids."""
    owner = f"space:{space}"
    await write_messages(writer, owner, *(make_message(n, f"{CANARY} {n}") for n in range(5)))
    inside = await service.library.store.spaces.enter(Scope(user, member=key), space)
    memories = [NewMemory(content=CANARY, memory_key="k")]
    await service.library.add_memories(inside, memories, origin=Origin.USER, actor=user)
    await service.library.store.graph(inside).add({}, [NewRelation(*EXAMPLE_RELATION)])
    own = [NewMemory(content=CANARY, memory_key=f"own-{space}")]
    await service.library.add_memories(Scope(user), own, origin=Origin.USER, actor=user)
    body = {"user_id": owner, "messages": f"My motto is {CANARY}.", "background": True}
    job = (await writer.post("/v1/memories", json=body)).json()["job"]["job_id"]
    await service.app.service.memory.job(job, wait=True)
    body = {"memory_id": f"own-{space}"}
    copy = (await writer.post(f"/v1/spaces/{space}/promote", json=body)).json()["id"]
    reading = Reading(["m004"], "job_xrun")
    await service.library.apply_plan(inside, [], actor=user, reading=reading)
    ids = {"memory_id": "k", "message_id": "m001", "session_id": "default", "job_id": job}
    ids["run"] = "job_xrun"
    return {**ids, "promoted": f"own-{space}", "copy": copy.rpartition("/")[2]}


async def walk(
    client: httpx.AsyncClient, space: str, member: str, ids: dict[str, str], name: str = ""
) -> AsyncIterator[tuple[str, httpx.Response]]:
    """Call every operation on a space, as each of its media types, and yield the responses."""
    document = (await client.get("/openapi.json")).json()
    user = f"space:{space}"
    calls = [
        (operation["operationId"], template, method, operation)
        for template, item in document["paths"].items()
        for method, operation in item.items()
        if template not in PUBLIC and operation["operationId"] not in OF_NO_SPACE
    ]
    for operation_id, template, method, operation in sorted(
        calls, key=lambda call: LAST.index(call[0]) if call[0] in LAST else -1
    ):
        named = "zoe" if operation_id == "set_member" else member
        values = {"user_id": user, "space_id": space, "member": named, **ids}
        own = {
            "promote_memory": {"memory_id": ids["promoted"]},
            "demote_memory": {"memory_id": ids["copy"]},
            "delete_space": {"name": name or f"The {space}"},
        }
        for body in bodies(document, operation, user):
            for accept in operation["responses"]["200"]["content"]:
                lines = {"Content-Type": "application/x-ndjson"} if isinstance(body, str) else {}
                content = own.get(operation_id, body)
                sent: dict[str, Any] = {"content": body} if lines else {"json": content}
                yield (
                    operation_id,
                    await client.request(
                        method,
                        fill_template(template, values),
                        params=queries(operation, user),
                        headers={"Accept": accept, **lines},
                        **sent,
                    ),
                )


def test_the_table_of_roles_is_the_one_of_the_service() -> None:
    expected = {name: role for role, names in LEAST.items() for name in names}
    assert expected | {"handle_hook": "reader"} == ROLE_OF_OPERATION


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", ["user", "key"])
async def test_every_operation_with_every_role(service: HttpService, role: str, kind: str) -> None:
    """A member gets 200, or 403 with a reason for what their role does not include."""
    ann = await service.client_with_key("ann", permissions=frozenset({Permission.SENSITIVE}))
    key, secret = await service.library.store.keys.create(
        Grant(frozenset({"ben"}), permissions=frozenset({Permission.SENSITIVE}))
    )
    ben, member = service.client(secret), "ben" if kind == "user" else f"key:{key.key_id}"
    await add_member(service, ann, TEAM, member, "contributor")
    if kind == "key":  # whose own role counts
        await add_member(service, ann, TEAM, "ben", "reader" if role == "admin" else "admin")
    ids = await fill_space(service, ben, "ben", TEAM, member if kind == "key" else None)
    await add_member(service, ann, TEAM, member, role)
    await service.library.vectors.settle()
    allowed = {name for least in ROLES[: ROLES.index(role) + 1] for name in LEAST[least]}
    cells = 0
    async for name, answer in walk(ben, TEAM, member, ids):
        cells += 1
        if name not in allowed:
            error = check_error(answer, 403, "PERMISSION_DENIED")
            assert error["details"] == {"reason": "space_role", "role": role}, name
            assert CANARY not in answer.text
        elif name == "erase_user":
            check_error(answer, 400, "INVALID_ARGUMENT")
        elif name == "remove_member" and role == "admin":
            check_error(answer, 404, "NOT_FOUND")  # the space is deleted by now
        else:
            assert answer.status_code == 200, (name, answer.text)
    print(f"{role} {kind}: {cells} cells")
    assert cells >= 50


async def test_strangers_cannot_tell_a_space_from_none(service: HttpService) -> None:
    ann = await service.client_with_key("ann", permissions=frozenset({Permission.SENSITIVE}))
    ids = await fill_space(service, ann, "ann", TEAM)
    dora = await service.client_with_key("dora", permissions=frozenset(Permission))
    eve = await service.client_with_key("eve", permissions=frozenset(Permission))
    backend = await service.client_with_key(permissions=frozenset(Permission))
    await add_member(service, ann, TEAM, "eve", "admin")
    assert (await eve.get(f"/v1/spaces/{TEAM}")).status_code == 200
    assert (await ann.delete(f"/v1/spaces/{TEAM}/members/eve")).status_code == 200
    await service.library.vectors.settle()
    before = await service.library.store.count(f"space:{TEAM}")
    answers: dict[str, set[tuple[int, str]]] = {}
    cells = 0
    for client, space in (
        (dora, TEAM),
        (dora, "none"),
        (eve, TEAM),
        (eve, "none"),
        (backend, TEAM),
        (backend, "none"),
    ):
        async for name, answer in walk(client, space, "eve", ids):
            cells += 1
            answers.setdefault(name, set()).add((answer.status_code, answer.text))
    print(f"strangers: {cells} cells")
    assert cells >= 300
    (same,) = {outcome for outcomes in answers.values() for outcome in outcomes}
    assert same[0] == 404
    assert await service.library.store.count(f"space:{TEAM}") == before


async def test_no_header_or_id_reaches_a_foreign_space(service: HttpService) -> None:
    """The header of spaces neither adds data of a foreign space nor says that there is one."""
    ann = await service.client_with_key("ann", permissions=frozenset({Permission.SENSITIVE}))
    ids = await fill_space(service, ann, "ann", TEAM)
    secret = await service.create_key("dora", permissions=frozenset(Permission))
    dora = service.client(secret)
    await write_messages(dora, "dora", make_message(1, "hello"))
    await service.library.vectors.settle()
    document = (await dora.get("/openapi.json")).json()
    ids |= {"user_id": "dora", "memory_id": f"space:{TEAM}/k", "message_id": f"space:{TEAM}/m001"}
    outcomes: dict[str, set[tuple[int, str]]] = {}
    for space in (TEAM, "none"):
        client = service.client(secret, **{SPACES_HEADER: space})
        in_space = {"memory_id": f"space:{space}/k", "space_id": space}
        for template, item in document["paths"].items():
            if template in PUBLIC or template.startswith("/v1/spaces"):
                continue
            for method, operation in item.items():
                name = operation["operationId"]
                if name in ("erase_user", "import_user", "export_user"):
                    continue
                path = fill_template(template, ids | in_space)
                body = next(bodies(document, operation, "dora"))
                query = queries(operation, "dora")
                answer = await client.request(method, path, params=query, json=body)
                assert CANARY not in answer.text, name
                if answer.status_code != 200:
                    outcomes.setdefault(name, set()).add((answer.status_code, answer.text))
    assert {name: len(found) for name, found in outcomes.items() if len(found) > 1} == {}
    covering = {
        "search_memories",
        "recall_memories",
        "answer_message",
        "get_memory",
        "list_viewers",
        "explain_access",
    }
    assert covering <= outcomes.keys()
    for spaces, status in ((f"{TEAM}/x", 400), (",".join(f"s{n}" for n in range(17)), 400)):
        answer = await dora.post(
            "/v1/memories/search", json={"query": "tea"}, headers={SPACES_HEADER: spaces}
        )
        assert answer.status_code == status
    assert MAX_SPACES == 16
    backend = await service.client_with_key()
    for path in (f"/v1/spaces/{TEAM}", f"/v1/users/space:{TEAM}/messages"):
        answer = await backend.get(path, headers={USER_HEADER: f"space:{TEAM}"})
        assert answer.status_code == 400


async def test_searches_recalls_and_chat_cover_named_spaces(service: HttpService) -> None:
    ann_client = await service.client_with_key("ann")
    ben = await service.client_with_key("ben")
    await add_member(service, ann_client, TEAM, "ben", "reader")
    owner = {"user_id": f"space:{TEAM}"}
    said = {**owner, "messages": "The launch of Kestrel is on Friday", "infer": False}
    assert (await ann_client.post("/v1/memories", json=said)).status_code == 200
    await write_messages(ben, "ben", make_message(1, "Kestrel needs a logo"))
    await service.library.vectors.settle()
    headers = {SPACES_HEADER: TEAM}
    with recorded_statements() as statements:
        alone = (await ben.post("/v1/memories/search", json={"query": "Kestrel"})).json()
    assert not any("memberships" in statement for statement in statements)
    assert {hit.get("space") for hit in alone["results"]} == {None}
    found = (
        await ben.post("/v1/memories/search", json={"query": "Kestrel"}, headers=headers)
    ).json()
    hits = {hit.get("space"): hit for hit in found["results"]}
    assert hits.keys() == {None, TEAM}
    assert (hits[TEAM]["author"], hits[TEAM]["user_id"]) == ("ann", f"space:{TEAM}")
    key = hits[TEAM]["id"].replace("/", "%2F")
    path = f"/v1/memories/{key}"
    assert (await ben.get(path, headers=headers)).json()["space"] == TEAM
    assert (await ben.get(path)).status_code == 404
    seen = (await ben.get(f"{path}/who_can_see", headers=headers)).json()
    assert [member["member"] for member in seen["members"]] == ["ann", "ben"]
    (why,) = (await ben.get(f"{path}/why_seen", headers=headers)).json()["results"]
    assert (why["space"], why["member"], why["granted_by"]) == (TEAM, "ben", "ann")
    check_error(await ben.delete(path, headers=headers), 403, "PERMISSION_DENIED")
    query = {"query": "When is the launch of Kestrel?"}
    result = (await ben.post("/v1/users/ben/recall", json=query, headers=headers)).json()
    assert {(item["space"], item["author"]) for item in result["memories"]} >= {(TEAM, "ann")}
    trace = result["trace"]["trace_id"]
    reasons = (await ben.get(f"/v1/memories/{trace}/why_seen", headers=headers)).json()["results"]
    assert TEAM in {reason["space"] for reason in reasons}
    turn = {"message": "When is the launch of Kestrel?"}
    answer = await ben.post("/v1/users/ben/chat", json=turn, headers=headers)
    assert "Friday" in answer.text
    await ann_client.delete(f"/v1/spaces/{TEAM}/members/ben")
    for again in (
        await ben.post("/v1/memories/search", json={"query": "Kestrel"}, headers=headers),
        await ben.post("/v1/users/ben/recall", json=query, headers=headers),
        await ben.post("/v1/users/ben/chat", json=turn, headers=headers),
    ):
        check_error(again, 404, "NOT_FOUND")


async def test_message_searches_cover_named_spaces(service: HttpService) -> None:
    ann, ben = [await service.client_with_key(user) for user in ("ann", "ben")]
    await add_member(service, ann, TEAM, "ben", "reader")
    await write_messages(ann, f"space:{TEAM}", make_message(1, "Kestrel starts on Friday"))
    await service.library.vectors.settle()
    headers = {SPACES_HEADER: TEAM}
    named = await ann.put(f"/v1/spaces/{TEAM}/members/ann", json={"role": "admin", "name": "Ann"})
    assert named.status_code == 200
    found = {"message_id": f"space:{TEAM}/m001", "user_id": f"space:{TEAM}", "author": "Ann"}
    paths = [f"/v1/messages/{kind}_search" for kind in ("lexical", "semantic")]
    body = {"user_id": "ben", "query_text": "Kestrel"}
    for path in paths:
        (item,) = (await ben.post(path, json=body, headers=headers)).json()["items"]
        assert found.items() <= item.items()  # also before ben has data of their own
        assert (await ben.post(path, json=body)).json()["items"] == []
    await write_messages(ben, "ben", make_message(1, "Kestrel needs a logo"))
    await service.library.vectors.settle()
    for path in paths:
        items = (await ben.post(path, json=body, headers=headers)).json()["items"]
        authors = {item["message_id"]: item["author"] for item in items}
        assert authors == {"m001": None, f"space:{TEAM}/m001": "Ann"}
    await write_messages(ann, f"space:{TEAM}", make_message(3, "Kestrel flies"))
    flies = (await ben.get(f"/v1/users/space:{TEAM}/messages/m003")).json()
    assert flies["speaker"] == "Ann"
    first = {**body, "user_id": f"space:{TEAM}", "page_size": 1}
    cursor = {"cursor": (await ben.post(paths[0], json=first)).json()["next_cursor"]}
    refused = await ben.post(paths[0], json={**body, **cursor}, headers=headers)
    check_error(refused, 400, "INVALID_ARGUMENT")


async def test_a_lost_role_ends_open_streams(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part that is sent next is refused: an event of a recall or turn, a chunk of an export."""
    async with serve_on_socket(sqlite_library) as service:
        ann, ben = [await service.client_with_key(user) for user in ("ann", "ben")]
        await make_space(service, ann, TEAM)
        await fill_space(service, ann, "ann", TEAM)

        def losing(items: Any, role: str | None) -> Any:
            """Return a function that yields the same, and takes the role after the first item."""

            async def lose(*args: Any, **options: Any) -> AsyncIterator[Any]:
                is_first = True
                async for item in items(*args, **options):
                    yield item
                    if is_first and role is None:
                        await ann.delete(f"/v1/spaces/{TEAM}/members/ben")
                    elif is_first:
                        await add_member(service, ann, TEAM, "ben", role or "")
                    is_first = False

            return lose

        path = f"/v1/users/space:{TEAM}"
        monkeypatch.setattr(recall, "stream_recall", losing(stream_recall, None))
        await add_member(service, ann, TEAM, "ben", "reader")
        stream = {"Accept": "text/event-stream"}
        answer = await ben.post(f"{path}/recall", json={"query": CANARY}, headers=stream)
        names = [line for line in answer.text.splitlines() if line.startswith("event: ")]
        assert (len(names), names[-1]) == (2, "event: error")
        assert "NOT_FOUND" in answer.text
        assert (await ben.post(f"{path}/recall", json={"query": CANARY})).status_code == 404
        start_turn = chat.ChatHandler._start_turn

        async def start(turn: Any, of_chat: Any) -> Any:
            events = await start_turn(turn, of_chat)
            return losing(lambda: events, None)()

        monkeypatch.setattr(chat.ChatHandler, "_start_turn", start)
        await add_member(service, ann, TEAM, "ben", "reader")
        headers, turn = stream | {SPACES_HEADER: TEAM}, {"message": f"What about {CANARY}?"}
        answer = await ben.post("/v1/users/ben/chat", json=turn, headers=headers)
        names = [line for line in answer.text.splitlines() if line.startswith("event: ")]
        assert (len(names), names[-1]) == (2, "event: error")
        assert "NOT_FOUND" in answer.text
        monkeypatch.setattr(users, "_CHUNK_BYTES", 1)
        monkeypatch.setattr(users, "_join_lines", losing(users._join_lines, "contributor"))
        await add_member(service, ann, TEAM, "ben", "admin")
        with pytest.raises(httpx.RemoteProtocolError):
            await ben.get(f"{path}/export")
        check_error(await ben.get(f"{path}/export"), 403, "PERMISSION_DENIED")


async def test_members_of_a_space(service: HttpService) -> None:
    """The last admin stays, names confirm deletions, and a taken id is a conflict."""
    ann, ben = [await service.client_with_key(user) for user in ("ann", "ben")]
    space = f"/v1/spaces/{TEAM}"
    check_error(await ben.post("/v1/spaces", json={"space_id": TEAM}), 409, "CONFLICT")
    check_error(await ann.delete(f"{space}/members/ann"), 409, "CONFLICT")
    role = {"role": "reader"}
    check_error(await ann.put(f"{space}/members/ann", json=role), 409, "CONFLICT")
    for member in (f"space:{TEAM}", "*"):
        answer = await ann.put(f"{space}/members/{member}", json=role)
        check_error(answer, 400, "INVALID_ARGUMENT")
    check_error(await ann.put(f"{space}/members/ben", json={}), 400, "INVALID_ARGUMENT")
    await add_member(service, ann, TEAM, "ben", "contributor")
    check_error(await ben.delete(f"{space}/members/ann"), 403, "PERMISSION_DENIED")
    (listed,) = (await ben.get("/v1/spaces")).json()["results"]
    assert (listed["space_id"], listed["role"]) == (TEAM, "contributor")
    reading = await service.client_with_key("ann", read_only=True)
    check_error(await reading.delete(f"{space}?name=The {TEAM}"), 403, "PERMISSION_DENIED")
    assert (await reading.get(space)).json()["role"] == "admin"
    assert (await ben.delete(f"{space}/members/ben")).status_code == 200
    log = (await ann.get(f"{space}/audit")).json()["results"]
    assert [(entry["action"], entry["target"]) for entry in log] == [
        ("leave", "ben"),
        ("join", "ben"),
        ("invite", "ben"),
        ("create", "ann"),
    ]
    for name in ({}, {"name": "Another"}):
        answer = await ann.request("DELETE", space, json=name)
        check_error(answer, 400, "INVALID_ARGUMENT")
    assert (await ann.delete(f"{space}?name=The {TEAM}")).status_code == 200
    check_error(await ann.get(space), 404, "NOT_FOUND")


async def test_a_user_joins_by_accepting(service: HttpService) -> None:
    """What admins add with a key of their own is an invitation."""
    ann, ben, dora = [await service.client_with_key(user) for user in ("ann", "ben", "dora")]
    for admin in (ann, await service.client_with_key(permissions=frozenset())):
        body = {"role": "contributor", "name": "Ben"}
        path = f"/v1/spaces/{TEAM}/members/ben"
        answer = await admin.put(path, json=body, headers={USER_HEADER: "ann"})
        assert (answer.status_code, answer.json()["status"]) == (200, "invited")
    (invitation,) = (await ben.get("/v1/invitations")).json()["results"]
    named = {"space_id": TEAM, "name": f"The {TEAM}", "role": "contributor", "invited_by": "ann"}
    assert named.items() <= invitation.items()
    refusals = [
        await client.request(method, path)
        for client, method, path in (
            (ben, "GET", f"/v1/spaces/{TEAM}"),
            (ben, "GET", f"/v1/users/space:{TEAM}/messages"),
            *((dora, "POST", f"/v1/invitations/{TEAM}/{verb}") for verb in ("accept", "decline")),
            (dora, "POST", "/v1/invitations/none/accept"),
            (dora, "POST", "/v1/invitations/space:x/accept"),
        )
    ]
    ((status, _),) = {(answer.status_code, answer.text) for answer in refusals}
    assert status == 404
    assert (await ben.get("/v1/spaces")).json()["results"] == []
    reading = await service.client_with_key("ben", read_only=True)
    refused = await reading.post(f"/v1/invitations/{TEAM}/accept")
    check_error(refused, 403, "PERMISSION_DENIED")
    joined = (await ben.post(f"/v1/invitations/{TEAM}/accept")).json()
    assert (joined["space_id"], joined["role"]) == (TEAM, "contributor")
    assert (await ben.get(f"/v1/spaces/{TEAM}")).status_code == 200
    assert (await ben.get("/v1/invitations")).json()["results"] == []
    await ann.put(f"/v1/spaces/{TEAM}/members/dora", json={"role": "reader"})
    listed = [(await who.get(f"/v1/spaces/{TEAM}/members")).json()["results"] for who in (ann, ben)]
    names = [{each["member"]: each["status"] for each in members} for members in listed]
    joined_both = {"ann": "member", "ben": "member"}
    assert names == [{**joined_both, "dora": "invited"}, joined_both]
    assert (await ann.delete(f"/v1/spaces/{TEAM}/members/dora")).status_code == 200
    check_error(await dora.post(f"/v1/invitations/{TEAM}/decline"), 404, "NOT_FOUND")


async def test_operators_add_members_whom_others_invite(service: HttpService) -> None:
    """One by one, and with the export of another space."""
    operator = await service.client_with_key(permissions=frozenset({Permission.OPERATOR}))
    both = frozenset({Permission.OPERATOR, Permission.SENSITIVE})
    ann, of_ann = await service.client_with_key("ann", permissions=both), {USER_HEADER: "ann"}
    path = f"/v1/spaces/{TEAM}/members"
    body = {"role": "reader", "name": "Ben"}
    added = await operator.put(f"{path}/ben", json=body, headers=of_ann)
    assert added.json()["status"] == "member"
    # An operator who may act for one user speaks for that one alone.
    assert (await ann.put(f"{path}/dora", json=body)).json()["status"] == "invited"
    lines = (await ann.get(f"/v1/users/space:{TEAM}/export")).text
    assert "dora" not in lines
    for client, space, status in ((ann, "copy", "invited"), (operator, "other", "member")):
        headers = {"Content-Type": "application/x-ndjson", **of_ann}
        await client.post("/v1/spaces", json={"space_id": space}, headers=of_ann)
        imported = await client.post(
            f"/v1/users/space:{space}/import", content=lines, headers=headers
        )
        assert imported.status_code == 200
        members = (await ann.get(f"/v1/spaces/{space}/members")).json()["results"]
        shown = [(each["member"], each["status"]) for each in members]
        assert sorted(shown) == [("ann", "member"), ("ben", status)]


async def test_the_member_that_a_key_acts_as(service: HttpService) -> None:
    """The user of the header or the only one of the key; a key without them, as itself."""
    several = await service.client_with_key("ann", "ben")
    named = {USER_HEADER: "ann"}
    assert (await several.get(f"/v1/spaces/{TEAM}", headers=named)).json()["role"] == "admin"
    for headers in ({}, {USER_HEADER: "ben"}):
        answer = await several.get(f"/v1/spaces/{TEAM}", headers=headers)
        check_error(answer, 404, "NOT_FOUND")
    made = await several.post("/v1/spaces", json={"space_id": "of-key"})
    assert made.status_code == 200
    (member,) = (await several.get("/v1/spaces/of-key/members")).json()["results"]
    assert (member["kind"], member["role"]) == ("key", "admin")
    # No user has the rights of a key by taking its name.
    impostor = await several.get("/v1/spaces", headers={USER_HEADER: member["member"]})
    check_error(impostor, 400, "INVALID_ARGUMENT")
    with recorded_statements() as statements:
        await several.get(f"/v1/users/space:{TEAM}/messages", headers=named)
    assert sum("memberships" in statement for statement in statements) == 1


async def test_mcp_covers_named_spaces(service: HttpService) -> None:
    ann, ben = [await service.client_with_key(user) for user in ("ann", "ben")]
    await add_member(service, ann, TEAM, "ben", "reader")
    said = {"user_id": f"space:{TEAM}", "messages": "Kestrel flies on Friday", "infer": False}
    assert (await ann.post("/v1/memories", json=said)).status_code == 200
    await service.library.vectors.settle()
    params = {"name": "recall", "arguments": {"query": "When does Kestrel fly?"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    texts = [
        (await ben.post("/mcp", json=call, headers={**accept, **headers})).text
        for headers in ({}, {SPACES_HEADER: TEAM}, {SPACES_HEADER: "none"})
    ]
    assert ["on Friday" in text for text in texts] == [False, True, False], texts
