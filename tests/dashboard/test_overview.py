"""The overview page."""

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from memrecall.store import Store
from memrecall.store.counters import HOUR
from tests.model.openai_server import ModelServer, tool_call
from tests.server.server_process import ServerProcess
from tests.waiting import LIMIT, wait_until

from .conftest import Window, sign_in, window_on

Keyed = tuple[ServerProcess, dict[str, str]]
SEARCH_CALL = json.dumps({"query": "spare key"})
HANDOFF_CALL = json.dumps(
    {"relevant_memory_keys": [], "reason": "r", "search_summary": "s", "confidence": 0.2}
)
SEARCH = {"user_id": "maya", "query_text": "key"}


async def figure(window: Window, name: str) -> str:
    return str(await window.page.inner_text(f"[data-figure={name}]"))


async def test_overview_shows_service_usage(
    browser: Any, keyed_server: Keyed, model_server: ModelServer, folder: Path
) -> None:
    server, keys = keyed_server
    bearer = {"Authorization": f"Bearer {keys['all']}"}
    model_server.script.clear()
    model_server.play(tool_call("search_memories", SEARCH_CALL), tool_call("handoff", HANDOFF_CALL))
    async with httpx.AsyncClient(base_url=server.url, headers=bearer, timeout=LIMIT) as client:
        for _ in range(3):
            (await client.post("/v1/messages/lexical_search", json=SEARCH)).raise_for_status()
        body = {"query": "Who has my spare key?"}
        (await client.post("/v1/users/maya/recall", json=body)).raise_for_status()
    async with await Store.open(str(folder / "keyed" / "sample.db")) as store:

        async def is_written() -> bool:  # counters are written every few seconds
            rows = await store.counters.read(HOUR, datetime.now(UTC) - timedelta(hours=2))
            counts: Counter[str] = Counter()
            for row in rows:
                counts[row.name] += row.count
            return counts["searches"] >= 3 and counts["recalls"] >= 1

        await wait_until(is_written)
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["all"])
        await window.open("/?span=hour")
        assert int(await figure(window, "searches")) >= 3
        assert int(await figure(window, "recalls")) >= 1
        assert re.fullmatch(r"\d+ ms|\d+\.\d\d s", await figure(window, "recall_p50"))
        assert "Users\n5" in await window.text()  # the space is counted as one
        assert await window.page.locator("canvas").count() >= 5
        for span in ("day", "week"):
            await window.open(f"/?span={span}")
            assert int(await figure(window, "recalls")) >= 1


async def test_overview_of_single_user_key_shows_that_user(
    browser: Any, keyed_server: Keyed
) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["maya"])
        await window.open("/")
        await window.page.wait_for_url("**user=maya**")
        await window.ready()
        text = await window.text()
        assert "Memories\n6" in text
        assert "Users" not in text
        assert int(await figure(window, "recalls")) >= 3
