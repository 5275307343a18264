"""The overview page."""

import json
import re
from typing import Any

import httpx

from tests.model.openai_server import ModelServer, tool_call
from tests.server.server_process import ServerProcess
from tests.waiting import LIMIT

from .conftest import Window, sign_in, window_on

Keyed = tuple[ServerProcess, dict[str, str]]
SEARCH_CALL = json.dumps({"query": "spare key"})
HANDOFF_CALL = json.dumps(
    {"relevant_memory_keys": [], "reason": "r", "search_summary": "s", "confidence": 0.2}
)


async def figure(window: Window, name: str) -> str:
    return str(await window.page.inner_text(f"[data-figure={name}]"))


async def test_overview_shows_what_is_stored_and_how_recalls_ended(
    browser: Any, keyed_server: Keyed, model_server: ModelServer
) -> None:
    server, keys = keyed_server
    bearer = {"Authorization": f"Bearer {keys['all']}"}
    model_server.script.clear()
    model_server.play(tool_call("search_memories", SEARCH_CALL), tool_call("handoff", HANDOFF_CALL))
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["all"])
        await window.open("/")
        before = int(await figure(window, "recalls"))  # stored before the service was started
        assert before >= 3
        async with httpx.AsyncClient(base_url=server.url, headers=bearer, timeout=LIMIT) as client:
            body = {"query": "Who has my spare key?"}
            (await client.post("/v1/users/maya/recall", json=body)).raise_for_status()
        for span in ("hour", "day", "week"):
            await window.open(f"/?span={span}")
            assert int(await figure(window, "recalls")) >= 1
        assert int(await figure(window, "recalls")) == before + 1
        assert re.fullmatch(r"\d+ ms|\d+\.\d\d s", await figure(window, "median_duration"))
        users = re.search(r"Users\n(\d+)", await window.text())
        assert users is not None
        assert int(users[1]) >= 4  # other tests add some
        reasons = window.page.locator("a[href*='reason=handoff']")
        await reasons.first.click()
        await window.page.wait_for_url("**/recalls?**reason=handoff**")


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
