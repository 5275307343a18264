"""Running the service: a socket, a server that closes in good order, and who may come in."""

import asyncio
import contextlib
import errno
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import uvicorn

from memrecall import __version__
from memrecall.dashboard import is_installed
from memrecall.errors import InvalidArgument
from memrecall.memory import Library, client_of
from memrecall.server.auth import is_loopback
from memrecall.server.http.app import Application, create_app
from memrecall.server.http.service import Service
from memrecall.server.tools import ToolService
from memrecall.settings import Settings
from memrecall.telemetry import exporting


class JsonLines(logging.Formatter):
    """Time, level, logger, what happened, and the fields that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; of an exception its type alone, for its message may quote contents."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to_stderr() -> None:
    """Send what memrecall and the server have to say to the error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    levels = {
        "memrecall": logging.INFO,
        "uvicorn": logging.WARNING,
        "opentelemetry": logging.WARNING,
        "nicegui": logging.CRITICAL,  # it quotes what failed; the dashboard logs that itself
    }
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


log = logging.getLogger("memrecall.server")

_GRACE_SECONDS = 30  # for what runs when the server is told to stop
_ADVICE = {
    errno.EADDRNOTAVAIL: "Choose another --host: 127.0.0.1, or an address of this machine",
    errno.EACCES: "Choose a --port of 1024 or more",
}
_LARGEST_HEAD = 16 * 1024
_LARGEST_FRAME = 1024 * 1024  # of a websocket
_LARGEST_PORT = 65_535
_BACKLOG = 512
_IDLE_SECONDS = 30  # clients close idle connections sooner: no request meets one being closed


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the service listens, and for whom."""

    url: str
    is_open: bool  # no key is needed
    a_user: str | None  # somebody who has something stored
    place: str  # the database
    has_dashboard: bool = False


class _Server(uvicorn.Server):
    """Tells the application before it waits for it, and ends without raising the signal again."""

    def __init__(
        self, config: uvicorn.Config, application: Application, started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._application = application
        self._tell_started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        running = len(self._application.service.gate)
        log.info("shutdown", extra={"fields": {"recalls_cancelled": running}})
        self._application.begin_closing()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at Ctrl-C and SIGTERM, in good order; a second Ctrl-C does not wait."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in signals:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (NotImplementedError, RuntimeError, ValueError):
            # Another system, or not the main thread: the server's own way.
            with super().capture_signals():
                yield
            return
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


def run_server(settings: Settings, announce: Callable[[Listening], None]) -> None:
    """Serve until told to stop; `announce` is called when requests are taken."""
    asyncio.run(serve(settings, announce))


async def serve(settings: Settings, announce: Callable[[Listening], None]) -> None:
    """The same in a loop that runs already."""
    with contextlib.closing(_bind(settings.host, settings.port)) as listener:
        local = is_loopback(listener.getsockname()[0])
        async with await Library.open(settings) as library:
            has_keys = await library.store.keys.exist()
            if not local and not has_keys:
                raise InvalidArgument(
                    f"without keys, {settings.host} would open everything to everybody",
                    hint="Make a key first (`memrecall keys create`), or listen on 127.0.0.1",
                )
            await library.vectors.prepare()  # refuses a database of another embedder now
            await ToolService(library).recover()  # a restore that was cut short comes to its end
            facts = await _facts(library, listener, not has_keys)
            client = client_of(settings)
            spans = exporting(__version__) if settings.telemetry else contextlib.nullcontext()
            try:
                with spans as tracer:
                    app = create_app(
                        library,
                        may_be_open=local,
                        model_client=client,
                        tracer=tracer,
                        dashboard=facts.has_dashboard,
                    )
                    config = server_config(app, websockets=facts.has_dashboard)
                    config.load()  # the dashboard's library looks for a server that has it
                    server = _Server(config, app, lambda: announce(facts))
                    await app.begin_sweeping()
                    try:
                        async with _pages_running(app.service, facts.has_dashboard):
                            await server.serve(sockets=[listener])
                    finally:
                        await app.close()
            finally:
                if client is not None:
                    await client.close()


@contextlib.asynccontextmanager
async def _pages_running(service: Service, has_dashboard: bool) -> AsyncIterator[None]:
    """Keep the dashboard alive, if there is one; only then its library is loaded."""
    if not has_dashboard:
        yield
        return
    from memrecall.dashboard.mounting import running

    counting = service.tally.running() if service.tally else contextlib.nullcontext()
    async with counting, running():
        yield


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port <= _LARGEST_PORT:  # the system would take it for another one
        raise InvalidArgument(f"port {port} is out of range", hint=f"Use 0 to {_LARGEST_PORT}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        hint = "Choose another --host: 127.0.0.1, or an address of this machine"
        raise InvalidArgument(f"the host {host!r} is not known", hint=hint) from None
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        hint = _ADVICE.get(error.errno or 0, "Choose another --port")
        raise InvalidArgument(
            f"cannot listen on {host}:{port}: {error.strerror}", hint=hint
        ) from None
    return listener


async def _facts(library: Library, listener: socket.socket, is_open: bool) -> Listening:
    host, port = listener.getsockname()[:2]
    named = f"[{host}]" if ":" in host else host
    users = (await library.store.owners.list_users(limit=1)).items
    somebody = str(users[0]["user_id"]) if users else None
    has_dashboard = library.settings.dashboard and is_installed()
    return Listening(
        f"http://{named}:{port}", is_open, somebody, library.store.location, has_dashboard
    )


def server_config(app: Any, *, websockets: bool = False) -> uvicorn.Config:
    """How the server treats connections; the dashboard's pages need websockets."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=_LARGEST_FRAME,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
    )
