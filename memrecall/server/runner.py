"""The server process, or several: socket, startup, supervision and graceful shutdown."""

import asyncio
import contextlib
import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from memrecall import __version__
from memrecall.agent.tools.context import ToolContext
from memrecall.dashboard import is_installed
from memrecall.errors import InvalidArgument, WorkerFailed
from memrecall.memory import Library, client_of
from memrecall.model.processes import worker_processes
from memrecall.server.auth import SignInCode, find_sample_user, is_loopback
from memrecall.server.cluster import Cluster, Supervisor
from memrecall.server.connections import ConnectionLimits, ConnectionTable, GuardedProtocol
from memrecall.server.http.app import Application, create_app
from memrecall.server.http.context import Service
from memrecall.settings import Settings
from memrecall.telemetry import export_spans, log_to_stderr
from memrecall.text.keywords import extract_keywords

log = logging.getLogger("memrecall.server")

_GRACE_SECONDS = 30  # for requests that are still running at shutdown
_HINTS = {
    errno.EADDRNOTAVAIL: "Choose another --host: 127.0.0.1, or an address of this machine",
    errno.EACCES: "Choose a --port of 1024 or more",
}
_MAX_FRAME_BYTES = 1024 * 1024  # of a websocket
_MAX_PORT = 65_535
_BACKLOG = 512
_ACCEPT_ROUNDS = 5  # of the event loop, until an accepted connection can be read from
_FAREWELL_SECONDS = 2.0
# What worker processes run: the rules that answer for a model.
_WORKER_MODULES = ("memrecall.extraction.offline", "memrecall.chat.offline")
_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # read when the library is imported
_POLL_SECONDS = 0.05
_TICKS_PER_SECOND = 10  # of uvicorn's main loop
_IDLE_SECONDS = 30  # longer than clients keep idle connections, so that no request meets a close


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The address and state of a server that has started."""

    url: str
    is_open: bool  # no key is needed
    sample_user: str | None  # a user that an example request can open
    database: str
    has_dashboard: bool = False


Announce = Callable[[ServerInfo], None]


class _Server(uvicorn.Server):
    """A server that starts the application's shutdown before it waits for open requests."""

    def __init__(
        self, config: uvicorn.Config, application: Application, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._application = application
        self._on_start = on_start
        self._cluster = application.service.cluster
        self._handed: set[asyncio.Task[Any]] = set()  # connections of other workers
        self._drained_at = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._cluster is not None:
            asyncio.get_running_loop().add_reader(self._cluster.inbox, self._receive)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if self._cluster is not None and counter % _TICKS_PER_SECOND == 0:
            self._cluster.beat()
            self._application.service.metrics.measure()
            supervisor = multiprocessing.parent_process()
            self.should_exit |= supervisor is not None and not supervisor.is_alive()
        return await super().on_tick(counter) and time.monotonic() >= self._drained_at

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; on the first SIGTERM, go on until a proxy has seen that /readyz fails."""
        drains = sig == signal.SIGTERM and not self.should_exit
        seconds = self._application.service.library.settings.drain_seconds if drains else 0.0
        self._drained_at = time.monotonic() + seconds
        self._application.service.draining.set()
        super().handle_exit(sig, frame)

    def _receive(self) -> None:
        """Go on with the connections that other workers passed on."""
        assert self._cluster is not None  # noqa: S101 -- only called with one
        loop = asyncio.get_running_loop()
        for connection, received in self._cluster.receive():
            protocol: Any = self.config.http_protocol_class
            protocol = protocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            protocol.resume(received)
            work = loop.connect_accepted_socket(partial(lambda p: p, protocol), connection)
            task = loop.create_task(work)
            self._handed.add(task)
            task.add_done_callback(self._handed.discard)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        running = len(self._application.service.limiter)
        log.info("shutdown", extra={"fields": {"recalls_cancelled": running}})
        self._application.service.closing.set()
        if self._cluster is not None:
            self._cluster.leave(self._cluster.index)
        for _ in range(_ACCEPT_ROUNDS):  # connections that wait in the listener would be reset
            await asyncio.sleep(0)
        await super().shutdown(sockets)
        if self._cluster is not None:  # what was passed on before the others saw this one leave
            self._receive()
            asyncio.get_running_loop().remove_reader(self._cluster.inbox)
            await asyncio.gather(*self._handed, return_exceptions=True)
            await asyncio.sleep(0)
        if self.server_state.tasks:  # cancelled after the grace period: they answer with 503
            await asyncio.wait(self.server_state.tasks, timeout=_FAREWELL_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down gracefully at Ctrl-C and SIGTERM, at once at a second Ctrl-C.

        Unlike uvicorn's own handler, this one does not raise the signal again at the end.
        """
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in signals:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (NotImplementedError, RuntimeError, ValueError):
            # Windows, or not the main thread: fall back to uvicorn's handler.
            with super().capture_signals():
                yield
            return
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def run_server(settings: Settings, announce: Announce, sign_in: SignInCode | None = None) -> None:
    """Serve until a signal; call `announce` when requests are accepted. `sign_in` signs in once."""
    single: Callable[..., Coroutine[Any, Any, None]] = partial(serve, sign_in=sign_in)
    run_in_event_loop((single if settings.workers == 1 else serve_with_workers)(settings, announce))


def run_in_event_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a new event loop: uvloop's, where it is installed."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    with contextlib.suppress(ImportError):  # Windows has none.
        from uvloop import new_event_loop as make_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(work)


async def serve_with_workers(settings: Settings, announce: Announce) -> None:
    """Serve with several processes, which this one supervises."""
    with (
        contextlib.closing(_bind(settings.host, settings.port)) as listener,
        TemporaryDirectory(prefix="memrecall-") as folder,
    ):
        async with await Library.open(settings) as library:
            info = await _prepare(library, listener)
        cluster = Cluster.create(settings.workers, folder, has_dashboard=info.has_dashboard)
        os.environ[_METRICS_VARIABLE] = folder
        # Each user's index is in one worker, so together they have the memory of one process.
        megabytes = max(1, settings.index_memory_mb // settings.workers)
        worker_settings = replace(settings, index_memory_mb=megabytes)
        await _Workers(cluster, listener, worker_settings).run(partial(announce, info))


class _Workers:
    """The supervisor of the workers, its signals and its log."""

    def __init__(self, cluster: Cluster, listener: socket.socket, settings: Settings) -> None:
        self._cluster = cluster
        self._listener = listener
        arguments = [(settings, listener, cluster.for_worker(i)) for i in range(len(cluster))]
        self._supervisor = Supervisor(_run_worker, arguments, self._report, settings.drain_seconds)
        self._is_announced = False
        self._failure: WorkerFailed | None = None

    async def run(self, announce: Callable[[], None]) -> None:
        """Run until a signal; raise WorkerFailed if a worker cannot be started at first."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        starting = asyncio.create_task(self._announce(announce))
        try:
            await self._supervisor.run()
        finally:
            starting.cancel()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if self._failure is not None:
            raise self._failure

    async def _announce(self, announce: Callable[[], None]) -> None:
        while self._cluster.absent():  # noqa: ASYNC110 -- the workers write into shared memory
            await asyncio.sleep(_POLL_SECONDS)
        self._is_announced = True
        announce()

    def _stop(self, number: signal.Signals) -> None:
        # Without this, the system would accept connections after the last worker has stopped.
        is_second = self._listener.fileno() < 0
        self._listener.close()
        self._supervisor.stop(at_once=is_second and number == signal.SIGINT)

    def _report(self, index: int, process: BaseProcess, pause: float) -> None:
        self._cluster.leave(index)
        mark_process_dead(process.pid, self._cluster.metrics_folder)  # type: ignore[no-untyped-call]
        fields = {"worker": index, "pid": process.pid, "exit_code": process.exitcode}
        if self._is_announced:
            log.error("worker ended", extra={"fields": {**fields, "restart_seconds": pause}})
            return
        message = f"worker {index} ended with code {process.exitcode} while it started"
        self._failure = WorkerFailed(message, hint="The log says why")
        self._supervisor.stop()


def _run_worker(settings: Settings, listener: socket.socket, cluster: Cluster) -> None:
    """Serve in one of several processes, until SIGTERM or the end of the supervisor."""
    log_to_stderr({"worker": cluster.index})
    try:
        run_in_event_loop(serve(settings, lambda _: None, listener, cluster))
    except Exception:  # The outermost layer of this process: only the log can say it.
        log.exception("worker failed")
        sys.exit(1)


async def serve(
    settings: Settings,
    announce: Announce,
    listener: socket.socket | None = None,
    cluster: Cluster | None = None,
    sign_in: SignInCode | None = None,
) -> None:
    """Serve within a running event loop; see `run_server`.

    One of several processes gets the socket and the cluster that it shares with the others.
    """
    sys.setswitchinterval(0.001)  # Beside busy threads, 5 ms tripled the time of requests.
    limits = ConnectionLimits.within_open_files()
    proxies = settings.proxy_networks()
    async with contextlib.AsyncExitStack() as stack:
        listener = listener or _bind(settings.host, settings.port)
        stack.enter_context(contextlib.closing(listener))
        library = await stack.enter_async_context(await Library.open(settings))
        info = await _prepare(library, listener)
        client = client_of(settings)
        if client is not None:
            stack.push_async_callback(client.close)
        tracer = stack.enter_context(export_spans(__version__)) if settings.telemetry else None
        app = create_app(
            library,
            allow_keyless=is_loopback(listener.getsockname()[0]),
            model_client=client,
            tracer=tracer,
            dashboard=info.has_dashboard,
            cluster=cluster,
            sign_in=sign_in,
        )
        stack.push_async_callback(app.close)
        has_dashboard = info.has_dashboard and (cluster is None or cluster.is_first)
        config = server_config(app, websockets=has_dashboard, limits=limits, proxies=proxies)
        config.load()  # NiceGUI looks for a loaded server
        await app.start_sweeps()
        workers = worker_processes(settings.text_workers, _WORKER_MODULES)
        await stack.enter_async_context(workers)
        await stack.enter_async_context(_usage_counted(app.service))
        await stack.enter_async_context(_dashboard_running(has_dashboard))
        loading = asyncio.create_task(asyncio.to_thread(_load_libraries))
        stack.callback(loading.cancel)
        gc.freeze()  # What exists now stays: the collector need not look at it again and again.
        await _Server(config, app, lambda: announce(info)).serve(sockets=[listener])


async def _prepare(library: Library, listener: socket.socket) -> ServerInfo:
    """Check that the library can be served at this address, and describe it."""
    has_keys = await library.store.keys.exist()
    if not is_loopback(listener.getsockname()[0]) and not has_keys:
        raise InvalidArgument(
            f"without keys, {library.settings.host} would expose all data to other machines",
            hint="Create a key first (`memrecall keys create`), or listen on 127.0.0.1",
        )
    await library.vectors.prepare()  # fail now if another embedder made the vectors
    await ToolContext.for_operator(library).recover()  # finish a restore that was interrupted
    return await _describe(library, listener, is_open=not has_keys)


def _load_libraries() -> None:
    """Load what the first requests would otherwise load in the event loop."""
    import_module("memrecall.model.client")
    extract_keywords("tea 茶")  # reads the Chinese dictionaries


def _usage_counted(service: Service) -> contextlib.AbstractAsyncContextManager[None]:
    """Store the usage of this process; the first one also measures how much is stored."""
    if service.counters is None:
        return contextlib.nullcontext()
    is_first = service.cluster is None or service.cluster.is_first
    return service.counters.running(with_levels=is_first)


def _dashboard_running(has_dashboard: bool) -> contextlib.AbstractAsyncContextManager[None]:
    """Run the dashboard while the block runs; NiceGUI is loaded only if there is one."""
    if not has_dashboard:
        return contextlib.nullcontext()
    from memrecall.dashboard.application import run_dashboard

    return run_dashboard()


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


async def _describe(library: Library, listener: socket.socket, *, is_open: bool) -> ServerInfo:
    host, port = listener.getsockname()[:2]
    url_host = f"[{host}]" if ":" in host else host
    return ServerInfo(
        url=f"http://{url_host}:{port}",
        is_open=is_open,
        sample_user=await find_sample_user(library.store),
        database=library.store.location,
        has_dashboard=library.settings.dashboard and is_installed(),
    )


def server_config(
    app: Application,
    *,
    websockets: bool = False,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008 -- frozen
    proxies: Sequence[str] = (),
) -> uvicorn.Config:
    """Return the configuration of uvicorn; the dashboard needs websockets.

    The client of a request that one of the `proxies` sent is the one that it forwards.
    """
    table = ConnectionTable(limits, app.service)
    protocol: Any = partial(GuardedProtocol, table)
    return uvicorn.Config(
        app,
        http=protocol,
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=_MAX_FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
