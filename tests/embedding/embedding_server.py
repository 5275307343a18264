"""A loopback server for /embeddings with scripted failures."""

import json
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

DIMENSIONS = 16


@dataclass(frozen=True)
class Reply:
    """A scripted reply that replaces one correct answer."""

    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def vector(text: str) -> list[float]:
    """Return a vector that depends only on the text and is not of unit length."""
    return [zlib.crc32(f"{i} {text}".encode()) / 2**31 - 1 for i in range(DIMENSIONS)]


def answer(texts: list[str]) -> str:
    """Return a correct answer in reverse order; `index` gives the right one."""
    items = [{"index": i, "embedding": vector(text)} for i, text in enumerate(texts)]
    return json.dumps({"object": "list", "data": items[::-1]})


class EmbeddingServer(HTTPServer):
    """A server that replays `script`, then answers correctly, and records its requests."""

    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.paths: list[str] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer
    timeout = 30

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.server.authorizations.append(self.headers["Authorization"])
        self.server.paths.append(self.path)
        right = Reply(body=answer(request["input"]))
        reply = self.server.script.popleft() if self.server.script else right
        self.server.stopping.wait(reply.seconds)
        content = reply.body.encode()
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serve() -> Iterator[EmbeddingServer]:
    """Run a server in a thread during the block."""
    with EmbeddingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join(60)
