"""What axe-core and the computed contrast find on a page of the dashboard, in each theme."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
