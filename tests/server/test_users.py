"""The API of a user's data as a whole: purge, sweep, sessions, graph, export, import, erasure."""

import json
from typing import Any

import httpx
import pytest

from memrecall.memory import Library
from memrecall.memory.ingest import NO_MODEL
from memrecall.scope import Permission
from tests.cases import check_each_async

from .http_service import HttpService, check_error, make_message, write_messages
from .test_memories import add, add_verbatim, list_memories

LINES = {"Content-Type": "application/x-ndjson"}
SENSITIVE = frozenset({Permission.SENSITIVE})


async def export(client: httpx.AsyncClient, user: str) -> bytes:
    """Return the export of a user."""
    answer = await client.get(f"/v1/users/{user}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return answer.content


async def import_lines(client: httpx.AsyncClient, user: str, lines: bytes) -> httpx.Response:
    return await client.post(f"/v1/users/{user}/import", content=lines, headers=LINES)


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def list_messages(client: httpx.AsyncClient) -> list[str]:
    """Return the texts of the messages of the user ann."""
    items = (await client.get("/v1/users/ann/messages")).json()["items"]
    return [item["content"] for item in items]


class TestNamesOfMem0:
    async def test_run_id_is_the_session(self, ann: httpx.AsyncClient) -> None:
        await add_verbatim(ann, "tea", run_id="r1")
        await add_verbatim(ann, "coffee", session_id="r2")

        assert await list_memories(ann, run_id="r1") == ["tea"]
        body = {"query": "tea coffee", "run_id": "r2", "threshold": 0.0, "top_k": 5}
        found = await post(ann, "/v1/memories/search", **body)
        assert [item["memory"] for item in found["results"]] == ["coffee"]
        state = (await ann.get("/v1/state", params={"run_id": "r1"})).json()
        assert "tea" in state["text"]
        assert "coffee" not in state["text"]
        both = {"run_id": "r1", "session_id": "r2"}
        error = check_error(await ann.get("/v1/memories", params=both), 400, "INVALID_ARGUMENT")
        assert "differ" in error["message"]
        assert (await ann.delete("/v1/memories", params={"run_id": "r1"})).json()["memories"] == 1
        assert await list_memories(ann) == ["coffee"]

    async def test_patch_takes_the_text_by_all_its_names(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        path = f"/v1/memories/{await add_verbatim(ann, 'tea')}"
        for name in ("data", "text", "memory"):
            answer = await ann.patch(path, json={name: f"by {name}", "metadata": {name: 1}})
            assert answer.json()["memory"] == f"by {name}", answer.text
        metadata = (await ann.get(path)).json()["metadata"]
        assert metadata == {"role": "user", "data": 1, "text": 1, "memory": 1}
        twice = await ann.patch(path, json={"data": "a", "text": "b"})
        assert "pass one of them" in check_error(twice, 400, "INVALID_ARGUMENT")["message"]

    async def test_add_and_search_with_dates_of_mem0(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        days = {"timestamp": "2026-01-05T08:00:00Z", "expiration_date": "2026-02-01"}
        await add_verbatim(ann, "a parcel arrives", **days)
        assert await list_memories(ann) == []
        assert await list_memories(ann, show_expired=True) == ["a parcel arrives"]
        assert await list_messages(ann) == []
        body = {"query": "parcel", "show_expired": True, "explain": True}
        (found,) = (await post(ann, "/v1/memories/search", **body))["results"]
        assert found["score_details"]["final_score"] == found["score"]
        assert found["source"] is None
        keeping = {"expiration_date": "2999-02-01", "timestamp": "2026-01-06T08:00:00Z"}
        await add_verbatim(ann, "a letter arrives", **keeping)
        (message,) = (await ann.get("/v1/users/ann/messages")).json()["items"]
        assert message["ts"] == "2026-01-06T08:00:00Z"


class TestPurge:
    async def test_purge_erases_a_memory_and_its_history(self, ann: httpx.AsyncClient) -> None:
        path = f"/v1/memories/{await add_verbatim(ann, 'tea')}"
        await ann.delete(path)
        report = await post(ann, f"{path}/purge")
        assert (report["purged"], report["memories"], len(report["messages"])) == (1, [], 1)
        check_error(await ann.post(f"{path}/undo"), 404, "NOT_FOUND")
        check_error(await ann.get(f"{path}/history"), 404, "NOT_FOUND")
        check_error(await ann.post(f"{path}/purge"), 404, "NOT_FOUND")

    async def test_options_in_a_body_that_nobody_reads_are_refused(
        self, ann: httpx.AsyncClient
    ) -> None:
        path = f"/v1/memories/{await add_verbatim(ann, 'tea')}"
        for action in ("purge", "undo"):
            response = await ann.post(f"{path}/{action}", json={"sources": True})
            check_error(response, 400, "INVALID_ARGUMENT")
        assert (await ann.get(path)).status_code == 200
        report = await post(ann, f"{path}/purge?sources=true")
        assert (report["purged"], len(report["messages"])) == (1, 1)

    async def test_purge_requires_the_permissions_of_the_key(
        self, sqlite_service: HttpService
    ) -> None:
        service = sqlite_service
        owner = await service.client_with_key("ann", permissions=SENSITIVE)
        path = f"/v1/memories/{await add_verbatim(owner, 'a diagnosis', sensitive=True)}"
        refused = {
            "another user's key": ("ben", {}, 404),
            "a key without sensitive memories": ("ann", {}, 404),
            "a read-only key": ("ann", {"read_only": True, "permissions": SENSITIVE}, 403),
        }
        for user, fields, status in refused.values():
            client = await service.client_with_key(user, **fields)
            assert (await client.post(f"{path}/purge")).status_code == status
        assert (await owner.get(path)).status_code == 200
        assert (await post(owner, f"{path}/purge"))["purged"] == 1


class TestSources:
    @pytest.mark.usefixtures("sentence_extractor")
    async def test_delete_and_purge_with_the_source_messages(self, ann: httpx.AsyncClient) -> None:
        for text in ("I live in Paris.", "I am allergic to peanuts."):
            await add(ann, {"role": "user", "content": text, "message_id": text[:9].strip(" .")})
        items = (await ann.get("/v1/memories")).json()["results"]
        paths = {item["field"]: f"/v1/memories/{item['id']}" for item in items}

        hidden = (await ann.delete(paths["home"])).json()
        assert hidden["messages"] == ["I live in"]
        assert await list_messages(ann) == ["I am allergic to peanuts."]
        assert (await ann.post(f"{paths['home']}/undo")).json()["event"] == "UNDO"
        assert len(await list_messages(ann)) == 2

        purged = (await ann.post(f"{paths['allergy']}/purge")).json()
        assert (purged["purged"], purged["messages"]) == (1, ["I am alle"])
        assert await list_messages(ann) == ["I live in Paris."]
        assert await list_memories(ann) == ["User lives in Paris."]

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_delete_message_with_what_was_derived_from_it(
        self, ann: httpx.AsyncClient
    ) -> None:
        body = {"role": "user", "content": "I live in Paris.", "message_id": "a/1"}
        report = await add(ann, body)
        path = "/v1/users/ann/messages/a%2F1"

        hidden = (await ann.delete(path)).json()

        assert (hidden["id"], hidden["deleted"]) == ("a/1", 1)
        assert hidden["memories"] == [report["results"][0]["id"]]
        assert await list_memories(ann) == await list_messages(ann) == []
        assert (await ann.post("/v1/memories/a%2F1/undo")).json()["event"] == "UNDO"
        assert len(await list_memories(ann)) == len(await list_messages(ann)) == 1
        assert (await ann.post("/v1/memories/a%2F1/purge")).json()["purged"] == 1
        assert (await ann.delete(path)).json()["deleted"] == 0
        check_error(await ann.delete("/v1/users/ann/messages/never"), 404, "NOT_FOUND")
        # A message that is sent again stays erased.
        again = await add(ann, body)
        assert (again["stored"], again["statuses"]) == (0, ["erased"])

    async def test_message_can_be_deleted_by_keys_that_may_write(
        self, sqlite_service: HttpService
    ) -> None:
        service = sqlite_service
        owner = await service.client_with_key("ann")
        await write_messages(owner, "ann", make_message(1))
        for user, fields, status in (
            ("ben", {}, 404),
            ("ann", {"agent_id": "other"}, 404),
            ("ann", {"read_only": True}, 403),
        ):
            client = await service.client_with_key(user, **fields)
            assert (await client.delete("/v1/users/ann/messages/m001")).status_code == status
        assert len(await list_messages(owner)) == 1
        assert (await owner.delete("/v1/users/ann/messages/m001")).status_code == 200

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_import_leaves_out_what_was_erased(self, sqlite_service: HttpService) -> None:
        client = await sqlite_service.client_with_key()
        await add(
            client,
            {"role": "user", "content": "I live in Paris.", "message_id": "m"},
            user_id="ann",
        )
        lines = await export(client, "ann")
        await post(client, "/v1/memories/m/purge?user_id=ann")
        after = await export(client, "ann")
        assert b"Paris" not in after
        report = (await import_lines(client, "ann", lines)).json()
        assert report["statuses"] == {"erased": 2}  # the message, and what was remembered of it
        assert await export(client, "ann") == after
        # Also in another database, or under another name.
        await import_lines(client, "ben", after + lines)
        assert b"Paris" not in await export(client, "ben")


class TestGraphAndSessions:
    @pytest.mark.usefixtures("sentence_extractor")
    async def test_extract(self, ann: httpx.AsyncClient) -> None:
        text = "My sister Clara works at Helix Labs."
        extracted = await post(ann, "/v1/graph/extract", messages=text)
        assert {"user", "Clara"} == {entity["name"] for entity in extracted["entities"]}
        assert extracted["problems"] == []
        assert (await ann.get("/v1/users/ann/messages")).json()["items"] == []  # not stored

        relations = (await ann.get("/v1/graph", params={"entity": "Clara"})).json()["relations"]
        assert relations
        assert relations[0]["source_message_ids"] == []

    async def test_extract_without_a_model_finds_nothing_and_says_why(
        self, sqlite_service: HttpService
    ) -> None:
        ann = await sqlite_service.client_with_key("ann")
        extracted = await post(ann, "/v1/graph/extract", messages="My sister Clara lives here.")
        assert extracted == {"entities": [], "relations": [], "problems": [NO_MODEL]}

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_profile_has_evidence(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        report = await add(ann, "I live in Paris.")
        (fields,) = (await ann.get("/v1/profile")).json().values()
        ((value,),) = fields.values()
        assert (value["value"], value["evidence"]) == ("User lives in Paris.", report["messages"])

    async def test_session_is_summarized_and_ended(self, ann: httpx.AsyncClient) -> None:
        await add(ann, [f"I bought {n} tickets for Oslo." for n in range(4)], session_id="s/1")
        path = "/v1/sessions/s%2F1"
        summaries = await post(ann, f"{path}/summarize")
        (summary,) = summaries["results"]
        assert (summaries["new"], summary["by"], summary["last_sequence_no"]) == (0, "text", 4)
        assert await post(ann, f"{path}/summarize") == summaries

        ended = await post(ann, f"{path}/end", success=True)
        assert (await ann.get(f"/v1/memories/{ended['experience']}")).status_code == 200
        late = await ann.post("/v1/memories", json={"messages": "late", "session_id": "s/1"})
        check_error(late, 403, "PERMISSION_DENIED")
        check_error(await ann.post("/v1/sessions/none/end", json={}), 404, "NOT_FOUND")

    async def test_session_without_a_summary_can_be_ended(
        self, sqlite_service: HttpService
    ) -> None:
        ann = await sqlite_service.client_with_key("ann")
        await write_messages(ann, "ann", make_message(1, "```\n---\n```", session_id="s"))
        summaries = (await post(ann, "/v1/sessions/s/summarize"))["results"]
        assert summaries == []
        ended = await post(ann, "/v1/sessions/s/end")
        assert (ended["experience"], ended["success"]) == (None, None)

    async def test_sweep_reports_first_and_removes_on_request(
        self, sqlite_service: HttpService
    ) -> None:
        ann = await sqlite_service.client_with_key("ann")
        for text in ("tea", "tea", "coffee"):
            await add_verbatim(ann, text)
        report = await post(ann, "/v1/sweep")
        assert (report["found"], report["removed"], report["dry_run"]) == (1, 0, True)
        assert report["reasons"] == {"duplicate": 1}
        assert (await post(ann, "/v1/sweep", dry_run=False))["removed"] == 1
        assert sorted(await list_memories(ann)) == ["coffee", "tea"]
        check_error(
            await ann.post("/v1/sweep", json={"older_than_days": -1}), 400, "INVALID_ARGUMENT"
        )


class TestTransfer:
    @pytest.mark.usefixtures("sentence_extractor")
    async def test_export_import_and_erase(self, client: httpx.AsyncClient) -> None:
        await add(
            client, "我住在上海。", user_id="ann", session_id="s", metadata={"k": [1.5, None]}
        )
        await add(client, "我搬到杭州了。", user_id="ann", session_id="s")
        lines = await export(client, "ann")

        assert (await client.delete("/v1/users/ann")).json()["messages"] == 2
        check_error(await client.get("/v1/users/ann/messages"), 404, "NOT_FOUND")
        check_error(await client.get("/v1/users/ann/export"), 404, "NOT_FOUND")
        check_error(await client.delete("/v1/users/ann"), 404, "NOT_FOUND")

        report = (await import_lines(client, "ann", lines)).json()
        assert (report["rows"]["messages"], report["rows"]["memories"]) == (2, 2)
        assert await export(client, "ann") == lines
        assert report["statuses"] == {"new": 4}
        memories = await client.get("/v1/users/ann/export", params={"kinds": "memories"})
        tables = {json.loads(line)["table"] for line in memories.text.splitlines()}
        assert "memories" in tables
        assert "messages" not in tables
        again = lines.replace("我搬到杭州了。".encode(), "我搬走了。".encode())
        same = (await import_lines(client, "ann", again)).json()
        assert same["rows"] == report["rows"]
        assert same["statuses"] == {"same": 3, "conflict": 1}
        assert await export(client, "ann") == lines

    async def test_import_takes_an_export_in_parts(self, sqlite_service: HttpService) -> None:
        client = await sqlite_service.client_with_key()
        await write_messages(client, "ann", *(make_message(n) for n in range(5)))
        lines = (await export(client, "ann")).splitlines(keepends=True)
        for line in lines:
            assert (await import_lines(client, "ben", line)).status_code == 200
        copied = (await export(client, "ben")).decode()
        assert copied.replace('"ben"', '"ann"').splitlines(True)[1:] == [
            line.decode() for line in lines[1:]
        ]

    async def test_transfer_requires_the_permissions_of_the_key(
        self, sqlite_service: HttpService
    ) -> None:
        service = sqlite_service
        owner = await service.client_with_key("ann", permissions=SENSITIVE)
        await add_verbatim(owner, "a diagnosis", sensitive=True)
        lines = await export(owner, "ann")
        clients = {
            "reader": await service.client_with_key("ann", read_only=True, permissions=SENSITIVE),
            "agent": await service.client_with_key("ann", agent_id="a", permissions=SENSITIVE),
            "plain": await service.client_with_key("ann"),
            "other": await service.client_with_key("ben", permissions=SENSITIVE),
        }
        statuses = {}
        for name, client in clients.items():
            answers = (
                await client.get("/v1/users/ann/export"),
                await import_lines(client, "ann", lines),
                *([await client.delete("/v1/users/ann")] if name != "plain" else []),
            )
            statuses[name] = [answer.status_code for answer in answers]
        assert statuses == {
            "reader": [200, 403, 403],
            "agent": [403, 403, 403],
            "plain": [403, 200],
            "other": [404, 404, 404],
        }
        assert (await owner.delete("/v1/users/ann")).status_code == 200
        check_error(await owner.get("/v1/memories"), 401, "UNAUTHENTICATED")  # it was revoked

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_import_refuses_what_could_not_be_read_again(
        self, client: httpx.AsyncClient, library: Library
    ) -> None:
        await add(client, "I live in Paris.", user_id="ann", session_id="s")
        await client.delete(
            f"/v1/memories/{await add_verbatim(client, 'x', user_id='ann')}?user_id=ann"
        )
        records = [json.loads(line) for line in (await export(client, "ann")).splitlines()]
        tables = {record["table"]: record for record in records}
        before = await library.store.count("ben")

        async def refuse(table: str, change: dict[str, Any]) -> None:
            row = {**tables[table]["row"], **change}
            lines = "\n".join(
                json.dumps({**record, "row": row} if record is tables[table] else record)
                for record in records
            )
            check_error(await import_lines(client, "ben", lines.encode()), 400, "INVALID_ARGUMENT")
            assert await library.store.count("ben") == before

        cases: list[tuple[str, dict[str, Any]]] = [
            ("users", {"time_zone": "Mars/Phobos"}),
            ("users", {"status": 2**40}),
            ("sessions", {"last_sequence_no": "7"}),
            ("messages", {"role": "boss"}),
            ("messages", {"sequence_no": True}),
            ("messages", {"message_id": " m"}),
            ("messages", {"session_id": "elsewhere"}),
            ("messages", {"ts": "soon"}),
            ("messages", {"metadata": [1]}),
            ("messages", {"content": None}),
            ("memories", {"keywords": [1]}),
            ("memories", {"provenance": {}}),
            ("memories", {"sensitive": 0}),
            ("revisions", {"number": 2**31}),
            ("revisions", {"event": "E" * 200}),
            ("relations", {"source_message_ids": "m1"}),
        ]
        await check_each_async(cases, lambda case: refuse(*case))

    async def test_import_refuses_bodies_that_are_no_lines(
        self, sqlite_service: HttpService
    ) -> None:
        client = await sqlite_service.client_with_key()
        for body in (b"no json", b"[1]", b"{}", b"[" * 100_000, b'{"a": 1, "a": 2}', b"\xff"):
            answer = await import_lines(client, "ann", body)
            error = check_error(answer, 400, "INVALID_ARGUMENT")
            assert error["message"].startswith("line 1: "), error
        as_json = await client.post("/v1/users/ann/import", json={})
        check_error(as_json, 415, "INVALID_ARGUMENT")
