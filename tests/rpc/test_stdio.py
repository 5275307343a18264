"""`memrecall rpc`: one message per line in, one reply per line out."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.server.rpc import LineBuffer

from ..waiting import PROCESS_LIMIT
from .test_stdio_end import StdioProcess, started

ENVIRONMENT = {
    **os.environ,
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
    "PYTHONUNBUFFERED": "1",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StdioProcess]:
    options = ("--data-dir", str(tmp_path / "data"), "--agent", "helper")
    with started("rpc", tmp_path, *options) as process:
        yield process


@pytest.mark.service
@pytest.mark.concurrent
def test_server_survives_garbage_and_stops_at_end_of_input(
    server: StdioProcess, tmp_path: Path
) -> None:
    for garbage in (b"garbage", b"\xff\xfe", b"[]", b"{}", b"x" * 2_000_000):
        server.send(garbage)
        assert server.reply()["id"] is None
    server.send(b"\n  \r\n\t")  # empty lines have no reply
    # Nor has a notification.
    server.send(b'{"jsonrpc":"2.0","method":"memory_add","params":["parasol","b"]}')
    assert server.call("memory_get_status", [])["status"] == "ok"
    path = server.call("memory_init_workspace", ["t"])["path"]
    assert path == str(tmp_path / "data" / "workspaces" / "t")
    batch = b'[{"jsonrpc":"2.0","method":"memory_query","params":["parasol"],"id":"q"},1]\r'
    server.send(batch)
    first, second = server.reply()
    assert (first["result"]["results"][0]["summary"], second["error"]["code"]) == ("b", -32600)
    last = b'{"jsonrpc":"2.0","method":"memory_get_status","id":9}'  # without a final newline
    code, out, errors = server.stop(None, last)
    assert code == 0
    assert json.loads(out)["id"] == 9
    assert out.count(b"\n") == 1
    assert b"Traceback" not in errors


@pytest.mark.service
@pytest.mark.concurrent
def test_printed_text_goes_to_stderr(tmp_path: Path) -> None:
    script = (
        "import asyncio, os\n"
        "from memrecall.server.rpc import StdioServer\n"
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
    assert b"memrecall.server.rpc" in completed.stderr
    assert not re.search(rb"\b(fastapi|starlette|uvicorn)\b", completed.stderr)
    assert not (tmp_path / "x.db-workspaces").exists()


@pytest.mark.service
@pytest.mark.concurrent
def test_closed_output_is_not_an_error(server: StdioProcess) -> None:
    server.call("memory_get_status", [])
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send(b'{"jsonrpc":"2.0","method":"memory_get_status","id":1}')
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
