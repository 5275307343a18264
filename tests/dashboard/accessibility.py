"""What axe-core and the computed contrast find on every page of the dashboard.

    python -m tests.dashboard.accessibility     inspects the sample data, and prints what is found

Each page is loaded once per language; the theme follows the browser's, which is switched in place.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memrecall.memory import Library
from tests.server.server_process import run_server

from .browser import NO_AXE, NO_BROWSER, find_axe, find_browser
from .sample import fill_library, find_ids, sample_settings
from .sample_runs import write_sample_runs

SIZE: Any = {"width": 1280, "height": 900}
CONTRAST = Path(__file__).with_name("contrast.js").read_text("utf-8")
THEMES = ("light", "dark")
FORBIDDEN = frozenset({"critical", "serious"})
_RUN_AXE = """async () => (await axe.run(document)).violations.map(
  (found) => ({
    impact: found.impact, rule: found.id, nodes: found.nodes.map((node) => node.html.slice(0, 200)),
  }))"""


def sample_pages(ids: Mapping[str, str]) -> dict[str, str]:
    """Return the path of every page of the sample data by name; `ids` are of generated rows."""
    return {
        "first page": "/?user=maya",
        "first page with all users": "/?user=ann&all=yes",
        "select a user": "/explorer",
        "messages": "/explorer?user=maya",
        "search": "/explorer?user=maya&q=key+OR+flat",
        "around a message": "/explorer?user=maya&around=maya-051",
        "memories": "/explorer/memories?user=maya",
        "memory": f"/explorer/memory?user=maya&key={ids['memory']}",
        "graph": "/explorer/graph?user=maya",
        "sessions": "/explorer/sessions?user=maya",
        "session": "/explorer/session?user=maya&id=talk-1",
        "changes": "/explorer/changes?user=maya",
        "user data": "/explorer/user?user=maya",
        "knowledge": "/knowledge",
        "knowledge entry": f"/knowledge/entry?key={ids['knowledge']}",
        "all recalls": "/recalls",
        "recalls": "/recalls?user=maya",
        "recall": f"/recalls/trace?user=maya&id={ids['recall']}",
        "shared recall": f"/recalls/trace?user=ann&id={ids['shared']}",
        "all spaces": "/spaces",
        "spaces": "/spaces?user=ann",
        "space": "/spaces/space?user=ann&space=team-x",
        "memories of a space": "/explorer/memories?user=ann&space=team-x",
        "evaluations": "/evaluations",
        "evaluation run": "/evaluations/run?name=second",
        "unknown user": "/explorer?user=nobody",
        "unknown page": "/nothing",
    }


@dataclass(frozen=True, slots=True)
class PageFindings:
    """What was found on one page in one theme."""

    page: str
    theme: str
    low_contrast: list[str]
    violations: list[dict[str, Any]]  # of axe-core; empty without it

    @property
    def forbidden(self) -> list[dict[str, Any]]:
        """The violations that no page may have."""
        return [found for found in self.violations if found["impact"] in FORBIDDEN]


async def inspect_page(page: Any, name: str, axe: str | None) -> AsyncIterator[PageFindings]:
    """Yield what is found on the page that a browser shows, in each theme."""
    await page.wait_for_selector("main h1, main form")
    await page.wait_for_selector("main [role=status]", state="detached")
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        await page.wait_for_selector(f"body.body--{theme}")
        # Colours change gradually; what is measured on the way is neither theme.
        await page.evaluate(
            "Promise.all(document.getAnimations().map((each) => each.finished.catch(() => {})))"
        )
        violations = []
        if axe is not None:
            await page.evaluate(axe)
            violations = await page.evaluate(_RUN_AXE)
        yield PageFindings(name, theme, await page.evaluate(CONTRAST), violations)


async def _inspect_sample(axe: str, browser_path: str) -> list[PageFindings]:
    from playwright.async_api import async_playwright

    findings: list[PageFindings] = []
    with tempfile.TemporaryDirectory(prefix="mr-axe-") as temporary:
        folder = Path(temporary)
        async with await Library.open(sample_settings(str(folder / "a.db"), folder)) as library:
            await fill_library(library)
            ids = await find_ids(library)
        write_sample_runs(folder / "runs")
        runs = {"MEMRECALL_DATA_DIR": str(folder)}
        with run_server(folder, "--db", folder / "a.db", **runs) as server:
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
                )
                page = await browser.new_page(viewport=SIZE, locale="en-US")
                for name, path in sample_pages(ids).items():
                    await page.goto(server.url + path)
                    findings += [found async for found in inspect_page(page, name, axe)]
                await browser.close()
    return findings


def main() -> int:
    """Print all findings; return 1 if something is missing or forbidden."""
    axe, browser_path = find_axe(), find_browser()
    if axe is None or browser_path is None:
        print(NO_AXE if axe is None else NO_BROWSER)
        return 1
    findings = asyncio.run(_inspect_sample(axe, browser_path))
    for found in findings:
        for violation in found.violations:
            print(found.page, found.theme, violation["impact"], violation["rule"])
            print("   ", violation["nodes"][0])
    return 1 if any(found.forbidden for found in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
