"""What must not happen: a revoked key that still sees, somebody else's websocket, another host."""

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
from tests.server.process import Served, served
from tests.waiting import LIMIT, wait_until

from .conftest import sign_in, window_on
from .sample import sample_settings

Keyed = tuple[Served, dict[str, str]]


def socket_of(server: Served, page: str) -> str:
    """The address of a page's websocket."""
    found = re.search(r"'client_id': '([0-9a-f-]+)'", page)
    assert found is not None
    names = dict.fromkeys(("client_id", "tab_id", "document_id"), found[1])
    asked = {**names, "implicit_handshake": "true", "EIO": 4, "transport": "websocket"}
    return f"ws://{server.url.removeprefix('http://')}/_nicegui_ws/socket.io/?{urlencode(asked)}"


def test_websocket_requires_the_pages_own_browser(keyed: Keyed) -> None:
    server, keys = keyed
    with httpx.Client(base_url=server.url, timeout=LIMIT) as client:
        client.post("/sign-in", data={"key": keys["maya"]})
        page = client.get("/recalls?user=maya").text
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    address, own = socket_of(server, page), Origin(server.url)
    foreign = Origin("http://evil.example")
    for origin, headers in ((own, {}), (foreign, {"Cookie": cookie}), (None, {"Cookie": cookie})):
        with (
            pytest.raises(InvalidStatus),
            connect(address, origin=origin, additional_headers=headers),
        ):
            pass
    with connect(address, origin=own, additional_headers={"Cookie": cookie}) as connection:
        assert str(connection.recv(timeout=LIMIT)).startswith("0")


async def test_revoked_key_loses_access_at_once(browser: Any, keyed: Keyed, folder: Path) -> None:
    server, _ = keyed
    settings = sample_settings(str(folder / "keyed" / "sample.db"), folder)
    async with await Library.open(settings) as library:
        made, text = await library.store.keys.create(Grant(frozenset({"maya"})))
        async with window_on(browser, server.url) as window:
            await sign_in(window, text)
            await window.open("/explorer/memories?user=maya")
            await window.page.click("a:has-text('allergic to peanuts')")
            await window.ready()
            await library.store.keys.revoke(made.key_id)
            await window.page.click("button:has-text('Delete')")
            await window.page.click(".q-dialog button:has-text('Delete')")
            await window.page.wait_for_selector("text=the key was revoked or has expired")
            await window.open("/explorer?user=maya")
            assert "/sign-in" in window.page.url


async def test_pages_of_other_users_are_refused(browser: Any, keyed: Keyed) -> None:
    server, keys = keyed
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
            "/recalls/trace?user=lin&id=x",
            "/recalls/live?user=lin&id=x",
            "/try?user=lin",
        ):
            answer = await window.page.request.get(server.url + path)
            assert answer.status == 404, path
            body = await answer.text()
            assert "lin-s02" not in body, path
            assert "过敏" not in body, path


@pytest.mark.concurrent
def test_service_works_without_dashboard(tmp_path: Path, http: httpx.Client) -> None:
    with served(tmp_path, "--db", tmp_path / "a.db", MEMRECALL_DASHBOARD="false") as server:
        assert server.facts["dashboard"] is None
        assert http.get(server.url + "/").status_code == 404
        assert http.get(server.url + "/healthz").status_code == 200


async def test_pages_work_with_empty_database(browser: Any, tmp_path: Path, chromium: str) -> None:
    with served(tmp_path, "--db", tmp_path / "a.db") as server:
        async with window_on(browser, server.url) as window:

            async def is_measured() -> bool:
                await window.open("/")
                return "Users\n0" in await window.text()

            await wait_until(is_measured)  # what is stored is measured as the service starts
            for path in ("/explorer", "/recalls", "/try"):
                await window.open(path)
                assert "No user has stored data yet." in await window.text()
            await window.open("/evaluations")
            assert "memrecall eval run" in await window.text()
