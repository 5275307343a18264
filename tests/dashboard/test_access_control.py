"""Access control of the dashboard: revoked keys, websockets and other users."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from websockets import Origin
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from memrecall.memory import Library
from memrecall.store import Grant
from tests.server.server_process import ServerProcess, run_server
from tests.waiting import LIMIT

from .conftest import Window, sign_in, window_on
from .sample import sample_settings

Keyed = tuple[ServerProcess, dict[str, str]]
# What pages show of the sample.
SAMPLE_MAYA = {
    "/explorer/memories": "Maya's neighbour Joyce has her spare key and walks Biscuit",
    "/explorer/graph": "neighbour of",
    "/explorer/changes": "Memory edited",
    "/recalls": "Who has my spare key?",
}
SAMPLE_LIN = {
    "/explorer/memories": "林晓从 VS Code 换到了 Neovim。",
    "/explorer/graph": "过敏于",
    "/explorer/changes": "编辑记忆",
    "/recalls": "我对什么过敏来着？",
}


def websocket_url(server: ServerProcess, page: str) -> str:
    """Return the URL of the websocket of a page."""
    match = re.search(r"'client_id': '([0-9a-f-]+)'", page)
    assert match is not None
    names = dict.fromkeys(("client_id", "tab_id", "document_id"), match[1])
    query = {**names, "implicit_handshake": "true", "EIO": 4, "transport": "websocket"}
    return f"ws://{server.url.removeprefix('http://')}/_nicegui_ws/socket.io/?{urlencode(query)}"


def test_websocket_requires_the_pages_own_browser(keyed_server: Keyed) -> None:
    server, keys = keyed_server
    with httpx.Client(base_url=server.url, timeout=LIMIT) as client:
        client.post("/sign-in", data={"key": keys["maya"]})
        page = client.get("/recalls?user=maya").text
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    address, own = websocket_url(server, page), Origin(server.url)
    other_origin = Origin("http://evil.example")
    for origin, headers in (
        (own, {}),
        (other_origin, {"Cookie": cookie}),
        (None, {"Cookie": cookie}),
    ):
        with (
            pytest.raises(InvalidStatus),
            connect(address, origin=origin, additional_headers=headers),
        ):
            pass
    with connect(address, origin=own, additional_headers={"Cookie": cookie}) as connection:
        assert str(connection.recv(timeout=LIMIT)).startswith("0")


async def test_revoked_key_loses_access_at_once(
    browser: Any, keyed_server: Keyed, folder: Path
) -> None:
    server, _ = keyed_server
    settings = sample_settings(str(folder / "keyed" / "sample.db"), folder)
    async with await Library.open(settings) as library:
        key, text = await library.store.keys.create(Grant(frozenset({"maya"})))
        async with window_on(browser, server.url) as window:
            await sign_in(window, text)
            await window.open("/explorer/memories?user=maya")
            await window.page.click("a:has-text('allergic to peanuts')")
            await window.ready()
            await library.store.keys.revoke(key.key_id)
            await window.page.click("button:has-text('Delete')")
            await window.page.click(".q-dialog button:has-text('Delete')")
            await window.page.wait_for_selector("text=the key was revoked or has expired")
            await window.open("/explorer?user=maya")
            assert "/sign-in" in window.page.url


async def test_pages_of_other_users_are_refused(browser: Any, keyed_server: Keyed) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        await sign_in(window, keys["maya"])
        for path in (
            "/?user=lin",
            "/explorer?user=lin",
            "/explorer?user=lin&q=x",
            "/explorer?user=lin&around=lin-001",
            "/explorer/memories?user=lin",
            "/explorer/graph?user=lin",
            "/explorer/sessions?user=lin",
            "/explorer/session?user=lin&id=lin-s01",
            "/explorer/changes?user=lin",
            "/explorer/user?user=lin",
            "/recalls?user=lin",
            "/recalls/trace?user=lin&id=x",
        ):
            answer = await window.page.request.get(server.url + path)
            assert answer.status == 404, path
            body = await answer.text()
            assert "lin-s02" not in body, path
            assert "过敏" not in body, path


async def test_read_only_key_can_change_nothing(browser: Any, keyed_server: Keyed) -> None:
    server, keys = keyed_server
    async with window_on(browser, server.url) as window:
        page = window.page
        await sign_in(window, keys["reader"])
        for path, link, button, dialog in (
            ("/explorer/memories", "a:has-text('allergic to peanuts')", "Delete", "Delete"),
            ("/explorer", "", "delete_forever", "Erase permanently"),
            ("/recalls", ".mr-list a >> nth=0", "Right", ""),
        ):
            await window.open(f"{path}?user=maya")
            if link:
                await page.click(link)
                await window.ready()
            if path == "/explorer":
                await page.hover("article >> nth=0")
            await page.click(f"main button:has-text('{button}') >> nth=0")
            if dialog:
                await page.click(f".q-dialog button:has-text('{dialog}')")
            await page.locator("text=/this key is read-only/i").wait_for()


async def test_menu_has_only_pages_that_the_key_can_use(browser: Any, keyed_server: Keyed) -> None:
    server, keys = keyed_server
    common = ["Overview", "Explorer", "Recalls", "Spaces"]
    for name, others in (("all", ["Evaluations"]), ("maya", []), ("reader", [])):
        async with window_on(browser, server.url) as window:
            await sign_in(window, keys[name])
            await window.open("/nothing")
            for links in (".mr-nav a", "main a.mr-button"):
                texts = await window.page.locator(links).all_inner_texts()
                labels = [text.split("\n")[-1] for text in texts]  # after the icon
                assert labels == [*common, *others], (name, links)
            window.watch.problems.clear()  # the browser reports the 404


@pytest.mark.service
@pytest.mark.concurrent
def test_service_works_without_dashboard(tmp_path: Path, http: httpx.Client) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db", MEMRECALL_DASHBOARD="false") as server:
        assert server.info["dashboard"] is None
        assert http.get(server.url + "/").status_code == 404
        assert http.get(server.url + "/healthz").status_code == 200


async def test_pages_work_with_empty_database(browser: Any, tmp_path: Path, chromium: str) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db") as server:
        async with window_on(browser, server.url) as window:
            await window.open("/")
            text = await window.text()
            assert "Nothing is stored yet" in text
            for way in ("memrecall import", "from memrecall import Memory", "memrecall mcp"):
                assert way in text
            assert str(tmp_path / "a.db") in text
            for path in ("/explorer", "/recalls"):
                await window.open(path)
                assert "No user has stored data yet." in await window.text()
            await window.open("/evaluations")
            assert "memrecall eval run" in await window.text()


async def test_first_visit_offers_sample_data(browser: Any, tmp_path: Path, chromium: str) -> None:
    with run_server(tmp_path, "--db", tmp_path / "a.db") as server:
        async with window_on(browser, server.url) as window:
            await window.open("/")
            await window.page.click("button:has-text('Load the sample data')")
            await window.page.wait_for_url("**/?user=maya")
            await window.ready()
            assert "Who has my spare key?" in await window.text("button.mr-chip")
            await window.open("/?user=maya&all=yes")
            text = await window.text()
            assert "Users\n2" in text
            assert "Messages\n175" in text  # counted now, not at the last measurement
            assert "Nothing is stored yet" not in text
            await check_sample(window, "maya", SAMPLE_MAYA)
        async with window_on(browser, server.url, locale="zh-CN") as window:
            await check_sample(window, "lin", SAMPLE_LIN)


async def check_sample(window: Window, user: str, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        await window.open(f"{path}?user={user}")
        assert text in await window.text(), path


async def test_user_of_a_key_without_data_has_empty_pages(
    keyed_server: Keyed, folder: Path
) -> None:
    server, _ = keyed_server
    settings = sample_settings(str(folder / "keyed" / "sample.db"), folder)
    async with await Library.open(settings) as library:
        _, key = await library.store.keys.create(Grant(frozenset({"new-user"})))
    async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT) as client:
        await client.post("/sign-in", data={"key": key})
        for path in ("/", "/recalls", "/explorer", "/explorer/memories", "/explorer/graph"):
            assert (await client.get(f"{path}?user=new-user")).status_code == 200, path
            assert (await client.get(f"{path}?user=maya")).status_code == 404, path
