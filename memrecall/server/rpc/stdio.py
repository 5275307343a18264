"""JSON-RPC over stdin and stdout: one message per line, and nothing else on stdout."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from memrecall.server.rpc.codec import Dispatch, RpcLimits, answer
from memrecall.server.rpc.methods import report_bug

_CHUNK = 64 * 1024
_READ_AHEAD = 4  # chunks


class LineBuffer:
    """Assembles lines from chunks; only the beginning of a line that is too long is stored."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes; an empty chunk is the end of the input."""
        *ends, rest = chunk.split(b"\n")
        for part in ends:
            self._append(part)
            yield self._take()
        self._append(rest)
        if not chunk and self._line:
            yield self._take()

    def _append(self, part: bytes) -> None:
        # One byte over the limit is enough to detect that the line is too long.
        self._line += part[: self._max_bytes + 1 - len(self._line)]

    def _take(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        return line


class StdioServer:
    """Answers messages one after the other until the input ends or a signal arrives."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def run(self, read_from: int = 0, write_to: int = 1) -> None:
        """Serve; finish and answer a call that is running when the end comes."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        output = claim_output(write_to)
        chunks: asyncio.Queue[bytes] = asyncio.Queue(_READ_AHEAD)
        threading.Thread(target=_read, args=(read_from, loop, chunks), daemon=True).start()
        stopped: asyncio.Future[bool] = asyncio.ensure_future(stop.wait())
        try:
            with suppress(BrokenPipeError):  # the reader has closed the pipe
                await self._serve(chunks, stopped, output)
        finally:
            stopped.cancel()
            os.close(output)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _serve(
        self, chunks: "asyncio.Queue[bytes]", stopped: "asyncio.Future[bool]", output: int
    ) -> None:
        lines = LineBuffer(RpcLimits().bytes)
        while True:
            next_chunk = asyncio.ensure_future(chunks.get())
            futures: list[asyncio.Future[Any]] = [next_chunk, stopped]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            if not next_chunk.done():
                next_chunk.cancel()
                return
            chunk = next_chunk.result()
            for line in lines.feed(chunk):
                if stopped.done():
                    return
                await self._answer(line, output)
            if not chunk:
                return

    async def _answer(self, line: bytes, output: int) -> None:
        if not line.strip():
            return
        reply = await answer(line.rstrip(b"\r"), self._dispatch, report_bug)
        if reply is not None:
            await asyncio.to_thread(_write, output, reply + b"\n")


def claim_output(number: int) -> int:
    """Return a copy of stdout for replies, and redirect everything else to stderr."""
    output = os.dup(number)
    os.dup2(2, number)
    return output


def _read(source: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Read in a thread, which works for a file, a pipe and a terminal alike."""
    while True:
        try:
            chunk = os.read(source, _CHUNK)
        except OSError:
            chunk = b""
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except RuntimeError:  # the loop is closed
            return
        if not chunk:
            return


def _write(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]
