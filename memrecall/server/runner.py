"""The server process: socket, startup and graceful shutdown."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn

from memrecall import __version__
from memrecall.agent.tools.context import ToolContext
from memrecall.dashboard import is_installed
from memrecall.errors import InvalidArgument
from memrecall.memory import Library, client_of
from memrecall.processes import worker_processes
from memrecall.server.auth import is_loopback
from memrecall.server.connections import ConnectionLimits, ConnectionTable, GuardedProtocol
from memrecall.server.http.app import Application, create_app
from memrecall.server.http.context import Service
from memrecall.settings import Settings
from memrecall.telemetry import export_spans

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
_RESERVED_FILES = 200  # for the database, the model and the embedder
# What worker processes run: the rules that answer for a model.
_WORKER_MODULES = ("memrecall.extraction.offline", "memrecall.chat.offline")
_IDLE_SECONDS = 30  # longer than clients keep idle connections, so that no request meets a close


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The address and state of a server that has started."""

    url: str
    is_open: bool  # no key is needed
    sample_user: str | None  # a user with stored data, for an example request
    database: str
    has_dashboard: bool = False


class _Server(uvicorn.Server):
    """A server that starts the application's shutdown before it waits for open requests."""

    def __init__(
        self, config: uvicorn.Config, application: Application, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._application = application
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        running = len(self._application.service.limiter)
        log.info("shutdown", extra={"fields": {"recalls_cancelled": running}})
        self._application.service.closing.set()
        for _ in range(_ACCEPT_ROUNDS):  # connections that wait in the listener would be reset
            await asyncio.sleep(0)
        await super().shutdown(sockets)
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


def run_server(settings: Settings, announce: Callable[[ServerInfo], None]) -> None:
    """Serve until a signal stops the process; call `announce` when requests are accepted."""
    asyncio.run(serve(settings, announce))


async def serve(settings: Settings, announce: Callable[[ServerInfo], None]) -> None:
    """Serve within a running event loop; see `run_server`."""
    limits, proxies = _connection_limits(settings.connections), settings.proxy_networks()
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_bind(settings.host, settings.port)))
        is_local = is_loopback(listener.getsockname()[0])
        library = await stack.enter_async_context(await Library.open(settings))
        has_keys = await library.store.keys.exist()
        if not is_local and not has_keys:
            raise InvalidArgument(
                f"without keys, {settings.host} would expose all data to other machines",
                hint="Create a key first (`memrecall keys create`), or listen on 127.0.0.1",
            )
        await library.vectors.prepare()  # fail now if another embedder made the vectors
        await ToolContext.for_operator(library).recover()  # finish a restore that was interrupted
        info = await _describe(library, listener, is_open=not has_keys)
        client = client_of(settings)
        if client is not None:
            stack.push_async_callback(client.close)
        tracer = stack.enter_context(export_spans(__version__)) if settings.telemetry else None
        app = create_app(
            library,
            allow_keyless=is_local,
            model_client=client,
            tracer=tracer,
            dashboard=info.has_dashboard,
        )
        stack.push_async_callback(app.close)
        config = server_config(app, websockets=info.has_dashboard, limits=limits, proxies=proxies)
        config.load()  # NiceGUI looks for a loaded server
        await app.start_sweeps()
        workers = worker_processes(settings.text_workers, _WORKER_MODULES, settings.text_seconds)
        await stack.enter_async_context(workers)
        await stack.enter_async_context(_dashboard_running(app.service, info.has_dashboard))
        await _Server(config, app, lambda: announce(info)).serve(sockets=[listener])


@contextlib.asynccontextmanager
async def _dashboard_running(service: Service, has_dashboard: bool) -> AsyncIterator[None]:
    """Run the dashboard while the block runs; NiceGUI is loaded only if there is one."""
    if not has_dashboard:
        yield
        return
    from memrecall.dashboard.application import run_dashboard

    counting = service.counters.running() if service.counters else contextlib.nullcontext()
    async with counting, run_dashboard():
        yield


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
    users = (await library.store.owners.list_users(limit=1)).items
    return ServerInfo(
        url=f"http://{url_host}:{port}",
        is_open=is_open,
        sample_user=str(users[0]["user_id"]) if users else None,
        database=library.store.location,
        has_dashboard=library.settings.dashboard and is_installed(),
    )


def _connection_limits(connections: int) -> ConnectionLimits:
    """Return the limits, with as many connections as the limit of open files allows."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return ConnectionLimits(connections)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < wanted:
            connections = max(soft - _RESERVED_FILES, 1)
            fields = {"connections": connections, "open_files": soft}
            log.warning("the limit of open files bounds connections", extra={"fields": fields})
    return ConnectionLimits(connections)


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
