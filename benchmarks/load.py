"""Load from clients that send the next request when the last one is answered."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from benchmarks.report import percentile

PATIENCE = 30.0  # seconds for one answer
_END_OF_HEAD = b"\r\n\r\n"

# One client: sends the request with that number and returns when it is answered.
Client = Callable[[int], Awaitable[None]]


class Failed(Exception):
    """An unexpected response."""


FAILURES = (Failed, OSError, TimeoutError, asyncio.IncompleteReadError)


@dataclass(slots=True)
class Load:
    """Response times, failures, and the total time and CPU time of a load."""

    times: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Responses per second."""
        return len(self.times) / self.seconds if self.times else 0.0

    @property
    def cpu_milliseconds(self) -> float:
        """CPU time per response, which other load affects less than wall-clock time."""
        return self.cpu / len(self.times) * 1000 if self.times else math.nan

    def add(self, other: "Load") -> None:
        """Add the figures of another load that was put before or after this one."""
        self.times += other.times
        self.failures += other.failures
        self.seconds += other.seconds
        self.cpu += other.cpu

    def milliseconds(self, percent: int) -> float:
        """Return the response time at a percentile."""
        return percentile(self.times, percent) * 1000 if self.times else math.nan


async def put_pairs(
    there: Client, here: Client, seconds: float, cpu_clock: Callable[[], float]
) -> tuple[Load, Load]:
    """Ask each question on both sides in turn, so that other load affects both.

    The clock returns the CPU time of `there`; `here` is this process.
    """
    loads = Load(), Load()
    cpu_started, started = cpu_clock(), time.perf_counter()
    number = 0
    while time.perf_counter() < started + 2 * seconds:
        sent = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                await there(number)
        except FAILURES as error:
            loads[0].failures[str(error) or type(error).__name__] += 1
            break
        between, cpu_between = time.perf_counter(), time.process_time()
        await here(number)
        loads[0].times.append(between - sent)
        loads[1].times.append(time.perf_counter() - between)
        loads[1].cpu += time.process_time() - cpu_between
        number += 1
    loads[0].cpu = cpu_clock() - cpu_started
    for load in loads:
        load.seconds = sum(load.times)
    return loads


async def put_load(
    clients: Sequence[Client],
    seconds: float,
    cpu_clock: Callable[[], float] = time.process_time,
    pause: float = 0.0,
) -> Load:
    """Let all clients ask until the time is up; wait for pending responses and count them.

    The clock returns the CPU time of the process that does the work. A client pauses that many
    seconds after each response.
    """
    load = Load()
    cpu_started, started = cpu_clock(), time.perf_counter()
    end = started + seconds

    async def keep_asking(first: int, client: Client) -> None:
        number = first
        while (sent := time.perf_counter()) < end:
            try:
                async with asyncio.timeout(PATIENCE):
                    await client(number)
            except FAILURES as error:
                load.failures[str(error) or type(error).__name__] += 1
                return  # its connection cannot be used any more
            load.times.append(time.perf_counter() - sent)
            number += len(clients)
            if pause:
                await asyncio.sleep(pause)

    await asyncio.gather(*(keep_asking(n, client) for n, client in enumerate(clients)))
    load.seconds, load.cpu = time.perf_counter() - started, cpu_clock() - cpu_started
    return load


@dataclass(frozen=True, slots=True)
class Response:
    """A response; its head is in lower case."""

    status: int
    head: str
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the value of a header, empty if it is absent."""
        return self.head.partition(f"\r\n{name}:")[2].partition("\r\n")[0].strip()


class Connection:
    """A minimal HTTP connection that is kept alive.

    A general HTTP client takes longer for a request than the service, and would dominate the
    result.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        """Connect to a service."""
        address = urlsplit(url)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of its response; raise if it failed."""
        response = await self.exchange(request)
        if response.status != 200:
            raise Failed(f"status {response.status}")
        return response.body

    async def exchange(self, request: bytes) -> Response:
        """Send a request and return its response, whatever its status."""
        self._writer.write(request)
        head = (await self._reader.readuntil(_END_OF_HEAD)).lower().decode("latin-1")
        response = Response(int(head.split(" ", 2)[1]), head)
        length = response.header("content-length")
        if not length.isdigit():
            raise Failed("an answer without a length")
        return replace(response, body=await self._reader.readexactly(int(length)))

    def send(self, data: bytes) -> None:
        """Send some bytes without waiting for anything."""
        self._writer.write(data)

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()
