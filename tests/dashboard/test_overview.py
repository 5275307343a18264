"""The first page: the question, the last recalls and the figures."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.model.openai_server import ModelServer, tool_call
from tests.server.server_process import ServerProcess
from tests.waiting import LIMIT

from .conftest import Window, sign_in, window_on
from .test_explorer import add_user

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
        await window.open("/?user=maya&all=yes")
        before = int(await figure(window, "recalls"))  # stored before the service was started
        assert before >= 3
        async with httpx.AsyncClient(base_url=server.url, headers=bearer, timeout=LIMIT) as client:
            body = {"query": "Who has my spare key?"}
            (await client.post("/v1/users/maya/recall", json=body)).raise_for_status()
        await window.open("/?user=maya&all=yes")
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
        assert "All users" not in await window.text("main, header")
        count = int(await figure(window, "recalls"))
        await window.open("/recalls?user=maya")
        assert 3 <= await window.page.locator(".mr-list .mr-item").count() == min(count, 25)


SAMPLES = {
    "en-US": ("maya", "lin", "Who has my spare key?", "My neighbour Joyce will."),
    "zh-CN": ("lin", "maya", "我对什么过敏来着？", "海鲜也过敏"),
}


@pytest.mark.parametrize("locale", SAMPLES)
async def test_first_page_asks_the_preselected_user(
    browser: Any, open_server: ServerProcess, locale: str
) -> None:
    user, other, question, answer = SAMPLES[locale]
    async with window_on(browser, open_server.url, locale=locale) as window:
        page = window.page
        await window.open("/")
        await page.wait_for_url(f"**/?user={user}")
        await window.ready()
        assert await page.input_value("header select") == user
        assert await page.locator("button.mr-chip").count() == 3
        await page.click(f"button.mr-chip:has-text('{question}')")
        await page.locator(f".mr-evidence a:has-text('{answer}')").first.wait_for()
        assert await page.locator(".mr-answer .mr-item a").first.inner_text() == question
        await page.select_option("header select", other)
        await page.wait_for_url(f"**/?user={other}")
        await window.open(f"/recalls?user={user}")
        await page.click(".mr-item a >> nth=0")
        await page.wait_for_selector("h2:has-text('Steps'), h2:has-text('步骤')")
        await window.ready()
        await page.select_option("header select", other)
        await page.wait_for_url(f"**/recalls?user={other}")


async def test_question_covers_the_spaces_of_the_user(window: Window) -> None:
    await window.open("/?user=ann")
    assert "Where did I want to go?" in await window.text()  # not a user of the sample
    assert "the shared spaces Team X" in await window.text()
    await window.page.fill("input[aria-label=Question]", "When is the launch?")
    await window.page.keyboard.press("Enter")
    evidence = window.page.locator(".mr-evidence", has_text="The launch is on Friday.")
    await evidence.first.wait_for()
    assert "space: team-x, by Ben" in await evidence.first.inner_text()


async def test_nothing_empty_is_shown_before_the_first_recall(window: Window, folder: Path) -> None:
    user = await add_user(folder, "I live in Oslo.")
    await window.open(f"/?user={user}")
    text = await window.text()
    assert "Messages\n1" in text
    assert "Stored recalls" not in text
    assert "Latest recalls" not in text
    assert await window.page.locator("[data-figure]").count() == 0
    field = window.page.locator("input[aria-label=Question]")
    await field.press("Enter")
    await window.page.locator("text=Write a question first").wait_for()
    await field.fill("Enter of an input method")
    await field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    await field.fill("Where do I live?")
    await field.press("Enter")
    await window.page.locator("[data-figure=recalls]", has_text="1").wait_for()
    text = await window.text()
    assert "Stored recalls\n1" in text
    assert re.search(r"\ntool calls: \d · .* · no model\n", text)
