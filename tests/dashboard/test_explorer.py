"""The explorer: messages, search, memories with history, graph and sessions."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.server.server_process import ServerProcess

from .conftest import Window, window_on
from .sample import ATTACKER, SCRIPT, SESSION, add_facts

Keyed = tuple[ServerProcess, dict[str, str]]


async def test_search_links_to_context_memory_and_recall(window: Window) -> None:
    page = window.page
    # Only what the user said: chat tests on the same server store answers that quote it.
    await window.open("/explorer?user=maya&role=user")
    await page.fill("input[name=q]", 'brother AND "works at"')
    await page.keyboard.press("Enter")
    await page.wait_for_selector("mark")
    await window.ready()
    assert {"brother", "works"} <= set((await page.inner_text("article")).split())
    assert await page.locator("mark").all_inner_texts() == ["brother", "works at"]
    await page.click("article a >> nth=0")
    await page.wait_for_selector(".mr-anchor")
    assert "I moved to Lisbon" in await window.text()
    await page.click("a:has-text('brother Tom works at Equinor') >> nth=-1")
    await page.wait_for_selector("h2:has-text('History')")
    await page.click("a:has-text('Where does Tom work?')")
    await page.wait_for_selector("h2:has-text('Steps')")
    assert await page.inner_text("h1") == "Where does Tom work?"
    await window.ready()


async def test_filters_select_messages(window: Window) -> None:
    page = window.page
    await window.open("/explorer?user=maya")
    assert await page.locator("article").count() == 25
    await page.click("text=Older")
    await page.wait_for_url("**cursor=**")
    assert "Newest" in await window.text()
    await window.open(f"/explorer?user=maya&session={SESSION}&role=user")
    assert await page.locator("article").count() == 4
    assert await page.input_value("input[name=role]") == "user"
    await page.click("label:has-text('Role')")
    await page.click("[role=option]:has-text('assistant')")
    await page.wait_for_selector("input[name=role][value=assistant]", state="attached")
    await page.click("button:has-text('Search')")
    await page.wait_for_selector("text=No messages.")
    await window.open("/explorer?user=maya&by=meaning&q=spare+key")
    assert "spare key" in await window.text("article >> nth=0")
    for query, problem in (("q=%22half", "quotation mark"), ("since=yesterdayish", "since")):
        await window.open(f"/explorer?user=maya&{query}")
        assert problem in await window.text("[role=alert]")
    window.watch.problems.clear()  # the browser reports the 400s


async def test_links_select_a_project(window: Window) -> None:
    said = {"kiln": "github.com/pia/pots", "loom": "github.com/pia/rugs"}
    async with httpx.AsyncClient(base_url=window.url) as client:
        messages = [{"role": "user", "content": text, "project": said[text]} for text in said]
        await client.post("/v1/users/pia/messages", json={"messages": messages})
    await window.open("/explorer?user=pia")
    assert {"kiln", "loom"} <= set((await window.text()).split())
    await window.page.click("a:has-text('pia/rugs')")
    await window.page.wait_for_url("**project=**")
    await window.ready()
    assert await window.page.locator("article").count() == 1
    assert "loom" in await window.text("article")


async def test_dates_are_whole_days_of_the_user(window: Window) -> None:
    page = window.page
    await window.open("/explorer?user=maya")
    await page.fill("input[name=since]", "2026-03-05")
    await page.fill("input[name=until]", "2026-03-05")
    await page.click("button:has-text('Search')")
    await page.wait_for_url("**since=2026-03-05**")
    await window.ready()
    assert await page.locator("article").count() == 7
    assert await page.get_attribute("input[name=until]", "type") == "date"
    await window.open("/explorer?user=maya&since=2026-03-05T12:12:00Z&until=2026-03-05")
    assert await page.locator("article").count() == 3
    assert await page.input_value("input[name=since]") == "2026-03-05T12:12:00Z"


async def test_context_is_scrolled_to_its_message(window: Window) -> None:
    await window.page.set_viewport_size({"width": 1280, "height": 500})
    await window.open("/explorer?user=maya&around=maya-051")
    await window.page.wait_for_function(
        """() => {
          const box = document.activeElement.getBoundingClientRect();
          return document.activeElement.matches('.mr-anchor')
            && box.top > 50 && box.bottom < innerHeight;
        }"""
    )


async def test_memory_shows_its_replacement_and_reason(window: Window) -> None:
    page = window.page
    await window.open("/explorer/memories?user=maya&state=superseded")
    await page.click("a:has-text('favourite tea is genmaicha')")
    await page.wait_for_selector("text=it replaces: User's favourite tea is genmaicha.")
    await page.click("text=Replaced by")
    await page.wait_for_selector("h1:has-text('sencha')")
    assert "Replaces" in await window.text()
    await window.open("/explorer/memories?user=maya&q=allergies")
    assert "allergic to peanuts" in await window.text()


async def add_user(folder: Path, *texts: str) -> str:
    """Store texts of a new user, whose data a test may erase, and return the user's id."""
    user = f"user-{secrets.token_hex(4)}"
    await add_facts(folder / "open" / "sample.db", user, *texts)
    return user


async def test_memory_is_deleted_and_restored_with_its_messages(
    window: Window, folder: Path
) -> None:
    page = window.page
    user = await add_user(folder, "I live in Oslo.", "I am allergic to peanuts.")
    await window.open(f"/explorer/memories?user={user}")
    await page.click("a:has-text('lives in Oslo')")
    await window.ready()
    address = page.url
    await page.click("button:has-text('Delete')")
    await page.click(".q-dialog button:has-text('Cancel')")
    await page.wait_for_selector(".q-dialog", state="detached")
    assert await page.locator(".mr-badge:has-text('DELETE')").count() == 0
    await page.click("button:has-text('Delete')")
    await page.wait_for_selector(".q-dialog .q-checkbox:has-text('source messages (1)')")
    await page.click(".q-dialog button:has-text('Delete')")
    await page.wait_for_selector(".mr-badge:has-text('DELETE')")
    await window.open(f"/explorer?user={user}")
    assert "Oslo" not in await window.text()
    await page.goto(address)
    await window.ready()
    await page.click("button:has-text('Restore')")
    await page.click(".q-dialog button:has-text('Restore')")
    await page.wait_for_selector(".mr-badge:has-text('UNDO')")
    await window.open(f"/explorer?user={user}")
    assert "I live in Oslo." in await window.text()

    await page.goto(address)
    await window.ready()
    await page.click("button:has-text('Erase permanently')")
    await page.click(".q-dialog button:has-text('Erase permanently')")
    await page.wait_for_url("**/explorer/memories?**")
    await window.ready()
    text = await window.text()
    assert "peanuts" in text
    assert "Oslo" not in text
    await window.open(f"/explorer?user={user}")
    assert "Oslo" not in await window.text()


async def test_message_is_erased_after_confirmation(window: Window, folder: Path) -> None:
    page = window.page
    user = await add_user(folder, "I live in Oslo.", "I am allergic to peanuts.")
    await window.open(f"/explorer?user={user}&around=m0")
    article = page.locator("article:has-text('I live in Oslo')")
    button = page.locator("article", has_text="peanuts").get_by_role("button", name="Erase message")
    assert not await button.is_visible()
    await button.focus()
    assert await button.is_visible()
    assert "primary" not in str(await button.get_attribute("class"))
    await article.hover()
    await article.get_by_role("button", name="Erase message").click()
    await page.wait_for_selector(".q-dialog :text('It cannot be undone.')")
    await page.click(".q-dialog button:has-text('Cancel')")
    await page.wait_for_selector(".q-dialog", state="detached")
    await article.hover()
    await article.get_by_role("button", name="Erase message").click()
    await page.click(".q-dialog button:has-text('Erase permanently')")
    await article.wait_for(state="detached")
    await window.ready()
    assert "around=" not in page.url
    assert "peanuts" in await window.text()
    assert "memories that came from it alone: 1" in await window.text("[role=status]")
    await window.open(f"/explorer/memories?user={user}")
    assert "Oslo" not in await window.text()


async def test_message_is_deleted_and_restored(window: Window, folder: Path) -> None:
    page = window.page
    user = await add_user(folder, "The boat is called Oslo.", "The car is called Bergen.")
    await window.open(f"/explorer?user={user}")
    article = page.locator("article:has-text('Oslo')")
    await article.hover()
    await article.get_by_role("button", name="Delete message").click()
    await page.wait_for_selector(".q-dialog :text('can be undone')")
    await page.click(".q-dialog button:has-text('Delete')")
    await article.wait_for(state="detached")
    await window.ready()
    assert "The message was deleted." in await window.text("[role=status]")
    assert "Bergen" in await window.text()
    await page.click("a:has-text('Deleted messages')")
    await article.wait_for()
    await window.ready()
    assert "Bergen" not in await window.text()
    await article.get_by_role("button", name="Restore message").click()
    await article.wait_for(state="detached")
    await window.open(f"/explorer?user={user}")
    assert "Oslo" in await window.text()


async def test_erase_is_always_seen_on_touch_screens(
    browser: Any, open_server: ServerProcess
) -> None:
    touch: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
    async with window_on(browser, open_server.url, is_mobile=True, **touch) as window:
        await window.open("/explorer?user=maya")
        assert await window.page.get_by_role("button", name="Erase message").last.is_visible()


async def test_memories_show_when_something_was_said(window: Window, folder: Path) -> None:
    said = datetime(2021, 5, 4, 10, tzinfo=UTC)
    await add_facts(folder / "open" / "sample.db", "past", "I live in Bergen.", ts=said)
    await window.open("/explorer/memories?user=past")
    assert "2021-05-04 10:00" in await window.text(".mr-item")


async def test_graph_is_drawn_and_can_be_navigated(window: Window) -> None:
    page = window.page
    await window.open("/explorer/graph?user=maya")
    await page.wait_for_selector("canvas")
    assert "works at" in await window.text()
    await page.click(".mr-item a:has-text('Equinor')")
    await page.wait_for_selector("h2:has-text('Equinor')")
    assert "lives_in" not in await window.text()
    await window.ready()


async def test_relations_and_types_have_chinese_names(
    browser: Any, open_server: ServerProcess, folder: Path
) -> None:
    async with window_on(browser, open_server.url, locale="zh-CN") as window:
        for path, text in {
            "/explorer/graph?user=maya": "任职于",
            "/explorer/memories?user=maya": "个人资料",
            "/explorer?user=maya&role=user": "角色\n用户",
            "/explorer/session?user=maya&id=talk-1": "未使用模型，摘录原文",
        }.items():
            await window.open(path)
            assert text in await window.text(), path
        user = await add_user(folder, "I live in Rome.")
        await window.open(f"/explorer/graph?user={user}")
        assert "用户\n住在\nRome" in await window.text()


async def test_sessions_show_layered_summaries(window: Window) -> None:
    await window.open("/explorer/sessions?user=maya")
    titles = await window.page.locator(".mr-item > a").all_inner_texts()
    assert titles[-1].startswith("Happy new year!")  # the oldest
    await window.page.click("a:has-text('I live in Oslo')")
    await window.page.wait_for_selector("h2:has-text('Session summary')")
    assert "messages 1 to 4: excerpts, without a model" in await window.text()
    await window.ready()


WRITTEN_ON = (
    "/explorer?",
    "/explorer?q=peanuts&",
    "/explorer?around=evil-1&",
    "/explorer/memories?",
    "/explorer/graph?",
    "/explorer/sessions?",
    "/recalls?",
)


async def test_messages_are_rendered_as_text(window: Window) -> None:
    for path in WRITTEN_ON:
        await window.open(path + urlencode({"user": ATTACKER}))
        assert SCRIPT[:30] in await window.text(), path
        assert "memrecall" in await window.page.title(), path
        assert await window.page.locator("main script, main img").count() == 0, path


async def test_script_in_memory_or_recall_is_rendered_as_text(window: Window) -> None:
    page = window.page
    for path, card in (("/explorer/memories", "History"), ("/recalls", "Steps")):
        await window.open(f"{path}?user={ATTACKER}")
        await page.click(".mr-item a >> nth=0")
        await page.wait_for_selector(f"h2:has-text('{card}')")
        await window.ready()
        closed = page.locator(".mr-expansion [role=button][aria-expanded=false]:visible")
        for button in await closed.element_handles():  # none is within another
            await button.click()
        assert SCRIPT[:30] in await page.inner_text("h1")
        assert await page.locator("main script, main img").count() == 0
    await window.open("/explorer?" + urlencode({"user": SCRIPT[:60], "q": SCRIPT}))
    assert await page.locator("main script, main img").count() == 0
    assert "memrecall" in await page.title()
    window.watch.problems.clear()  # the browser reports the 404
