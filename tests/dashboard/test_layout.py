"""The layout of all pages: sign-in, cookies, policy, language, theme and keyboard."""

from typing import Any

import httpx

from tests.server.server_process import ServerProcess

from .conftest import window_on

Keyed = tuple[ServerProcess, dict[str, str]]


def test_pages_have_strict_content_security_policy(
    open_server: ServerProcess, http: httpx.Client
) -> None:
    answer = http.get(open_server.url + "/recalls")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers[_CSP].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe-inline" not in policy["script-src"]
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "http" not in answer.headers[_CSP]
    nonce = policy["script-src"].split("'nonce-")[1].split("'")[0]
    assert answer.text.count("<script") == answer.text.count(f'<script nonce="{nonce}"') > 3
    assert http.get(open_server.url + "/recalls").headers[_CSP] != answer.headers[_CSP]


_CSP = "content-security-policy"


def test_open_service_refuses_other_sites(open_server: ServerProcess, http: httpx.Client) -> None:
    for headers in ({"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert http.get(open_server.url + "/", headers=headers).status_code == 403
    upgrade_headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
    }
    upgrade_headers |= {
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Origin": "http://evil.example",
    }
    socket = open_server.url + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    assert http.get(socket, headers=upgrade_headers).status_code == 403


def test_long_polling_and_other_methods_are_refused(
    open_server: ServerProcess, http: httpx.Client
) -> None:
    polling = open_server.url + "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert http.get(polling).status_code == 404
    assert http.post(polling, content="40").status_code == 405
    assert http.post(open_server.url + "/").status_code == 405


def test_api_and_pages_share_the_server(open_server: ServerProcess, http: httpx.Client) -> None:
    assert http.get(open_server.url + "/healthz").json()["status"] == "ok"
    missing = http.get(open_server.url + "/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "NOT_FOUND")
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/v1/users/nobody/messages", "/healthz", "/openapi.json"):
        answer = http.get(open_server.url + path, headers=browser)
        assert answer.headers["content-type"].startswith("application/json"), path
    sent = http.post(open_server.url + "/nothing", headers=browser)
    assert sent.headers["content-type"].startswith("application/json")


async def test_unknown_pages_and_users_are_explained_in_html(
    browser: Any, open_server: ServerProcess
) -> None:
    async with window_on(browser, open_server.url, locale="zh-CN") as window:
        response = await window.open("/nothing/here?user=maya")
        assert response.status == 404
        assert "没有地址为 /nothing/here 的页面" in await window.text()
        await window.page.click("a[lang=en]")
        await window.page.wait_for_selector("text=There is no page at /nothing/here.")
        assert window.page.url == f"{window.url}/nothing/here?user=maya"
        response = await window.open("/explorer/memories?user=Maia")
        assert response.status == 404
        assert "User “Maia” not found" in await window.text()
        await window.page.click(".mr-chip:has-text('maya')")
        await window.page.wait_for_selector("text=allergic to peanuts")
        window.watch.problems.clear()  # the browser reports the 404s


async def test_sign_in_and_out(browser: Any, keyed_server: Keyed) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        await window.open("/nothing")
        assert "/sign-in?next=" in window.page.url
        await window.open("/?user=maya")
        assert "/sign-in?next=" in window.page.url
        await window.page.fill("input[name=key]", "mr_wrong_key")
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_selector("[role=alert]")
        await window.page.fill("input[name=key]", keys["maya"])
        await window.page.keyboard.press("Enter")
        await window.page.wait_for_url(server.url + "/?user=maya")
        await window.ready()
        cookies = {cookie["name"]: cookie for cookie in await window.page.context.cookies()}
        session = cookies["memrecall_session"]
        assert session["httpOnly"]
        assert session["sameSite"] == "Strict"
        assert keys["maya"] not in str(cookies)
        await window.page.click("button[aria-label='Sign out']")
        await window.page.wait_for_url("**/sign-in")
        await window.open("/")
        assert "/sign-in" in window.page.url


def test_cross_site_sign_in_is_refused(keyed_server: Keyed, http: httpx.Client) -> None:
    server, keys = keyed_server
    form = {"key": keys["maya"], "next": "//evil.example"}
    headers = {"Origin": "http://evil.example"}
    assert http.post(server.url + "/sign-in", data=form, headers=headers).status_code == 403
    accepted = http.post(server.url + "/sign-in", data=form)
    assert (accepted.status_code, accepted.headers["location"]) == (303, "/")
    assert "secure" not in accepted.headers["set-cookie"].lower()
    tls = {"X-Forwarded-Proto": "https"}
    behind_tls = http.post(server.url + "/sign-in", data=form, headers=tls)
    assert "secure" in behind_tls.headers["set-cookie"].lower()


async def test_language_follows_browser_and_switch(
    browser: Any, open_server: ServerProcess
) -> None:
    async with window_on(browser, open_server.url, locale="zh-CN") as window:
        await window.open("/")
        assert await window.page.get_attribute("html", "lang") == "zh-CN"
        assert "概览" in await window.text("nav")
        await window.page.click("a[lang=en]")
        await window.page.wait_for_selector("nav:has-text('Overview')")
        assert await window.page.get_attribute("html", "lang") == "en-US"
        await window.open("/")
        assert "Overview" in await window.text("nav")


async def test_theme_follows_system_until_selected(
    browser: Any, open_server: ServerProcess
) -> None:
    async with window_on(browser, open_server.url, color_scheme="dark") as window:
        await window.open("/")
        await window.page.wait_for_selector("body.body--dark")
        await window.page.click("a[aria-label^='Theme']")
        await window.page.wait_for_selector("body.body--light")


async def test_narrow_screen_and_keyboard_navigation(
    browser: Any, open_server: ServerProcess
) -> None:
    narrow = {"width": 390, "height": 844}
    async with window_on(browser, open_server.url, viewport=narrow) as window:
        await window.open("/")
        assert not await window.page.is_visible("nav")
        await window.page.keyboard.press("Tab")
        focused = "document.activeElement.textContent"
        assert await window.page.evaluate(focused) == "Skip to content"
        await window.page.keyboard.press("Tab")
        await window.page.keyboard.press("Enter")  # the menu
        await window.page.wait_for_selector("nav a", state="visible")
        width = await window.page.evaluate("document.documentElement.scrollWidth")
        assert width <= narrow["width"]


async def test_keys_search_move_and_explain_themselves(
    browser: Any, open_server: ServerProcess
) -> None:
    focused = "document.activeElement.textContent"
    for locale, title in (("en-US", "Keyboard shortcuts"), ("zh-CN", "键盘快捷键")):
        async with window_on(browser, open_server.url, locale=locale) as window:
            page, keys = window.page, window.page.keyboard
            await window.open("/explorer/sessions?user=maya")
            titles = await page.locator(".mr-item > a").all_inner_texts()
            for key, index in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
                await keys.press(key)
                assert await page.evaluate(focused) == titles[index]
            await keys.press("?")
            await page.get_by_role("dialog", name=title).wait_for()
            await keys.press("j")
            await keys.press("Escape")
            assert not await page.get_by_role("dialog").count()
            await window.open("/?user=maya")
            await keys.press("/")
            await keys.type("j/k?")
            assert await page.input_value("[role=search] input") == "j/k?"
            assert not await page.get_by_role("dialog").count()
