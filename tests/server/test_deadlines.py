"""Every request ends at its deadline, whatever it waits for, and says what becomes of it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import product
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from sqlalchemy import NullPool, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from memrecall import deadline, timing, workers
from memrecall.agent import Recaller
from memrecall.errors import DeadlineExceeded, StorageBusy, StorageUnreachable
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Permission, Scope
from memrecall.server.http.hooks import store_event
from memrecall.server.http.recall import RecallHandler
from memrecall.server.http.responses import ServerEvent
from memrecall.server.limits import QUICK_SECONDS, WRITE_SECONDS, RequestSeconds
from memrecall.store.database import engine
from memrecall.store.database.tables import meta
from memrecall.timing import RequestDeadline, run_within, seconds_left
from memrecall.types import NewMessage, Role

from ..extractors import SentenceExtractor
from ..rpc.mcp_clients import over_http
from ..waiting import LIMIT, wait_until
from .http_service import HttpService, check_error, make_message
from .test_recall import STREAM

EXAMPLES: dict[str, Any] = json.loads(
    files("memrecall.server.http").joinpath("examples.json").read_text("utf-8")
)
PLAN = RequestSeconds(60.0)
MESSAGES = "/v1/users/ann/messages"
HEADER = "X-Memrecall-Deadline"
URL = "http://127.0.0.1:8765"
RECALL = "/v1/users/ann/recall"
HOOK_PATH = "/v1/users/ann/hooks/claude-code/UserPromptSubmit"
HOOK = {"session_id": "s1", "cwd": "/", "prompt": "Where does my sister live, again?"}
# What is added to the budgets of a recall, of a chat turn, and of a hook that recalls and stores.
OWN_SECONDS = {"recall": 60.0 + 5, "chat": 120.0 + 3 * 10 + 5, "hooks": 2.0 + 5 + WRITE_SECONDS}


class Clock:
    """The clock of deadlines and of the event loop, which goes on when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        loop = asyncio.get_running_loop()
        measure = loop.time
        fake = SimpleNamespace(monotonic=lambda: time.monotonic() + self._ahead)
        monkeypatch.setattr(timing, "time", fake)
        monkeypatch.setattr(loop, "time", lambda: measure() + self._ahead)

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class EndlessWait:
    """A wait that never ends, and how many have entered it."""

    def __init__(self) -> None:
        self.entered = 0

    async def __call__(self, *_: object, **__: object) -> Any:
        self.entered += 1
        return await asyncio.get_running_loop().create_future()


def wait_for_embedder(library: Library, monkeypatch: pytest.MonkeyPatch) -> EndlessWait:
    wait = EndlessWait()
    monkeypatch.setattr(type(library.embedder), "embed", wait)
    monkeypatch.setattr("memrecall.library.library._CLOSE_SECONDS", 0.01)  # for its vectors
    return wait


def wait_for_lock(library: Library, monkeypatch: pytest.MonkeyPatch) -> EndlessWait:
    wait = EndlessWait()
    monkeypatch.setattr(library.store.database._write_lock, "acquire", wait)
    return wait


def wait_for_pool(_: Library, monkeypatch: pytest.MonkeyPatch) -> EndlessWait:
    wait = EndlessWait()
    for name in ("begin", "connect"):
        monkeypatch.setattr(AsyncEngine, name, lambda *_: _AsContext(wait))
    return wait


class _AsContext:
    def __init__(self, enter: EndlessWait) -> None:
        self._enter = enter

    async def __aenter__(self) -> Any:
        return await self._enter()

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


def wait_for_process(_: Library, monkeypatch: pytest.MonkeyPatch) -> EndlessWait:
    wait = EndlessWait()
    monkeypatch.setattr(workers, "SMALL_TEXT", -1)
    monkeypatch.setattr(workers, "_processes", SimpleNamespace(run=wait, belong_here=lambda: True))
    return wait


class StuckThread(EndlessWait):
    """A wait in a thread, which goes on after its caller was cancelled, until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self._futures: list[asyncio.Future[Any]] = []

    async def __call__(self, *_: object, **__: object) -> Any:
        self.entered += 1
        self._futures.append(asyncio.get_running_loop().create_future())
        return await workers.run_to_completion(self._futures[-1])

    def release(self) -> None:
        for future in self._futures:
            if not future.done():
                future.set_exception(StorageUnreachable("the disk is gone"))


def wait_for_disk(_: Library, monkeypatch: pytest.MonkeyPatch) -> EndlessWait:
    wait = StuckThread()
    monkeypatch.setattr(engine, "in_thread", wait)  # SQLite's; a server is behind a pool
    return wait


WAITS = (wait_for_embedder, wait_for_lock, wait_for_pool, wait_for_process, wait_for_disk)
Make = Callable[[Library, pytest.MonkeyPatch], EndlessWait]


def bounded_requests(document: dict[str, Any]) -> Iterator[tuple[httpx.Request, float]]:
    """Yield the example of each operation whose kind has a deadline, and its seconds."""
    yield httpx.Request("POST", URL + HOOK_PATH, json=HOOK), WRITE_SECONDS
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            example = EXAMPLES.get(operation["operationId"])
            if example is None:
                continue
            places: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
            for parameter in operation.get("parameters", ()):
                value = example.get("parameters", {}).get(parameter["name"])
                if value is not None:
                    places[parameter["in"]][parameter["name"]] = value
            url = path.format(**places["path"])
            if limit := PLAN.deadline_of(method.upper(), url, None):
                body, query = example.get("body"), places["query"] or None
                yield httpx.Request(method, URL + url, params=query, json=body), limit.seconds


@pytest.mark.parametrize("make", WAITS)
async def test_every_request_ends_at_its_deadline(
    service: HttpService, make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.client_with_key()
    await client.get("/readyz")
    requests = list(bounded_requests((await client.get("/openapi.json")).json()))
    assert len(requests) > 20
    wait = make(service.library, monkeypatch)
    is_server = service.library.store.file is None
    first_waits = (wait_for_pool,) if is_server else (wait_for_pool, wait_for_disk)  # for its user
    for request, seconds in requests:
        kind = request.url.path.split("/")[-1 if "hooks" not in request.url.path else 4]
        if make not in first_waits:
            seconds = OWN_SECONDS.get(kind, seconds)
        is_finished = kind == "recall" and make is wait_for_lock  # Only its trace waits.
        request.headers["Authorization"] = client.headers["Authorization"]
        if "/invitations" in request.url.path:  # nothing else in it names a user
            request.headers["X-Memrecall-User"] = "u_12345"
        entered = wait.entered
        sending = asyncio.ensure_future(client.send(request))
        await wait_until(lambda: sending.done() or wait.entered > entered)  # noqa: B023
        assert (await client.get("/healthz")).status_code == 200
        is_waiting = not sending.done()
        clock.advance(1.1 if is_finished else seconds - 0.5)
        if make is not wait_for_embedder and is_waiting and not is_finished:
            await asyncio.sleep(0)
            assert not sending.done(), request.url
            clock.advance(0.6)
        answer = await sending
        if make is wait_for_embedder:
            codes = {"recall": {200}, "semantic_search": {503}}.get(kind, {200, 404, 504})
            assert answer.status_code in codes, request.url
        elif is_waiting and not is_finished:
            error = check_error(answer, 504, "DEADLINE_EXCEEDED")
            assert f"longer than {seconds:g} s" in error["message"], request.url
            is_rolled_back = make is wait_for_lock or (make is wait_for_pool and is_server)
            is_sure_to_stop = is_rolled_back or request.method == "GET"
            outcomes = {"stopped"} if is_sure_to_stop else {"stopped", "continues"}
            assert error["details"]["outcome"] in outcomes, request.url
        else:
            assert answer.status_code in (200, 404), request.url
        if isinstance(wait, StuckThread):
            wait.release()
    assert wait.entered or is_server


async def test_write_that_cannot_be_stopped_continues(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A slow disk: the thread goes on, and the message is stored after the answer."""
    ann = await sqlite_service.client_with_key("ann")
    await ann.post(MESSAGES, json={"messages": [make_message(0)]})
    await sqlite_service.library.vectors.settle()
    database = sqlite_service.library.store.database
    write, begun, disk = database._transact_inline, threading.Event(), threading.Event()

    def write_late(*arguments: Any) -> Any:
        begun.set()
        disk.wait(LIMIT)
        return write(*arguments)

    monkeypatch.setattr(database, "_transact_inline", write_late)
    sending = asyncio.ensure_future(ann.post(MESSAGES, json={"messages": [make_message(1)]}))
    await wait_until(begun.is_set)
    clock.advance(WRITE_SECONDS + 0.5)
    error = check_error(await sending, 504, "DEADLINE_EXCEEDED")
    assert error["details"]["outcome"] == "continues"
    assert "same ids" in error["message"]

    async def is_stored() -> bool:
        items = (await ann.get(MESSAGES)).json()["items"]
        return [item["message_id"] for item in items] == ["m001", "m000"]

    disk.set()
    await wait_until(is_stored)


async def test_write_that_waits_for_another_process_stops(
    service: HttpService, clock: Clock
) -> None:
    ann, database = await service.client_with_key("ann"), service.library.store.database
    await ann.post(MESSAGES, json={"messages": [make_message(0)]})
    is_file, body = database.file is not None, {"messages": [make_message(1)]}
    lock = "BEGIN IMMEDIATE" if is_file else "LOCK TABLE messages IN EXCLUSIVE MODE"
    async with create_async_engine(database._url, poolclass=NullPool).connect() as other:

        async def is_waiting() -> bool:
            query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            return bool((await other.exec_driver_sql(query)).scalar())

        await other.exec_driver_sql(lock)
        headers = {HEADER: "0.5" if is_file else "5"}
        sending = asyncio.ensure_future(ann.post(MESSAGES, json=body, headers=headers))
        if not is_file:  # The server still waits at the time of the answer, and gets the lock.
            await wait_until(is_waiting)
            clock.advance(5.1)
        error = check_error(await sending, 504, "DEADLINE_EXCEEDED")
        assert error["details"] == {"outcome": "stopped"}
        await other.rollback()
    await ann.post(MESSAGES, json={"messages": [make_message(2)]})
    items = (await ann.get(MESSAGES)).json()["items"]
    assert [item["message_id"] for item in items] == ["m002", "m000"]


async def test_transaction_that_ends_late_is_not_committed(
    service: HttpService, clock: Clock
) -> None:
    database = service.library.store.database
    limit = RequestDeadline(2.0)

    def work(connection: Any) -> None:
        connection.execute(insert(meta).values(name="late", value="1"))
        clock.advance(2.1)

    with pytest.raises(DeadlineExceeded) as error:
        await run_within(limit, database.transact(work))
    is_stored = bool(await database.fetch(select(meta).where(meta.c.name == "late")))
    assert error.value.details["outcome"] == ("continues" if is_stored else "stopped")
    assert is_stored == (database.file is not None)  # whose thread cannot be stopped


async def test_work_on_stored_messages_goes_on_as_a_job(
    sentence_extractor: SentenceExtractor,
    service: HttpService,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    ann = await service.client_with_key("ann")
    memory, entered, released = service.app.service.memory, asyncio.Event(), asyncio.Event()
    extract = sentence_extractor.extract

    async def extract_late(*arguments: Any, **options: Any) -> Any:
        entered.set()
        await released.wait()
        return await extract(*arguments, **options)

    monkeypatch.setattr(sentence_extractor, "extract", extract_late)
    body, headers = {"messages": "I live in Paris."}, {HEADER: "2"}
    sending = asyncio.ensure_future(ann.post("/v1/memories", json=body, headers=headers))
    await entered.wait()
    clock.advance(2.1)
    details = check_error(await sending, 504, "DEADLINE_EXCEEDED")["details"]
    stored = [item["message_id"] for item in (await ann.get(MESSAGES)).json()["items"]]
    assert details == {"outcome": "continues", "job_id": details["job_id"], "messages": stored}
    path = f"/v1/jobs/{details['job_id']}"
    assert (await ann.get(path)).json()["state"] == "running"
    released.set()
    await memory.job(details["job_id"], wait=True)
    job = (await ann.get(path)).json()
    assert (job["state"], job["result"]["messages"]) == ("done", stored)
    assert (await ann.get("/v1/jobs")).json()["results"] == [job]
    assert (await ann.get("/v1/memories")).json()["results"][0]["memory"] == "User lives in Paris."


async def test_search_does_without_a_hanging_embedder_at_half_of_its_time(
    service: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    ann = await service.client_with_key("ann")
    await ann.post(MESSAGES, json={"messages": [make_message(1, "green tea")]})
    await service.library.vectors.settle()
    wait = wait_for_embedder(service.library, monkeypatch)
    sending = asyncio.ensure_future(ann.post("/v1/memories/search", json={"query": "green tea"}))
    await wait_until(lambda: wait.entered)
    clock.advance(QUICK_SECONDS / 2 + 0.1)
    found = (await sending).raise_for_status().json()
    assert [item["memory"] for item in found["results"]] == ["green tea"]


async def test_header_sets_the_deadline_up_to_the_maximum(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    ann = await sqlite_service.client_with_key("ann")
    paths = (
        MESSAGES,
        RECALL,
        "/v1/users/ann/chat",
        HOOK_PATH,
        "/v1/users/ann/import",
        "/rpc",
        "/mcp",
    )
    for value, path in product(("soon", "0", "-1", "1e3", ""), paths):
        answer = await ann.post(path, json={}, headers={HEADER: value})
        assert HEADER in check_error(answer, 400, "INVALID_ARGUMENT")["message"], path
    wait = wait_for_lock(sqlite_service.library, monkeypatch)
    for asked, seconds in (("1.5", 1.5), ("9999", 60.0)):
        entered = wait.entered
        body = {"messages": [make_message(1)]}
        sending = asyncio.ensure_future(ann.post(MESSAGES, json=body, headers={HEADER: asked}))
        await wait_until(lambda: wait.entered > entered)  # noqa: B023
        clock.advance(seconds - 0.5)
        await asyncio.sleep(0)
        assert not sending.done()
        clock.advance(0.6)
        error = check_error(await sending, 504, "DEADLINE_EXCEEDED")
        assert error["details"]["outcome"] == "stopped"
        assert f"{seconds:g} s" in error["message"]


async def test_header_of_a_recall_is_its_budget(
    asker: httpx.AsyncClient, service: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """It ends in a handoff of what words find, and where it cannot end, in 504."""
    body, headers = {"query": "Where does my sister live?"}, {HEADER: "20"}
    for make, status in ((wait_for_embedder, 200), (wait_for_process, 504)):
        wait = make(service.library, monkeypatch)
        sending = asyncio.ensure_future(asker.post(RECALL, json=body, headers=headers))
        await wait_until(lambda: wait.entered)  # noqa: B023
        clock.advance(10 if status == 200 else 20.1)
        answer = await sending
        assert answer.status_code == status, answer.text
    assert "longer than 20 s" in answer.text


@pytest.mark.parametrize(("asked", "seconds"), [(1.5, 1.5), (9999, 60.0), (None, WRITE_SECONDS)])
async def test_field_of_a_call_sets_its_deadline_up_to_the_maximum(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock,
    asked: float | None, seconds: float,
) -> None:  # fmt: skip
    ann = await sqlite_service.client_with_key("ann", permissions=frozenset(Permission))
    params = {"content": "green tea", "summary": "tea", "_meta": {"deadline": asked}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "memory_add", "params": params}
    wait = wait_for_lock(sqlite_service.library, monkeypatch)
    sending = asyncio.ensure_future(ann.post("/rpc", json=message))
    await wait_until(lambda: wait.entered)
    clock.advance(seconds - 0.5)
    await asyncio.sleep(0)
    assert not sending.done()
    clock.advance(0.6)
    error = (await sending).json()["error"]
    assert error["data"] == {"code": "DEADLINE_EXCEEDED", "outcome": "stopped"}
    assert f"{seconds:g} s" in error["message"]


async def test_field_of_a_call_must_be_a_number_of_seconds(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann", permissions=frozenset(Permission))
    for asked in ("soon", 0, -1, True, [1]):
        params = {"content": "green tea", "summary": "tea", "_meta": {"deadline": asked}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "memory_add", "params": params}
        error = (await ann.post("/rpc", json=message)).json()["error"]
        assert "_meta.deadline" in error["data"]["reason"]


@pytest.mark.concurrent
async def test_meta_of_an_mcp_call_sets_its_deadline(
    sqlite_server: HttpService, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    key = await sqlite_server.create_key("ann")
    async with over_http(sqlite_server.url, key) as client:
        wait = wait_for_lock(sqlite_server.library, monkeypatch)
        monkeypatch.setattr(Recaller, "recall", wait)
        for name, argument in (("recall", "query"), ("remember", "content")):
            entered = wait.entered
            meta: Any = {"deadline": 1.5}
            call = client.call_tool(name, {argument: "I like black tea"}, meta=meta)
            calling = asyncio.ensure_future(call)
            await wait_until(lambda: wait.entered > entered)  # noqa: B023
            clock.advance(1.6)
            assert "longer than 1.5 s" in (await calling).model_dump_json()


async def test_stream_has_no_total_and_each_wait_its_own_limit(
    asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    encode = ServerEvent.encode
    names: list[str] = []

    def encode_late(event: ServerEvent) -> bytes:
        if not names:
            clock.advance(WRITE_SECONDS + 1)
        names.append(event.name)
        return encode(event)

    monkeypatch.setattr(ServerEvent, "encode", encode_late)
    await asker.post(RECALL, json={"query": "Where does my sister live?"}, headers=STREAM)
    assert (names[0], names[-1]) == ("start", "done")


async def test_hook_stores_within_its_own_time_whatever_its_recall_took(
    asker: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    recalled = 0
    left: list[float] = []
    find = RecallHandler.result

    async def find_late(handler: RecallHandler) -> Any:
        nonlocal recalled
        result = await find(handler)
        recalled += 1
        clock.advance(WRITE_SECONDS - 2)
        return result

    async def record(*arguments: Any) -> int:
        left.append(seconds_left(0.0))
        return await store_event(*arguments)

    monkeypatch.setattr(RecallHandler, "result", find_late)
    monkeypatch.setattr("memrecall.server.http.hooks.store_event", record)
    answer = await asker.post(HOOK_PATH, json=HOOK)
    assert answer.status_code == 200, answer.text
    assert recalled == 1
    assert left[0] > 2


async def test_python_call_passes_a_deadline(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    wait = wait_for_lock(sqlite_library, monkeypatch)
    message = NewMessage(role=Role.USER, content="tea")

    async def add() -> None:
        with deadline(2.0), deadline(30.0):  # The earlier one holds.
            await sqlite_library.add_messages(Scope("ann"), [message])

    adding = asyncio.ensure_future(add())
    await wait_until(lambda: wait.entered)
    clock.advance(2.1)
    with pytest.raises(StorageBusy):
        await adding


async def test_python_call_ends_at_its_deadline(
    sqlite_library: Library, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    async with AsyncMemory(library=sqlite_library, user_id="ann") as memory:
        with deadline(0), pytest.raises(DeadlineExceeded, match="longer than 0 s") as error:
            await memory.add("black tea")
        assert error.value.details == {"outcome": "stopped"}
        assert (await memory.get_all(kinds="messages"))["results"] == []
        with deadline(2.0) as limit, monkeypatch.context() as patch:
            await memory.add("green tea", infer=False)
            await sqlite_library.vectors.settle()
            wait = wait_for_lock(sqlite_library, patch)
            adding = asyncio.ensure_future(memory.add("black tea"))
            await wait_until(lambda: wait.entered)
            clock.advance(2.1)
            with pytest.raises(DeadlineExceeded, match="longer than 2 s") as error:
                await adding
        assert limit.changes
        assert error.value.details == {"outcome": "stopped"}  # whatever earlier calls changed
