"""JSON-RPC over stdin and stdout: one message per line, and nothing else on stdout."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any

from memrecall.server.rpc.codec import Dispatch, RpcLimits, answer, report_bug
from memrecall.workers import DaemonThreadPool

_CHUNK = 64 * 1024
_READ_AHEAD = 4  # chunks
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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


class StdioStreams:
    """Lines from standard input, and replies to standard output.

    Everything else that the process writes to standard output goes to standard error. Threads that
    wait for the client do not keep the process alive.
    """

    def __init__(self, read_from: int = 0, write_to: int = 1) -> None:
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(_READ_AHEAD)
        self._output = claim_output(write_to)
        self._writer = DaemonThreadPool(1, "memrecall-output")
        arguments = (read_from, asyncio.get_running_loop(), self._chunks)
        threading.Thread(target=_read, args=arguments, daemon=True).start()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of the input that are not blank, without their ends."""
        buffer = LineBuffer(RpcLimits().bytes)
        while True:
            chunk = await self._chunks.get()
            for line in buffer.feed(chunk):
                if line.strip():
                    yield line.rstrip(b"\r")
            if not chunk:
                return

    async def write_line(self, data: bytes) -> None:
        """Write a line; raise BrokenPipeError if the client has closed its end."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, _write, self._output, data + b"\n")

    def close(self) -> None:
        """Close the output, unless a write that the client does not read is under way."""
        self._writer.submit(os.close, self._output)
        self._writer.shutdown(wait=False)


async def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run some work until it ends; SIGINT and SIGTERM cancel it, which is not an error."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
        stopped.cancel()
        task.cancel()
        # What it raises on being cancelled, such as that its streams are closed, is not an error.
        outcomes = await asyncio.gather(task, return_exceptions=True)
    if not stop.is_set() and isinstance(outcomes[0], BaseException):
        raise outcomes[0]


class StdioServer:
    """Answers messages one after the other until the input ends or a signal arrives."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def run(self, read_from: int = 0, write_to: int = 1) -> None:
        """Serve. A signal cancels the running call; a transaction that has begun is finished."""
        streams = StdioStreams(read_from, write_to)
        try:
            with suppress(BrokenPipeError):  # the reader has closed the pipe
                await run_until_signal(self._serve(streams))
        finally:
            streams.close()

    async def _serve(self, streams: StdioStreams) -> None:
        async for line in streams.lines():
            reply = await answer(line, self._dispatch, report_bug)
            if reply is not None:
                await streams.write_line(reply)


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
