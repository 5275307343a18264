"""Take the screenshots of the dashboard in the documentation: `make screenshots`."""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from memrecall.dashboard.sample import evaluate_sample
from memrecall.memory import Library
from tests.server.server_process import run_server

from .browser import NO_BROWSER, find_browser
from .sample import fill_library, find_ids, sample_settings

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
SIZE = {"width": 1280, "height": 860}
NARROW = {"width": 390, "height": 844}


async def prepare(folder: Path, database: Path) -> dict[str, str]:
    """Fill a database and return the generated ids."""
    async with await Library.open(sample_settings(str(database), folder)) as library:
        await fill_library(library)
        return await find_ids(library)


def pages(ids: dict[str, str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the path and the browser options of each screenshot by name."""
    chinese = {"locale": "zh-CN", "color_scheme": "dark"}
    return {
        "overview": ("/", {}),
        "explorer": ("/explorer?user=maya&q=key+OR+flat", {}),
        "memory": (f"/explorer/memory?user=maya&key={ids['memory']}", {}),
        "graph": ("/explorer/graph?user=maya", {}),
        "sessions": ("/explorer/session?user=maya&id=talk-1", {}),
        "recalls": ("/recalls?user=maya", {}),
        "recall": (f"/recalls/trace?user=maya&id={ids['recall']}", {}),
        "evaluation": ("/evaluations/run?name=sample", {}),
        "chinese": ("/explorer?user=lin&q=过敏+OR+数据库", chinese),
        "narrow": ("/?user=maya", {"viewport": NARROW}),
    }


async def take_screenshots(url: str, browser_path: str, ids: dict[str, str]) -> None:
    """Take all screenshots."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        for name, (path, special) in pages(ids).items():
            options = {"viewport": SIZE, "locale": "en-US", "color_scheme": "light", **special}
            page = await (await browser.new_context(**options)).new_page()
            await page.goto(url + path)
            await page.wait_for_selector("main")
            if path == "/":  # with the answer to a question
                await page.click("button.mr-chip >> nth=0")
                await page.wait_for_selector(".mr-evidence")
            await page.wait_for_timeout(800)  # for charts and fonts
            file = PICTURES / f"dashboard-{name}.png"
            await page.screenshot(path=file)
            print(f"{file.relative_to(ROOT)} {file.stat().st_size // 1024} KiB")
            await page.context.close()
        await browser.close()


def main() -> int:
    """Take the screenshots; return 1 without a browser."""
    browser_path = find_browser()
    if browser_path is None:
        print(NO_BROWSER)
        return 1
    with tempfile.TemporaryDirectory(prefix="mr-pictures-") as temporary:
        folder, runs = Path(temporary), Path(temporary) / "runs"
        ids = asyncio.run(prepare(folder, folder / "sample.db"))
        asyncio.run(evaluate_sample(sample_settings("", folder, "local"), runs / "sample"))
        settings = {"MEMRECALL_DATA_DIR": str(folder)}
        with run_server(folder, "--db", folder / "sample.db", **settings) as server:
            asyncio.run(take_screenshots(server.url, browser_path, ids))
    return 0


if __name__ == "__main__":
    sys.exit(main())
