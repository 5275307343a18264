"""The recall pages: list, trace and download."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from memrecall.agent import RecallResult
from memrecall.dashboard.page import Page
from memrecall.dashboard.pages.recalls import recall_facts
from memrecall.server.http.openapi import load_examples
from tests.model.openai_server import ModelServer, refusal
from tests.server.server_process import ServerProcess

from .conftest import Window, sign_in, window_on

Keyed = tuple[ServerProcess, dict[str, str]]


async def test_recall_shows_evidence_linked_to_message(window: Window) -> None:
    page = window.page
    await window.open("/recalls?user=maya")
    await page.click("text=Where does Tom work?")
    await page.wait_for_selector("text=Steps")
    await window.ready()
    assert await page.locator(".mr-iteration").count() == 1
    headings = await page.locator("h2.mr-heading").all_inner_texts()
    assert headings[-3:] == ["Handoff", "Steps", "Feedback"]
    await page.click(".mr-expansion:has-text('search: where does Tom work')")
    await page.wait_for_selector(".mr-expansion .mr-code:has-text('where does Tom work')")
    evidence = page.locator(".mr-evidence a", has_text="I live in Oslo and my brother")
    assert "around=" in str(await evidence.first.get_attribute("href"))
    memories = page.locator(".mr-evidence a[href*='/explorer/memory?']")
    assert await memories.filter(has_text="brother Tom works at Equinor.").count()
    assert await page.locator("text=Certainty").count()


def test_certainty_is_shown_in_the_language_of_the_page() -> None:
    sure = RecallResult.from_dict(load_examples()["recall_memories"].answer)
    results = {
        "sure": sure,
        "possible": sure.model_copy(update={"confidence": 0.5}),
        "none": sure.model_copy(update={"memories": []}),
    }
    for language, words in (("en", list(results)), ("zh", ["确定", "可能", "无"])):
        page = cast("Page", SimpleNamespace(language=language, text=lambda name: name))
        shown = [recall_facts(page, result)["certainty"] for result in results.values()]
        assert shown == words


async def test_trace_can_be_downloaded(window: Window, tmp_path: Path) -> None:
    await window.open("/recalls?user=lin")
    await window.page.click("text=我对什么过敏来着？")
    await window.page.wait_for_selector("text=Download JSON")
    await window.ready()
    async with window.page.expect_download() as waiting:
        await window.page.click("text=Download JSON")
    download = await waiting.value
    await download.save_as(tmp_path / "trace.json")
    body = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert body["trace"]["trace_id"] in download.suggested_filename
    assert body["handoff"]["relevant_memory_keys"]


async def test_recalls_of_all_users_are_filtered(browser: Any, keyed_server: Keyed) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        page = window.page
        await sign_in(window, keys["reader"])
        await window.open("/recalls")
        listed = await window.text(".mr-list")
        assert "Where does Tom work?" in listed
        assert "我对什么过敏来着？" in listed
        await page.fill("[aria-label='Question contains']", "过敏")
        await page.click("button:has-text('Search')")
        await page.wait_for_url("**q=%E8%BF%87%E6%95%8F**")
        await window.ready()
        assert await page.locator(".mr-list .mr-item").count() == 1
        await page.click(".mr-list .mr-chip:has-text('lin')")
        await page.wait_for_selector("header option[value=lin]:checked", state="attached")
        await window.open("/recalls?q=nowhere")
        assert "No stored recalls match." in await window.text()


async def test_failed_model_call_looks_failed_and_is_open(
    browser: Any, keyed_server: Keyed, model_server: ModelServer
) -> None:
    server, keys = keyed_server
    model_server.script.clear()
    model_server.play(refusal(400, "no such model here"))
    async with window_on(browser, server.url) as window:
        page = window.page
        await sign_in(window, keys["maya"])
        await window.open("/?user=maya")
        await page.fill("input[aria-label=Question]", "Which tea do I like?")
        await page.keyboard.press("Enter")
        await page.click("text=Show recall")
        await page.wait_for_selector("h2:has-text('Steps')")
        await window.ready()
        failed = page.locator(".mr-expansion.mr-failed")
        assert await failed.count() == 1
        assert "answered with status 400" in await failed.inner_text()
        assert "model failed" in (await window.text()).lower()


async def test_filters_are_one_bar_that_folds_on_a_phone(window: Window) -> None:
    page = window.page
    reason, fold = page.get_by_label("Stop reason"), page.get_by_role("button", name="Filter")
    await window.open("/recalls?user=maya")
    fields = page.locator("form[role=search] > :is(.q-field, .q-btn), .mr-filters > .q-field")
    boxes = [await field.bounding_box() for field in await fields.all() if await field.is_visible()]
    assert len(boxes) == 4
    assert len({round(box["y"]) for box in boxes}) == 1
    assert not await fold.is_visible()
    await page.set_viewport_size({"width": 390, "height": 844})
    assert not await reason.is_visible()
    await fold.click()
    await reason.wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await window.open("/recalls?user=maya&reason=handoff")  # a filter in use is seen
    assert await reason.is_visible()


async def test_steps_have_names_in_both_languages(browser: Any, open_server: ServerProcess) -> None:
    for locale, names in (
        ("en-US", ("search: Who has my spare key, ", " found · ", "hand off")),
        ("zh-CN", ("搜索：Who has my spare key，", " 条结果", "交接：")),
    ):
        async with window_on(browser, open_server.url, locale=locale) as window:
            await window.open("/recalls?user=maya&q=spare+key")
            await window.page.locator(".mr-item a").last.click()
            await window.page.wait_for_selector(".mr-iteration")
            text = await window.text()
            assert all(name in text for name in names), text
