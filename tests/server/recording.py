"""Record the examples of the OpenAPI document: `python -m tests.server.recording`.

They are asked of a real server, with the embedder and the rules that everybody has.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from memrecall.server.examples import USER, Example

from .site import opened, serving, write

FILE = Path(__file__).parents[2] / "memrecall" / "server" / "examples.json"

MESSAGES: list[dict[str, Any]] = [
    {
        "message_id": "m_0001",
        "ts": "2026-01-24T09:30:00Z",
        "role": "user",
        "content": "我不吃辣，火锅要清汤的",
        "speaker": "林晓",
        "session_id": "s_1",
    },
    {
        "message_id": "m_0002",
        "ts": "2026-01-24T09:30:20Z",
        "role": "assistant",
        "content": "好的，记住了：不吃辣，清汤火锅。",
        "session_id": "s_1",
    },
    {
        "message_id": "m_0003",
        "ts": "2026-01-25T18:05:00Z",
        "role": "user",
        "content": "The dentist moved my appointment to Friday at three",
        "speaker": "林晓",
        "session_id": "s_2",
    },
]
PATH = {"user_id": USER}
REQUESTS = {
    "write_messages": Example(PATH, {"messages": MESSAGES[:2]}),
    "read_messages": Example({**PATH, "since": "2026-01-01T00:00:00Z", "page_size": 2}),
    "read_neighbors": Example({**PATH, "message_id": "m_0002", "before": 1, "after": 1}),
    "lexical_search": Example(
        body={
            "user_id": USER,
            "query_text": '"不吃辣"',
            "filter": {
                "time_range": {"since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"},
                "role": "user",
            },
            "page_size": 50,
        }
    ),
    "semantic_search": Example(
        body={
            "user_id": USER,
            "query_text": "不吃辣",
            "filter": {"role": "user", "time_range": {"since": "2026-01-01T00:00:00Z"}},
            "top_k": 1,
        }
    ),
    "recall": Example(
        PATH, {"query": "When is my dentist appointment?", "as_of": "2026-01-26T10:47:00Z"}
    ),
    "chat": Example(
        PATH,
        {
            "message": "When is my dentist appointment?",
            "message_id": "m_0004",
            "session_id": "s_3",
            "language": "en",
        },
    ),
    "health": Example(),
}


async def ask_all() -> dict[str, Example]:
    """Every example with the answer that it gets."""
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        place = Path(folder)
        async with (
            opened(str(place / "a.db"), place, embedder="local") as library,
            serving(library) as site,
        ):
            client = site.client()
            document = (await client.get("/openapi.json")).json()
            await write(client, USER, *MESSAGES[2:])
            answers: dict[str, Example] = {}
            for name, example in REQUESTS.items():
                answer = await client.request(*_where(document, name, example), **_what(example))
                assert answer.status_code == 200, answer.text
                answers[name] = Example(example.parameters, example.body, answer.json())
            return answers


def _where(document: dict[str, Any], name: str, example: Example) -> tuple[str, str]:
    (found,) = [
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation["operationId"] == name
    ]
    method, path = found
    for parameter, value in example.parameters.items():
        path = path.replace(f"{{{parameter}}}", str(value))
    return method, path


def _what(example: Example) -> dict[str, Any]:
    in_path = ("user_id", "message_id")
    query = {name: value for name, value in example.parameters.items() if name not in in_path}
    return {"params": query, **({} if example.body is None else {"json": example.body})}


def main() -> None:
    """Write the file anew."""
    answers = asyncio.run(ask_all())
    fields = {
        name: {"parameters": e.parameters, "body": e.body, "answer": e.answer}
        for name, e in answers.items()
    }
    FILE.write_text(json.dumps(fields, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
