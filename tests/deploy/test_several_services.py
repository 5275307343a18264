"""Two services over one database: each sees what the other has changed."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.http_service import make_message
from tests.server.server_process import TIMEOUT, WITHOUT_DASHBOARD, run_server
from tests.server.test_serve_workers import make_key

pytestmark = [pytest.mark.concurrent, pytest.mark.service]
MESSAGES = "/v1/users/ann/messages"
QUESTIONS = {"tea": "I like green tea", "绿茶": "我每天早上喝绿茶"}


async def ask(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> Any:
    answer = await client.request(method, path, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def find(client: httpx.AsyncClient, query: str) -> list[str]:
    """Return the ids of the messages that a search finds."""
    question = {"user_id": "ann", "query_text": query}
    found = await ask(client, "POST", "/v1/messages/lexical_search", json=question)
    return sorted(item["message_id"] for item in found["items"])


async def find_memories(client: httpx.AsyncClient, query: str) -> list[str]:
    body = {"query": query, "threshold": 0, "kinds": "memory"}
    found = await ask(client, "POST", "/v1/memories/search", json=body)
    return sorted(item["memory"] for item in found["results"])


async def test_change_of_one_service_is_seen_by_the_next_search_of_another(
    location: str, tmp_path: Path
) -> None:
    key = await make_key(location, "ann")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    headers = {"Authorization": f"Bearer {key}"}
    with (
        run_server(folders[0], "--db", location, **WITHOUT_DASHBOARD) as first,
        run_server(folders[1], "--db", location, **WITHOUT_DASHBOARD) as second,
    ):
        async with (
            httpx.AsyncClient(base_url=first.url, headers=headers, timeout=TIMEOUT) as writer,
            httpx.AsyncClient(base_url=second.url, headers=headers, timeout=TIMEOUT) as reader,
        ):
            for number, (query, text) in enumerate(QUESTIONS.items()):
                await check_messages(writer, reader, query, text, number * 10)
            await check_memories(writer, reader)


async def check_messages(
    writer: httpx.AsyncClient, reader: httpx.AsyncClient, query: str, text: str, first: int
) -> None:
    assert await find(reader, query) == []  # Its index is loaded before anything is stored.
    ids = [f"m{first + n}" for n in range(4)]
    for count, message_id in enumerate(ids, 1):
        message = make_message(first + count, text, message_id=message_id)
        await ask(writer, "POST", MESSAGES, json={"messages": [message]})
        assert await find(reader, query) == ids[:count]
    await ask(writer, "DELETE", f"{MESSAGES}/{ids[0]}")
    assert await find(reader, query) == ids[1:]
    writer, reader = reader, writer  # and the other way round
    await ask(writer, "DELETE", f"{MESSAGES}/{ids[1]}")
    assert await find(reader, query) == ids[2:]


async def check_memories(writer: httpx.AsyncClient, reader: httpx.AsyncClient) -> None:
    assert await find_memories(reader, "where does my sister live?") == []
    said = [{"role": "user", "content": "My sister lives in Lisbon."}]
    added = await ask(writer, "POST", "/v1/memories", json={"messages": said, "infer": False})
    (memory_id,) = [item["id"] for item in added["results"]]
    assert await find_memories(reader, "sister") == ["My sister lives in Lisbon."]
    path = f"/v1/memories/{memory_id}"
    await ask(writer, "PATCH", path, json={"text": "My sister lives in Porto."})
    assert await find_memories(reader, "sister") == ["My sister lives in Porto."]
    await ask(writer, "DELETE", path)
    assert await find_memories(reader, "sister") == []
