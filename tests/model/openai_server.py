"""A loopback server for /chat/completions with scripted replies."""

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One scripted reply: a body, or the chunks of a stream."""

    status: int = 200
    body: str = ""
    chunks: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    is_interrupted: bool = False


def completion(message: dict[str, Any], finish: str = "stop", model: str = "tiny") -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    answer = {
        "id": "1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [choice], "usage": usage,
    }  # fmt: skip
    return Reply(body=json.dumps(answer))


def text(content: str, **fields: Any) -> Reply:
    return completion({"content": content}, **fields)


def tool_call(name: str, arguments: object, call_id: str | None = "srv_1", **fields: Any) -> Reply:
    raw_arguments = arguments if isinstance(arguments, dict) else str(arguments)
    call = {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": raw_arguments},
    }
    return completion({"content": None, "tool_calls": [call], **fields}, "tool_calls")


def stream(deltas: Sequence[dict[str, Any]], finish: str = "stop", **fields: Any) -> Reply:
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    chunks = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    chunks.append({**base, "choices": [], "usage": usage})
    return Reply(chunks=(*(json.dumps(chunk) for chunk in chunks), "[DONE]"), **fields)


def refusal(status: int, message: str, code: str = "", **fields: Any) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "code": code or None}
    return Reply(status, json.dumps({"error": error}), **fields)


class ModelServer(ThreadingHTTPServer):
    """A server that replays its `script` and records the requests."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def play(self, *replies: Reply) -> None:
        self.script.extend(replies)


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    timeout = 60

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        self.server.authorizations.append(self.headers["Authorization"])
        reply = self.server.script.popleft()
        self.server.stopping.wait(reply.seconds)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        content = b"".join(f"data: {chunk}\n\n".encode() for chunk in reply.chunks)
        self.send_header("Content-Type", "text/event-stream" if content else "application/json")
        content = content or reply.body.encode()
        # A length beyond the content makes the client see an interrupted connection.
        self.send_header("Content-Length", str(len(content) + 100 * reply.is_interrupted))
        self.send_header("Connection", "close")
        with suppress(BrokenPipeError, ConnectionResetError):  # the client may have hung up
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serve() -> Iterator[ModelServer]:
    """Run a server in a thread during the block."""
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join(60)
