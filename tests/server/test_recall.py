"""`POST /v1/users/{user_id}/recall`: one result, or a stream of events."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_core.models import CreateResult

from memrecall.agent import RecallResult
from memrecall.agent import result as agent_result
from memrecall.agent.phrases import say_codes
from memrecall.errors import StorageUnreachable
from memrecall.memory import Library
from memrecall.server.http import app
from memrecall.server.http.responses import EVENT_STREAM, accepts
from memrecall.testing import Request, ScriptedClient, call, say
from memrecall.text.language import language_of
from tests.cases import check_each, check_each_async
from tests.waiting import LIMIT, wait_until

from .http_service import (
    CHAT,
    HttpService,
    check_error,
    make_message,
    open_library,
    serve_in_process,
    serve_on_socket,
    timestamp,
    write_messages,
)

PATH = "/v1/users/ann/recall"
STREAM = {"Accept": "text/event-stream"}
QUESTION = {"query": "where does my sister live?"}
PLAIN = {"Accept": "text/plain"}


async def stream_events(client: httpx.AsyncClient, body: Any, path: str = PATH) -> list[Any]:
    """Return the names and data of the events of a streamed recall."""
    async with client.stream("POST", path, json=body, headers=STREAM) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
        return [event async for event in read_events(answer)]


async def read_events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
        elif line.startswith(":"):
            yield "comment", line
        else:
            assert line == "", line


class TestResult:
    async def test_query_returns_evidence_and_stores_its_trace(
        self, service: HttpService, ann: httpx.AsyncClient
    ) -> None:
        await write_messages(ann, "ann", *CHAT)
        answer = await ann.post(PATH, json=QUESTION)
        assert answer.status_code == 200, answer.text
        result = {name for name, field in RecallResult.model_fields.items() if not field.exclude}
        assert answer.json().keys() == result | {"certainty"}
        assert "m003" in answer.json()["handoff"]["relevant_memory_keys"]
        assert answer.json()["memories"][0]["content"] == "My sister lives in Lisbon"
        assert answer.json()["certainty"] in ("sure", "possible")
        assert {"certainty", "probability"} <= answer.json()["memories"][0].keys()
        assert len(answer.json()["queries"]) == 1
        assert answer.json()["handoff"]["reasoning"].endswith("after 1 search.")
        assert answer.json()["trace"]["trace_id"]
        assert "ann" not in json.dumps(answer.json()["trace"])  # the agent never sees the user id
        assert (await service.library.store.count("ann"))["traces"] == 1

    async def test_conversation_is_recalled_for_its_last_message(
        self, asker: httpx.AsyncClient
    ) -> None:
        conversation = [
            {"role": "human", "content": "今晚吃火锅", "speaker": "安", "ts": timestamp(9)},
            {"role": "assistant", "content": "好呀"},
            {"content": [{"type": "text", "text": "我有什么忌口来着？"}], "message_id": "now"},
        ]
        answer = await asker.post(PATH, json={"messages": conversation, "language": "zh"})
        assert answer.status_code == 200, answer.text
        assert answer.json()["trace"]["events"][0]["asked"] == "我有什么忌口来着？"
        assert answer.json()["language"] == "zh"

    async def test_user_without_data_gets_a_result(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        answer = await ann.post(PATH, json=QUESTION)
        assert answer.status_code == 200
        assert answer.json()["stop_reason"] == "nothing_stored"

    async def test_reached_limit_is_the_stop_reason(self, asker: httpx.AsyncClient) -> None:

        async def check(case: tuple[str, str, int]) -> None:
            query, limit, value = case
            words = say_codes(language_of(query), limit)
            body = {"query": query, "limits": {limit: value}}
            answer = (await asker.post(PATH, json=body)).json()
            assert answer["stop_reason"] == limit
            assert answer["usage"][limit] <= value
            assert answer["handoff"]["success"] is False
            assert words in answer["handoff"]["search_summary"]
            assert "time" not in answer["handoff"]["search_summary"]

        queries = ("where does my sister live?", "我姐姐住在哪里？")
        await check_each_async(product(queries, ("model_calls", "tool_calls"), (0, 1)), check)

    async def test_relative_days_use_time_zone(self, asker: httpx.AsyncClient) -> None:
        # At noon in UTC it is past midnight on Kiritimati: "yesterday" is another day there.
        starts = {}
        for zone in (None, "UTC", "Pacific/Kiritimati"):
            body = {"query": "what did I say yesterday?", "as_of": timestamp(5), "time_zone": zone}
            answer = (await asker.post(PATH, json=body)).json()
            starts[zone] = answer["times"][0]["start"]
        assert starts[None] == starts["UTC"] == "2026-01-25T00:00:00Z"
        assert starts["Pacific/Kiritimati"] == "2026-01-25T10:00:00Z"
        assert answer["trace"]["events"][0]["time_zone"] == "Pacific/Kiritimati"
        assert "2026-01-27T02:05:00+14:00" in json.dumps(answer["trace"])

    async def test_invalid_recall_requests_are_refused(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        mistakes: list[Any] = [
            {},
            {"query": "x", "messages": [{"content": "x"}]},
            {"query": ""},
            {"query": "  "},
            {"query": "x" * 10_001},
            {"messages": [{"content": "x", "role": "robot"}]},
            {"messages": [{"content": " "}]},
            {"messages": [{"content": "x"}] * 201},
            {"query": "x", "limits": {"iterations": 0}},
            {"query": "x", "limits": {"iterations": 11}},
            {"query": "x", "limits": {"seconds": 301}},
            {"query": "x", "limits": {"seconds": 0}},
            {"query": "x", "limits": {"money": 1}},
            {"query": "x", "as_of": "soon"},
            {"query": "x", "language": "fr"},
            {"query": "x", "time_zone": "Mars/Olympus"},
            {"query": "x", "time_zone": "../../etc/passwd"},
            {"query": "x", "time_zone": ""},
            {"query": "x", "time_zone": 8},
            {"messages": [{"content": "x", "id": 5}]},
            {"query": "x", "user_id": "ben"},
            {"query": "x", "session_id": ""},
        ]
        for body in mistakes:
            for headers in ({}, STREAM):
                answer = await ann.post(PATH, json=body, headers=headers)
                check_error(answer, 400, "INVALID_ARGUMENT")


class TestBlock:
    async def test_plain_text_is_block_for_model(self, ann: httpx.AsyncClient) -> None:
        await write_messages(ann, "ann", *CHAT)
        answer = await ann.post(PATH, json=QUESTION, headers=PLAIN)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.text.startswith("<recalled_memories>\n")
        assert answer.text.endswith("\n</recalled_memories>")
        assert "My sister lives in Lisbon" in answer.text

    async def test_block_is_in_language_of_request(self, asker: httpx.AsyncClient) -> None:
        answer = await asker.post(PATH, json={"query": "火锅我要什么汤？"}, headers=PLAIN)
        assert "我不吃辣" in answer.text
        assert "不是指令" in answer.text

    async def test_block_is_empty_below_confidence(self, asker: httpx.AsyncClient) -> None:
        unknown = await asker.post(PATH, json={"query": "what is my IBAN?"}, headers=PLAIN)
        assert (unknown.status_code, unknown.text) == (200, "")
        body = {"query": "where does my sister live?", "block": {"min_confidence": 1.0}}
        unsure = await asker.post(PATH, json=body, headers=PLAIN)
        assert (unsure.status_code, unsure.text) == (200, "")

    async def test_block_labels_or_leaves_out_what_is_only_possible(
        self, asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cases = (("where does my sister live?", "possibly"), ("火锅我要什么汤？", "可能"))

        async def check(case: tuple[str, str]) -> None:
            for bar, is_sure in ((0.0, True), (1.0, False)):
                monkeypatch.setattr(agent_result, "_SURE", bar)
                answer = await asker.post(PATH, json={"query": case[0]}, headers=PLAIN)
                assert (f'"certainty":"{case[1]}"' in answer.text) is not is_sure
                body = {"query": case[0], "block": {"only_sure": True}}
                answer = await asker.post(PATH, json=body, headers=PLAIN)
                assert bool(answer.text) is is_sure

        await check_each_async(cases, check)

    async def test_block_keeps_size(self, sqlite_service: HttpService) -> None:
        ann = await sqlite_service.client_with_key("ann")
        await write_messages(ann, "ann", make_message(1, "My sister lives in Lisbon. " * 500))
        body = {"query": "where does my sister live?", "block": {"characters": 900}}
        answer = await ann.post(PATH, json=body, headers=PLAIN)
        assert "Lisbon" in answer.text
        assert len(answer.text) <= 900
        body["block"] = {"characters": 1}
        check_error(await ann.post(PATH, json=body, headers=PLAIN), 400, "INVALID_ARGUMENT")


ACCEPTED = {
    "text/event-stream": True,
    "Text/Event-Stream; q=0.5": True,
    "application/json, text/event-stream": True,
    "text/event-stream-x": False,
    "*/*": False,
    "": False,
}


def test_accept_header_selects_event_stream() -> None:
    def check(accept: str) -> None:
        assert accepts(accept, EVENT_STREAM) is ACCEPTED[accept]

    check_each(ACCEPTED, check)


class TestStream:
    async def test_stream_events_are_ordered_and_end_with_result(
        self, ann: httpx.AsyncClient
    ) -> None:
        await write_messages(ann, "ann", *CHAT)
        events = await stream_events(ann, QUESTION)
        names = [name for name, _ in events]
        assert names[0] == "start"
        assert names[-1] == "done"
        assert names.count("done") == 1
        assert "error" not in names
        result = events[-1][1]
        assert "m003" in result["handoff"]["relevant_memory_keys"]
        trace_events = [{**data} for _, data in events[:-1]]
        assert trace_events == result["trace"]["events"]
        assert [data["kind"] for data in trace_events] == names[:-1]

    @pytest.mark.concurrent
    async def test_events_are_sent_while_recall_runs(self, sqlite_library: Library) -> None:
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_chat()
            async with ann.stream("POST", PATH, json=QUESTION, headers=STREAM) as answer:
                events = read_events(answer)
                assert (await anext(events))[0] == "start"
                assert (await anext(events))[0] == "iteration"
                assert not model.cancelled.is_set()

    @pytest.mark.concurrent
    async def test_pings_keep_idle_stream_open(
        self, sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memrecall.server.http.responses.PING_SECONDS", 0.05)
        async with serve_on_socket(sqlite_library, model_client=StalledClient()) as service:
            ann = await service.client_with_chat()
            async with ann.stream("POST", PATH, json=QUESTION, headers=STREAM) as answer:
                names: list[str] = []
                async for name, _ in read_events(answer):
                    names.append(name)
                    if names[-3:] == ["comment"] * 3 and "iteration" in names:
                        break
            # On a busy machine there may be pings before the model is called.
            assert [name for name in names if name != "comment"] == ["start", "iteration"]

    @pytest.mark.concurrent
    async def test_client_that_does_not_read_is_disconnected_at_deadline(
        self, sqlite_library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from memrecall.server.http.recall import RecallHandler
        from memrecall.server.http.responses import READ_SECONDS

        deadlines: list[asyncio.Timeout] = []

        def timeout(seconds: float | None) -> asyncio.Timeout:
            created = make_timeout(seconds)
            if seconds == long_deadline + READ_SECONDS:
                deadlines.append(created)
            return created

        make_timeout, long_deadline = asyncio.timeout, 12_345.0
        monkeypatch.setattr(RecallHandler, "deadline", long_deadline)
        monkeypatch.setattr(asyncio, "timeout", timeout)
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_chat()
            request_task = asyncio.create_task(stream_events(ann, QUESTION))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            (deadline,) = deadlines
            deadline.reschedule(asyncio.get_running_loop().time())
            with pytest.raises(httpx.RemoteProtocolError):
                await asyncio.wait_for(request_task, LIMIT)
            assert model.cancelled.is_set()
            await wait_until(lambda: len(service.app.service.limiter) == 0)

    async def test_failure_during_stream_is_the_last_event(
        self, sqlite_service: HttpService, asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        async def broken(*_: Any) -> None:
            raise StorageUnreachable("/srv/secret.db is gone")

        monkeypatch.setattr(sqlite_service.library, "search", broken)
        events = await stream_events(asker, QUESTION)
        names = [name for name, _ in events]
        assert names[0] == "start"
        assert names[-1] == "error"
        assert names.count("error") == 1
        assert events[-1][1]["error"]["code"] == "UNAVAILABLE"
        assert "secret.db" not in json.dumps(events[-1])
        stops = [data for name, data in events if name == "stop"]
        assert "secret.db" not in json.dumps(stops)
        check_error(await asker.post(PATH, json=QUESTION), 503, "UNAVAILABLE")

    async def test_bug_during_stream_is_the_last_event(
        self, asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        async def broken(*_: Any) -> None:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr("memrecall.agent.driver.build_result", broken)
        events = await stream_events(asker, QUESTION)
        name, data = events[-1]
        assert (name, data["error"]["code"]) == ("error", "INTERNAL")
        assert "a secret" not in json.dumps(data)


class StalledClient(ScriptedClient):
    """A model that does not answer until it is cancelled."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked, self.cancelled = asyncio.Event(), asyncio.Event()
        self.waiting = 0

    async def _answer(self, request: Request) -> CreateResult:
        self.waiting += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError("what is never set was set")


@asynccontextmanager
async def stalled_service(library: Library) -> AsyncIterator[tuple[HttpService, StalledClient]]:
    """Serve a library with a model that does not answer."""
    model = StalledClient()
    async with serve_on_socket(library, model_client=model) as service:
        yield service, model


def _recalls(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the log fields of the requests for recalls."""
    lines = [record.__dict__["fields"] for record in caplog.records]
    return [line for line in lines if line.get("route") == "/v1/users/{user_id}/recall"]


@pytest.mark.concurrent
class TestDisconnectAndShutdown:
    @pytest.mark.parametrize("headers", [{}, STREAM], ids=["result", "stream"])
    async def test_disconnect_cancels_the_recall(
        self, sqlite_library: Library, headers: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "memrecall.server")
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_chat()
            request_task = asyncio.create_task(ann.post(PATH, json=QUESTION, headers=headers))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            request_task.cancel()
            await asyncio.gather(request_task, return_exceptions=True)
            await asyncio.wait_for(model.cancelled.wait(), LIMIT)
            operator = await service.client_with_key(permissions=frozenset(["operator"]))
            await wait_until(lambda: _recalls(caplog))
            metrics = (await operator.get("/metrics")).text
            assert 'memrecall_recalls_total{stop_reason="cancelled"} 1.0' in metrics
            assert "memrecall_recalls_running 0.0" in metrics
            (closed,) = _recalls(caplog)
            assert (closed["status"], closed["client_gone"]) == (0, True)
            assert 'route="/v1/users/{user_id}/recall",status="0"} 1.0' in metrics

    @pytest.mark.parametrize("headers", [{}, STREAM], ids=["result", "stream"])
    async def test_shutdown_cancels_recalls_gracefully(
        self, sqlite_library: Library, headers: dict[str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "memrecall.server")
        async with stalled_service(sqlite_library) as (service, model):
            ann = await service.client_with_chat()
            request_task = asyncio.create_task(ann.post(PATH, json=QUESTION, headers=headers))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            service.app.service.closing.set()
            answer = await asyncio.wait_for(request_task, LIMIT)
            assert model.cancelled.is_set()
            if headers:
                events = [event async for event in read_events(answer)]
                name, data = events[-1]
                assert (name, data["error"]["code"]) == ("error", "UNAVAILABLE")
                await wait_until(lambda: _recalls(caplog))
                assert [line["error"] for line in _recalls(caplog)] == ["UNAVAILABLE"]
            else:
                check_error(answer, 503, "UNAVAILABLE")


@pytest.mark.concurrent
class TestConcurrencyLimits:
    async def test_key_has_limited_slots_and_queue(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "MAX_WAITING_RECALLS", 1)
        async with (
            open_library(str(tmp_path / "a.db"), tmp_path, recalls_per_key=2) as library,
            stalled_service(library) as (service, model),
        ):
            ann, ben = await service.client_with_key("ann"), await service.client_with_key("ben")
            for client, user in ((ann, "ann"), (ben, "ben")):
                await write_messages(client, user, *CHAT)
            running = [asyncio.create_task(ann.post(PATH, json=QUESTION)) for _ in range(3)]
            await wait_until(lambda: len(service.app.service.limiter) == 3)

            for headers in ({}, STREAM):
                answer = await ann.post(PATH, json=QUESTION, headers=headers)
                check_error(answer, 429, "RESOURCE_EXHAUSTED")
                assert int(answer.headers["retry-after"]) > 0
            other = asyncio.create_task(ben.post("/v1/users/ben/recall", json=QUESTION))
            await wait_until(lambda: model.waiting == 3)  # another key has its own slots
            assert not other.done()

            for task in (*running, other):
                task.cancel()
            await asyncio.gather(*running, other, return_exceptions=True)
            await wait_until(lambda: len(service.app.service.limiter) == 0)

    async def test_waiting_too_long_is_refused_with_retry_after(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "RECALL_WAIT_SECONDS", 0.1)
        async with (
            open_library(str(tmp_path / "a.db"), tmp_path, recalls_per_key=1) as library,
            stalled_service(library) as (service, model),
        ):
            ann = await service.client_with_chat()
            first = asyncio.create_task(ann.post(PATH, json=QUESTION))
            await asyncio.wait_for(model.asked.wait(), LIMIT)
            check_error(await ann.post(PATH, json=QUESTION), 429, "RESOURCE_EXHAUSTED")
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)


async def test_leaked_call_is_counted(sqlite_library: Library) -> None:
    leak = say('<tool_call>{"name": "search_memories", "arguments": {"query": "x"}}</tool_call>')
    handoff = call("handoff", reason="nothing", search_summary="nothing", confidence=0.1)
    model = ScriptedClient([leak, handoff])
    async with serve_in_process(sqlite_library, model_client=model) as service:
        client = await service.client_with_key("ann", permissions=frozenset(["operator"]))
        await write_messages(client, "ann", *CHAT)
        answer = await client.post(PATH, json=QUESTION)
        assert answer.status_code == 200, answer.text
        metrics = (await client.get("/metrics")).text
        assert 'memrecall_leaks_total{family="hermes_json"} 1.0' in metrics
