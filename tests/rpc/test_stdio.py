"""`memrecall rpc`: a message a line in, a reply a line out, and nothing else."""

import json
import os
import signal
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

ENVIRONMENT = {
    **os.environ,
    "MEMRECALL_CONFIG": os.devnull,
    "MEMRECALL_EMBEDDER": "hash",
    "PYTHONUNBUFFERED": "1",
}


class Server:
    """A running `memrecall rpc`."""

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

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, *params: Any, id_: Any = 1) -> Any:
        message = {"jsonrpc": "2.0", "method": method, "params": params, "id": id_}
        self.send(json.dumps(message).encode() + b"\n")
        return self.hear()

    def end(self) -> tuple[int, bytes, bytes]:
        """Close the input; the exit code, and what was still said."""
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out, errors


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, "--workspaces", str(tmp_path / "ws"), "--agent", "helper")
    yield made
    made.process.kill()
    made.process.wait()
    for stream in (made.process.stdin, made.process.stdout, made.process.stderr):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


@pytest.mark.concurrent
def test_it_survives_garbage_and_ends_with_its_input(server: Server, tmp_path: Path) -> None:
    for garbage in (b"garbage\n", b"\xff\xfe\n", b"[]\n", b"{}\n", b"x" * 2_000_000 + b"\n"):
        server.send(garbage)
        assert server.hear()["id"] is None
    server.send(b"\n  \r\n\t\n")  # nothing is said to nothing
    server.send(b'{"jsonrpc":"2.0","method":"memory_add","params":["a","b"]}\n')  # nor to this
    status = server.ask("memory_get_status")
    assert status["result"]["status"] == "ok"
    path = server.ask("memory_init_workspace", "t")["result"]["path"]
    assert path == str(tmp_path / "ws" / "t")
    batch = b'[{"jsonrpc":"2.0","method":"memory_query","params":["a"],"id":"q"},1]\r\n'
    server.send(batch)
    first, second = server.hear()
    assert (first["result"]["results"][0]["summary"], second["error"]["code"]) == ("b", -32600)
    server.send(b'{"jsonrpc":"2.0","method":"memory_get_status","id":9}')  # without an end of line
    code, out, errors = server.end()
    assert code == 0
    assert json.loads(out)["id"] == 9
    assert out.count(b"\n") == 1
    assert b"Traceback" not in errors


@pytest.mark.concurrent
def test_a_signal_ends_it_in_good_order(server: Server) -> None:
    assert "result" in server.ask("memory_add", "kept", "kept")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=60) == 0
    code, out, errors = server.end()
    assert (code, out) == (0, b"")
    assert b"Traceback" not in errors


@pytest.mark.concurrent
def test_what_others_print_does_not_reach_the_output(tmp_path: Path) -> None:
    script = (
        "import asyncio, os\n"
        "from memrecall.server.rpc.stdio import StdioServer\n"
        "async def say(method, params):\n"
        "    print('stray'); os.write(1, b'stray\\n'); os.system('echo stray'); return method\n"
        "asyncio.run(StdioServer(say).run())\n"
        "print('after', flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=b'{"jsonrpc":"2.0","method":"a","id":1}\n',
        capture_output=True,
        timeout=60,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    assert done.stdout == b'{"jsonrpc":"2.0","result":"a","id":1}\n'
    assert done.stderr.count(b"stray") == 3


@pytest.mark.concurrent
def test_a_file_can_be_the_input(tmp_path: Path) -> None:
    asked = tmp_path / "in.jsonl"
    asked.write_text('{"jsonrpc":"2.0","method":"memory_get_status","id":1}\n' * 3)
    command = [sys.executable, "-m", "memrecall", "rpc", "--db", str(tmp_path / "x.db")]
    with asked.open("rb") as opened:
        done = subprocess.run(
            command, stdin=opened, capture_output=True, timeout=60, env=ENVIRONMENT, check=True
        )
    assert len(done.stdout.splitlines()) == 3
    assert not (tmp_path / "x.db-workspaces").exists()


@pytest.mark.concurrent
def test_a_reader_that_goes_away_is_no_failure(server: Server) -> None:
    assert "result" in server.ask("memory_get_status")
    assert server.process.stdout is not None
    server.process.stdout.close()
    server.send(b'{"jsonrpc":"2.0","method":"memory_get_status","id":1}\n')
    assert server.process.wait(timeout=60) == 0


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"."))), st.data())
def test_lines_are_the_same_however_they_come(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    reader, at = LineBuffer(8), 0
    seen: list[bytes] = []
    while at < len(whole):
        step = data.draw(st.integers(1, 7))
        seen += reader.feed(whole[at : at + step])
        at += step
    seen += reader.feed(b"")
    assert seen == [line[:9] for line in lines]
