"""A loopback server for /embeddings with scripted failures."""

import json
import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from tests.loopback import QuietHandler, ScriptedServer, run_in_thread

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


class EmbeddingServer(ScriptedServer[Reply]):
    """A server that answers correctly after its script."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.paths: list[str] = []


class _Handler(QuietHandler):
    server: EmbeddingServer

    def do_POST(self) -> None:  # noqa: N802 -- the name that http.server calls
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.server.authorizations.append(self.headers["Authorization"])
        self.server.paths.append(self.path)
        right = Reply(body=answer(request["input"]))
        reply = self.server.script.popleft() if self.server.script else right
        self.server.stopping.wait(reply.seconds)
        self.respond(reply.status, reply.headers, reply.body.encode())


def serve() -> AbstractContextManager[EmbeddingServer]:
    """Run a server in a thread during the block."""
    return run_in_thread(EmbeddingServer())
