"""Two lines around OpenAI's client: recall before each call, storing after it, one memory per user.

The server is a script on this machine; leave `base_url` out to use OpenAI's.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from history import LIN, opened_memory, quote_memories
from openai import OpenAI

from memrecall import Memory, wrap_openai


class ScriptedModel(BaseHTTPRequestHandler):
    """A model that quotes the memories in its request."""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = quote_memories(message["content"] for message in request["messages"])
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        fields = {"id": "1", "object": "chat.completion", "created": 1, "model": "scripted"}
        body = json.dumps({**fields, "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def scripted_server() -> Iterator[str]:
    """Serve the model in a thread and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def main() -> None:
    """Ask as two users, of whom one has a history."""
    with opened_memory() as memory, scripted_server() as url:
        # In a service: `lambda user: memory.bind(user_id=user)` with a memory that is not bound.
        memories: dict[str | None, Memory] = {LIN.user_id: memory}
        client = wrap_openai(OpenAI(base_url=url, api_key="none"), memories.get)
        for user in ("lin", "eve"):
            response = client.chat.completions.create(
                model="scripted",
                user=user,  # your code's own id of the user, never text of the conversation
                messages=[{"role": "user", "content": "Which seat did I say I take on trains?"}],
            )
            print(f"{user}: {response.choices[0].message.content}")


if __name__ == "__main__":
    main()
