"""The evaluation pages."""

from pathlib import Path
from typing import Any

from tests.server.server_process import ServerProcess, run_server

from .conftest import Window, sign_in, window_on

Keyed = tuple[ServerProcess, dict[str, str]]


async def test_runs_are_listed_and_shown_with_metrics(window: Window) -> None:
    page = window.page
    await window.open("/evaluations")
    items = await page.locator(".mr-item").all_inner_texts()
    assert [item.split("\n")[0] for item in items] == ["third", "second", "first"]
    assert "incomplete" in items[0]
    assert "recall@10 0.917" in items[2]
    await page.click("a:has-text('first')")
    await page.wait_for_selector("table")
    await window.ready()
    assert "0.917 (0.750 – 1.000)" in (await window.text("tr:has-text('recall@10')"))
    await window.open("/evaluations/run?name=third")
    assert "Questions\n5" in await window.text()


async def test_unknown_runs_are_refused(window: Window) -> None:
    for name in ("../open", "nothing", ""):
        assert (await window.open(f"/evaluations/run?name={name}")).status == 404
    window.watch.problems.clear()  # the browser reports these


async def test_runs_require_operator_and_empty_folder_is_explained(
    browser: Any, keyed_server: Keyed
) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["maya"])
        for language, reason in (("en", "an operator's key"), ("zh", "需要运维密钥")):
            await window.page.request.get(f"{server.url}/preferences?language={language}&next=/")
            assert (await window.open("/evaluations")).status == 403
            assert reason in await window.text("[role=alert]")
        window.watch.problems.clear()
        await sign_in(window, keys["all"])
        await window.open("/evaluations")
        assert "memrecall eval run" in await window.text()


async def test_sample_evaluation_runs_once_at_a_time(browser: Any, tmp_path: Path) -> None:
    name = {"name": "Run the sample evaluation"}
    row = ".mr-item:has-text('sample-'):has-text('20 questions'):has-text('f1')"
    options = ("--db", tmp_path / "a.db")
    with run_server(tmp_path, *options, MEMRECALL_DATA_DIR=str(tmp_path)) as server:
        async with window_on(browser, server.url) as window, window_on(browser, server.url) as late:
            for each in (window, late):
                await each.open("/evaluations")
            await window.page.get_by_role("button", **name).click()
            await window.page.get_by_role("progressbar").wait_for()
            assert await window.page.get_by_role("button", **name).is_disabled()
            await late.page.get_by_role("button", **name).click()  # joins the one that runs
            for each in (window, late):
                await each.page.wait_for_selector(row)
                await each.ready()
                assert await each.page.get_by_role("button", **name).is_enabled()
                assert await each.page.locator(".mr-item").count() == 1
