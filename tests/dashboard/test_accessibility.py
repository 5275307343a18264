"""Contrast, axe-core's rules and the keyboard, on every page in both themes."""

import re
from pathlib import Path
from typing import Any

import pytest

import memrecall.dashboard
from memrecall.dashboard.widgets import PALETTE, TEXT_COLORS
from memrecall.memory import Library
from tests.server.server_process import ServerProcess, run_server

from .accessibility import PageFindings, inspect_page, sample_pages
from .browser import NO_AXE, find_axe
from .conftest import window_on
from .sample import find_ids, sample_settings

STYLE = Path(memrecall.dashboard.__file__).with_name("style.css")
Keyed = tuple[ServerProcess, dict[str, str]]
# With axe-core, its test checks the contrast of the English pages too: loading all takes a minute.
CONTRAST_LOCALES = ["zh-CN"] if find_axe() else ["en-US", "zh-CN"]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core; tests are skipped without it."""
    script = find_axe()
    if script is None:
        pytest.skip(NO_AXE)
    return script


async def inspect_all(
    browser: Any, url: str, paths: dict[str, str], axe: str | None, locale: str
) -> list[PageFindings]:
    findings = []
    async with window_on(browser, url, locale=locale) as window:
        for name, path in paths.items():
            await window.open(path)
            findings += [found async for found in inspect_page(window.page, name, axe)]
        window.watch.problems.clear()  # the browser reports unknown pages
    return findings


def contrast_problems(findings: list[PageFindings]) -> list[str]:
    return [f"{f.page}, {f.theme}: {text}" for f in findings for text in f.low_contrast]


def axe_problems(findings: list[PageFindings]) -> list[Any]:
    return [(found.page, found.theme, each) for found in findings for each in found.forbidden]


@pytest.fixture
async def paths(sample_database: Path, folder: Path) -> dict[str, str]:
    async with await Library.open(sample_settings(str(sample_database), folder)) as library:
        return sample_pages(await find_ids(library))


@pytest.mark.parametrize("locale", CONTRAST_LOCALES)
async def test_texts_have_enough_contrast(
    browser: Any, open_server: ServerProcess, paths: dict[str, str], locale: str
) -> None:
    findings = await inspect_all(browser, open_server.url, paths, None, locale)
    assert len(findings) == 2 * len(paths)
    assert contrast_problems(findings) == []


async def test_pages_pass_axe(
    browser: Any, open_server: ServerProcess, paths: dict[str, str], axe: str
) -> None:
    findings = await inspect_all(browser, open_server.url, paths, axe, "en-US")
    assert len(findings) == 2 * len(paths)
    assert contrast_problems(findings) == []
    assert axe_problems(findings) == []


async def test_open_dialogs_pass_axe(
    browser: Any, open_server: ServerProcess, paths: dict[str, str], axe: str
) -> None:
    findings: list[PageFindings] = []
    async with window_on(browser, open_server.url) as window:
        for name in ("Edit", "Delete"):
            await window.open(paths["memory"])
            await window.page.get_by_role("button", name=name, exact=True).click()
            await window.page.get_by_role("dialog").wait_for()
            findings += [found async for found in inspect_page(window.page, name, axe)]
    assert contrast_problems(findings) == []
    assert axe_problems(findings) == []


async def test_first_visit_and_sign_in_pass(
    browser: Any, keyed_server: Keyed, tmp_path: Path, axe: str
) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db") as empty:
        findings = await inspect_all(browser, empty.url, {"first visit": "/"}, axe, "zh-CN")
    refused = {"sign-in": "/sign-in?refused=1"}
    findings += await inspect_all(browser, keyed_server[0].url, refused, axe, "en-US")
    assert contrast_problems(findings) == []
    assert axe_problems(findings) == []


def luminance(color: str) -> float:
    channels = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_colors_of_charts_have_enough_contrast() -> None:
    cards = re.findall(r"--mr-card: (#\w+)", STYLE.read_text("utf-8"))
    light, dark = (color if len(color) == 7 else "#" + 2 * color[1:] for color in cards)
    for theme, card in {"light": light, "dark": dark}.items():
        assert contrast(TEXT_COLORS[theme], card) >= 4.5
        assert min(contrast(color, card) for color in PALETTE) >= 3


async def test_contrast_of_a_pale_text_is_found(browser: Any, open_server: ServerProcess) -> None:
    async with window_on(browser, open_server.url, color_scheme="light") as window:
        await window.open("/nothing")
        await window.page.evaluate("document.querySelector('h1').style.color = '#999'")
        findings = [found async for found in inspect_page(window.page, "pale", None)]
        window.watch.problems.clear()
    assert [len(found.low_contrast) for found in findings] == [1, 0]
