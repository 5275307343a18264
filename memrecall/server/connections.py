"""Connections of strangers: deadlines for requests, a limit that evicts the idle, strict framing.

uvicorn has a timeout for idle connections only. A client that sends its request slowly, or reads
the response slowly, would keep its connection for ever.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
from pydantic_core import to_json
from uvicorn.protocols.http.h11_impl import H11Protocol

from memrecall.server.cluster import Cluster
from memrecall.server.errors import RETRY_AFTER, SHUTTING_DOWN, Problem
from memrecall.server.http.context import Service

log = logging.getLogger("memrecall.server")

_BUSY = Problem("UNAVAILABLE", "too many connections; try again", headers=RETRY_AFTER)
_SLOW_HEAD = Problem("UNAVAILABLE", "the headers arrived too slowly", status=408)
_RESERVED_FILES = 200  # for the database, the model and the embedder
_SLOWEST_BYTES = 16 * 1024  # that a client must read before the deadline of a response is extended


class Phase(Enum):
    """What a connection waits for."""

    HEAD = auto()  # the headers of a request
    BODY = auto()  # the rest of its body
    RESPONSE = auto()  # our own response
    READER = auto()  # the client, to read the response
    IDLE = auto()  # the next request
    CLOSING = auto()  # the client, to read the last response
    USER = auto()  # more of the body, to know which process answers


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections are open at once, and what a client may send in which time."""

    connections: int = 2_000
    head_bytes: int = 32 * 1024  # the filters of a list take up to 20,000 characters
    head_seconds: float = 10.0
    body_seconds: float = 20.0  # longer than that of `BodyLimits`, which answers before it
    reader_seconds: float = 30.0
    shutdown_seconds: float = 1.0  # for requests that are on their way when the server stops
    user_seconds: float = 1.0  # then the process that read the head answers

    @classmethod
    def within_open_files(cls, connections: int = 2_000) -> "ConnectionLimits":
        """Return the limits, with as many connections as the limit of open files allows."""
        try:
            import resource
        except ImportError:  # Windows has no such limit
            return cls(connections)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _RESERVED_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if soft < wanted:
                connections = max(soft - _RESERVED_FILES, 1)
                fields = {"connections": connections, "open_files": soft}
                log.warning("the limit of open files bounds connections", extra={"fields": fields})
        return cls(connections)

    def seconds(self, stage: Phase, *, is_closing: bool) -> float | None:
        """Return the deadline of a stage; None: uvicorn's own, or none."""
        if is_closing and stage in (Phase.HEAD, Phase.IDLE):
            return self.shutdown_seconds
        return {
            Phase.HEAD: self.head_seconds,
            Phase.BODY: self.body_seconds,
            Phase.READER: self.reader_seconds,
            Phase.CLOSING: self.reader_seconds,
            Phase.USER: self.user_seconds,
        }.get(stage)


class ConnectionTable:
    """The connections of one server that wait for their client, and may be evicted."""

    def __init__(self, limits: ConnectionLimits, service: Service) -> None:
        self.limits = limits
        self._service = service
        # By whether the client has used a valid key and by its address; the oldest first.
        self._waiting: dict[tuple[bool, str], dict[GuardedProtocol, None]] = {}

    @property
    def is_closing(self) -> bool:
        """True if the server is shutting down."""
        return self._service.closing.is_set()

    @property
    def cluster(self) -> Cluster | None:
        """The processes among which connections are spread; None if there are no others."""
        return None if self.is_closing else self._service.cluster

    def add(self, group: tuple[bool, str], connection: "GuardedProtocol") -> None:
        """Note that a connection waits for its client."""
        self._waiting.setdefault(group, {})[connection] = None

    def remove(self, group: tuple[bool, str], connection: "GuardedProtocol") -> None:
        """Note that a connection does not wait any longer."""
        members = self._waiting.get(group, {})
        members.pop(connection, None)
        if not members:
            self._waiting.pop(group, None)

    def make_room(self, connections: int) -> bool:
        """Evict a waiting connection if there are too many; return False if none waits.

        Strangers go before clients with a key, and among them the oldest connection of the
        address with the most: an attacker evicts its own connections.
        """
        if connections <= self.limits.connections:
            return True
        strangers = [group for group in self._waiting if not group[0]]
        candidates = strangers or list(self._waiting)
        if not candidates:
            return False
        largest = max(candidates, key=lambda group: len(self._waiting[group]))
        next(iter(self._waiting[largest])).abort()
        self._service.metrics.evicted.inc()
        return True


class StrictConnection(h11.Connection):
    """An HTTP parser that refuses long heads and ambiguous framing, and says why.

    It holds a request back as long as `is_here` does not say that this process answers it.
    """

    def __init__(
        self, max_head_bytes: int, is_here: Callable[[h11.Request], bool] = lambda _: True
    ) -> None:
        super().__init__(h11.SERVER, max_head_bytes)
        self._is_here = is_here
        self.held: h11.Request | None = None
        self._max_head_bytes = max_head_bytes
        self._problems = {
            431: f"the headers are larger than {max_head_bytes} bytes",
            501: "the only Transfer-Encoding is chunked",
        }
        self.refusal = Problem("INVALID_ARGUMENT", "this is not a valid HTTP/1.1 request")

    def next_event(self) -> Any:
        """Return the next event, or raise RemoteProtocolError and set `refusal`."""
        try:
            event: Any = self.held
            if event is None:
                event = super().next_event()
                if isinstance(event, h11.Request):
                    self._check_head(event)
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint
            message = self._problems.get(status, self.refusal.message)
            self.refusal = Problem("INVALID_ARGUMENT", message, status=status)
            raise
        if isinstance(event, h11.Request):
            self.held = None if self._is_here(event) else event
        return event if self.held is None else h11.NEED_DATA

    def _check_head(self, request: h11.Request) -> None:
        # The parser itself limits only a head that arrives in several parts.
        headers = list(request.headers)  # whose own iterator is slow
        size = len(request.target) + sum(len(name) + len(value) for name, value in headers)
        if size > self._max_head_bytes:
            raise h11.RemoteProtocolError("long head", error_status_hint=431)
        names = {name for name, _ in headers}
        # Another server may find another end of the body, and read the rest as a new request.
        is_unclear = b"content-length" in names or request.http_version < b"1.1"
        if b"transfer-encoding" in names and is_unclear:
            raise h11.RemoteProtocolError("ambiguous framing")


class GuardedProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for each stage of a connection."""

    conn: StrictConnection

    def __init__(self, table: ConnectionTable, **options: Any) -> None:
        super().__init__(**options)
        self.conn = StrictConnection(table.limits.head_bytes, self._is_here)
        self._table = table
        self._received = b""  # by another process, which passed the connection on
        self._stays = False  # The next request is answered here.
        self._stage: tuple[Phase, Any, bool] | None = None
        self._group: tuple[bool, str] | None = None  # where it waits in the table
        self._timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0  # of the response, when the timer was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a connection, or refuse it if too many are busy."""
        super().connection_made(transport)
        if not self._table.make_room(len(self.connections)):
            self._refuse(_BUSY)
        elif self._received:
            self.data_received(self._received)
        self._update()

    def resume(self, received: bytes) -> None:
        """Go on with a connection of another process, before it is made here."""
        self._received = received
        self._stays = True  # Two processes that disagree would pass it to and fro.

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request."""
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Continue with the next request, if any."""
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Wait for a slow reader."""
        super().pause_writing()
        self._update()

    def resume_writing(self) -> None:
        """Continue to write."""
        super().resume_writing()
        self._update()

    def shutdown(self) -> None:
        """Finish the running request, or wait a moment for one that is on its way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        self._stage = None  # the deadlines have changed
        self._update()

    def abort(self) -> None:
        """Close the connection at once."""
        self._release()
        self.connections.discard(self)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, with the status that the parser suggests."""
        self._refuse(self.conn.refusal)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over; websockets leave half of the connections to requests."""
        websockets = sum(not isinstance(item, GuardedProtocol) for item in self.connections)
        if self._table.is_closing or websockets >= self._table.limits.connections // 2:
            self._refuse(SHUTTING_DOWN if self._table.is_closing else _BUSY)
            return
        self._release()
        super().handle_websocket_upgrade(event)

    def _is_here(self, request: h11.Request) -> bool:
        """Return True if this process answers a request; else wait, or pass the connection on."""
        cluster, stays, self._stays = self._table.cluster, self._stays, False
        if cluster is None or stays:
            return True
        body = self.conn.trailing_data[0]
        if cluster.needs_body(request, body):
            return False
        worker = cluster.find_worker(request, body)
        # What this process has yet to write would come after the response of the other one.
        if worker == cluster.index or self.transport.get_write_buffer_size():
            return True
        connection = self.transport.get_extra_info("socket").fileno()
        if not cluster.send(worker, request, body, connection):
            return True
        self.abort()  # Closes the file of this process; the connection remains.
        return False

    def _refuse(self, problem: Problem) -> None:
        """Answer outside the application, unless a response has begun, and close."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_serialize(problem))
        if self.cycle is not None:  # the application must not write after this response
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _update(self) -> None:
        """Set the deadline of the stage that the connection has reached."""
        if self.transport.get_protocol() is not self:  # it is a websocket now
            return
        stage = self._find_stage()
        is_known = self.cycle is not None and "principal" in self.cycle.scope["state"]
        if self._stage == (stage, self.cycle, is_known):
            return
        self._release()
        self._stage = (stage, self.cycle, is_known)
        if stage in (Phase.HEAD, Phase.BODY, Phase.IDLE, Phase.USER) or (
            stage is Phase.READER and not is_known
        ):
            self._group = (is_known, self.client[0] if self.client else "")
            self._table.add(self._group, self)
        self._set_timer(stage)

    def _find_stage(self) -> Phase:
        if self.transport.is_closing():
            return Phase.CLOSING
        if self.conn.held is not None:
            return Phase.USER
        if self.flow.write_paused:
            return Phase.READER
        if self.conn.their_state is h11.IDLE:
            has_begun = self.cycle is None or self.conn.trailing_data[0]
            return Phase.HEAD if has_begun else Phase.IDLE
        return Phase.BODY if self.conn.their_state is h11.SEND_BODY else Phase.RESPONSE

    def _set_timer(self, stage: Phase) -> None:
        seconds = self._table.limits.seconds(stage, is_closing=self._table.is_closing)
        if seconds is not None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(seconds, self._expire, stage)

    def _release(self) -> None:
        """Cancel the deadline and leave the table."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group is not None:
            self._table.remove(self._group, self)
            self._group = None

    def _expire(self, stage: Phase) -> None:
        if stage in (Phase.READER, Phase.CLOSING):
            unread = self.transport.get_write_buffer_size()
            if self._unread_bytes - unread >= _SLOWEST_BYTES:
                self._set_timer(stage)
            else:
                self.abort()
            return
        if stage is Phase.BODY and self.flow.read_paused:  # the application is slow, not the client
            self._set_timer(stage)
            return
        if stage is Phase.USER:
            self._stays = True
            self.handle_events()
            self._update()
            return
        if stage is Phase.HEAD and self.conn.trailing_data[0]:
            self._refuse(_SLOW_HEAD)
        self.transport.close()
        self._update()


def _serialize(problem: Problem) -> bytes:
    """Return a whole response, for connections on which there is no request to answer."""
    body = to_json(problem.as_dict())
    status = HTTPStatus(problem.http_status)
    headers = {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **problem.headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
