"""The worker processes of one service: what they share, and which one answers a request.

Every worker accepts connections. A request that names a user belongs to the worker that the user is
hashed to, so that the user's index is loaded once: the worker that has read its head passes the
connection itself on. Every worker can answer every request, so a worker that is busy, slow or
absent costs a cold index and nothing else.
"""

import asyncio
import json
import multiprocessing
import os
import re
import signal
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from multiprocessing.process import BaseProcess
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

import h11

from memrecall.errors import InvalidArgument, WorkerFailed

USER_HEADER = "x-memrecall-user"  # which of a key's users; set by trusted code, never by a model
OLD_USER_HEADER = "memrecall-user"  # its name in earlier versions
MAX_MESSAGE_BYTES = 96 * 1024  # of a request that is passed on: one datagram
_FIRST_PAUSE = 0.5  # seconds before a process is replaced; doubled each time
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 60.0  # of a process that did not fail at once
_STOP_SECONDS = 60.0  # longer than a service takes to stop once it is drained
_STALE_SECONDS = 10.0  # after the last sign of life
_RATE_SLOTS = 2**17
_MAX_KEYS = 10_000
_MAX_RECEIVED = 32  # connections, before the event loop does other work
_DASHBOARD_WORKER = 0
# Any worker answers these, and reads no user's data for them.
_COMMON_PATHS = frozenset({b"/healthz", b"/readyz", b"/metrics", b"/openapi.json", b"/docs"})
_API_PATH = re.compile(rb"/(?:v1/|rpc\Z|mcp\Z)")
# Reading by time and by position needs the database only, and less than passing a connection on.
_UNINDEXED_PATH = re.compile(rb"/v1/users/[^/]+/messages(?:/[^/]+/neighbors)?")
_PATH_USER = re.compile(rb"/v1/users/([^/]+)")
_QUERY_USER = re.compile(rb"(?:^|&)user_id=([^&]+)")
_BODY_USER = re.compile(rb'"user_id"\s*:\s*("(?:[^"\\]|\\.)*")')
_JOB = re.compile(rb"/v1/jobs/[^/]*\.(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the workers share, as seen by the one with this index."""

    index: int
    has_dashboard: bool  # in one worker, because its pages and sessions are in memory
    metrics_folder: str
    pids: MutableSequence[float]
    beats: MutableSequence[
        float
    ]  # the monotonic time when each worker was last ready; 0: it is not
    rates: MutableSequence[float]  # for `TokenBuckets`
    # Of each worker: where others write the connections that it answers, and where it reads them.
    # The supervisor keeps both ends, so nothing is lost when a worker is replaced.
    inboxes: Sequence[tuple[socket.socket, socket.socket]]
    _key_users: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)

    @classmethod
    def create(cls, count: int, metrics_folder: str, *, has_dashboard: bool) -> "Cluster":
        """Return what `count` new workers share; raise InvalidArgument on Windows."""
        if not hasattr(socket, "send_fds"):
            raise InvalidArgument(
                "several workers need Unix, whose processes can pass connections on",
                hint="Use --workers 1",
            )
        shared = multiprocessing.get_context("spawn").RawArray
        inboxes = tuple(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count))
        for end in (end for pair in inboxes for end in pair):
            end.setblocking(False)
        pids: Any = shared("d", count)
        beats: Any = shared("d", count)
        rates: Any = shared("d", _RATE_SLOTS)
        return cls(_DASHBOARD_WORKER, has_dashboard, metrics_folder, pids, beats, rates, inboxes)

    def for_worker(self, index: int) -> "Cluster":
        """Return the view of one worker."""
        return replace(self, index=index, _key_users=OrderedDict())

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self.inboxes)

    @property
    def inbox(self) -> socket.socket:
        """Where this worker reads the connections that it answers."""
        return self.inboxes[self.index][1]

    @property
    def is_first(self) -> bool:
        """True in the worker that has the dashboard and does what must be done once."""
        return self.index == _DASHBOARD_WORKER

    def beat(self) -> None:
        """Note that this worker is ready."""
        self.pids[self.index] = os.getpid()
        self.beats[self.index] = time.monotonic()

    def leave(self, index: int) -> None:
        """Note that a worker takes no more requests."""
        self.beats[index] = 0.0

    def is_up(self, index: int) -> bool:
        """Return True if a worker was ready a moment ago."""
        return time.monotonic() - self.beats[index] < _STALE_SECONDS

    def absent(self) -> list[int]:
        """Return the workers that are not ready."""
        return [index for index in range(len(self)) if not self.is_up(index)]

    async def require_all(self) -> None:
        """Raise WorkerFailed unless all workers are ready."""
        if absent := self.absent():
            raise WorkerFailed(f"worker {absent[0]} is not ready")

    def process_ids(self) -> dict[str, int]:
        """Return the process of each worker that is ready."""
        return {str(i): int(self.pids[i]) for i in range(len(self)) if self.is_up(i)}

    def name_job(self, job_id: str) -> str:
        """Return the public id of a job of this worker, by which the others find it."""
        return f"{job_id}.{self.index}"

    def learn_users(self, credentials: bytes, users: frozenset[str]) -> None:
        """Remember the user of a key that has one only, whose requests need not name the user."""
        if len(users) != 1:
            return
        digest = _digest(credentials)
        self._key_users[digest] = next(iter(users)).encode("utf-8", "surrogatepass")
        self._key_users.move_to_end(digest)
        if len(self._key_users) > _MAX_KEYS:
            self._key_users.popitem(last=False)

    def needs_body(self, request: h11.Request, body: bytes) -> bool:
        """Return True if more of the body may name the user, and is worth waiting for."""
        headers = dict(request.headers)
        length = headers.get(b"content-length", b"")
        path, _, query = request.target.partition(b"?")
        return (
            length.isdigit()
            and len(body) < int(length) <= MAX_MESSAGE_BYTES // 2
            and b"expect" not in headers
            and _API_PATH.match(path) is not None
            and _find_user(path, query, headers, body) is None
        )

    def find_worker(self, request: h11.Request, body: bytes) -> int:
        """Return the worker that should answer a request."""
        path, _, query = request.target.partition(b"?")
        is_unindexed = request.method == b"GET" and _UNINDEXED_PATH.fullmatch(path)
        if is_unindexed or path in _COMMON_PATHS:
            return self.index
        if not _API_PATH.match(path):
            return _DASHBOARD_WORKER if self.has_dashboard else self.index
        if (job := _JOB.fullmatch(path)) and int(job[1]) < len(self) and self.is_up(int(job[1])):
            return int(job[1])
        headers = dict(request.headers)
        user = _find_user(path, query, headers, body)
        if user is None:
            user = self._key_users.get(_digest(headers.get(b"authorization", b"")))
        return self.index if user is None else self._owner(user)

    def _owner(self, user: bytes) -> int:
        """Return the worker of a user, by rendezvous hashing over those that are ready."""
        ready = [index for index in range(len(self)) if self.is_up(index)]
        return max(ready, key=lambda index: _digest(b"%d:" % index + user), default=self.index)

    def send(self, index: int, request: h11.Request, body: bytes, connection: int) -> bool:
        """Pass a connection on with the request that was read from it; False if that fails."""
        data = _serialize_head(request) + body
        if len(data) > MAX_MESSAGE_BYTES:
            return False
        try:
            socket.send_fds(self.inboxes[index][0], [data], [connection])
        except OSError:  # The inbox is full.
            return False
        return True

    def receive(self) -> Iterator[tuple[socket.socket, bytes]]:
        """Yield connections that others passed on, each with what was read from it."""
        for _ in range(_MAX_RECEIVED):
            try:
                data, files, _, _ = socket.recv_fds(self.inbox, MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                return
            for file in files:
                connection = socket.socket(fileno=file)
                connection.setblocking(False)
                yield connection, data


def read_user_header(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the user id that the header has, as UTF-8; None without the header.

    The value is quoted as in a path, so that a proxy hashes either to the same process.
    """
    value = headers.get(USER_HEADER.encode(), headers.get(OLD_USER_HEADER.encode()))
    return None if value is None else unquote_to_bytes(value)


def _find_user(
    path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes
) -> bytes | None:
    """Return the user that a request seems to name. That is a hint: its endpoint decides."""
    if match := _PATH_USER.match(path):
        return unquote_to_bytes(match[1])
    if match := _QUERY_USER.search(query):
        return unquote_plus(match[1].decode("latin-1")).encode("utf-8", "surrogatepass")
    if (user := read_user_header(headers)) is not None:
        return user
    if match := _BODY_USER.search(body):
        try:
            return str(json.loads(match[1])).encode("utf-8", "surrogatepass")
        except ValueError:
            return None
    return None


def _serialize_head(request: h11.Request) -> bytes:
    lines = [b"%s %s HTTP/%s" % (request.method, request.target, request.http_version)]
    lines += [b"%s: %s" % item for item in request.headers.raw_items()]
    return b"\r\n".join([*lines, b"", b""])


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=16).digest()


class Supervisor:
    """Keeps processes running: one for each list of arguments, started anew when it ends.

    `report` is told the number of a process that ended, the process, and the pause before its
    replacement is started. The pause grows while processes fail soon after their start. A process
    that stops may go on for `drain_seconds`.
    """

    def __init__(
        self,
        target: Callable[..., None],
        arguments: Sequence[tuple[Any, ...]],
        report: Callable[[int, BaseProcess, float], None],
        drain_seconds: float = 0.0,
    ) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._target = target
        self._arguments = arguments
        self._report = report
        self._stop_seconds = drain_seconds + _STOP_SECONDS
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run the processes until `stop` is called; return when all have ended."""
        try:
            await asyncio.gather(*map(self._keep, range(len(self._arguments))))
        finally:
            self._kill()

    def stop(self, *, at_once: bool = False) -> None:
        """Ask all processes to end; kill them if they take too long, or `at_once`."""
        if self._stopping.is_set() and not at_once:
            return
        self._stopping.set()
        for process in self._processes.values():
            process.terminate()
        asyncio.get_running_loop().call_later(0 if at_once else self._stop_seconds, self._kill)

    def _kill(self) -> None:
        for process in self._processes.values():
            process.kill()

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            start = loop.time()
            process = await self._run_once(number)
            if self._stopping.is_set():
                return
            pause = _FIRST_PAUSE if loop.time() - start > _STABLE_SECONDS else pause
            self._report(number, process, pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _run_once(self, number: int) -> BaseProcess:
        process = self._context.Process(
            target=self._target, args=self._arguments[number], name=f"memrecall-{number}"
        )
        with _without_interrupts():
            process.start()
        self._processes[number] = process
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(process.sentinel)
        process.join()
        del self._processes[number]
        return process


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in this block, and in the processes that it starts: their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
