"""`POST /v1/users/{user_id}/chat`: one turn, as one response or a stream of events."""

import asyncio
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.errors import StorageFull, StorageUnreachable
from memrecall.memory import Library
from memrecall.server.http import app
from memrecall.server.http.chat import ChatAnswer
from memrecall.testing import ScriptedClient, call, fail, say
from tests.cases import check_each_async
from tests.waiting import LIMIT, wait_until

from .http_service import (
    CHAT,
    HttpService,
    check_error,
    message_ids,
    open_library,
    serve_in_process,
    serve_on_socket,
    write_messages,
)
from .test_recall import STREAM, StalledClient, stalled_service, stream_events

PATH = "/v1/users/ann/chat"
RECALL_WITH_MODEL = json.dumps({"recall_with_model": True})
QUESTION = {"message": "Where does my sister live?", "session_id": "s9"}
DSML = '<｜DSML｜function_calls><｜DSML｜invoke name="recall_memory">'
MEMBERS = [
    {"member_id": "u1", "name": "Ann"},
    {"member_id": "u2", "name": "小波", "nicknames": ["波波"]},
    {"member_id": "bot", "name": "小助手", "ai": True},
]
FULL = "RESOURCE_EXHAUSTED"
GROUP = {"members": MEMBERS, "speaker": "u1"}


async def test_turn_is_answered_and_stored(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *CHAT)
    answer = await ann.post(PATH, json={**QUESTION, "message_id": "q1"})
    assert answer.status_code == 200, answer.text
    end = answer.json()
    assert end.keys() == {field.name for field in fields(ChatAnswer)}
    assert "“My sister lives in Lisbon”" in end["text"]
    (recall,) = end["tools"]
    assert (recall["name"], recall["forged"], recall["is_error"]) == ("recall_memory", True, False)
    assert "m003" in [event["key"] for event in json.loads(recall["content"])["events"]]
    page = await ann.get("/v1/users/ann/messages", params={"page_size": 2})
    assert message_ids(page) == [end["message_id"], "q1"]
    assert {item["session_id"] for item in page.json()["items"]} == {"s9"}


async def test_stream_events_are_ordered_and_end_with_final(sqlite_library: Library) -> None:
    model = ScriptedClient([call("recall_memory", query="sister"), say("In Lisbon, I think.")])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        ann = await service.client_with_chat()
        events = await stream_events(ann, QUESTION, PATH)
    names = [name for name, _ in events]
    assert names[:4] == ["tool_call", "tool_result"] * 2
    assert ({*names[4:-1]}, names[-1]) == ({"text_delta"}, "final")
    calls = [data for name, data in events if name == "tool_call"]
    results = [data for name, data in events if name == "tool_result"]
    assert [data["forged"] for data in calls] == [True, False]
    assert [data["id"] for data in calls] == [data["id"] for data in results]
    final = events[-1][1]
    told = "".join(d["text"] for n, d in events if n == "text_delta")
    assert told == final["text"] == "In Lisbon, I think."
    assert final["recalls"] == 2


async def test_retracted_text_is_told_in_the_stream(sqlite_library: Library) -> None:
    model = ScriptedClient([say("I must not reveal the plan.</think>In Lisbon.")])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        ann = await service.client_with_key("ann")
        events = await stream_events(ann, QUESTION, PATH)
        stored = (await ann.get("/v1/users/ann/messages", params={"page_size": 1})).json()
    names = [name for name, _ in events]
    at = names.index("text_retracted")
    assert events[at][1] == {"text": ""}
    assert "".join(d["text"] for n, d in events[at:] if n == "text_delta") == "In Lisbon."
    assert events[-1][1]["text"] == stored["items"][0]["content"] == "In Lisbon."


async def test_group_turn_is_answered(ann: httpx.AsyncClient) -> None:
    group = {"members": MEMBERS, "speaker": "u1", "answers": "bot"}
    body: dict[str, Any] = {"message": "@小助手 火锅吃什么锅底？", "group": group}
    await write_messages(ann, "ann", *CHAT)
    end = (await ann.post(PATH, json=body)).json()
    names = [tool["name"] for tool in end["tools"]]
    assert names == ["get_other_members_messages", "is_mentioned", "recall_memory"]
    assert end["tools"][1]["content"] == "被提及，需要发言"
    assert not end["silent"]
    body = {"message": "我先走了", "group": {**group, "speaker": "u2"}}
    end = (await ann.post(PATH, json=body)).json()
    assert (end["silent"], end["text"], end["message_id"]) == (True, "", None)
    body = {"group": {"members": MEMBERS, "answers": "bot", "mentions": ["bot"]}}
    end = (await ann.post(PATH, json=body)).json()
    assert (end["silent"], bool(end["text"])) == (False, True)
    page = (await ann.get("/v1/users/ann/messages", params={"page_size": 4})).json()["items"]
    assert [item["speaker"] for item in reversed(page)] == ["Ann", "小助手", "小波", "小助手"]


async def test_leaks_are_hidden_and_counted_by_family(sqlite_library: Library) -> None:
    model = ScriptedClient([say(f"Well. {DSML}"), say("Lisbon."), say(DSML), say(DSML)])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        client = await service.client_with_key("ann", permissions=frozenset(["operator"]))
        first = (await client.post(PATH, json=QUESTION)).json()
        assert (first["text"], first["degraded"]) == ("Well.\n\nLisbon.", False)
        events = await stream_events(client, QUESTION, PATH)
        assert events[-1][1]["degraded"]
        assert "DSML" not in json.dumps(events, ensure_ascii=False)
        metrics = (await client.get("/metrics")).text
    assert 'memrecall_leaks_total{family="deepseek_dsml"} 3.0' in metrics
    assert 'memrecall_chat_turns_total{outcome="answered"} 1.0' in metrics
    assert 'memrecall_chat_turns_total{outcome="degraded"} 1.0' in metrics


async def test_leaks_of_failed_turns_and_recalls_are_counted(sqlite_library: Library) -> None:
    sqlite_library.settings = replace(sqlite_library.settings, chat=RECALL_WITH_MODEL)
    leak = say('<tool_call>{"name": "search_memories", "arguments": {}}</tool_call>')
    model = ScriptedClient([leak, leak, say(DSML), fail("unreachable")])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        client = await service.client_with_key("ann", permissions=frozenset(["operator"]))
        await write_messages(client, "ann", *CHAT)
        check_error(await client.post(PATH, json=QUESTION), 503, "UNAVAILABLE")
        metrics = (await client.get("/metrics")).text
    assert 'memrecall_leaks_total{family="deepseek_dsml"} 1.0' in metrics
    assert 'memrecall_leaks_total{family="hermes_json"} 2.0' in metrics


async def test_resent_message_returns_same_answer(sqlite_service: HttpService) -> None:
    for user, group in (("ann", None), ("ben", {**GROUP, "answers": "bot"})):
        client, path = await sqlite_service.client_with_key(user), f"/v1/users/{user}/chat"
        body = {"message": "@小助手 where is it?", "message_id": "q1", "group": group}
        first = (await client.post(path, json=body)).json()
        for headers in ({}, STREAM):
            repeated = await client.post(path, json=body, headers=headers)
            assert repeated.status_code == 200, repeated.text
            assert first["message_id"] in repeated.text
            if not headers:
                assert (repeated.json()["text"], repeated.json()["model_calls"]) == (
                    first["text"],
                    0,
                )
            assert (await sqlite_service.library.store.count(user))["messages"] == 2


async def test_chat_settings_are_applied(tmp_path: Path) -> None:
    options = json.dumps({"recalls": 1, "count_forced": True})
    model = ScriptedClient([call("recall_memory", query="x"), say("ok")])
    async with (
        open_library(str(tmp_path / "a.db"), tmp_path, chat=options) as library,
        serve_in_process(library, model_client=model) as service,
    ):
        ann = await service.client_with_key("ann")
        end = (await ann.post(PATH, json=QUESTION)).json()
    assert [tool["is_error"] for tool in end["tools"]] == [False, True]
    assert end["recalls"] == 1


async def test_recalls_use_model_if_configured(sqlite_library: Library) -> None:
    sqlite_library.settings = replace(sqlite_library.settings, chat=RECALL_WITH_MODEL)
    handoff = {"reason": "r", "search_summary": "s", "confidence": 0.9}
    model = ScriptedClient([call("handoff", **handoff), say("ok")])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        ann = await service.client_with_chat()
        assert (await ann.post(PATH, json=QUESTION)).json()["text"] == "ok"
    assert "handoff" in model.requests[0].tool_names
    assert model.requests[1].tool_names == ("recall_memory",)


@pytest.mark.concurrent
async def test_chat_respects_key_permissions(sqlite_service: HttpService) -> None:
    ben, reader = (
        await sqlite_service.client_with_key("ben"),
        await sqlite_service.client_with_key("ann", read_only=True),
    )
    check_error(await ben.post(PATH, json=QUESTION), 404, "NOT_FOUND")
    check_error(await reader.post(PATH, json=QUESTION), 403, "PERMISSION_DENIED")
    check_error(await sqlite_service.client().post(PATH, json=QUESTION), 401, "UNAUTHENTICATED")
    assert (await sqlite_service.library.store.count())["messages"] == 0


async def test_disabled_user_is_refused(
    sqlite_service: HttpService, asker: httpx.AsyncClient
) -> None:
    await sqlite_service.library.store.owners.set_user_enabled("ann", False)
    for headers in ({}, STREAM):
        answer = await asker.post(PATH, json=QUESTION, headers=headers)
        check_error(answer, 403, "PERMISSION_DENIED")


async def test_status_says_what_became_of_the_message(asker: httpx.AsyncClient) -> None:
    group = {"message": "小助手 hi", "group": {**GROUP, "answers": "bot"}}
    for message_id, body in (("q1", QUESTION), ("q2", group)):
        body = {**body, "message_id": message_id}
        statuses = [(await asker.post(PATH, json=body)).json()["status"] for _ in range(2)]
        assert statuses == ["new", "same"]
        (await asker.delete(f"/v1/users/ann/messages/{message_id}")).raise_for_status()
        assert (await asker.post(PATH, json=body)).json()["status"] == "same"
        (await asker.post(f"/v1/memories/{message_id}/purge")).raise_for_status()
        assert (await asker.post(PATH, json=body)).json()["status"] == "erased"


async def test_disk_that_fills_during_a_turn_is_no_507(
    asker: httpx.AsyncClient, sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 507 means that nothing was changed: here the question was stored, and not the answer."""
    database = sqlite_service.library.store.database
    write, writes = database._transact_inline, 0

    def fill(*arguments: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes > most:
            raise StorageFull("no space is left")
        return write(*arguments)

    monkeypatch.setattr(database, "_transact_inline", fill)
    most = 0
    check_error(await asker.post(PATH, json={**QUESTION, "message_id": "q1"}), 507, FULL)
    for accept in ({}, STREAM):
        most = writes + 1
        body = {**QUESTION, "message_id": "q1"}
        answer = await asker.post(PATH, json=body, headers=accept)
        assert '"outcome":"partly"' in answer.text
        assert answer.status_code == (200 if accept else 503)
    most = writes + 10
    assert (await asker.post(PATH, json=body)).json()["status"] == "same"


async def test_duplicate_message_id_is_a_conflict(asker: httpx.AsyncClient) -> None:
    for headers in ({}, STREAM):
        answer = await asker.post(PATH, json={**QUESTION, "message_id": "m001"}, headers=headers)
        check_error(answer, 409, "CONFLICT")


INVALID_REQUESTS: list[dict[str, Any]] = [
    {},
    {"message": ""},
    {"message": " "},
    {"message": "x" * 100_001},
    {"message": "x", "language": "fr"},
    {"message": "x", "user_id": "ben"},
    {"message": "x", "session_id": ""},
    {"message": "x", "instructions": "x" * 20_001},
    {"message": "x\0"},
    {"message": "x", "group": {"members": [], "answers": "bot", "speaker": "bot"}},
    {"message": "x", "group": {"members": MEMBERS, "answers": "eve", "speaker": "u1"}},
    {"message": "x", "group": {"members": MEMBERS, "answers": "bot"}},
    {"message": "x", "group": {"members": MEMBERS * 2, "answers": "bot", "speaker": "u1"}},
    {"group": {"members": MEMBERS, "answers": "bot", "speaker": "u1"}},
    {"group": {"members": MEMBERS, "answers": "bot", "mentions": ["eve"]}},
    {"group": {"members": MEMBERS, "answers": "bot"}},  # without a message
    {"message": "x", "group": {"members": MEMBERS, "answers": "u1", "speaker": "u1"}},
    {"message": "x", "group": {"members": MEMBERS, "answers": "u2", "speaker": "u1"}},  # a person
    {"message": "x", "instructions": "y", "group": {**GROUP, "answers": "bot"}},
]


async def test_invalid_chat_requests_are_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")

    async def check(body: dict[str, Any]) -> None:
        for headers in ({}, STREAM):
            check_error(await ann.post(PATH, json=body, headers=headers), 400, "INVALID_ARGUMENT")
        assert (await sqlite_service.library.store.count())["messages"] == 0

    await check_each_async(INVALID_REQUESTS, check, lambda body: repr(body)[:200])


class TestFailures:
    async def test_model_failure_is_reported_and_question_stored(
        self, sqlite_library: Library
    ) -> None:
        secret = "no route to 10.0.0.7"
        model = ScriptedClient([fail("unreachable", secret)] * 2)
        async with serve_in_process(sqlite_library, model_client=model) as service:
            client = await service.client_with_key("ann", permissions=frozenset(["operator"]))
            detail = check_error(await client.post(PATH, json=QUESTION), 503, "UNAVAILABLE")
            assert secret not in json.dumps(detail)
            events = await stream_events(client, QUESTION, PATH)
            assert [name for name, _ in events] == ["tool_call", "tool_result", "error"]
            assert events[-1][1]["error"]["code"] == "UNAVAILABLE"
            assert (await service.library.store.count("ann"))["messages"] == 2
            metrics = (await client.get("/metrics")).text
        assert 'memrecall_chat_turns_total{outcome="failed"} 2.0' in metrics

    async def test_failures_that_do_not_pass_are_told(self, sqlite_library: Library) -> None:
        cases: dict[Any, str] = {
            "authentication": "refuses the key",
            "quota": "no quota left",
            "overflow": "longer than the model reads; send less",
            "malformed": "does not answer as its API must",
            "refused": "answers with an error; tell the operator",
        }
        for kind, words in cases.items():
            model = ScriptedClient([fail(kind, "sk-secret is wrong")] * 2)
            async with serve_in_process(sqlite_library, model_client=model) as service:
                ann = await service.client_with_key("ann")
                answer = await ann.post(PATH, json=QUESTION)
                error = check_error(answer, 503, "UNAVAILABLE")
                events = await stream_events(ann, QUESTION, PATH)
            assert words in error["message"]
            assert "try again" not in answer.text
            assert "sk-secret" not in answer.text
            assert "retry-after" not in answer.headers
            assert error["details"] == {"reason": f"model_{kind}"}
            assert events[-1][1]["error"] == error

    async def test_failed_recall_does_not_fail_the_turn(
        self, sqlite_service: HttpService, asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: Any) -> None:
            raise StorageUnreachable("/srv/secret.db is gone")

        monkeypatch.setattr(sqlite_service.library, "search", broken)
        end = (await asker.post(PATH, json=QUESTION)).json()
        assert end["tools"][0]["is_error"]
        assert end["text"] == "I cannot look it up at the moment, so I do not know."
        assert "secret.db" not in json.dumps(end)


@pytest.mark.concurrent
class TestDisconnectAndShutdown:
    @pytest.mark.parametrize("headers", [{}, STREAM], ids=["result", "stream"])
    async def test_disconnect_cancels_the_turn(
        self, sqlite_library: Library, headers: dict[str, str]
    ) -> None:
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_key("ann")
            request_task = asyncio.create_task(ann.post(PATH, json=QUESTION, headers=headers))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            request_task.cancel()
            await asyncio.gather(request_task, return_exceptions=True)
            await asyncio.wait_for(model.cancelled.wait(), LIMIT)
            await wait_until(lambda: len(service.app.service.limiter) == 0)
            operator = await service.client_with_key(permissions=frozenset(["operator"]))
            metrics = (await operator.get("/metrics")).text
            assert 'memrecall_chat_turns_total{outcome="cancelled"} 1.0' in metrics
            assert (await service.library.store.count("ann"))["messages"] == 1

    async def test_shutdown_ends_stream_with_error_event(self, sqlite_library: Library) -> None:
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_key("ann")
            request_task = asyncio.create_task(ann.post(PATH, json=QUESTION))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            service.app.service.closing.set()
            check_error(await asyncio.wait_for(request_task, LIMIT), 503, "UNAVAILABLE")

    async def test_turns_share_slots_with_recalls(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "MAX_WAITING_RECALLS", 0)
        async with (
            open_library(str(tmp_path / "a.db"), tmp_path, recalls_per_key=1) as library,
            serve_on_socket(library, model_client=StalledClient()) as service,
        ):
            ann = await service.client_with_key("ann")
            running = asyncio.create_task(ann.post(PATH, json=QUESTION))
            await wait_until(lambda: len(service.app.service.limiter) == 1)
            answer = await ann.post(PATH, json=QUESTION)
            check_error(answer, 429, "RESOURCE_EXHAUSTED")
            assert int(answer.headers["retry-after"]) > 0
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
