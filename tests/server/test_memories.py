"""The memory API: add, list, search, update, delete, graph, state and jobs."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.scope import Permission
from memrecall.server.http.memories import MAX_JOBS
from tests.cases import read_rows
from tests.extractors import SentenceExtractor
from tests.waiting import wait_until

from .http_service import (
    HttpService,
    check_error,
    make_message,
    open_library,
    serve_in_process,
    timestamp,
    write_messages,
)


async def add(client: httpx.AsyncClient, messages: Any, **fields: Any) -> dict[str, Any]:
    """Add memories and return the report."""
    answer = await client.post("/v1/memories", json={"messages": messages, **fields})
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


async def add_verbatim(client: httpx.AsyncClient, text: str, **fields: Any) -> str:
    """Store a text verbatim and return the id of its memory."""
    return str((await add(client, text, infer=False, **fields))["results"][0]["id"])


async def list_memories(client: httpx.AsyncClient, **query: Any) -> list[str]:
    """Return the texts of the listed memories."""
    answer = await client.get("/v1/memories", params=query)
    assert answer.status_code == 200, answer.text
    return [item["memory"] for item in answer.json()["results"]]


class TestAdd:
    @pytest.mark.usefixtures("sentence_extractor")
    async def test_add_extracts_and_updates_facts(self, ann: httpx.AsyncClient) -> None:
        report = await add(
            ann, [{"role": "user", "content": "I live in Paris.", "ts": timestamp(0)}]
        )
        assert [r["event"] for r in report["results"]] == ["ADD"]
        assert (report["stored"], report["problems"], report["job"]) == (1, [], None)

        second_report = await add(
            ann, [{"role": "user", "content": "I moved to Rome."}], session_id="s2"
        )

        (change,) = second_report["results"]
        assert (change["event"], change["previous_memory"]) == ("UPDATE", "User lives in Paris.")
        assert await list_memories(ann) == ["User moved to Rome."]
        assert len(await list_memories(ann, superseded=True)) == 2
        assert await list_memories(ann, as_of=timestamp(1)) == ["User lives in Paris."]

    async def test_add_without_a_model_keeps_messages_and_notes(
        self, ann: httpx.AsyncClient
    ) -> None:
        report = await add(ann, "I live in Paris.")
        assert (report["results"], report["stored"], report["problems"]) == ([], 1, [])
        assert report["message"].startswith("No model is configured")
        (note,) = (await add(ann, "Remember: the gate code is 4711."))["results"]
        assert (note["event"], note["memory"]) == ("ADD", "the gate code is 4711.")
        assert await list_memories(ann) == ["the gate code is 4711."]

    async def test_add_accepts_text_message_and_openai_parts(self, ann: httpx.AsyncClient) -> None:
        await add_verbatim(ann, "plain words")
        await add(ann, {"role": "user", "content": "one message"}, infer=False)
        url = {"url": "https://host/x"}
        parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": url}]
        chat = [
            {"role": "user", "content": parts, "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}], "refusal": None},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]
        report = await add(ann, chat, infer=False, metadata={"a": 1}, memory_type="short")

        assert report["stored"] == 2  # a tool call without text is skipped
        page = (await ann.get("/v1/memories", params={"filters": '{"a": 1}'})).json()
        results = {item["memory"]: item for item in page["results"]}
        assert set(results) == {"look\n[image]", "42"}
        assert (results["42"]["origin"], results["42"]["layer"]) == ("tool", "short")
        assert results["look\n[image]"]["speaker"] == "Ann"

    async def test_pictures_are_described_and_bad_ones_refused(
        self, sqlite_service: HttpService
    ) -> None:
        ann = await sqlite_service.client_with_key("ann")
        pixel = base64.b64encode(b"GIF89a\1\0\1\0\0\0\0;").decode()
        data = "data:image/png;base64,"
        problems: dict[str | None, str] = {
            f"{data}!!": "base64",
            f"{data}{pixel[:12]}": "cut off",
            f"data:text/html;base64,{pixel}": "not a picture",
            "file:///x.png": "not the URL",
            None: "nor a URL",
        }

        def requests(url: str | None) -> list[tuple[str, dict[str, Any]]]:
            picture = {"type": "image_url", "image_url": url and {"url": url}}
            content = [{"type": "text", "text": "My boat"}, picture]
            message = {"role": "user", "content": content}
            return [
                ("/v1/memories", {"messages": [message], "infer": False}),
                ("/v1/users/ann/messages", {"messages": [message]}),
                ("/v1/users/ann/chat", {"message": content}),
            ]

        for url, problem in problems.items():
            for path, body in requests(url):
                response = await ann.post(path, json=body)
                assert (response.status_code, problem in response.text) == (400, True), url
            recall = await ann.post("/v1/users/ann/recall", json=requests(url)[1][1])
            assert recall.status_code == 200, recall.text
        assert (await ann.get("/v1/users/ann/messages")).json()["items"] == []
        for path, body in requests(f"{data}{pixel}"):
            assert (await ann.post(path, json=body)).is_success
        items = (await ann.get("/v1/users/ann/messages")).json()["items"]
        boats = [item for item in items if item["content"] == "My boat\n[image]"]
        assert [item["metadata"]["pictures"][0]["type"] for item in boats] == ["image/gif"] * 3

    async def test_refused_message_is_named(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        body = {"messages": ["x", {"role": "boss", "content": "x"}]}
        for path in ("/v1/memories", "/v1/users/ann/recall"):
            error = check_error(await ann.post(path, json=body), 400, "INVALID_ARGUMENT")
            assert error["message"].startswith("messages.1: role 'boss' is not known. Use user, ")

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_background_add_stores_messages_at_once(
        self, service: HttpService, ann: httpx.AsyncClient
    ) -> None:
        report = await add(ann, "I live in Paris.", background=True)

        assert (report["stored"], report["results"]) == (1, [])
        job = report["job"]["job_id"]
        await service.app.service.memory.job(job, wait=True)
        finished = (await ann.get(f"/v1/jobs/{job}")).json()
        assert (finished["job_id"], finished["state"]) == (job, "done")
        assert finished["result"]["results"][0]["memory"] == "User lives in Paris."
        assert finished["result"]["messages"] == report["messages"]
        assert (await ann.get("/v1/jobs")).json() == {"results": [finished]}
        ben = await service.client_with_key("ben")
        check_error(await ben.get(f"/v1/jobs/{job}"), 404, "NOT_FOUND")
        assert (await ben.get("/v1/jobs")).json() == {"results": []}
        check_error(await ann.get("/v1/jobs/job_none"), 404, "NOT_FOUND")

    async def test_too_many_jobs_are_refused(
        self, sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ann, released = await sqlite_service.client_with_key("ann"), asyncio.Event()
        parts = await sqlite_service.app.service.memory._open()

        async def wait(*_: object) -> dict[str, Any]:
            await released.wait()
            return {}

        monkeypatch.setattr(parts.ingestor, "finish", wait)
        for number in range(MAX_JOBS):
            await add(ann, f"note {number}", background=True)
        body = {"messages": "one more", "background": True}
        refusal = await ann.post("/v1/memories", json=body)
        released.set()
        check_error(refusal, 429, "RESOURCE_EXHAUSTED")
        assert refusal.headers["retry-after"]

    async def test_extraction_failure_hides_its_message_and_keeps_messages(
        self,
        sentence_extractor: SentenceExtractor,
        sqlite_service: HttpService,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        ann = await sqlite_service.client_with_key("ann")

        async def fail(*_: object, **__: object) -> None:
            raise RuntimeError("http://10.0.0.1 said: sk-secret")

        monkeypatch.setattr(sentence_extractor, "extract", fail)
        report = await add(ann, "I live in Paris.")
        assert (report["stored"], report["problems"]) == (1, ["memories: failed"])
        results = (await ann.get("/v1/users/ann/messages")).json()["items"]
        assert results[0]["content"] == "I live in Paris."

    @pytest.mark.usefixtures("sentence_extractor")
    async def test_shutdown_finishes_background_jobs(self, sqlite_service: HttpService) -> None:
        async with serve_in_process(sqlite_service.library) as other:
            await add(await other.client_with_key("ann"), "I live in Paris.", background=True)
        assert await list_memories(await sqlite_service.client_with_key("ann")) == [
            "User lives in Paris."
        ]


class TestSingleMemory:
    async def test_get_update_history_delete_undo(self, ann: httpx.AsyncClient) -> None:
        key = await add_verbatim(ann, "likes coffee")
        path = f"/v1/memories/{key}"

        changed = await ann.patch(path, json={"memory": "likes tea", "pinned": True})

        assert changed.status_code == 200, changed.text
        assert (changed.json()["memory"], changed.json()["event"]) == ("likes tea", "UPDATE")
        assert (await ann.get(path)).json()["pinned"] is True
        assert (await ann.delete(path)).json()["event"] == "DELETE"
        check_error(await ann.get(path), 404, "NOT_FOUND")
        check_error(await ann.delete(path), 404, "NOT_FOUND")
        assert (await ann.post(f"{path}/undo")).json()["event"] == "UNDO"
        assert (await ann.get(path)).json()["memory"] == "likes tea"
        steps = (await ann.get(f"{path}/history")).json()["results"]
        assert [step["event"] for step in steps] == ["ADD", "UPDATE", "DELETE", "UNDO"]
        assert steps[1]["actor_id"].startswith("key ")
        await ann.post(f"{path}/undo")
        check_error(await ann.post(f"{path}/undo"), 409, "CONFLICT")

    async def test_null_removes_a_value(self, ann: httpx.AsyncClient) -> None:
        key = await add_verbatim(ann, "a plan", expires_at="2999-01-01T00:00:00Z")
        path = f"/v1/memories/{key}"
        assert (await ann.get(path)).json()["expires_at"] == "2999-01-01T00:00:00Z"
        assert (await ann.patch(path, json={"expires_at": None})).json()["expires_at"] is None

    async def test_message_is_read_deleted_and_erased_but_not_updated(
        self, ann: httpx.AsyncClient
    ) -> None:
        await write_messages(ann, "ann", make_message(1))
        item = (await ann.get("/v1/memories/m001")).json()
        assert (item["kind"], item["memory"]) == ("message", "message number 1")
        of_memories = {"kinds": "memories"}
        for method in ("GET", "DELETE"):
            answer = await ann.request(method, "/v1/memories/m001", params=of_memories)
            check_error(answer, 404, "NOT_FOUND")
        refused = await ann.patch("/v1/memories/m001", json={"memory": "another"})
        check_error(refused, 400, "INVALID_ARGUMENT")
        hidden = (await ann.delete("/v1/memories/m001")).json()
        assert (hidden["event"], hidden["message"]) == ("DELETE", "deleted")
        check_error(await ann.get("/v1/memories/m001"), 404, "NOT_FOUND")
        page = (await ann.get("/v1/memories?kinds=messages&deleted=true")).json()
        assert [item["id"] for item in page["results"]] == ["m001"]
        assert (await ann.post("/v1/memories/m001/undo")).json()["event"] == "UNDO"
        page = (await ann.get("/v1/memories")).json()
        assert (page["results"], page["kept_messages"]) == ([], 1)
        assert "1 message is kept" in page["message"]
        assert (await ann.get("/v1/memories", params={"kinds": "all"})).json()["results"] == [item]
        purged = (await ann.post("/v1/memories/m001/purge")).json()
        assert (purged["purged"], purged["memories"]) == (1, [])
        check_error(await ann.post("/v1/memories/m001/purge"), 404, "NOT_FOUND")
        check_error(await ann.post("/v1/memories/m001/undo"), 404, "NOT_FOUND")


class TestMemoryLists:
    async def test_list_supports_pages_filters_and_sessions(self, ann: httpx.AsyncClient) -> None:
        for number in range(5):
            await add_verbatim(
                ann, f"n{number}", metadata={"n": number}, session_id=f"s{number % 2}"
            )
        first = (await ann.get("/v1/memories", params={"limit": 3})).json()
        assert [item["memory"] for item in first["results"]] == ["n4", "n3", "n2"]
        second_page = {"limit": 3, "cursor": first["next_cursor"]}
        assert await list_memories(ann, **second_page) == ["n1", "n0"]
        assert await list_memories(ann, filters=json.dumps({"n": {"gte": 3}})) == ["n4", "n3"]
        assert await list_memories(ann, session_id="s1") == ["n3", "n1"]
        other_session = {"cursor": first["next_cursor"], "session_id": "s1"}
        check_error(await ann.get("/v1/memories", params=other_session), 400, "INVALID_ARGUMENT")

    async def test_search(self, ann: httpx.AsyncClient) -> None:
        await add_verbatim(ann, "likes green tea", metadata={"sure": True}, session_id="s1")
        await add_verbatim(ann, "plays the violin")
        await write_messages(ann, "ann", make_message(1, "tea again"))
        body = {"query": "tea", "limit": 1, "kinds": "memory"}
        results = (await ann.post("/v1/memories/search", json=body)).json()
        (best,) = results["results"]
        assert best["memory"] == "likes green tea"
        assert 0 < best["score"] <= 1
        for extra in ({"filters": {"sure": True}}, {"rerank": False}, {"session_id": "s1"}):
            results = (await ann.post("/v1/memories/search", json={**body, **extra})).json()
            assert results["results"][0]["memory"] == "likes green tea"
        results = (await ann.post("/v1/memories/search", json={"query": "tea"})).json()
        items = {hit["memory"]: hit for hit in results["results"]}
        assert items["tea again"]["kind"] == "message"
        assert items["tea again"]["source"] is None
        assert items["likes green tea"]["kind"] == "memory"
        assert items["likes green tea"]["source"]["text"] == "likes green tea"
        of_messages = {"query": "tea", "kinds": "message", "filters": {"sure": True}}
        results = (await ann.post("/v1/memories/search", json=of_messages)).json()
        assert [hit["memory"] for hit in results["results"]] == ["likes green tea"]
        high_threshold = {"query": "tea", "threshold": 1.0}
        results = (await ann.post("/v1/memories/search", json=high_threshold)).json()
        assert all(hit["below_threshold"] for hit in results["results"])
        assert (results["below_threshold"], results["total_found"]) == (len(results["results"]), 0)
        assert results["message"]

    async def test_delete_all_supports_dry_run_and_requires_scope(
        self, ann: httpx.AsyncClient
    ) -> None:
        await add_verbatim(ann, "keep", metadata={"n": 1})
        await add_verbatim(ann, "drop", metadata={"n": 2})
        params = {"user_id": "ann", "filters": '{"n": 2}'}
        preview = (await ann.delete("/v1/memories", params={**params, "dry_run": True})).json()
        assert (preview["found"], preview["deleted"], preview["dry_run"]) == (2, 0, True)
        assert (preview["memories"], preview["messages"]) == (1, 1)
        check_error(await ann.delete("/v1/memories"), 400, "INVALID_ARGUMENT")
        in_body = await ann.request("DELETE", "/v1/memories", params=params, json={"filters": {}})
        check_error(in_body, 400, "INVALID_ARGUMENT")
        assert await list_memories(ann) == ["drop", "keep"]
        deleted = (await ann.delete("/v1/memories", params=params)).json()
        assert (deleted["memories"], deleted["messages"]) == (1, 1)
        assert await list_memories(ann) == ["keep"]
        assert await list_memories(ann, deleted=True) == ["drop"]


class TestGraphAndState:
    @pytest.mark.usefixtures("sentence_extractor")
    async def test_graph_returns_relations_and_pages(self, ann: httpx.AsyncClient) -> None:
        text = "我住在北京。我在北京大学上班。我喜欢火锅。"
        await add(ann, {"role": "user", "content": text, "speaker": "李明"})
        around = (await ann.get("/v1/graph", params={"entity": "李明"})).json()["relations"]
        assert ("李明", "works_at", "北京大学") in {
            (r["source"], r["relationship"], r["destination"]) for r in around
        }
        first = (await ann.get("/v1/graph", params={"limit": 2})).json()
        assert len(first["entities"]) == 2
        next_page = {"limit": 10, "cursor": first["next_cursor"]}
        last = (await ann.get("/v1/graph", params=next_page)).json()
        names = {e["name"] for e in [*first["entities"], *last["entities"]]}
        assert {"李明", "北京", "北京大学", "火锅"} == names
        assert last["next_cursor"] is None
        check_error(await ann.get("/v1/graph", params={"depth": 7}), 400, "INVALID_ARGUMENT")

    async def test_session_state_fits_token_budget(self, ann: httpx.AsyncClient) -> None:
        await write_messages(ann, "ann", *(make_message(n, session_id="s1") for n in range(1, 40)))
        state = (await ann.get("/v1/state", params={"session_id": "s1", "max_tokens": 50})).json()
        assert state["tokens"] <= 50
        assert state["text"].endswith("message number 39")
        other = (await ann.get("/v1/state", params={"session_id": "s2"})).json()
        assert (other["text"], other["tokens"], other["sources"]) == ("", 0, [])
        assert (other["messages"], other["summaries"], other["profile"]) == (0, 0, 0)


class TestPermissions:
    async def test_key_of_one_user_needs_no_user_id(self, service: HttpService) -> None:
        ann, all_users = await service.client_with_key("ann"), await service.client_with_key()
        await add_verbatim(ann, "hers")
        assert await list_memories(all_users, user_id="ann") == ["hers"]
        two = await service.client_with_key("ann", "ben")
        for client in (all_users, two):
            report = check_error(await client.get("/v1/memories"), 400, "INVALID_ARGUMENT")
            assert report["details"]["fields"][0]["field"] == "user_id"
        check_error(await ann.get("/v1/memories", params={"user_id": "ben"}), 404, "NOT_FOUND")

    async def test_new_user_has_empty_memory(self, ann: httpx.AsyncClient) -> None:
        assert await list_memories(ann) == []
        results = await ann.post("/v1/memories/search", json={"query": "tea"})
        assert results.json()["results"] == []
        assert (await ann.get("/v1/graph")).json() == {"entities": [], "next_cursor": None}
        assert (await ann.get("/v1/state")).json()["text"] == ""

    async def test_read_only_key_cannot_change_memories(self, service: HttpService) -> None:
        key = await add_verbatim(await service.client_with_key("ann"), "stays")
        reader = await service.client_with_key("ann", read_only=True)
        path = f"/v1/memories/{key}"
        for refusal in (
            await reader.post("/v1/memories", json={"messages": "x"}),
            await reader.patch(path, json={"memory": "x"}),
            await reader.delete(path),
            await reader.post(f"{path}/undo"),
            await reader.delete("/v1/memories", params={"user_id": "ann"}),
        ):
            check_error(refusal, 403, "PERMISSION_DENIED")
        assert await list_memories(reader) == ["stays"]

    async def test_agent_key_is_limited_to_its_agent(self, service: HttpService) -> None:
        whole, travel = (
            await service.client_with_key("ann"),
            await service.client_with_key("ann", agent_id="travel"),
        )
        other = await add_verbatim(whole, "of another", agent_id="music")
        await add_verbatim(travel, "of travel")
        assert await list_memories(travel) == ["of travel"]
        assert await list_memories(whole, agent_id="music") == ["of another"]
        assert len(await list_memories(whole)) == 2
        check_error(await travel.get(f"/v1/memories/{other}"), 404, "NOT_FOUND")
        agent = {"agent_id": "music"}
        check_error(await travel.get("/v1/memories", params=agent), 400, "INVALID_ARGUMENT")

    async def test_sensitive_memories_require_permission(self, service: HttpService) -> None:
        ann = await service.client_with_key("ann")
        key = await add_verbatim(ann, "a secret", sensitive=True)
        allowed = await service.client_with_key(
            "ann", permissions=frozenset({Permission.SENSITIVE})
        )
        assert await list_memories(ann) == []
        check_error(await ann.get(f"/v1/memories/{key}"), 404, "NOT_FOUND")
        assert await list_memories(allowed) == ["a secret"]

    async def test_disabled_user_is_refused(
        self, service: HttpService, ann: httpx.AsyncClient
    ) -> None:
        key = await add_verbatim(ann, "x")
        await service.library.store.owners.set_user_enabled("ann", False)
        for refusal in (
            await ann.get("/v1/memories"),
            await ann.get(f"/v1/memories/{key}"),
            await ann.post("/v1/memories/search", json={"query": "x"}),
            await ann.post("/v1/memories", json={"messages": "y"}),
            await ann.get("/v1/state"),
        ):
            check_error(refusal, 403, "PERMISSION_DENIED")


@pytest.mark.concurrent
async def test_sweeps_follow_the_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sweep = json.dumps({"hours": 0.01 / 3600, "most_memories": 1})
    opening = open_library(str(tmp_path / "a.db"), tmp_path, sweep=sweep)
    async with opening as library, serve_in_process(library) as service:
        ann = await service.client_with_key("ann")
        await add_verbatim(ann, "one")
        await add_verbatim(ann, "two")
        with caplog.at_level("INFO", "memrecall.server"):
            await service.app.start_sweeps()
            await wait_until(lambda: any(_sweep_fields(record) for record in caplog.records))
        assert await list_memories(ann) == ["two"]
    assert "ann" not in json.dumps([_sweep_fields(record) for record in caplog.records])


def _sweep_fields(record: Any) -> Any:
    fields = getattr(record, "fields", {})
    return fields if record.message == "sweep" and fields["removed"] else None


async def test_invalid_input_names_the_field(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await add_verbatim(ann, "x")
    for method, path, body in read_rows("http", "memories refused"):
        answer = await ann.request(method, path, json=body)
        report = check_error(answer, 400, "INVALID_ARGUMENT")
        assert report["message"], (method, path, body)
