"""A loopback server for /chat/completions with scripted replies."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from autogen_ext.models.openai import OpenAIChatCompletionClient

from memrecall.model import make_client
from memrecall.model.protocol import ChatCompletionClient
from memrecall.settings import Settings
from tests.loopback import QuietHandler, ScriptedServer, run_in_thread


@dataclass(frozen=True)
class Reply:
    """One scripted reply: a body, or the chunks of a stream."""

    status: int = 200
    body: str | bytes = ""
    chunks: tuple[str, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    is_interrupted: bool = False
    is_closed: bool = False  # without any response

    @property
    def is_completion(self) -> bool:
        """Whether the body is that of `completion`."""
        return isinstance(self.body, str) and self.body.startswith('{"id"')


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def completion(
    message: dict[str, Any],
    finish: str = "stop",
    model: str = "tiny",
    usage: dict[str, int] | None = USAGE,
) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
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
    chunks.append({**base, "choices": [], "usage": USAGE})
    return Reply(chunks=(*(json.dumps(chunk) for chunk in chunks), "[DONE]"), **fields)


def as_stream(reply: Reply) -> Reply:
    """Return the reply of `completion` as the chunks of a stream, its text cut in two."""
    answer = json.loads(reply.body)
    choice = answer["choices"][0]
    message = choice["message"]
    calls = [{"index": n, **call} for n, call in enumerate(message.pop("tool_calls", None) or [])]
    content = message.pop("content", None) or ""
    half = len(content) // 2
    deltas = [message, {"content": content[:half]}, {"content": content[half:]}]
    deltas += [{"tool_calls": [call]} for call in calls]
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": choice["finish_reason"]}]})
    if answer.get("usage"):
        chunks.append({"choices": [], "usage": answer["usage"]})
    return replace(reply, body="", chunks=(*map(json.dumps, chunks), "[DONE]"))


def refusal(status: int, message: str, code: str = "", **fields: Any) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "code": code or None}
    return Reply(status, json.dumps({"error": error}), **fields)


class ModelServer(ScriptedServer[Reply]):
    """A model server; every request takes one reply of the script, then one of `answer`."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.answer: Callable[[dict[str, Any]], Reply] | None = None
        self.models = b""  # the body of GET /models

    def next_reply(self, request: dict[str, Any]) -> Reply:
        reply = self.script.popleft() if self.script or not self.answer else self.answer(request)
        is_convertible = request.get("stream") and reply.status == 200 and not reply.chunks
        return as_stream(reply) if is_convertible and reply.is_completion else reply

    def play(self, *replies: Reply) -> None:
        self.script.extend(replies)


class _Handler(QuietHandler):
    server: ModelServer

    def do_GET(self) -> None:  # noqa: N802 -- the name that http.server calls
        self.respond(200 if self.server.models else 501, {}, self.server.models)

    def do_POST(self) -> None:  # noqa: N802 -- the name that http.server calls
        length = int(self.headers["Content-Length"])
        self.server.requests.append(json.loads(self.rfile.read(length)))
        self.server.authorizations.append(self.headers["Authorization"])
        reply = self.server.next_reply(self.server.requests[-1])
        if reply.is_closed:
            self.close_connection = True
            return
        self.server.stopping.wait(reply.seconds)
        content = b"".join(f"data: {chunk}\n\n".encode() for chunk in reply.chunks)
        content_type = "text/event-stream" if content else "application/json"
        self.respond(
            reply.status,
            {**reply.headers, "Content-Type": content_type},
            content or (reply.body if isinstance(reply.body, bytes) else reply.body.encode()),
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


def autogen_client(
    server: ModelServer, *, several_system_messages: bool = False, **options: Any
) -> OpenAIChatCompletionClient:
    """Return AutoGen's own client for a server."""
    info: Any = {"vision": False, "structured_output": False, "family": "unknown"}
    info |= {"function_calling": True, "json_output": True}
    info |= {"multiple_system_messages": several_system_messages}
    return OpenAIChatCompletionClient(
        model="tiny", base_url=server.url, api_key="k", model_info=info, **options
    )
