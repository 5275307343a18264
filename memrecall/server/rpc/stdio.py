"""JSON-RPC over standard input and output: one message a line, and nothing else on the output."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from memrecall.server.rpc import Dispatch, RpcLimits, answer
from memrecall.server.rpc.methods import report_bug

_CHUNK = 64 * 1024
_WAITING = 4  # chunks that are read ahead


class LineBuffer:
    """Puts lines together from chunks. Of one that is too long only the beginning is kept."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._kept = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that a chunk completes; an empty chunk is the end."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._keep(part)
            yield self._take()
        self._keep(rest)
        if not chunk and self._kept:
            yield self._take()

    def _keep(self, part: bytes) -> None:
        # One byte more than is allowed is enough to see that it is too long.
        self._kept += part[: self._longest + 1 - len(self._kept)]

    def _take(self) -> bytes:
        line = bytes(self._kept)
        self._kept.clear()
        return line


class StdioServer:
    """Answers messages one after the other until the input ends or a signal says so."""

    def __init__(self, dispatch: Dispatch, limits: RpcLimits | None = None) -> None:
        self._dispatch = dispatch
        self._limits = limits or RpcLimits()

    async def run(self, read_from: int = 0, write_to: int = 1) -> None:
        """Serve; what is under way when the end comes is finished and answered."""
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        output = claim_output(write_to)
        chunks: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        threading.Thread(target=_read, args=(read_from, loop, chunks), daemon=True).start()
        stopped: asyncio.Future[bool] = asyncio.ensure_future(stopping.wait())
        try:
            with suppress(BrokenPipeError):  # nobody listens any more
                await self._serve(chunks, stopped, output)
        finally:
            stopped.cancel()
            os.close(output)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _serve(
        self, chunks: "asyncio.Queue[bytes]", stopped: "asyncio.Future[bool]", output: int
    ) -> None:
        lines = LineBuffer(self._limits.bytes)
        while True:
            getting = asyncio.ensure_future(chunks.get())
            either: list[asyncio.Future[Any]] = [getting, stopped]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                return
            chunk = getting.result()
            for line in lines.feed(chunk):
                if stopped.done():
                    return
                await self._answer(line, output)
            if not chunk:
                return

    async def _answer(self, line: bytes, output: int) -> None:
        if not line.strip():
            return
        reply = await answer(line.rstrip(b"\r"), self._dispatch, report_bug, self._limits)
        if reply is not None:
            await asyncio.to_thread(_write, output, reply + b"\n")


def claim_output(number: int) -> int:
    """A copy of the output for answers alone; what others print goes to the error stream."""
    ours = os.dup(number)
    os.dup2(2, number)
    return ours


def _read(source: int, loop: asyncio.AbstractEventLoop, chunks: "asyncio.Queue[bytes]") -> None:
    """Read in a thread: a file, a pipe and a terminal alike."""
    while True:
        try:
            chunk = os.read(source, _CHUNK)
        except OSError:
            chunk = b""
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except RuntimeError:  # the loop is gone
            return
        if not chunk:
            return


def _write(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]
