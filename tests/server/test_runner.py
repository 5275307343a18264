"""`memrecall serve`: announcement, address checks, signals and shutdown."""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import httpx
import psutil
import pytest

from memrecall.cli.serve import example_request
from memrecall.errors import EmbeddingModelMismatch, InvalidArgument
from memrecall.scope import Scope
from memrecall.server.runner import ServerInfo, _bind, serve
from memrecall.settings import Settings
from memrecall.store import Grant, Store
from memrecall.store.backup.database import backup_database
from memrecall.types import NewMessage, Role
from tests.waiting import block_until, wait_until

from .http_service import NOON, check_error, make_message, open_library
from .server_process import (
    TIMEOUT,
    WITHOUT_DASHBOARD,
    command_line,
    make_environment,
    run_command,
    run_server,
)

pytestmark = pytest.mark.concurrent
CURL = shutil.which("curl")
ALL_INTERFACES = "0.0.0.0"  # noqa: S104 -- to see it refused, and then with a key


class ServerStop:
    """Sends the stop signal to a server in this process once; a second one would end the tests."""

    def __init__(self) -> None:
        self._sent = False

    def __call__(self) -> None:
        if not self._sent:
            self._sent = True
            os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def run_in_process(
    folder: Path, stop: ServerStop | None = None, **settings: Any
) -> AsyncIterator[ServerInfo]:
    """Run a server in this process and stop it with a signal."""
    announcements: asyncio.Queue[ServerInfo] = asyncio.Queue()
    place = {"db": str(folder / "a.db"), "cache_dir": str(folder), "port": 0}
    defaults = {**place, "embedder": "hash", "text_workers": 0}
    server_settings = Settings(**{**defaults, "dashboard": False, **settings})
    work = asyncio.create_task(serve(server_settings, announcements.put_nowait))
    announcement = asyncio.create_task(announcements.get())
    await asyncio.wait({work, announcement}, return_when=asyncio.FIRST_COMPLETED)
    if work.done():
        announcement.cancel()
        await work
    try:
        yield announcement.result()
    finally:
        (stop or ServerStop())()
        await asyncio.wait_for(work, TIMEOUT)


async def make_key(folder: Path, user: str = "ann") -> str:
    async with await Store.open(str(folder / "a.db")) as store:
        return (await store.keys.create(Grant(frozenset({user}))))[1]


async def run_in_shell(line: str) -> Any:
    """Run a printed command in a shell and return its parsed output."""
    process = await asyncio.create_subprocess_shell(
        f"{line} --silent", stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(answer)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard output be a terminal."""
    stdout = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("memrecall.cli.serve.sys", SimpleNamespace(stdout=stdout))


@pytest.mark.skipif(CURL is None, reason="no curl on this machine")
@pytest.mark.usefixtures("terminal")
async def test_printed_command_works(tmp_path: Path) -> None:
    async with run_in_process(tmp_path) as listening:
        assert listening.is_open
        assert (await run_in_shell(example_request(listening)))["stored"] == 1
    async with run_in_process(tmp_path) as listening:  # the user now has messages
        assert listening.sample_user == "me"
        (item,) = (await run_in_shell(example_request(listening)))["items"]
        assert item["user_id"] == "me"
    key = await make_key(tmp_path, "me")
    async with run_in_process(tmp_path) as listening:
        assert not listening.is_open
        line = example_request(listening)
        assert '-H "Authorization: Bearer KEY"' in line
        (item,) = (await run_in_shell(line.replace("KEY", key)))["items"]
        assert item["user_id"] == "me"
    key = await make_key(tmp_path, "ann")  # the newest key: it cannot open `me`
    async with run_in_process(tmp_path) as listening:
        line = example_request(listening)
        assert (await run_in_shell(line.replace("KEY", key)))["items"] == []


def test_printed_command_names_no_user_in_a_file() -> None:
    line = example_request(ServerInfo("http://127.0.0.1:1", True, "ann", "x.db"))
    assert line == "curl 'http://127.0.0.1:1/v1/users/USER/messages?page_size=3'"


@pytest.mark.usefixtures("terminal")
def test_printed_command_quotes_unusual_names() -> None:
    for name in ("it's; rm -rf /", "张三", "a/b c", "$(x)"):
        words = shlex.split(example_request(ServerInfo("http://127.0.0.1:1", True, name, "x.db")))
        assert words[0] == "curl"
        assert unquote(words[1]).startswith(f"http://127.0.0.1:1/v1/users/{name}/messages")
        assert len(words) == 2
        assert " " not in words[1]


async def test_public_address_requires_a_key(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="would expose all data to other machines") as refusal:
        async with run_in_process(tmp_path, host=ALL_INTERFACES):
            pass
    assert "memrecall keys create" in str(refusal.value)
    await make_key(tmp_path)
    async with (
        run_in_process(tmp_path, host=ALL_INTERFACES) as listening,
        httpx.AsyncClient() as client,
    ):
        port = listening.url.rpartition(":")[2]
        answer = await client.get(f"http://127.0.0.1:{port}/v1/users/ann/messages")
        check_error(answer, 401, "UNAUTHENTICATED")


async def test_ipv6_loopback_is_local(tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with run_in_process(tmp_path, host="::1") as listening, httpx.AsyncClient() as client:
        assert listening.url.startswith("http://[::1]:")
        answer = await client.get(f"{listening.url}/v1/users/ann/messages")
        check_error(answer, 404, "NOT_FOUND")


async def test_used_port_and_unknown_host_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"cannot listen on 127.0.0.1:{port}") as refusal:
            async with run_in_process(tmp_path, port=port):
                pass
    assert "--port" in str(refusal.value)
    with pytest.raises(InvalidArgument, match="port 70000 is out of range"):
        async with run_in_process(tmp_path, port=70_000):
            pass
    with pytest.raises(InvalidArgument, match=r"'nowhere\.invalid' is not known"):
        async with run_in_process(tmp_path, host="nowhere.invalid"):
            pass
    unknown_host = "192.0.2.1"  # reserved for documentation, so no machine has it
    with pytest.raises(InvalidArgument, match=f"cannot listen on {unknown_host}") as refusal:
        async with run_in_process(tmp_path, host=unknown_host):
            pass
    assert "--host" in str(refusal.value)
    assert "--port" not in str(refusal.value)


async def test_database_of_another_embedder_is_refused_at_start(tmp_path: Path) -> None:
    async with open_library(str(tmp_path / "a.db"), tmp_path) as library:
        await library.add_messages(Scope("ann"), [NewMessage(role=Role.USER, content="tea")])
    with pytest.raises(EmbeddingModelMismatch, match="reindex"):
        async with run_in_process(tmp_path, embedder="local"):
            pass


@pytest.mark.service
def test_missing_extra_names_the_package_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "fastapi.py"
    hidden.write_text("raise ModuleNotFoundError('gone', name='fastapi')\n")
    completed = run_command(tmp_path, "serve", "--db", tmp_path / "a.db", PYTHONPATH=str(tmp_path))
    assert completed.returncode == 2
    assert "pip install 'memrecall-agent[server]'" in completed.stderr


@pytest.mark.service
def test_announcement_shows_address_and_open_warning(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command_line("serve", "--port", "0", "--db", tmp_path / "a.db"),
        env=make_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT) == 0
    finally:
        process.kill()
        process.wait(timeout=TIMEOUT)
        process.stdout.close()
    assert lines[0].startswith("memrecall listens on http://127.0.0.1:")
    assert "/docs" in lines[2]
    assert lines[3].startswith("dashboard http://127.0.0.1:")
    assert "curl " in lines[4]
    assert lines[5].startswith("OPEN")


@pytest.mark.service
async def test_sigterm_finishes_writes_and_logs_shutdown(tmp_path: Path) -> None:
    """Acknowledged batches are stored; others are stored completely or not at all."""
    db = tmp_path / "a.db"
    acknowledged = 0
    with run_server(tmp_path, "--db", db, **WITHOUT_DASHBOARD) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            for number in range(200):
                batch = [make_message(n, message_id=f"{number}-{n}") for n in range(20)]
                if number == 10:
                    server.process.send_signal(signal.SIGTERM)
                try:
                    answer = await client.post("/v1/users/ann/messages", json={"messages": batch})
                except httpx.TransportError:
                    break
                if answer.status_code == 503:
                    assert answer.headers["connection"] == "close"
                    check_error(answer, 503, "UNAVAILABLE")
                    break
                acknowledged += answer.json()["stored"]
        assert await asyncio.to_thread(server.process.wait, TIMEOUT) == 0
        (line,) = [line for line in server.log_lines() if line["event"] == "shutdown"]
    assert line["recalls_cancelled"] == 0
    assert acknowledged >= 200
    async with await Store.open(str(db)) as store:
        stored_count = (await store.count("ann"))["messages"]
    assert acknowledged <= stored_count <= acknowledged + 20
    assert stored_count % 20 == 0


@pytest.mark.service
@pytest.mark.parametrize("workers", [1, 2])
async def test_draining_server_is_not_ready_and_answers_requests(
    tmp_path: Path, workers: int
) -> None:
    """A second signal ends the draining."""
    options = ("--db", tmp_path / "a.db", "--workers", workers)
    variables = {**WITHOUT_DASHBOARD, "MEMRECALL_DRAIN_SECONDS": "1000"}
    with run_server(tmp_path, *options, **variables) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            assert "connection" not in (await client.get("/healthz")).headers
            server.process.send_signal(signal.SIGTERM)

            async def is_draining() -> bool:
                return "shutting down" in (await client.get("/readyz")).text

            await wait_until(is_draining)
            body = {"messages": [make_message(1)]}
            answer = await client.post("/v1/users/ann/messages", json=body)
            assert answer.json()["stored"] == 1
            assert answer.headers["connection"] == "close"
            assert (await client.get("/healthz")).status_code == 200
        server.process.send_signal(signal.SIGINT)
        await asyncio.to_thread(server.process.wait, TIMEOUT)


# A disk that stops to answer once there is a file `stuck`, in a process that loads this first.
STUCK_DISK = """
import pathlib, threading
from memrecall.server import runner
from memrecall.store.database.engine import Database

def write(self, *arguments, write=Database._transact_inline):
    if pathlib.Path("stuck").exists():
        pathlib.Path("waiting").touch()
        threading.Event().wait()
    return write(self, *arguments)

Database._transact_inline = write
runner._GRACE_SECONDS, runner._STOP_SECONDS = 0.2, 1.0
"""


@pytest.mark.service
async def test_write_that_never_ends_does_not_hold_a_stopping_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STUCK_DISK)
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    db = tmp_path / "a.db"
    with run_server(tmp_path, "--db", db, **WITHOUT_DASHBOARD, PYTHONPATH=path) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            bodies = [{"messages": [make_message(number)]} for number in range(2)]
            answer = await client.post("/v1/users/ann/messages", json=bodies[0])
            assert answer.json()["stored"] == 1
            (tmp_path / "stuck").touch()
            sending = asyncio.create_task(client.post("/v1/users/ann/messages", json=bodies[1]))
            await wait_until((tmp_path / "waiting").exists)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(server.process.wait, TIMEOUT)
            with contextlib.suppress(httpx.TransportError):
                check_error(await sending, 503, "UNAVAILABLE")
    async with await Store.open(str(db)) as store:
        assert (await store.count("ann"))["messages"] == 1


async def test_server_is_announced_when_it_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = asyncio.Event()
    monkeypatch.setattr("memrecall.server.runner.preload", lambda *_: loaded.wait())
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    announced: list[ServerInfo] = []
    settings = Settings(
        db=str(tmp_path / "a.db"),
        cache_dir=str(tmp_path),
        embedder="hash",
        text_workers=0,
        dashboard=False,
    )
    work = asyncio.create_task(serve(settings, announced.append, listener))
    async with httpx.AsyncClient(base_url=address, timeout=TIMEOUT) as client:
        error = check_error(await client.get("/readyz"), 503, "UNAVAILABLE")
        assert error["message"] == "not ready: loading"
        check_error(await client.get("/v1/users/ann/messages"), 503, "UNAVAILABLE")
        assert (await client.get("/healthz")).status_code == 200
        assert 'memrecall_state{state="unavailable"} 1.0' in (await client.get("/metrics")).text
        assert not announced
        loaded.set()
        await wait_until(lambda: announced)
        assert (await client.get("/readyz")).status_code == 200
    ServerStop()()
    await asyncio.wait_for(work, TIMEOUT)


async def is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/readyz")).is_success


# Prints what the first recall imports and reads once everything is loaded.
FIRST_RECALL = """
import asyncio, pathlib, sys
from memrecall.server.http.app import describe_api
from memrecall.server.http.context import preload
from tests.server.http_service import CHAT, open_library, serve_in_process, write_messages

async def main(folder):
    async with open_library(folder + "/a.db", pathlib.Path(folder), embedder="local") as library:
        async with serve_in_process(library) as service:
            ann = await service.client_with_chat()
            await preload(library, describe_api)
            assert len(library.cache) == 1  # the index of the user who was active last
            modules, seen = set(sys.modules), []
            sys.addaudithook(lambda event, given: event == "open" and seen.append(str(given[0])))
            answer = await ann.post("/v1/users/ann/recall", json={"query": "my sister?"})
            answer.raise_for_status()
            files = [path for path in seen if path.endswith(".npz") and folder not in path]
            print([*set(sys.modules) - modules, *files])

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.service
def test_first_recall_loads_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_RECALL, str(tmp_path)]
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        command, cwd=root, env=make_environment(tmp_path), capture_output=True, text=True,
        timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert ended.stdout == "[]\n", ended.stderr


async def test_request_that_outlasts_the_grace_period_gets_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    async def hang(*_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("memrecall.server.runner._GRACE_SECONDS", 0.1)
    monkeypatch.setattr("memrecall.library.library.Library.require_user", hang)
    stop = ServerStop()
    async with (
        run_in_process(tmp_path, stop) as listening,
        httpx.AsyncClient(base_url=listening.url, timeout=TIMEOUT) as client,
    ):
        request = asyncio.create_task(client.get("/v1/users/ann/messages"))
        await started.wait()
        stop()
        answer = await request
        check_error(answer, 503, "UNAVAILABLE")
        assert answer.headers["connection"] == "close"


async def test_shutdown_ends_running_stream_with_terminal_event(tmp_path: Path) -> None:
    """The model server never answers."""
    release = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    model = await asyncio.start_server(silent, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{model.sockets[0].getsockname()[1]}/v1"
    settings = {"model": "m", "base_url": address, "api_key": "k"}
    stop = ServerStop()
    async with model:
        async with (
            run_in_process(tmp_path, stop, **settings) as listening,
            httpx.AsyncClient(base_url=listening.url, timeout=TIMEOUT) as client,
        ):
            body = {"messages": [make_message(1, "tea")]}
            (await client.post("/v1/users/ann/messages", json=body)).raise_for_status()
            question = {"query": "which tea?", "as_of": NOON.replace(year=2027).isoformat()}
            headers = {"Accept": "text/event-stream"}
            stream = client.stream("POST", "/v1/users/ann/recall", json=question, headers=headers)
            async with stream as answer:
                lines = answer.aiter_lines()
                assert await anext(lines) == "event: start"
                stop()
                remaining = [line async for line in lines]
            assert [line for line in remaining if line.startswith("event: ")][-1] == "event: error"
        release.set()


@pytest.mark.service
def test_long_texts_are_summarized_in_worker_processes(tmp_path: Path) -> None:
    story = " ".join(f"On day {day} I met Ann in Oslo and we talked." for day in range(100))
    body = {"messages": [make_message(1, story, session_id="s")]}
    with run_server(tmp_path, **WITHOUT_DASHBOARD, MEMRECALL_TEXT_WORKERS="1") as server:
        with httpx.Client(base_url=server.url, timeout=TIMEOUT) as client:
            # On a busy machine, the processes take longer to start than a check waits.
            block_until(lambda: client.get("/readyz").is_success)
            ready = client.get("/readyz")
            client.post("/v1/users/ann/messages", json=body).raise_for_status()
            made = client.post("/v1/sessions/s/summarize", json={"user_id": "ann"})
            forked = [
                process
                for process in psutil.Process(server.process.pid).children(recursive=True)
                if process.cpu_times().user
            ]
        assert server.stop() == 0
    assert ready.json()["checks"]["workers"] == "ok"
    (summary,) = made.json()["results"]
    assert "I met Ann in Oslo" in summary["text"]
    assert len(summary["text"]) < len(story) / 2
    assert forked
    psutil.wait_procs(forked, TIMEOUT)
    assert not any(process.is_running() for process in forked)


@pytest.mark.service
def test_demo_opens_a_browser_that_is_signed_in_once(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    program.chmod(0o700)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    variables = {"BROWSER": str(program), "CI": "", "TMPDIR": str(temporary)}
    with run_server(tmp_path, "--demo", **variables) as server:
        block_until(opened.exists)
        link = opened.read_text().strip()
        assert link == server.info["sign_in"]
        with httpx.Client(follow_redirects=True, timeout=TIMEOUT) as browser:
            first = browser.get(link)
            assert (first.status_code, first.url.path) == (200, "/")
            again = browser.get(link)
            assert (again.status_code, again.url.path) == (200, "/")
            assert browser.get(f"{server.url}/evaluations").status_code == 200
        with httpx.Client(follow_redirects=True, timeout=TIMEOUT) as stranger:
            refused = stranger.get(link, headers={"Accept-Language": "zh"})
            assert (refused.url.path, refused.url.query) == ("/sign-in", b"used=1")
            assert stranger.get(server.url).url.path == "/sign-in"
        assert server.stop(signal.SIGINT) == 0
    assert os.listdir(temporary) == []
    assert "Traceback" not in server.log.read_text("utf-8")


@pytest.mark.service
def test_demo_serves_both_sample_users_from_a_temporary_database(tmp_path: Path) -> None:
    with run_server(tmp_path, "--demo", "--no-browser", MEMRECALL_EMBEDDER="local") as server:
        key = {"Authorization": f"Bearer {server.info['key']}"}
        with httpx.Client(base_url=server.url, headers=key, timeout=TIMEOUT) as client:
            for user, request, answer in (
                ("maya", "Who has my spare key?", "Joyce"),
                ("lin", "我对什么过敏来着？", "海鲜也过敏"),
            ):
                body = {"query": request}
                recalled = client.post(f"/v1/users/{user}/recall", json=body).json()
                assert answer in recalled["handoff"]["search_summary"]
            assert client.get("/v1/users/ann/messages").status_code == 404
        assert server.info["sign_in"].startswith(f"{server.url}/sign-in?code=")
        folder = Path(server.info["database"]).parent
        assert folder.exists()
        assert server.stop() == 0
    assert not folder.exists()


@pytest.mark.service
def test_demo_refuses_a_database_of_its_own(tmp_path: Path) -> None:
    refused = run_command(tmp_path, "serve", "--demo", "--db", tmp_path / "a.db")
    assert refused.returncode == 2
    assert "Drop --db, --read-only and --workers" in refused.stderr


@pytest.mark.service
async def test_read_only_server_searches_a_backup_and_refuses_writes(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    async with open_library(str(tmp_path / "a.db"), tmp_path) as library:
        await library.add_messages(
            Scope("ann"), [NewMessage(role=Role.USER, content="tea at noon", message_id="m1")]
        )
        await backup_database(library.store, folder / "backup.db", lambda _: None)
    with run_server(tmp_path, "--db", folder / "backup.db", "--read-only") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT) as client:
            recalled = await client.post("/v1/users/ann/recall", json={"query": "tea at noon?"})
            assert recalled.status_code == 200
            found = await client.post(
                "/v1/messages/lexical_search", json={"user_id": "ann", "query_text": "noon"}
            )
            assert "tea at" in found.text
            for method, path, body in (
                ("POST", "/v1/users/ann/messages", {"messages": [make_message(2)]}),
                ("POST", "/v1/memories", {"user_id": "ann", "messages": "I live in Rome"}),
                ("DELETE", "/v1/memories/m1?user_id=ann", None),
            ):
                answer = await client.request(method, path, json=body)
                check_error(answer, 403, "PERMISSION_DENIED")
                assert answer.json()["error"]["message"] == "this service is read-only"
            await wait_until(lambda: is_ready(client))
            assert (await client.get("/readyz")).json()["reason"] == "read-only setting"
        assert server.stop() == 0
    assert os.listdir(folder) == ["backup.db"]


def test_responses_are_not_delayed_by_nagle() -> None:
    """asyncio turns Nagle's algorithm off only for sockets with an explicit protocol."""
    with closing(_bind("127.0.0.1", 0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
