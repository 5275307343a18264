"""Spaces on the dashboard: roles, members, who can see a row and why a recall found it."""

from typing import Any

import pytest

from memrecall.dashboard.page import WORDS
from tests.server.server_process import ServerProcess

from .accessibility import inspect_page
from .conftest import sign_in, window_on
from .sample import MEMBERS, TEAM
from .test_accessibility import Keyed, axe, axe_problems, contrast_problems, paths

__all__ = ["axe", "paths"]  # fixtures
SPACE = f"/spaces/space?space={TEAM}"
ORIGINS = ("space: team-x, by Ben, 20", "空间：team-x，作者：Ben，20")
ROWS = [f"/explorer/memories?space={TEAM}", f"/explorer?space={TEAM}"]


@pytest.mark.parametrize("name", [*MEMBERS, "dora", "all"])
async def test_keys_see_their_spaces_by_role(browser: Any, keyed_server: Keyed, name: str) -> None:
    role, user = MEMBERS.get(name), "" if name == "all" else f"&user={name}"
    shown = {SPACE: role or name == "all", **dict.fromkeys(ROWS, role)}
    async with window_on(browser, keyed_server[0].url) as window:
        await sign_in(window, keyed_server[1][name])
        await window.open(f"/spaces?x=1{user}")
        assert ("Team X" in await window.text()) is (name != "dora")
        for path, is_shown in shown.items():
            answer, text = await window.open(path + user), await window.text()
            assert answer.status == (200 if is_shown else 404), path
            assert ("Plans of" in text or "launch is on" in text) is bool(is_shown), path
            assert ("Add member" in text) is (path == SPACE and role == "admin")
            other = await window.page.request.get(f"{window.url}{path}&user=ann")
            assert other.status == (200 if name in ("ann", "all") else 404)
        window.watch.problems.clear()  # the browser reports each 404


async def test_strangers_cannot_tell_a_space_from_none(browser: Any, keyed_server: Keyed) -> None:
    async with window_on(browser, keyed_server[0].url) as window:
        await sign_in(window, keyed_server[1]["dora"])
        texts = set()
        for path in (SPACE, SPACE.replace(TEAM, "none"), *ROWS):
            await window.open(f"{path}&user=dora")
            texts.add(await window.text())
        window.watch.problems.clear()  # the browser reports the 404
    assert len(texts) == 1


async def test_admin_manages_members(browser: Any, keyed_server: Keyed) -> None:
    async with window_on(browser, keyed_server[0].url) as window:
        page = window.page
        await sign_in(window, keyed_server[1]["ann"])
        await window.open(f"{SPACE}&user=ann")
        await page.click("button:has-text('Add member')")
        await page.get_by_label("Member: a user id").fill("eve")
        await page.click(".q-dialog button:has-text('Save')")
        await page.locator(".mr-item:has-text('eve'):has-text('by ann')").wait_for()
        await window.ready()
        await page.hover(".mr-item:has-text('eve')")
        await page.get_by_label("Withdraw the invitation of eve").click()
        await page.locator("text=Invitation withdrawn").wait_for()
        await window.ready()
        await add_member(page, keyed_server, "eve")
        await window.open(f"{SPACE}&user=ann")
        await page.get_by_label("Change eve").click()
        await page.locator(".q-dialog .q-select").click()
        await page.get_by_role("option", name="contributor").click()
        await page.click(".q-dialog button:has-text('Save')")
        await page.locator(".mr-item:has-text('eve'):has-text('contributor')").wait_for()
        for member, text in (("eve", "Member removed"), ("ann", "the last admin of the space")):
            await window.ready()
            await page.hover(f".mr-item:has-text('{member}')")
            await page.get_by_label(f"Remove {member}").click()
            await page.click(f".q-dialog button:has-text('Remove {member}')")
            await page.locator(f"text={text}").wait_for()


async def add_member(page: Any, keyed_server: Keyed, member: str) -> None:
    """Add a member as an operator, who needs no consent."""
    headers = {"X-Memrecall-User": "ann", "Authorization": f"Bearer {keyed_server[1]['all']}"}
    put = {"data": {"role": "reader"}, "headers": headers}
    url = f"{keyed_server[0].url}/v1/spaces/{TEAM}/members/{member}"
    answer = await page.request.put(url, **put)
    assert (answer.ok, (await answer.json())["status"]) == (True, "member")


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
async def test_invited_user_accepts_or_declines(
    browser: Any, keyed_server: Keyed, locale: str
) -> None:
    words = {
        name: WORDS[name][locale == "zh-CN"].format(name="Team X")
        for name in ("invitations", "no_spaces", "accept_space", "decline_space")
    }
    url, keys = keyed_server[0].url, keyed_server[1]
    headers = {"Authorization": f"Bearer {keys['ann']}"}
    put = {"data": {"role": "reader"}, "headers": headers}
    async with window_on(browser, url, locale=locale) as window:
        page = window.page
        await sign_in(window, keys["dora"])
        for verb in ("decline", "accept"):
            invited = await page.request.put(f"{url}/v1/spaces/{TEAM}/members/dora", **put)
            assert (await invited.json())["status"] == "invited"
            await window.open("/spaces?user=dora")
            assert words["no_spaces"] in await window.text()
            await page.get_by_label(words[f"{verb}_space"]).click()
            await page.get_by_text(words["invitations"], exact=True).wait_for(state="detached")
            await window.ready()
            assert (words["no_spaces"] in await window.text()) is (verb == "decline")
        await window.open(f"{SPACE}&user=dora")
        assert "Plans of" in await window.text()
        gone = await page.request.delete(f"{url}/v1/spaces/{TEAM}/members/dora", headers=headers)
        assert gone.ok


async def test_member_leaves_a_space(browser: Any, open_server: ServerProcess) -> None:
    async with window_on(browser, open_server.url) as window:
        put = {"data": {"role": "reader"}, "headers": {"X-Memrecall-User": "ann"}}
        added = await window.page.request.put(f"{window.url}/v1/spaces/{TEAM}/members/maya", **put)
        assert added.ok
        await window.open(f"{SPACE}&user=ann")
        assert "Leave space" not in await window.text()
        await window.open(f"{SPACE}&user=maya")
        await window.page.click("button:has-text('Leave space')")
        await window.page.click(".q-dialog button:has-text('Leave space')")
        await window.page.wait_for_url("**/spaces?user=maya")
        await window.ready()
        assert "No spaces." in await window.text()


async def test_role_too_low_is_explained(browser: Any, keyed_server: Keyed) -> None:
    for name, text in (("cleo", "Your role in this space"), ("ben", "Another member wrote this")):
        async with window_on(browser, keyed_server[0].url) as window:
            await sign_in(window, keyed_server[1][name])
            await window.open(f"{ROWS[0]}&user={name}")
            await window.page.click("a:has-text('The office is in Rome')")
            await window.page.click("button:has-text('Delete')")
            await window.page.click(".q-dialog button:has-text('Delete')")
            await window.page.locator(f"text={text}").wait_for()


@pytest.mark.parametrize(("locale", "width"), [("en-US", 390), ("zh-CN", 1440)])
async def test_answers_to_who_and_why_pass_axe(
    browser: Any, open_server: ServerProcess, paths: Any, axe: str, locale: str, width: int
) -> None:
    index, own, size = int(locale == "zh-CN"), "/explorer?user=ann", {"width": width, "height": 900}
    who, why, add = (WORDS[name][index] for name in ("who_can_see", "why_seen", "add_member"))
    findings = []
    async with window_on(browser, open_server.url, locale=locale, viewport=size) as window:
        page = window.page
        for path, button, answer in (
            (paths["shared recall"], why, "team-x"),
            (f"{SPACE}&user=ann", add, "key:"),
            (f"{own}&space={TEAM}", who, "Cleo (cleo)"),
            (own, who, "ann"),
        ):
            await window.open(path)
            if button == who:
                await page.locator("article a").first.click()
                await window.ready()
            assert button != why or ORIGINS[index] in await window.text()
            await page.get_by_role("button", name=button).first.click()
            await page.locator(f":is([aria-live], .q-dialog):has-text('{answer}')").first.wait_for()
            findings += [found async for found in inspect_page(page, path, axe)]
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert contrast_problems(findings) == []
    assert axe_problems(findings) == []
