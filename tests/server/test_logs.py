"""Every line on stderr is JSON, whoever writes it, and quotes no content."""

import asyncio
import gc
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.memory import Library
from memrecall.memory.jobs import Jobs
from memrecall.scope import Scope
from memrecall.types import NewMessage, Role
from tests.cases import check_each
from tests.waiting import wait_until

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
