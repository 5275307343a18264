"""Every line on stderr is JSON, whoever writes it, and quotes no content and no id of a user."""

import asyncio
import gc
import json
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.agent.blocks import BlockRecaller
from memrecall.errors import (
    Conflict,
    Disabled,
    InvalidArgument,
    NotFound,
    SchemaTooNew,
    StorageBusy,
    describe_for_log,
)
from memrecall.integrations.agent_memory import report_failure
from memrecall.memory import AsyncMemory, Library
from memrecall.memory.jobs import Jobs
from memrecall.model.protocol import UserMessage
from memrecall.scope import Scope
from memrecall.server.auth import USER_HEADER
from memrecall.store import Store
from memrecall.types import NewMessage, Role
from tests.cases import check_each
from tests.waiting import wait_until

from ..hooks.payloads import samples
from .server_process import TIMEOUT, WITHOUT_DASHBOARD, make_environment, run_command, run_server

pytestmark = pytest.mark.concurrent

SECRET = "chocolate with sea salt"
# What Python and the libraries of a server report by themselves.
SCRIPT = f"""
import asyncio, gc, logging, threading, warnings
from memrecall.logs import log_to_stderr

log_to_stderr()

def fail(*_):
    raise ValueError({SECRET!r})

class Unraisable:
    __del__ = fail

async def main():
    async def forgotten():
        fail()
    asyncio.ensure_future(forgotten())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

logging.getLogger("some.library").warning("two\\nlines")
logging.getLogger("some.library").info("not important")
logging.getLogger("uvicorn.error").error("lost")
warnings.warn("old argument")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Unraisable()
asyncio.run(main())
fail()
"""


def parse_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_python_and_libraries_report_is_json(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=make_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert completed.returncode == 1
    lines = parse_lines(completed.stderr)
    assert SECRET not in completed.stderr
    reports = [(line["logger"], line["event"], line.get("error")) for line in lines]
    assert reports[:2] == [("some.library", "two", None), ("uvicorn.error", "lost", None)]
    assert reports[2][0] == "py.warnings"
    assert "UserWarning: old argument" in reports[2][1]
    bug = ("memrecall", "uncaught exception", "ValueError")
    unretrieved = ("asyncio", "Task exception was never retrieved", "ValueError")
    assert reports[3:] == [bug, bug, unretrieved, bug]
    assert all(line["at"][-1].endswith(" fail") for line in lines[3:])


@pytest.mark.service
def test_failure_to_start_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])

        def check(case: tuple[tuple[str, ...], dict[str, str], str]) -> None:
            arguments, variables, message = case
            variables = {**WITHOUT_DASHBOARD, **variables}
            completed = run_command(
                tmp_path, "serve", "--db", tmp_path / "a.db", *arguments, **variables
            )
            assert completed.returncode == 2
            error = completed.stderr.removeprefix("error: ")
            if "--json" in arguments:
                (line,) = parse_lines(error)
                error = line["error"]["message"] + "\n"
            assert (message in error, error.count("\n")) == (True, 1)

        check_each(
            [
                (("--port", port), {}, f"cannot listen on 127.0.0.1:{port}"),
                (("--port", port, "--json"), {}, f"cannot listen on 127.0.0.1:{port}"),
                ((), {"MEMRECALL_TRUSTED_PROXIES": "*"}, "'*' is not an address"),
                (("--colour",), {}, "--colour"),
            ],
            check,
        )


@pytest.mark.service
async def test_lines_of_a_running_server_are_json(tmp_path: Path) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db", **WITHOUT_DASHBOARD) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            await client.get("/healthz")
        url = httpx.URL(server.url)
        unfinished = b"POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
        for data, has_answer in ((b"nonsense\r\n\r\n", True), (unfinished, False)):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(data)
            if has_answer:
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            await writer.wait_closed()
        assert await asyncio.to_thread(server.stop, signal.SIGTERM) == 0
        lines = server.log_lines()
    assert {"time", "level", "logger", "event"} <= set.intersection(*map(set, lines))
    assert [line["level"] for line in lines].count("error") == 0


async def test_failed_job_that_nobody_asks_about_is_not_reported_as_unretrieved(
    sqlite_library: Library,
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    async def fail() -> dict[str, Any]:
        raise ValueError(SECRET)

    await sqlite_library.add_messages(Scope("ann"), [NewMessage(role=Role.USER, content="tea")])

    async def run_and_drop() -> None:
        jobs = Jobs()
        await jobs.start(sqlite_library.store, fail(), "ann", {})
        await wait_until(lambda: not jobs.running("ann"))

    await run_and_drop()
    gc.collect()
    assert reports == []


ANN, BEN = "zq7-ann", "zq7-ben"


def typical_requests(user: str, other: str) -> list[tuple[str, str, Any]]:
    """Return requests of a user, and some that fail, as method, path and body."""
    about = {"user_id": user, "messages": "I live in Oslo."}
    said = [{"message_id": "m1", "role": "user", "content": "I live in Oslo."}]
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    recall = {"name": "recall", "arguments": {"query": "Where do I live?"}}
    wrong = {"name": "search_messages", "arguments": {"query": "tea", "user_id": user}}
    space, of_space = "/v1/spaces/zq7-team", "/v1/users/space:zq7-team"
    hooks = [
        ("POST", f"/v1/users/{user}/hooks/{sample.client}/{sample.event}", sample.payload)
        for sample in samples("Where do I live?", "You live in Oslo.")
    ]
    return [
        ("POST", f"/v1/users/{user}/messages", {"messages": said}),
        ("POST", f"/v1/users/{user}/messages", {"messages": [{**said[0], "content": "no"}]}),
        ("POST", "/v1/memories", about),
        ("POST", "/v1/memories", {**about, "infer": False}),
        ("POST", "/v1/memories", {**about, "background": True}),
        ("POST", "/v1/memories/extract", {"user_id": user}),
        ("POST", "/v1/memories/search", {"user_id": user, "query": "Oslo"}),
        ("POST", "/v1/memories/search", {"user_id": user, "query": ""}),
        ("POST", "/v1/messages/lexical_search", {"user_id": user, "query_text": "Oslo"}),
        ("POST", "/v1/messages/lexical_search", {"user_id": f"{user}-2", "query_text": "Oslo"}),
        ("POST", "/v1/messages/semantic_search", {"user_id": user, "query_text": "Oslo"}),
        ("POST", f"/v1/users/{user}/recall", {"query": "Where do I live?"}),
        ("POST", f"/v1/users/{user}/recall", {"query": "Where?", "recall_model": "x"}),
        ("POST", f"/v1/users/{user}/chat", {"message": "Where do I live?"}),
        *hooks,
        ("POST", "/mcp", {**call, "params": recall}),
        ("POST", "/mcp", {**call, "params": wrong}),
        ("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "memory_get_status"}),
        ("GET", f"/v1/users/{user}/messages/none", None),
        ("GET", f"/v1/users/{user}/messages?cursor=x", None),
        ("GET", f"/nowhere/{user}", None),
        ("PUT", f"/v1/users/{user}/messages", None),
        ("GET", f"/v1/users/{user}/export", None),
        ("GET", f"/v1/memories/none?user_id={user}", None),
        ("POST", "/v1/spaces", {"space_id": "zq7-team"}),
        ("POST", "/v1/spaces", {"space_id": "zq7-team"}),
        ("PUT", f"{space}/members/{other}", {"role": "reader"}),
        ("PUT", f"{space}/members/{other}", {"role": "owner"}),
        ("PUT", f"{space}/members/key:{user}", {"role": "reader"}),
        ("POST", f"/v1/invitations/{user}/accept", None),
        ("DELETE", f"{space}/members/{user}", None),
        ("POST", f"{of_space}/messages", {"messages": said}),
        ("POST", f"{of_space}/recall", {"query": "Where?"}),
        ("DELETE", f"{space}/members/{other}", None),
        ("DELETE", f"{space}/members/{other}", None),
        ("DELETE", f"{space}?name={user}", None),
        ("DELETE", f"/v1/users/{user}/messages/m1", None),
        ("DELETE", f"/v1/memories?user_id={user}", None),
    ]


@pytest.mark.service
async def test_ids_of_users_are_in_no_log_but_the_audit_log(location: str, tmp_path: Path) -> None:
    """A server whose model does not answer: requests that work, and many that fail."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    model = {"MEMRECALL_MODEL": "tiny", "MEMRECALL_API_KEY": "k", "MEMRECALL_BASE_URL": closed}
    statuses: set[int] = set()
    with run_server(tmp_path, "--db", location, **WITHOUT_DASHBOARD, **model) as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client,
            await Store.open(location) as store,
        ):

            async def send(method: str, path: str, body: Any) -> None:
                accept = {"Accept": "application/json, text/event-stream"}
                headers = {**accept, USER_HEADER: ANN}
                content = {} if body is None else {"json": body}
                answer = await client.request(method, path, headers=headers, **content)
                statuses.add(answer.status_code)

            for request in typical_requests(ANN, BEN):
                await send(*request)
            await store.owners.set_user_enabled(ANN, False)
            for request in typical_requests(ANN, BEN):
                await send(*request)
            await store.owners.set_user_enabled(ANN, True)
            for user in (ANN, ANN, BEN):
                erased = await client.delete(f"/v1/users/{user}")
                statuses.add(erased.status_code)
        assert await asyncio.to_thread(server.stop, signal.SIGTERM) == 0
        lines = server.log_lines()
    assert {200, 400, 403, 404, 405, 409} <= statuses
    named = [line for line in lines if "zq7" in json.dumps(line)]
    assert [line for line in named if line["event"] != "audit"] == []
    assert {line["user"] for line in named} == {ANN}
    assert sum(line["event"] == "request" for line in lines) > 60
    errors = {"ModelFailed", "Disabled", "Conflict", "NotFound", "InvalidArgument"}
    assert errors <= {line.get("error") for line in lines}
    assert "warning" in {line["level"] for line in lines}


async def test_logs_of_applications_name_no_user(
    sqlite_library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    """What a recall, an extraction or a task logs of a user who is disabled, or a bad argument."""
    caplog.set_level(logging.INFO, "memrecall")
    async with AsyncMemory(library=sqlite_library, user_id=ANN) as memory:
        await memory.add("I live in Oslo.", infer=False)
        recaller = await memory.recaller()
        await sqlite_library.store.owners.set_user_enabled(ANN, False)
        block, _ = await BlockRecaller(recaller, ["user"]).recall_block(
            [UserMessage(content="Where do I live?", source="user")]
        )
        assert block
    report_failure("recall", NotFound(f"there is no user {ANN!r}"))
    events = [record.getMessage() for record in caplog.records]
    assert ("no recall: Disabled" in events, "recall failed: NotFound" in events) == (True, True)
    assert "zq7" not in str(events)


def test_an_error_is_logged_without_what_its_message_may_quote() -> None:
    for kind in (InvalidArgument, NotFound, Conflict, Disabled, ValueError):
        assert describe_for_log(kind(f"user {ANN!r} is wrong")) == kind.__name__
    assert describe_for_log(StorageBusy("a.db is busy")) == "a.db is busy"
    assert "version" in describe_for_log(SchemaTooNew("version 9"))
