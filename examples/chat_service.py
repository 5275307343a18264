"""A chat application that stores messages in the HTTP service and recalls from it.

The service runs in its own process, with a key for one user, as it would behind a real
application. `reply` stands in for the model: call yours there, with the recalled memories in
its prompt.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from history import HISTORY

USER = "lin"
TURNS = (
    "我之前说过我对什么东西过敏，不能点什么菜？",
    "Which seat did I say I take on trains?",
    "What did I say about my passport number?",  # never said
)


class Chat:
    """A user's conversation, stored in the service."""

    def __init__(self, service: httpx.Client, session_id: str) -> None:
        self._service = service
        self._session_id = session_id
        self._messages: list[dict[str, str]] = []

    def turn(self, text: str) -> tuple[list[str], str]:
        """Return the tools that the recall used, and the assistant's answer."""
        self._messages.append({"role": "user", "content": text})
        steps, recalled = self._recall()
        answer = reply(recalled)
        self._messages.append({"role": "assistant", "content": answer})
        self.store([{**message, "session_id": self._session_id} for message in self._messages[-2:]])
        return steps, answer

    def store(self, messages: list[dict[str, Any]]) -> int:
        """Store messages and return how many were new; repeated ones are skipped."""
        answer = self._service.post(f"/v1/users/{USER}/messages", json={"messages": messages})
        return int(answer.raise_for_status().json()["stored"])

    def _recall(self) -> tuple[list[str], dict[str, Any]]:
        """Return the tools that the recall used, and its result."""
        body = {"messages": self._messages, "session_id": self._session_id}
        headers = {"Accept": "text/event-stream"}  # without it, only the result is returned
        path = f"/v1/users/{USER}/recall"
        steps: list[str] = []
        with self._service.stream("POST", path, json=body, headers=headers) as answer:
            answer.raise_for_status()
            for name, data in read_events(answer):
                if name == "call":
                    steps.append(data["tool"])
                elif name == "done":
                    return steps, data
        raise RuntimeError(f"the recall failed: {data['error']['message']}")


def reply(recalled: dict[str, Any]) -> str:
    """Quote the evidence, or ask the follow-up question if there is none."""
    if recalled["memories"]:
        return f"You said: “{recalled['memories'][0]['content']}”"
    return str(recalled["handoff"]["follow_up_question"])


def read_events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Yield the name and the data of each server-sent event."""
    name = ""
    for line in answer.iter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


@contextmanager
def running_service() -> Iterator[httpx.Client]:
    """Start a service with a temporary database and yield a client with a key."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        database = str(Path(folder) / "chat.db")
        key = subprocess.run(
            command("keys", "create", "--user", USER, "--db", database),
            stdout=subprocess.PIPE,
            check=True,
        )
        headers = {"Authorization": f"Bearer {json.loads(key.stdout)['key']}"}
        serve = command("serve", "--port", "0", "--db", database)
        with (
            (Path(folder) / "log.jsonl").open("w") as log,
            subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log) as server,
        ):
            try:
                assert server.stdout is not None
                url = json.loads(server.stdout.readline())["url"]  # printed when it listens
                with httpx.Client(base_url=url, headers=headers, timeout=90) as client:
                    yield client
            finally:
                server.terminate()


def command(*arguments: str) -> list[str]:
    """Return a memrecall command that prints JSON."""
    return [sys.executable, "-m", "memrecall", *arguments, "--json"]


def main() -> None:
    """Store an earlier conversation, then chat for three turns."""
    with running_service() as service:
        chat = Chat(service, "today")
        earlier = [message.model_dump(mode="json", exclude_unset=True) for message in HISTORY]
        print(f"stored:    {chat.store(earlier)} messages, repeated: {chat.store(earlier)}")
        for text in TURNS:
            steps, answer = chat.turn(text)
            print(f"\nuser:      {text}\nrecall:    {' → '.join(steps)}\nassistant: {answer}")


if __name__ == "__main__":
    main()
