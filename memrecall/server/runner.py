"""The server process, or several on one port: socket, startup and graceful shutdown."""

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from memrecall.agent.tools.context import ToolContext
from memrecall.dashboard import is_installed
from memrecall.errors import InvalidArgument
from memrecall.memory import Library, client_of
from memrecall.server.auth import SignInCode, is_loopback
from memrecall.server.http.app import Application, create_app, describe_api
from memrecall.server.http.context import Service, find_sample_user, preload
from memrecall.server.supervisor import (
    ProcessRole,
    ServiceProcess,
    end_process_in,
    supervise,
)
from memrecall.server.tools import recover_backups
from memrecall.settings import Settings
from memrecall.workers import worker_processes

log = logging.getLogger("memrecall.server")

_GRACE_SECONDS = 20  # for requests that are still running at shutdown
_STOP_SECONDS = 30  # for all of it: a thread may wait for a disk that never answers
_HINTS = {
    errno.EADDRNOTAVAIL: "Choose another --host: 127.0.0.1, or an address of this machine",
    errno.EACCES: "Choose a --port of 1024 or more",
}
_MAX_FRAME_BYTES = 1024 * 1024  # of a websocket
_MAX_PORT = 65_535
_BACKLOG = 512
_FAREWELL_SECONDS = 2.0
# What worker processes run: work on long texts.
_WORKER_MODULES = ("memrecall.extraction.model", "memrecall.chat.offline")
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # read when the library is imported
_TICKS_PER_SECOND = 10  # of uvicorn's main loop
MAX_CONNECTIONS = 2_000  # of one process; above it, requests get a 503
_RESERVED_FILES = 200  # for the database, the model and the embedder
HEAD_SECONDS = 10.0
HEAD_BYTES = 32 * 1024  # the filters of a list take up to 20,000 characters
IDLE_SECONDS = 600.0  # after which a private service ends
_IDLE_SECONDS = 30  # longer than clients keep idle connections, so that no request meets a close


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The address and state of a server that has started."""

    url: str
    is_open: bool  # no key is needed
    sample_user: str | None  # a user that an example request can open
    database: str
    dashboard: str | None = None  # its address


Announce = Callable[[ServerInfo], None]


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes a connection whose headers are slow or too long.

    uvicorn has a timeout for idle connections only: a client that sends its headers slowly would
    keep its connection forever. A proxy in front does the rest.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request; refuse headers that are still incomplete and too long."""
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The headers are larger than {HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Stop waiting for the headers, and serve the request."""
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class PrivateAccess:
    """Access to a service of one user's own programs: by one key, until none of them asks.

    Or until the database is gone: what they ask would fail until somebody ends the process.
    """

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.key = key
        self.lost: Path | None = None  # the file of a database that was deleted
        self._clock = clock
        self._requests = 0
        self._asked_at = clock()

    def is_over(self, requests: int, database: Path | None) -> bool:
        """Return whether there are as many requests as some minutes ago, or no database."""
        now = self._clock()
        if requests != self._requests:
            self._requests, self._asked_at = requests, now
        if database is not None and not database.exists():
            self.lost = database
        return self.lost is not None or now - self._asked_at >= IDLE_SECONDS


class _Server(uvicorn.Server):
    """A server that starts the application's shutdown before it waits for open requests."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        on_start: Callable[[], None],
        on_stop: Callable[[float], None],
        private: PrivateAccess | None = None,
    ) -> None:
        super().__init__(config)
        self._private = private
        self._service = service
        self._on_start = on_start
        self._on_stop = on_stop
        self._drained_at = 0.0
        self._is_announced = False

    async def on_tick(self, counter: int) -> bool:
        # Until it has loaded, it accepts connections only to refuse requests.
        if not (self._is_announced or self._service.is_loading or self.should_exit):
            self._is_announced = True
            self._on_start()
        if counter % _TICKS_PER_SECOND == 0:
            self._service.measure()
            if self._private is not None:
                file = self._service.library.store.file
                self.should_exit |= self._private.is_over(self._service.requests, file)
        return await super().on_tick(counter) and time.monotonic() >= self._drained_at

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; on the first SIGTERM, go on until a proxy has seen that /readyz fails.

        A second Ctrl-C stops at once. uvicorn's own handler would raise the signal again at the
        end.
        """
        drains = sig == signal.SIGTERM and not self.should_exit
        seconds = self._service.library.settings.drain_seconds if drains else 0.0
        self._drained_at = time.monotonic() + seconds
        self._on_stop(seconds + _STOP_SECONDS)
        self._service.draining.set()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        running = len(self._service.limiter)
        log.info("shutdown", extra={"fields": {"recalls_cancelled": running}})
        self._service.closing.set()
        await super().shutdown(sockets)
        if self.server_state.tasks:  # cancelled after the grace period: they answer with 503
            await asyncio.wait(self.server_state.tasks, timeout=_FAREWELL_SECONDS)


def run_server(settings: Settings, announce: Announce, sign_in: SignInCode | None = None) -> None:
    """Serve until a signal; call `announce` when requests are answered. `sign_in` signs in once."""
    if settings.workers == 1:
        run_in_event_loop(serve(settings, announce, sign_in=sign_in, on_stop=end_process_in))
    else:
        _run_workers(settings, announce)


def run_in_event_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new event loop: uvloop's, where it is installed."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):  # Windows has none.
        from uvloop import new_event_loop as make_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(work)


def _run_workers(settings: Settings, announce: Announce) -> None:
    """Serve with several processes, which this one supervises.

    The workers accept connections from one socket. The dashboard has its pages in memory, so it is
    a process of its own, on the next port.
    """
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(_bind(settings.host, settings.port))]
        info = asyncio.run(_check_service(settings, listeners[0]))
        os.environ[_METRICS_VARIABLE] = stack.enter_context(TemporaryDirectory(prefix="memrecall-"))
        target = (__name__, serve_worker.__name__)
        # All workers together have the limits of the service.
        count = settings.workers
        divided = replace(
            settings,
            index_memory_mb=max(1, settings.index_memory_mb // count),
            key_rate=settings.key_rate / count,
            address_rate=settings.address_rate / count,
            recalls_per_key=math.ceil(settings.recalls_per_key / count),
        )
        processes = [
            ServiceProcess(
                str(number),
                target,
                listeners[0],
                divided,
                ProcessRole(has_dashboard=False, is_first=number == 0),
            )
            for number in range(count)
        ]
        if info.dashboard is not None:
            port = settings.port + 1 if settings.port else 0
            listeners.append(stack.enter_context(_bind(settings.host, port)))
            role = ProcessRole(has_dashboard=True, is_first=False)
            processes.append(ServiceProcess("dashboard", target, listeners[1], divided, role))
            info = replace(info, dashboard=f"{_url(listeners[1])}/")
        supervise(processes, lambda: announce(info), listeners, settings.drain_seconds)


def serve_worker(
    listener: socket.socket, on_start: Callable[[], None], settings: Settings, role: ProcessRole
) -> None:
    """Serve in one of several processes."""
    run_in_event_loop(serve(settings, lambda _: on_start(), listener, role, on_stop=end_process_in))


async def _check_service(settings: Settings, listener: socket.socket) -> ServerInfo:
    async with await Library.open(settings) as library:
        return await _prepare(library, listener)


async def serve(
    settings: Settings,
    announce: Announce,
    listener: socket.socket | None = None,
    role: ProcessRole = ProcessRole(),  # noqa: B008 -- frozen
    sign_in: SignInCode | None = None,
    on_stop: Callable[[float], None] = lambda _: None,
    private: PrivateAccess | None = None,
) -> None:
    """Serve within a running event loop; see `run_server`.

    One of several processes gets the socket that it shares with the others. A signal calls
    `on_stop` with the seconds after which nothing may run any more. With `private` access, no other
    key is accepted, and the server ends when it is idle.
    """
    sys.setswitchinterval(0.001)  # With busy threads, 5 ms tripled the time of requests.
    _raise_file_limit()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(listener or _bind(settings.host, settings.port))
        library = await stack.enter_async_context(await Library.open(settings))
        stack.push_async_callback(library.vectors.close, 0.0)  # The next process embeds the rest.
        info = await _prepare(library, listener)
        client = client_of(settings)
        if client is not None:
            stack.push_async_callback(client.close)
        has_dashboard = info.dashboard is not None and role.has_dashboard
        app = create_app(
            library,
            allow_keyless=is_loopback(listener.getsockname()[0]),
            model_client=client,
            dashboard=has_dashboard,
            sign_in=sign_in,
            private_key=private.key if private else "",
        )
        stack.push_async_callback(app.close)
        config = server_config(app, websockets=has_dashboard)
        config.load()  # NiceGUI looks for a loaded server
        if role.is_first:
            await app.start_sweeps()
        await app.service.memory.resume()
        workers = worker_processes(settings.text_workers, _WORKER_MODULES)
        await stack.enter_async_context(workers)
        if has_dashboard:
            from memrecall.dashboard.application import run_dashboard

            await stack.enter_async_context(run_dashboard())
        app.service.loading = asyncio.create_task(preload(library, describe_api))
        stack.callback(app.service.loading.cancel)
        server = _Server(config, app.service, lambda: announce(info), on_stop, private)
        await server.serve(sockets=[listener])


def _raise_file_limit() -> None:
    """Let this process open as many files as its connections need, if the system allows it."""
    with contextlib.suppress(ImportError):  # Windows has no such limit.
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MAX_CONNECTIONS + _RESERVED_FILES
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def _prepare(library: Library, listener: socket.socket) -> ServerInfo:
    """Check that the library can be served at this address, and describe it."""
    has_keys = await library.store.keys.exist()
    if not is_loopback(listener.getsockname()[0]) and not has_keys:
        raise InvalidArgument(
            f"without keys, {library.settings.host} would expose all data to other machines",
            hint="Create a key first (`memrecall keys create`), or listen on 127.0.0.1",
        )
    await library.store.database.make_reserve()
    await library.vectors.require_same_embedder()
    # Finish a restore that was interrupted.
    await recover_backups(ToolContext.for_operator(library))
    url = _url(listener)
    has_dashboard = library.settings.dashboard and is_installed()
    return ServerInfo(
        url=url,
        is_open=not has_keys,
        sample_user=await find_sample_user(library.store),
        database=library.store.location,
        dashboard=f"{url}/" if has_dashboard else None,
    )


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _MAX_PORT:  # the operating system would wrap it around silently
        raise InvalidArgument(f"port {port} is out of range", hint=f"Use 0 to {_MAX_PORT}")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        hint = _HINTS[errno.EADDRNOTAVAIL]
        raise InvalidArgument(f"the host {host!r} is not known", hint=hint) from None
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        hint = _HINTS.get(error.errno or 0, "Choose another --port")
        raise InvalidArgument(
            f"cannot listen on {host}:{port}: {error.strerror}", hint=hint
        ) from None
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_config(app: Application, *, websockets: bool = False) -> uvicorn.Config:
    """Return the configuration of uvicorn; the dashboard needs websockets.

    The client of a request that a trusted proxy sent is the one that it forwards.
    """
    proxies = list(app.service.library.settings.proxy_networks())
    return uvicorn.Config(
        app,
        http=GuardedProtocol,
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=_MAX_FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        server_header=False,
        backlog=_BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
