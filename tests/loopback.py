"""Scripted HTTP servers on the loopback interface."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, TypeVar

Reply = TypeVar("Reply")
Server = TypeVar("Server", bound="ScriptedServer[Any]")


class ScriptedServer(ThreadingHTTPServer, Generic[Reply]):
    """A server that replays `script` and records the requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.script: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.stopping = threading.Event()  # ends the waits of slow replies

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that does not log requests."""

    timeout = 60

    def respond(
        self, status: int, headers: Mapping[str, str], content: bytes, *, missing: int = 0
    ) -> None:
        """Send a response; `missing` bytes of its length make the client see an interruption."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) + missing))
        self.send_header("Connection", "close")
        with suppress(BrokenPipeError, ConnectionResetError):  # the client may have hung up
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def run_in_thread(server: Server) -> Iterator[Server]:
    """Run a server in a thread during the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join(60)
