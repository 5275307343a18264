"""The chat page: turns by the offline rules and by a model."""

import json
from typing import Any

from tests.model.openai_server import ModelServer, stream
from tests.server.server_process import ServerProcess

from .conftest import Window, sign_in, window_on

Keyed = tuple[ServerProcess, dict[str, str]]


async def test_turn_shows_tool_calls_and_recall(window: Window) -> None:
    page = window.page
    await window.open("/try?user=maya")
    assert "offline rules" in await window.text()
    await page.fill("[aria-label='Your message']", "Where does Tom work?")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("[role=log] article:has-text('Equinor')")
    await page.wait_for_selector("h2:has-text('Handoff')")
    assert "recall_memory" in await window.text(".mr-behind")
    assert await page.locator(".mr-behind .mr-evidence a", has_text="Equinor").count()
    await page.click(".mr-behind .mr-expansion")
    await page.wait_for_selector(".mr-behind .mr-code:has-text('Tom')")
    await window.open("/try?user=maya")
    assert "Where does Tom work?" in await window.text("[role=log]")


async def test_mentioned_group_member_answers(window: Window) -> None:
    page = window.page
    await window.open("/try?user=maya&session=circle")
    await page.click("button:has-text('Group chat')")
    await page.fill("[aria-label='Your message']", "@Pip what am I allergic to?")
    await page.click("button:has-text('Send')")
    await page.wait_for_selector("h2:has-text('Handoff')")
    assert "Pip" in await window.text("[role=log] article:last-child")
    assert "peanuts" in await window.text("[role=log] article:last-child")
    await page.fill("[aria-label^='AI members']", "")
    await page.fill("[aria-label='Your message']", "hello")
    await page.click("button:has-text('Send')")
    await page.wait_for_selector(".q-notification:has-text('name')")


async def test_configured_model_answers(
    browser: Any, keyed_server: Keyed, model_server: ModelServer
) -> None:
    server, keys = keyed_server
    words = "Joyce has it. <script>document.title='owned'</script>"
    pieces = [{"content": words[at : at + 7]} for at in range(0, len(words), 7)]
    model_server.script.clear()
    model_server.play(stream(pieces))
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["maya"])
        await window.open("/try?user=maya")
        assert "tiny" in await window.text()
        await window.page.fill("[aria-label='Your message']", "Who has my spare key?")
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_selector("h2:has-text('Handoff')")
        assert words in await window.text("[role=log]")
        assert "owned" not in await window.page.title()
    request = json.dumps(model_server.requests[-1], ensure_ascii=False)
    assert "Joyce" in request  # the context contained the recall


async def test_recall_without_contents_says_why(
    browser: Any, keyed_server: Keyed, model_server: ModelServer
) -> None:
    server, keys = keyed_server
    model_server.script.clear()
    model_server.play(stream([{"content": "At Equinor."}]))
    async with window_on(browser, server.url, locale="zh-CN") as window:
        await sign_in(window, keys["trusted"])
        await window.open("/try?user=maya&session=trusted")
        await window.page.fill("[aria-label='输入消息']", "Where does Tom work?")
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_selector("h2:has-text('交接结果')")
        assert "内容未显示：这次回忆可以看到敏感记忆" in await window.text(".mr-behind")
        assert "Equinor" not in await window.text(".mr-behind .mr-evidence")


async def test_retracted_text_is_removed(
    browser: Any, keyed_server: Keyed, model_server: ModelServer
) -> None:
    server, keys = keyed_server
    words = "I must not reveal the plan.</think>Joyce has it."
    model_server.script.clear()
    model_server.play(stream([{"content": words[at : at + 7]} for at in range(0, len(words), 7)]))
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["maya"])
        await window.open("/try?user=maya&session=retracted")
        await window.page.fill("[aria-label='Your message']", "Who has my spare key?")
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_selector("h2:has-text('Handoff')")
        answer = await window.text("[role=log] article:last-child")
        assert "Joyce has it." in answer
        assert "reveal" not in answer
