"""`memrecall rpc`: one message per line in, one reply per line out."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.server.rpc.stdio import LineBuffer

from ..waiting import PROCESS_LIMIT

ENVIRONMENT = {
    **os.environ,
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
    "PYTHONUNBUFFERED": "1",
}


class RpcProcess:
    """A `memrecall rpc` process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "memrecall", "rpc", "--db", str(folder / "x.db")]
        self.process = subprocess.Popen(
            [*command, *arguments],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_reply(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, method: str, *params: Any, id_: Any = 1) -> Any:
        message = {"jsonrpc": "2.0", "method": method, "params": params, "id": id_}
        self.send(json.dumps(message).encode() + b"\n")
        return self.read_reply()

    def end(self) -> tuple[int, bytes, bytes]:
        """Close the input and return the exit code, stdout and stderr."""
        out, errors = self.process.communicate(timeout=PROCESS_LIMIT)
        return self.process.returncode, out, errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RpcProcess]:
    started = RpcProcess(tmp_path, "--data-dir", str(tmp_path / "data"), "--agent", "helper")
    yield started
    started.process.kill()
    started.process.wait()
    for stream in (started.process.stdin, started.process.stdout, started.process.stderr):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


@pytest.mark.service
@pytest.mark.concurrent
def test_server_survives_garbage_and_stops_at_end_of_input(
    server: RpcProcess, tmp_path: Path
) -> None:
    for garbage in (b"garbage\n", b"\xff\xfe\n", b"[]\n", b"{}\n", b"x" * 2_000_000 + b"\n"):
        server.send(garbage)
        assert server.read_reply()["id"] is None
    server.send(b"\n  \r\n\t\n")  # empty lines have no reply
    server.send(
        b'{"jsonrpc":"2.0","method":"memory_add","params":["parasol","b"]}\n'
    )  # nor has a notification
    status = server.call("memory_get_status")
    assert status["result"]["status"] == "ok"
    path = server.call("memory_init_workspace", "t")["result"]["path"]
    assert path == str(tmp_path / "data" / "workspaces" / "t")
    batch = b'[{"jsonrpc":"2.0","method":"memory_query","params":["parasol"],"id":"q"},1]\r\n'
    server.send(batch)
    first, second = server.read_reply()
    assert (first["result"]["results"][0]["summary"], second["error"]["code"]) == ("b", -32600)
    server.send(b'{"jsonrpc":"2.0","method":"memory_get_status","id":9}')  # without a final newline
    code, out, errors = server.end()
    assert code == 0
    assert json.loads(out)["id"] == 9
    assert out.count(b"\n") == 1
    assert b"Traceback" not in errors


@pytest.mark.service
@pytest.mark.concurrent
def test_printed_text_goes_to_stderr(tmp_path: Path) -> None:
    script = (
        "import asyncio, os\n"
        "from memrecall.server.rpc.stdio import StdioServer\n"
        "async def say(method, params):\n"
        "    print('stray'); os.write(1, b'stray\\n'); os.system('echo stray'); return method\n"
        "asyncio.run(StdioServer(say).run())\n"
        "print('after', flush=True)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script],
        input=b'{"jsonrpc":"2.0","method":"a","id":1}\n',
        capture_output=True,
        timeout=PROCESS_LIMIT,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    assert completed.stdout == b'{"jsonrpc":"2.0","result":"a","id":1}\n'
    assert completed.stderr.count(b"stray") == 3


@pytest.mark.service
@pytest.mark.concurrent
def test_input_can_be_a_file_and_no_web_framework_is_loaded(tmp_path: Path) -> None:
    input_file = tmp_path / "in.jsonl"
    input_file.write_text('{"jsonrpc":"2.0","method":"memory_get_status","id":1}\n' * 3)
    command = [sys.executable, "-m", "memrecall", "rpc", "--db", str(tmp_path / "x.db")]
    with input_file.open("rb") as stream:
        completed = subprocess.run(
            command,
            stdin=stream,
            capture_output=True,
            timeout=PROCESS_LIMIT,
            env={**ENVIRONMENT, "PYTHONPROFILEIMPORTTIME": "1"},
            check=True,
        )
    assert len(completed.stdout.splitlines()) == 3
    assert b"memrecall.server.rpc.stdio" in completed.stderr
    assert not re.search(rb"\b(fastapi|starlette|uvicorn)\b", completed.stderr)
    assert not (tmp_path / "x.db-workspaces").exists()


@pytest.mark.service
@pytest.mark.concurrent
def test_closed_output_is_not_an_error(server: RpcProcess) -> None:
    assert "result" in server.call("memory_get_status")
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send(b'{"jsonrpc":"2.0","method":"memory_get_status","id":1}\n')
    assert server.process.wait(timeout=PROCESS_LIMIT) == 0


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"."))), st.data())
def test_lines_do_not_depend_on_chunks(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    reader, at = LineBuffer(8), 0
    received_lines: list[bytes] = []
    while at < len(whole):
        step = data.draw(st.integers(1, 7))
        received_lines += reader.feed(whole[at : at + step])
        at += step
    received_lines += reader.feed(b"")
    assert received_lines == [line[:9] for line in lines]
