"""A loopback server for /chat/completions with scripted replies."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from memrecall.model import make_client
from memrecall.model.protocol import ChatCompletionClient
from memrecall.settings import Settings
from tests.loopback import QuietHandler, ScriptedServer, run_in_thread


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


class ModelServer(ScriptedServer[Reply]):
    """A model server; every request takes one reply of the script."""

    def __init__(self) -> None:
        super().__init__(_Handler)

    def play(self, *replies: Reply) -> None:
        self.script.extend(replies)


class _Handler(QuietHandler):
    server: ModelServer

    def do_POST(self) -> None:  # noqa: N802 -- the name that http.server calls
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        self.server.authorizations.append(self.headers["Authorization"])
        reply = self.server.script.popleft()
        self.server.stopping.wait(reply.seconds)
        content = b"".join(f"data: {chunk}\n\n".encode() for chunk in reply.chunks)
        content_type = "text/event-stream" if content else "application/json"
        self.respond(
            reply.status,
            {**reply.headers, "Content-Type": content_type},
            content or reply.body.encode(),
            missing=100 * reply.is_interrupted,
        )


def serve() -> AbstractContextManager[ModelServer]:
    """Run a server in a thread during the block."""
    return run_in_thread(ModelServer())


def memrecall_client(server: ModelServer) -> ChatCompletionClient:
    """Return the client of memrecall's settings for a server."""
    client = make_client(Settings(model="deepseek-chat", base_url=server.url, api_key="k"))
    assert client is not None
    return client
