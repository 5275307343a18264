"""`POST /v1/users/{user_id}/chat`: one turn, at its end or as it happens."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.errors import StorageUnreachable
from memrecall.memory import Library
from memrecall.server.http.chat_models import ChatAnswer
from memrecall.testing import ScriptedClient, call, fail, say
from tests.cases import check_each_async
from tests.waiting import LIMIT, wait_until

from .site import Site, error, ids, in_process, opened, said, serving, write
from .test_recall import STREAM, Stalled, events_of, stalled_site

PATH = "/v1/users/ann/chat"
CHAT = [said(1, "我不吃辣，火锅要清汤"), said(2, "好的"), said(3, "My sister lives in Lisbon")]
ASKED = {"message": "Where does my sister live?", "session_id": "s9"}
DSML = '<｜DSML｜function_calls><｜DSML｜invoke name="recall_memory">'
MEMBERS = [
    {"member_id": "u1", "name": "Ann"},
    {"member_id": "u2", "name": "小波", "nicknames": ["波波"]},
    {"member_id": "bot", "name": "小助手", "ai": True},
]
SPOKEN = {"members": MEMBERS, "speaker": "u1"}


@pytest.fixture
def engine() -> str:
    """SQLite only: the endpoints under test run the same statements on both engines."""
    return "sqlite"


async def test_turn_is_answered_and_stored(ann: httpx.AsyncClient) -> None:
    await write(ann, "ann", *CHAT)
    answer = await ann.post(PATH, json={**ASKED, "message_id": "q1"})
    assert answer.status_code == 200, answer.text
    end = answer.json()
    assert end.keys() == ChatAnswer.model_fields.keys()
    assert "“My sister lives in Lisbon”" in end["text"]
    (recall,) = end["tools"]
    assert (recall["name"], recall["forged"], recall["is_error"]) == ("recall_memory", True, False)
    assert "m003" in [event["key"] for event in json.loads(recall["content"])["events"]]
    page = await ann.get("/v1/users/ann/messages", params={"page_size": 2})
    assert ids(page) == [end["message_id"], "q1"]
    assert {item["session_id"] for item in page.json()["items"]} == {"s9"}


async def test_stream_events_are_ordered_and_end_with_final(lite_library: Library) -> None:
    model = ScriptedClient([call("recall_memory", query="sister"), say("In Lisbon, I think.")])
    async with in_process(lite_library, model_client=model) as site:
        ann = await site.holder("ann")
        await write(ann, "ann", *CHAT)
        events = await events_of(ann, ASKED, PATH)
    names = [name for name, _ in events]
    assert names == [*["tool_call", "tool_result"] * 2, *["text_delta"] * 4, "final"]
    calls = [data for name, data in events if name == "tool_call"]
    results = [data for name, data in events if name == "tool_result"]
    assert [data["forged"] for data in calls] == [True, False]
    assert [data["id"] for data in calls] == [data["id"] for data in results]
    final = events[-1][1]
    assert "".join(d["text"] for n, d in events if n == "text_delta") == final["text"]
    assert final["text"] == "In Lisbon, I think."
    assert final["recalls"] == 2


async def test_group_turn_is_answered(ann: httpx.AsyncClient) -> None:
    path = "/v1/users/ann/chat"
    group = {"members": MEMBERS, "speaker": "u1", "answers": "bot"}
    body: dict[str, Any] = {"message": "@小助手 火锅吃什么锅底？", "group": group}
    await write(ann, "ann", *CHAT)
    end = (await ann.post(path, json=body)).json()
    names = [tool["name"] for tool in end["tools"]]
    assert names == ["get_other_members_messages", "is_mentioned", "recall_memory"]
    assert end["tools"][1]["content"] == "被提及，需要发言"
    assert not end["silent"]
    body = {"message": "我先走了", "group": {**group, "speaker": "u2"}}
    end = (await ann.post(path, json=body)).json()
    assert (end["silent"], end["text"], end["message_id"]) == (True, "", None)
    body = {"group": {"members": MEMBERS, "answers": "bot", "mentions": ["bot"]}}
    end = (await ann.post(path, json=body)).json()
    assert (end["silent"], bool(end["text"])) == (False, True)
    page = (await ann.get("/v1/users/ann/messages", params={"page_size": 4})).json()["items"]
    assert [item["speaker"] for item in reversed(page)] == ["Ann", "小助手", "小波", "小助手"]


async def test_leaks_are_hidden_and_counted_by_family(lite_library: Library) -> None:
    model = ScriptedClient([say(f"Well. {DSML}"), say("Lisbon."), say(DSML), say(DSML)])
    async with in_process(lite_library, model_client=model) as site:
        client = await site.holder("ann", permissions=frozenset(["operator"]))
        first = (await client.post(PATH, json=ASKED)).json()
        assert (first["text"], first["degraded"]) == ("Well.\n\nLisbon.", False)
        events = await events_of(client, ASKED, PATH)
        assert events[-1][1]["degraded"]
        assert "DSML" not in json.dumps(events, ensure_ascii=False)
        told = (await client.get("/metrics")).text
    assert 'memrecall_leaks_total{family="deepseek_dsml"} 3.0' in told
    assert 'memrecall_chat_turns_total{outcome="answered"} 1.0' in told
    assert 'memrecall_chat_turns_total{outcome="degraded"} 1.0' in told


async def test_leaks_of_failed_turns_and_recalls_are_counted(lite_library: Library) -> None:
    lite_library.settings = replace(lite_library.settings, chat_recall_with_model=True)
    leak = say('<tool_call>{"name": "search_memories", "arguments": {}}</tool_call>')
    model = ScriptedClient([leak, leak, say(DSML), fail("unreachable")])
    async with in_process(lite_library, model_client=model) as site:
        client = await site.holder("ann", permissions=frozenset(["operator"]))
        await write(client, "ann", *CHAT)
        error(await client.post(PATH, json=ASKED), 503, "UNAVAILABLE")
        told = (await client.get("/metrics")).text
    assert 'memrecall_leaks_total{family="deepseek_dsml"} 1.0' in told
    assert 'memrecall_leaks_total{family="hermes_json"} 2.0' in told


async def test_resent_message_returns_same_answer(lite: Site) -> None:
    for user, group in (("ann", None), ("ben", {**SPOKEN, "answers": "bot"})):
        client, path = await lite.holder(user), f"/v1/users/{user}/chat"
        body = {"message": "@小助手 where is it?", "message_id": "q1", "group": group}
        first = (await client.post(path, json=body)).json()
        for headers in ({}, STREAM):
            again = await client.post(path, json=body, headers=headers)
            assert again.status_code == 200, again.text
            assert first["message_id"] in again.text
            if not headers:
                assert (again.json()["text"], again.json()["model_calls"]) == (first["text"], 0)
            assert (await lite.library.store.count(user))["messages"] == 2


async def test_chat_settings_are_applied(tmp_path: Path) -> None:
    given = {"chat_recalls": 1, "chat_count_forced": True}
    model = ScriptedClient([call("recall_memory", query="x"), say("ok")])
    async with (
        opened(str(tmp_path / "a.db"), tmp_path, **given) as library,
        in_process(library, model_client=model) as site,
    ):
        ann = await site.holder("ann")
        end = (await ann.post(PATH, json=ASKED)).json()
    assert [tool["is_error"] for tool in end["tools"]] == [False, True]
    assert end["recalls"] == 1


async def test_recalls_use_model_if_configured(lite_library: Library) -> None:
    lite_library.settings = replace(lite_library.settings, chat_recall_with_model=True)
    handoff = {"reason": "r", "search_summary": "s", "confidence": 0.9}
    model = ScriptedClient([call("handoff", **handoff), say("ok")])
    async with in_process(lite_library, model_client=model) as site:
        ann = await site.holder("ann")
        await write(ann, "ann", *CHAT)
        assert (await ann.post(PATH, json=ASKED)).json()["text"] == "ok"
    assert "handoff" in model.requests[0].tool_names
    assert model.requests[1].tool_names == ("recall_memory",)


async def test_chat_respects_key_permissions(lite: Site) -> None:
    ben, reader = await lite.holder("ben"), await lite.holder("ann", read_only=True)
    error(await ben.post(PATH, json=ASKED), 404, "NOT_FOUND")
    error(await reader.post(PATH, json=ASKED), 403, "PERMISSION_DENIED")
    error(await lite.client().post(PATH, json=ASKED), 401, "UNAUTHENTICATED")
    assert (await lite.library.store.count())["messages"] == 0


async def test_disabled_user_is_refused(lite: Site) -> None:
    ann = await lite.holder("ann")
    await write(ann, "ann", *CHAT)
    await lite.library.store.owners.set_user_enabled("ann", False)
    for headers in ({}, STREAM):
        answer = await ann.post(PATH, json=ASKED, headers=headers)
        error(answer, 403, "PERMISSION_DENIED")


async def test_duplicate_message_id_is_a_conflict(lite: Site) -> None:
    ann = await lite.holder("ann")
    await write(ann, "ann", *CHAT)
    for headers in ({}, STREAM):
        answer = await ann.post(PATH, json={**ASKED, "message_id": "m001"}, headers=headers)
        error(answer, 409, "CONFLICT")


MISTAKES: list[dict[str, Any]] = [
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
    {"group": {"members": MEMBERS, "answers": "bot"}},  # to nothing
    {"message": "x", "group": {"members": MEMBERS, "answers": "u1", "speaker": "u1"}},
    {"message": "x", "instructions": "y", "group": {**SPOKEN, "answers": "bot"}},
]


async def test_invalid_chat_requests_are_refused(lite: Site) -> None:
    ann = await lite.holder("ann")

    async def check(body: dict[str, Any]) -> None:
        for headers in ({}, STREAM):
            error(await ann.post(PATH, json=body, headers=headers), 400, "INVALID_ARGUMENT")
        assert (await lite.library.store.count())["messages"] == 0

    await check_each_async(MISTAKES, check, lambda body: repr(body)[:200])


async def test_error_message_uses_singular(lite: Site) -> None:
    ann = await lite.holder("ann")
    body = {"message": "x", "group": {"members": [], "answers": "bot", "speaker": "u1"}}
    told = error(await ann.post(PATH, json=body), 400, "INVALID_ARGUMENT")
    assert "must have at least 1 item, and has 0" in json.dumps(told)


class TestFailures:
    async def test_model_failure_is_reported_and_question_stored(
        self, lite_library: Library
    ) -> None:
        secret = "no route to 10.0.0.7"
        model = ScriptedClient([fail("unreachable", secret)] * 2)
        async with in_process(lite_library, model_client=model) as site:
            client = await site.holder("ann", permissions=frozenset(["operator"]))
            told = error(await client.post(PATH, json=ASKED), 503, "UNAVAILABLE")
            assert secret not in json.dumps(told)
            events = await events_of(client, ASKED, PATH)
            assert [name for name, _ in events] == ["tool_call", "tool_result", "error"]
            assert events[-1][1]["error"]["code"] == "UNAVAILABLE"
            assert (await site.library.store.count("ann"))["messages"] == 2
            metrics = (await client.get("/metrics")).text
        assert 'memrecall_chat_turns_total{outcome="failed"} 2.0' in metrics

    async def test_failed_recall_does_not_fail_the_turn(
        self, lite: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: Any) -> None:
            raise StorageUnreachable("/srv/secret.db is gone")

        ann = await lite.holder("ann")
        await write(ann, "ann", *CHAT)
        monkeypatch.setattr(lite.library, "search", broken)
        end = (await ann.post(PATH, json=ASKED)).json()
        assert end["tools"][0]["is_error"]
        assert end["text"] == "I cannot look it up at the moment, so I do not know."
        assert "secret.db" not in json.dumps(end)


@pytest.mark.concurrent
class TestGoingAway:
    @pytest.mark.parametrize("headers", [{}, STREAM], ids=["result", "stream"])
    async def test_disconnect_cancels_the_turn(
        self, lite_library: Library, headers: dict[str, str]
    ) -> None:
        async with stalled_site(lite_library) as (site, model):
            ann = await site.holder("ann")
            asking = asyncio.create_task(ann.post(PATH, json=ASKED, headers=headers))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.wait_for(model.cancelled.wait(), LIMIT)
            await wait_until(lambda: len(site.app.service.limiter) == 0)
            operator = await site.holder(permissions=frozenset(["operator"]))
            told = (await operator.get("/metrics")).text
            assert 'memrecall_chat_turns_total{outcome="cancelled"} 1.0' in told
            assert (await site.library.store.count("ann"))["messages"] == 1

    async def test_shutdown_ends_stream_with_error_event(self, lite_library: Library) -> None:
        async with stalled_site(lite_library) as (site, model):
            ann = await site.holder("ann")
            asking = asyncio.create_task(ann.post(PATH, json=ASKED))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            site.app.start_shutdown()
            error(await asyncio.wait_for(asking, LIMIT), 503, "UNAVAILABLE")

    async def test_turns_share_slots_with_recalls(self, tmp_path: Path) -> None:
        limits = {"recalls_per_key": 1, "recall_queue": 0}
        async with (
            opened(str(tmp_path / "a.db"), tmp_path, **limits) as library,
            serving(library, model_client=Stalled()) as site,
        ):
            ann = await site.holder("ann")
            running = asyncio.create_task(ann.post(PATH, json=ASKED))
            await wait_until(lambda: len(site.app.service.limiter) == 1)
            answer = await ann.post(PATH, json=ASKED)
            error(answer, 429, "RESOURCE_EXHAUSTED")
            assert int(answer.headers["retry-after"]) > 0
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
