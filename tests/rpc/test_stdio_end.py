"""How `memrecall mcp` and `memrecall rpc` end, and what malformed lines get: real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memrecall.agent.tools.context import ToolContext
from tests.cases import check_each

from ..server.http_service import open_library
from ..waiting import PROCESS_LIMIT
from .mcp_clients import add_user_messages

pytestmark = [pytest.mark.concurrent, pytest.mark.service]
MALFORMED: list[tuple[bytes, int, Any]] = [
    (b"garbage", -32700, None),
    (b"\xff\xfe", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,', -32700, None),
    (b"[]", -32600, None),
    (b"{}", -32600, None),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, 7),
    (b"x" * 2_000_000, -32600, None),
]
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class StdioProcess:
    """A server process and its pipes."""

    def __init__(self, command: str, folder: Path, *arguments: str, **settings: str) -> None:
        environment = {"MEMRECALL_CONFIG": os.devnull, "MEMRECALL_EMBEDDER": "hash", **settings}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memrecall", command, "--db", str(folder / "x.db"), *arguments],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.send(json.dumps(message).encode())

    def reply(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, method: str, params: Any) -> Any:
        """Return the result of a call."""
        self.request(method, params)
        return self.reply()["result"]

    def initialize(self) -> None:
        self.call("initialize", INITIALIZE)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def stop(self, how: signal.Signals | None, last: bytes = b"") -> tuple[int, bytes, bytes]:
        """Send a signal, or the last bytes of the input; return the exit code and both outputs."""
        if how is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=PROCESS_LIMIT)
        out, errors = self.process.communicate(last or None, timeout=PROCESS_LIMIT)
        return self.process.returncode, out, errors


@contextmanager
def started(command: str, folder: Path, *arguments: str, **settings: str) -> Iterator[StdioProcess]:
    server = StdioProcess(command, folder, *arguments, **settings)
    try:
        yield server
    finally:
        server.process.kill()
        with suppress(ValueError, BrokenPipeError):  # a pipe that is closed already
            server.process.communicate()


@contextmanager
def silent_model() -> Iterator[tuple[str, socket.socket]]:
    """Yield the address of a model server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", listener


def test_mcp_answers_malformed_lines_with_errors(tmp_path: Path) -> None:
    with started("mcp", tmp_path, "--user", "ann") as server:
        server.initialize()

        def check(case: tuple[bytes, int, Any]) -> None:
            line, code, call_id = case
            server.send(line)
            reply = server.reply()
            assert (reply["error"]["code"], reply["id"]) == (code, call_id)

        check_each(MALFORMED, check, lambda case: repr(case[0][:40]))
        server.send(b"\n  \r\n")  # blank lines have no reply
        server.request("tools/call", {"name": "memory_get_status", "arguments": {}})
        assert server.reply()["result"]["isError"] is False
        code, _, errors = server.stop(None)
    assert (code, b"Traceback" in errors) == (0, False)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, None], ids=str)
async def test_mcp_ends_at_once_while_a_recall_runs(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    async with open_library(str(tmp_path / "x.db"), tmp_path) as library:
        await add_user_messages(library, "ann", "The gate code is 4711")
    with silent_model() as (url, listener):
        settings = {
            "MEMRECALL_MODEL": "silent",
            "MEMRECALL_BASE_URL": url,
            "MEMRECALL_API_KEY": "none",
        }
        with started("mcp", tmp_path, "--user", "ann", **settings) as server:
            server.initialize()
            query = {"query": "What is the gate code?"}
            server.request("tools/call", {"name": "recall", "arguments": query})
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(10)  # the recall waits for the model now
                code, _, errors = server.stop(how)
    assert (code, b"Traceback" in errors) == (0, False), errors.decode()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, None], ids=str)
async def test_rpc_ends_cleanly_and_keeps_what_it_acknowledged(
    tmp_path: Path, how: signal.Signals | None
) -> None:
    with started("rpc", tmp_path) as server:
        key = server.call("memory_add", ["content", "summary"])["id"]
        code, out, errors = server.stop(how)
    assert (code, out, b"Traceback" in errors) == (0, b"", False), errors.decode()
    async with open_library(str(tmp_path / "x.db"), tmp_path) as library:
        entry = await ToolContext.for_operator(library).knowledge.get(key)
        assert entry.content == "content"


@pytest.mark.parametrize("command", ["mcp", "rpc"])
def test_signal_ends_a_server_whose_client_does_not_read(tmp_path: Path, command: str) -> None:
    user = ["--user", "ann"] if command == "mcp" else []
    with started(command, tmp_path, *user) as server:
        if command == "mcp":
            server.initialize()
        # The replies fill the pipe: they quote the id.
        call_id = "x" * 60_000
        for _ in range(3):
            message = {"jsonrpc": "2.0", "id": call_id, "method": "ping", "params": {}}
            server.send(json.dumps(message).encode())
        assert server.stop(signal.SIGTERM)[0] == 0
