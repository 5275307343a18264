"""The memory API: what applications write over HTTP, under the keys of everything else."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.scope import Permission
from memrecall.server.http.memories import MAX_JOBS
from tests.waiting import wait_until

from .site import Site, at, error, in_process, opened, said, write


async def add(client: httpx.AsyncClient, messages: Any, **fields: Any) -> dict[str, Any]:
    """Add through the service; what it told."""
    answer = await client.post("/v1/memories", json={"messages": messages, **fields})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def keep(client: httpx.AsyncClient, text: str, **fields: Any) -> str:
    """Keep a text as it is; its id."""
    return str((await add(client, text, infer=False, **fields))["results"][0]["id"])


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    """The memories of a list."""
    answer = await client.get("/v1/memories", params=query)
    assert answer.status_code == 200, answer.text
    return [item["memory"] for item in answer.json()["results"]]


class TestAdding:
    async def test_add_extracts_and_updates_facts(self, ann: httpx.AsyncClient) -> None:
        told = await add(ann, [{"role": "user", "content": "I live in Paris.", "ts": at(0)}])
        assert [r["event"] for r in told["results"]] == ["ADD"]
        assert (told["stored"], told["problems"], told["job"]) == (1, [], None)

        moved = await add(ann, [{"role": "user", "content": "I moved to Rome."}], session_id="s2")

        (change,) = moved["results"]
        assert (change["event"], change["previous_memory"]) == ("UPDATE", "User lives in Paris.")
        assert await listed(ann) == ["User moved to Rome."]
        assert len(await listed(ann, superseded=True)) == 2
        assert await listed(ann, as_of=at(1)) == ["User lives in Paris."]

    async def test_add_accepts_text_message_and_openai_parts(self, ann: httpx.AsyncClient) -> None:
        await keep(ann, "plain words")
        await add(ann, {"role": "user", "content": "one message"}, infer=False)
        parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
        chat = [
            {"role": "user", "content": parts, "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}], "refusal": None},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]
        told = await add(ann, chat, infer=False, metadata={"a": 1}, memory_type="short")

        assert told["stored"] == 2  # the mere call has no words
        page = (await ann.get("/v1/memories", params={"filters": '{"a": 1}'})).json()
        found = {item["memory"]: item for item in page["results"]}
        assert set(found) == {"look\n[image]", "42"}
        assert (found["42"]["origin"], found["42"]["layer"]) == ("tool", "short")
        assert found["look\n[image]"]["speaker"] == "Ann"

    async def test_background_add_stores_messages_at_once(
        self, site: Site, ann: httpx.AsyncClient
    ) -> None:
        begun = await add(ann, "I live in Paris.", background=True)

        assert (begun["stored"], begun["results"]) == (1, [])
        job = begun["job"]["job_id"]
        await site.app.service.memory.job(job, wait=True)
        over = (await ann.get(f"/v1/jobs/{job}")).json()
        assert (over["job_id"], over["state"]) == (job, "done")
        assert over["result"]["results"][0]["memory"] == "User lives in Paris."
        assert over["result"]["messages"] == begun["messages"]
        ben = await site.holder("ben")
        error(await ben.get(f"/v1/jobs/{job}"), 404, "NOT_FOUND")
        error(await ann.get("/v1/jobs/job_none"), 404, "NOT_FOUND")

    async def test_too_many_jobs_are_refused(
        self, lite: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ann, go_on = await lite.holder("ann"), asyncio.Event()
        parts = await lite.app.service.memory._open()

        async def wait(*_: object) -> dict[str, Any]:
            await go_on.wait()
            return {}

        monkeypatch.setattr(parts.ingestor, "finish", wait)
        for number in range(MAX_JOBS):
            await add(ann, f"note {number}", background=True)
        body = {"messages": "one more", "background": True}
        refused = await ann.post("/v1/memories", json=body)
        go_on.set()
        error(refused, 429, "RESOURCE_EXHAUSTED")
        assert refused.headers["retry-after"]

    async def test_extraction_failure_hides_its_message_and_keeps_messages(
        self, lite: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ann = await lite.holder("ann")
        parts = await lite.app.service.memory._open()

        async def fail(*_: object, **__: object) -> None:
            raise RuntimeError("http://10.0.0.1 said: sk-secret")

        monkeypatch.setattr(parts.extractor, "facts", fail)
        told = await add(ann, "I live in Paris.")
        assert (told["stored"], told["problems"]) == (1, ["memories: could not be made"])
        found = (await ann.get("/v1/users/ann/messages")).json()["items"]
        assert found[0]["content"] == "I live in Paris."

    async def test_shutdown_finishes_background_jobs(self, lite: Site) -> None:
        async with in_process(lite.library) as other:
            await add(await other.holder("ann"), "I live in Paris.", background=True)
        assert await listed(await lite.holder("ann")) == ["User lives in Paris."]


class TestOne:
    async def test_get_update_history_delete_undo(self, ann: httpx.AsyncClient) -> None:
        key = await keep(ann, "likes coffee")
        path = f"/v1/memories/{key}"

        changed = await ann.patch(path, json={"memory": "likes tea", "pinned": True})

        assert changed.status_code == 200, changed.text
        assert (changed.json()["memory"], changed.json()["event"]) == ("likes tea", "UPDATE")
        assert (await ann.get(path)).json()["pinned"] is True
        assert (await ann.delete(path)).json()["event"] == "DELETE"
        error(await ann.get(path), 404, "NOT_FOUND")
        error(await ann.delete(path), 404, "NOT_FOUND")
        assert (await ann.post(f"{path}/undo")).json()["event"] == "UNDO"
        assert (await ann.get(path)).json()["memory"] == "likes tea"
        steps = (await ann.get(f"{path}/history")).json()["results"]
        assert [step["event"] for step in steps] == ["ADD", "UPDATE", "DELETE", "UNDO"]
        assert steps[1]["actor_id"].startswith("key ")
        await ann.post(f"{path}/undo")
        error(await ann.post(f"{path}/undo"), 409, "CONFLICT")

    async def test_null_removes_a_value(self, ann: httpx.AsyncClient) -> None:
        key = await keep(ann, "a plan", expires_at="2999-01-01T00:00:00Z")
        path = f"/v1/memories/{key}"
        assert (await ann.get(path)).json()["expires_at"] == "2999-01-01T00:00:00Z"
        assert (await ann.patch(path, json={"expires_at": None})).json()["expires_at"] is None

    async def test_message_id_is_not_a_memory_id(self, ann: httpx.AsyncClient) -> None:
        await write(ann, "ann", said(1))
        error(await ann.get("/v1/memories/m001"), 404, "NOT_FOUND")


class TestMany:
    async def test_list_supports_pages_filters_and_sessions(self, ann: httpx.AsyncClient) -> None:
        for number in range(5):
            await keep(ann, f"n{number}", metadata={"n": number}, session_id=f"s{number % 2}")
        first = (await ann.get("/v1/memories", params={"limit": 3})).json()
        assert [item["memory"] for item in first["results"]] == ["n4", "n3", "n2"]
        rest = {"limit": 3, "cursor": first["next_cursor"]}
        assert await listed(ann, **rest) == ["n1", "n0"]
        assert await listed(ann, filters=json.dumps({"n": {"gte": 3}})) == ["n4", "n3"]
        assert await listed(ann, session_id="s1") == ["n3", "n1"]
        elsewhere = {"cursor": first["next_cursor"], "session_id": "s1"}
        error(await ann.get("/v1/memories", params=elsewhere), 400, "INVALID_ARGUMENT")

    async def test_search(self, ann: httpx.AsyncClient) -> None:
        await keep(ann, "likes green tea", metadata={"sure": True}, session_id="s1")
        await keep(ann, "plays the violin")
        await write(ann, "ann", said(1, "tea again"))
        ask = {"query": "tea", "limit": 1}
        found = (await ann.post("/v1/memories/search", json=ask)).json()
        (best,) = found["results"]
        assert best["memory"] == "likes green tea"
        assert 0 < best["score"] <= 1
        for more in ({"filters": {"sure": True}}, {"rerank": False}, {"session_id": "s1"}):
            found = (await ann.post("/v1/memories/search", json={**ask, **more})).json()
            assert found["results"][0]["memory"] == "likes green tea"
        everything = {"query": "tea", "kinds": "all"}
        found = (await ann.post("/v1/memories/search", json=everything)).json()
        assert {hit["kind"] for hit in found["results"]} == {"memory", "message"}
        nothing = {"query": "tea", "threshold": 1.0}
        found = (await ann.post("/v1/memories/search", json=nothing)).json()
        assert found["results"] == []
        assert found["message"]

    async def test_delete_all_supports_dry_run_and_requires_scope(
        self, ann: httpx.AsyncClient
    ) -> None:
        await keep(ann, "keep", metadata={"n": 1})
        await keep(ann, "drop", metadata={"n": 2})
        some = {"user_id": "ann", "filters": '{"n": 2}'}
        counted = (await ann.delete("/v1/memories", params={**some, "dry_run": True})).json()
        assert (counted["found"], counted["deleted"], counted["dry_run"]) == (1, 0, True)
        error(await ann.delete("/v1/memories"), 400, "INVALID_ARGUMENT")
        in_body = await ann.request("DELETE", "/v1/memories", params=some, json={"filters": {}})
        error(in_body, 400, "INVALID_ARGUMENT")
        assert await listed(ann) == ["drop", "keep"]
        assert (await ann.delete("/v1/memories", params=some)).json()["deleted"] == 1
        assert await listed(ann) == ["keep"]
        assert await listed(ann, deleted=True) == ["drop"]


class TestGraphAndState:
    async def test_graph_returns_relations_paths_and_pages(self, ann: httpx.AsyncClient) -> None:
        told = "我叫李明，在北京大学学习计算机科学。我的导师是张教授，他在人工智能领域非常有名。"
        await add(ann, told)
        around = (await ann.get("/v1/graph", params={"entity": "李明"})).json()["relations"]
        assert ("李明", "advised_by", "张教授") in {
            (r["source"], r["relationship"], r["destination"]) for r in around
        }
        ways = {"entity": "北京大学", "to": "人工智能"}
        (way,) = (await ann.get("/v1/graph", params=ways)).json()["paths"]
        assert len(way) == 3
        first = (await ann.get("/v1/graph", params={"limit": 2})).json()
        assert len(first["entities"]) == 2
        rest = {"limit": 10, "cursor": first["next_cursor"]}
        last = (await ann.get("/v1/graph", params=rest)).json()
        names = {e["name"] for e in [*first["entities"], *last["entities"]]}
        assert {"李明", "北京大学", "计算机科学", "张教授", "人工智能"} <= names
        assert last["next_cursor"] is None
        error(await ann.get("/v1/graph", params={"to": "x"}), 400, "INVALID_ARGUMENT")

    async def test_session_state_fits_token_budget(self, ann: httpx.AsyncClient) -> None:
        await write(ann, "ann", *(said(n, session_id="s1") for n in range(1, 40)))
        state = (await ann.get("/v1/state", params={"session_id": "s1", "max_tokens": 50})).json()
        assert state["tokens"] <= 50
        assert state["text"].endswith("message number 39")
        other = (await ann.get("/v1/state", params={"session_id": "s2"})).json()
        assert other == {"text": "", "tokens": 0, "messages": 0, "summaries": 0}


class TestWhoMay:
    async def test_key_of_one_user_needs_no_user_id(self, site: Site) -> None:
        ann, everybody = await site.holder("ann"), await site.holder()
        await keep(ann, "hers")
        assert await listed(everybody, user_id="ann") == ["hers"]
        two = await site.holder("ann", "ben")
        for client in (everybody, two):
            told = error(await client.get("/v1/memories"), 400, "INVALID_ARGUMENT")
            assert told["details"]["fields"][0]["field"] == "user_id"
        error(await ann.get("/v1/memories", params={"user_id": "ben"}), 404, "NOT_FOUND")

    async def test_new_user_has_empty_memory(self, ann: httpx.AsyncClient) -> None:
        assert await listed(ann) == []
        found = await ann.post("/v1/memories/search", json={"query": "tea"})
        assert found.json()["results"] == []
        assert (await ann.get("/v1/graph")).json() == {"entities": [], "next_cursor": None}
        assert (await ann.get("/v1/state")).json()["text"] == ""

    async def test_read_only_key_cannot_change_memories(self, site: Site) -> None:
        key = await keep(await site.holder("ann"), "stays")
        reader = await site.holder("ann", read_only=True)
        path = f"/v1/memories/{key}"
        for refused in (
            await reader.post("/v1/memories", json={"messages": "x"}),
            await reader.patch(path, json={"memory": "x"}),
            await reader.delete(path),
            await reader.post(f"{path}/undo"),
            await reader.delete("/v1/memories", params={"user_id": "ann"}),
        ):
            error(refused, 403, "PERMISSION_DENIED")
        assert await listed(reader) == ["stays"]

    async def test_agent_key_is_limited_to_its_agent(self, site: Site) -> None:
        whole, travel = await site.holder("ann"), await site.holder("ann", agent_id="travel")
        other = await keep(whole, "of another", agent_id="music")
        await keep(travel, "of travel")
        assert await listed(travel) == ["of travel"]
        assert await listed(whole, agent_id="music") == ["of another"]
        assert len(await listed(whole)) == 2
        error(await travel.get(f"/v1/memories/{other}"), 404, "NOT_FOUND")
        named = {"agent_id": "music"}
        error(await travel.get("/v1/memories", params=named), 400, "INVALID_ARGUMENT")

    async def test_sensitive_memories_require_permission(self, site: Site) -> None:
        ann = await site.holder("ann")
        key = await keep(ann, "a secret", sensitive=True)
        allowed = await site.holder("ann", permissions=frozenset({Permission.SENSITIVE}))
        assert await listed(ann) == []
        error(await ann.get(f"/v1/memories/{key}"), 404, "NOT_FOUND")
        assert await listed(allowed) == ["a secret"]

    async def test_disabled_user_is_refused(self, site: Site, ann: httpx.AsyncClient) -> None:
        key = await keep(ann, "x")
        await site.library.store.owners.set_user_enabled("ann", False)
        for refused in (
            await ann.get("/v1/memories"),
            await ann.get(f"/v1/memories/{key}"),
            await ann.post("/v1/memories/search", json={"query": "x"}),
            await ann.post("/v1/memories", json={"messages": "y"}),
            await ann.get("/v1/state"),
        ):
            error(refused, 403, "PERMISSION_DENIED")


@pytest.mark.concurrent
async def test_sweeps_follow_the_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    often: dict[str, Any] = {"sweep_hours": 0.01 / 3600, "sweep_most_memories": 1}
    place = opened(str(tmp_path / "a.db"), tmp_path, **often)
    async with place as library, in_process(library) as site:
        ann = await site.holder("ann")
        await keep(ann, "one")
        await keep(ann, "two")
        with caplog.at_level("INFO", "memrecall.server"):
            await site.app.start_sweeps()
            await wait_until(lambda: any(_swept(record) for record in caplog.records))
        assert await listed(ann) == ["two"]
    assert "ann" not in json.dumps([_swept(record) for record in caplog.records])


def _swept(record: Any) -> Any:
    fields = getattr(record, "fields", {})
    return fields if record.message == "sweep" and fields["removed"] else None


BAD = [
    ("POST", "/v1/memories", {}),
    ("POST", "/v1/memories", {"messages": []}),
    ("POST", "/v1/memories", {"messages": " "}),
    ("POST", "/v1/memories", {"messages": 5}),
    ("POST", "/v1/memories", {"messages": [{"role": "boss", "content": "x"}]}),
    ("POST", "/v1/memories", {"messages": "x", "infer": "no"}),
    ("POST", "/v1/memories", {"messages": "x", "expires_at": "soon"}),
    ("POST", "/v1/memories", {"messages": "x", "color": "red"}),
    ("POST", "/v1/memories/search", {}),
    ("POST", "/v1/memories/search", {"query": " "}),
    ("POST", "/v1/memories/search", {"query": "x", "limit": 0}),
    ("POST", "/v1/memories/search", {"query": "x", "threshold": 2}),
    ("POST", "/v1/memories/search", {"query": "x", "filters": {"a": {"like": "b"}}}),
    ("POST", "/v1/memories/search", {"query": "x", "kinds": "dreams"}),
    ("PATCH", "/v1/memories/k", {}),
    ("PATCH", "/v1/memories/k", {"memory": ""}),
    ("PATCH", "/v1/memories/k", {"memory": None}),
    ("PATCH", "/v1/memories/k", {"pinned": "yes"}),
    ("GET", "/v1/memories?filters=tea", None),
    ("GET", "/v1/memories?filters=[1]", None),
    ("GET", "/v1/memories?limit=1001", None),
    ("GET", "/v1/memories?cursor=forged", None),
    ("GET", "/v1/memories?as_of=then", None),
    ("GET", "/v1/memories?color=red", None),
    ("GET", "/v1/graph?entity=x&depth=7", None),
    ("GET", "/v1/state?max_tokens=0", None),
    ("DELETE", "/v1/memories?user_id=ann&filters={}x", None),
]


async def test_invalid_input_names_the_field(lite: Site) -> None:
    ann = await lite.holder("ann")
    await keep(ann, "x")
    for method, path, body in BAD:
        answer = await ann.request(method, path, json=body)
        told = error(answer, 400, "INVALID_ARGUMENT")
        assert told["message"], (method, path, body)
    for method in ("GET", "PATCH", "DELETE"):
        refused = await ann.request(method, "/v1/memories/search")
        error(refused, 405, "INVALID_ARGUMENT")
        assert refused.headers["allow"] == "POST"
