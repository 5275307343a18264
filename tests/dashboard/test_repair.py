"""Repairs from pages: memories, users; confirmation, refusals and the log of changes."""

import json
from pathlib import Path
from typing import Any

import httpx

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import Grant, Store
from memrecall.types import NewMessage, Role
from tests.cli.test_extract import read_facts
from tests.model.openai_server import ModelServer
from tests.server.server_process import ServerProcess
from tests.waiting import wait_until

from .conftest import Window, sign_in, window_on
from .sample import add_facts, sample_settings
from .test_explorer import add_user

Keyed = tuple[ServerProcess, dict[str, str]]


async def open_memory(window: Window, user: str, text: str) -> None:
    await window.open(f"/explorer/memories?user={user}")
    await window.page.click(f"a:has-text('{text}')")
    await window.page.wait_for_selector("h2:has-text('History'), h2:has-text('变更历史')")
    await window.ready()


async def answer(window: Window, button: str, choice: str = "") -> None:
    """Click a button of the page, and the same or another one of the dialog that it opens."""
    await window.page.click(f"main button:has-text('{button}')")
    await window.page.click(f".q-dialog button:has-text('{choice or button}')")


async def api(window: Window, method: str, path: str, **options: Any) -> Any:
    """Send a request as another client, and return the JSON of its answer."""
    async with httpx.AsyncClient(base_url=window.url, timeout=60) as client:
        response = await client.request(method, path, **options)
    assert response.status_code == 200, response.text
    return response.json()


async def memories_of(window: Window, user: str, **query: Any) -> dict[str, dict[str, Any]]:
    page = await api(window, "GET", "/v1/memories", params={"user_id": user, **query})
    return {item["memory"]: item for item in page["results"]}


async def actions_of(window: Window, user: str) -> list[str]:
    """Return the actions that the log of changes shows, latest first."""
    await window.open(f"/explorer/changes?user={user}")
    return [str(text) for text in await window.page.locator(".mr-badge").all_inner_texts()]


def read_contents(file: str) -> set[str]:
    """Return the contents of the messages and memories in an export."""
    lines = Path(file).read_text("utf-8").splitlines()
    return {json.loads(line)["row"].get("content") for line in lines}


async def test_memory_is_edited_pinned_and_expired_in_place(window: Window, folder: Path) -> None:
    page = window.page
    user = await add_user(folder, "I am allergic to peanuts.")
    await open_memory(window, user, "allergic to peanuts")
    await page.click("button:has-text('Edit')")
    await page.fill(".q-dialog textarea", "User is allergic to shrimp.")
    await page.click(".q-dialog button:has-text('Save')")
    await page.wait_for_selector("h1:has-text('shrimp')")
    await window.ready()
    for name, count in (("Delete", 1), ("Pin", 0)):
        await page.click(f"main button:has-text('{name}')")
        await page.wait_for_selector(f".q-dialog button:has-text('{name}')")
        assert await page.locator(".q-dialog .bg-negative").count() == count, name
        await page.click(".q-dialog button:has-text('Cancel')")
        await page.wait_for_selector(".q-dialog", state="detached")
    await answer(window, "Pin")
    await page.wait_for_selector("button:has-text('Unpin')")
    await window.ready()
    await page.click("main button:has-text('Expire')")
    await page.fill(".q-dialog input[type=date]", "2020-05-04")
    await page.click(".q-dialog button:has-text('Expire')")
    await page.wait_for_selector("button:has-text('Remove expiry')")
    await window.ready()
    assert await memories_of(window, user) == {}
    (item,) = (await memories_of(window, user, show_expired=True)).values()
    assert (item["memory"], item["pinned"]) == ("User is allergic to shrimp.", True)
    await window.open(f"/explorer/memories?user={user}&state=expired")
    assert {"pinned", "expired"} <= set(await page.locator(".mr-badge").all_inner_texts())
    await page.click("a:has-text('shrimp')")
    await page.wait_for_selector("button:has-text('Remove expiry')")
    await window.ready()
    await answer(window, "Remove expiry")
    await page.wait_for_selector("main button:has-text('Expire')")
    await window.ready()
    await answer(window, "Restore this text")
    await page.wait_for_selector("h1:has-text('peanuts')")
    assert list(await memories_of(window, user)) == ["User is allergic to peanuts."]
    assert await actions_of(window, user) == ["Memory edited"] * 5
    assert "key local" in await window.text()


async def test_edit_of_a_memory_that_changed_meanwhile_is_refused(
    browser: Any, window: Window, folder: Path
) -> None:
    user = await add_user(folder, "I am allergic to peanuts.")
    async with window_on(browser, window.url, locale="zh-CN", color_scheme="dark") as other:
        await open_memory(other, user, "allergic to peanuts")
        (item,) = (await memories_of(window, user)).values()
        body = {"memory": "User is allergic to nuts."}
        await api(
            window, "PATCH", f"/v1/memories/{item['id']}", params={"user_id": user}, json=body
        )
        await other.page.click("button:has-text('编辑')")
        await other.page.fill(".q-dialog textarea", "User is allergic to shrimp.")
        await other.page.click(".q-dialog button:has-text('保存')")
        await other.page.wait_for_selector("text=这条记忆刚被他人修改")
        await answer(other, "撤销上次修改")
        await other.page.wait_for_selector("text=这条记忆刚被他人修改")
        await api(window, "POST", f"/v1/memories/{item['id']}/purge", params={"user_id": user})
        await answer(other, "彻底清除")
        await other.page.wait_for_selector("text=内容已被删除或清除")
    assert await memories_of(window, user) == {}


async def test_deleted_memories_are_restored_beside_later_ones(
    window: Window, folder: Path
) -> None:
    page = window.page
    user = await add_user(folder, "I live in Oslo.", "I am allergic to peanuts.")
    for text in ("lives in Oslo", "allergic to peanuts"):
        await open_memory(window, user, text)
        await answer(window, "Delete")
        await page.wait_for_selector(".mr-badge:has-text('DELETE')")
        await window.ready()  # The page is loaded again.
    await add_facts(folder / "open" / "sample.db", user, "I live in Rome.", first=2)
    assert set(await memories_of(window, user)) == {"User lives in Rome."}
    for text in ("allergic to peanuts", "lives in Oslo"):
        await window.open(f"/explorer/memories?user={user}&state=deleted")
        await page.click(f"a:has-text('{text}')")
        await page.wait_for_selector("h2:has-text('History')")
        await window.ready()
        await answer(window, "Restore")
        await page.wait_for_selector(".mr-badge:has-text('UNDO')")
        await window.ready()
    assert set(await memories_of(window, user)) == {
        "User is allergic to peanuts.",
        "User lives in Oslo.",
        "User lives in Rome.",
    }


async def test_chinese_dialogs_name_types_and_store_their_values(
    browser: Any, window: Window, folder: Path
) -> None:
    user = await add_user(folder, "I live in Oslo.")
    async with window_on(browser, window.url, locale="zh-CN") as chinese:
        page = chinese.page
        await open_memory(chinese, user, "lives in Oslo")
        await page.click("button:has-text('编辑')")
        assert await page.get_by_label("主体").input_value() == "用户"
        await page.get_by_label("类型").fill("计划")
        await page.click(".q-dialog button:has-text('保存')")
        await page.wait_for_selector(".mr-fact:has-text('类型'):has-text('计划')")
        await chinese.ready()
    (item,) = (await memories_of(window, user)).values()
    assert (item["memory_type"], item["subject"]) == ("plan", "user")


async def test_user_is_exported_and_erased(window: Window, folder: Path) -> None:
    page = window.page
    user = await add_user(folder, "I live in Oslo.")
    await window.open(f"/explorer/user?user={user}")
    async with page.expect_download() as downloading:
        await answer(window, "Export")
    download = await downloading.value
    assert download.suggested_filename == f"{user}.jsonl"
    assert "I live in Oslo." in read_contents(await download.path())
    assert await actions_of(window, user) == ["User exported"]
    await window.open(f"/explorer/user?user={user}")
    await answer(window, "Erase user")
    await page.wait_for_selector("text=This is not the id of the user.")
    await page.click("main button:has-text('Erase user')")
    await page.fill(".q-dialog input", user)
    await page.click(".q-dialog button:has-text('Erase user')")
    await page.wait_for_selector("[role=status]:has-text('The user was erased')")
    await window.open(f"/explorer?user={user}")
    assert await window.text("h1") == f"User “{user}” not found"
    window.watch.problems.clear()  # the browser reports the 404


async def test_rows_that_wait_for_vectors_are_counted(
    browser: Any, keyed_server: Keyed, folder: Path
) -> None:
    server, keys = keyed_server

    async def is_ready() -> bool:  # Until then the users who were active last are embedded.
        async with httpx.AsyncClient(base_url=server.url) as client:
            return (await client.get("/readyz")).is_success

    await wait_until(is_ready)
    async with await Store.open(str(folder / "keyed" / "sample.db")) as store:
        said = [NewMessage(role=Role.USER, content=f"tea {number}") for number in range(3)]
        await store.timeline(Scope("wan")).add(said)  # without a library nothing embeds them
    for locale, text in (
        ("en", "3 rows wait for vectors; found by words until then."),
        ("zh-CN", "3 行等待生成向量，此前可按词语找到。"),
    ):
        async with window_on(browser, server.url, locale=locale) as window:
            await sign_in(window, keys["all"])
            await window.open("/explorer/user?user=wan")
            assert text in await window.text()


async def test_keys_without_the_right_are_refused_in_words(
    browser: Any, keyed_server: Keyed, folder: Path
) -> None:
    server, keys = keyed_server
    settings = sample_settings(str(folder / "keyed" / "sample.db"), folder)
    async with await Library.open(settings) as library:
        _, agent_key = await library.store.keys.create(Grant(frozenset({"maya"}), "default"))
    refused = {
        keys["reader"]: ("/explorer/memories?user=maya", "当前密钥为只读"),
        agent_key: ("/explorer/user?user=maya", "当前密钥仅限一个智能体"),
    }
    for key, (path, text) in refused.items():
        async with window_on(browser, server.url, locale="zh-CN") as window:
            await sign_in(window, key)
            await window.open(path)
            if "memories" in path:
                await window.page.locator(".mr-item a").first.click()
                await window.page.wait_for_selector("h2:has-text('变更历史')")
                await window.ready()
            await answer(window, "删除" if "memories" in path else "导出")
            await window.page.wait_for_selector(f"text={text}")


async def test_changes_name_keys_to_their_holders_and_to_operators(
    browser: Any, keyed_server: Keyed, folder: Path
) -> None:
    server, keys = keyed_server
    settings = sample_settings(str(folder / "keyed" / "sample.db"), folder)
    async with await Library.open(settings) as library:
        grant = Grant(frozenset({"lin", "maya"}))
        key, text = await library.store.keys.create(grant, name="笔记本")
        _, other = await library.store.keys.create(Grant(frozenset({"lin"})))
    headers = {"Authorization": f"Bearer {text}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
        fact = {"user_id": "lin", "messages": "我住在宁波。", "infer": False}
        added = (await client.post("/v1/memories", json=fact)).json()["results"]
        path = f"/v1/memories/{added[0]['id']}"
        (await client.delete(path, params={"user_id": "lin"})).raise_for_status()
    for secret, is_named in ((text, True), (keys["all"], True), (other, False)):
        async with window_on(browser, server.url) as window:
            await sign_in(window, secret)
            await window.open("/explorer/changes?user=lin")
            shown = await window.text(".mr-item:has-text('Memory deleted')")
            assert (f"key {key.key_id} (笔记本)" in shown) == is_named
            assert f"key {key.key_id}" in shown


async def test_other_users_cannot_be_exported(keyed_server: Keyed) -> None:
    server, keys = keyed_server
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        unknown = await client.get("/explorer/export?user=maya")
        assert unknown.headers["location"].startswith("/sign-in")
        await client.post("/sign-in", data={"key": keys["maya"]})
        response = await client.get("/explorer/export?user=lin")
        assert (response.status_code, response.text) == (303, "")
        own = await client.get("/explorer/export?user=maya")
        assert own.headers["content-disposition"] == "attachment; filename*=UTF-8''maya.jsonl"
        assert own.text.startswith("{")


async def test_stored_messages_are_extracted_and_taken_back(
    browser: Any, window: Window, keyed_server: Keyed, model_server: ModelServer, folder: Path
) -> None:
    user = await add_user(folder, "I live in Oslo.")
    await window.open(f"/explorer/user?user={user}")
    assert "No model is configured: set MEMRECALL_MODEL" in await window.text()

    server, keys = keyed_server
    async with await Store.open(str(folder / "keyed" / "sample.db")) as store:
        said = NewMessage(role=Role.USER, content="I like tea.")
        await store.timeline(Scope("tea")).add([said])
    model_server.answer = read_facts
    async with window_on(browser, server.url, locale="en") as keyed:
        await sign_in(keyed, keys["all"])
        await keyed.open("/explorer/user?user=tea")
        await keyed.page.click("main button:has-text('Extract memories')")
        question = await keyed.page.inner_text(".q-dialog .mr-text")
        assert question.startswith("Send the messages to the model? Messages: 1, calls: 1, ")
        await keyed.page.click(".q-dialog button:has-text('Extract memories')")
        await keyed.page.wait_for_selector("main :text('Messages read: ')")

        async def is_read() -> bool:
            await keyed.open("/explorer/memories?user=tea")
            return "I like tea." in await keyed.text()

        await wait_until(is_read)
        await keyed.open("/explorer/user?user=tea")
        assert "Messages read: 1" in await keyed.text()
        await answer(keyed, "Take back")
        await keyed.page.wait_for_selector("main button:has-text('Take back')", state="detached")
        actions = await actions_of(keyed, "tea")
        assert set(actions) == {"Extraction undone", "Data read by an admin"}
        assert actions.count("Extraction undone") == 1
        await keyed.open("/explorer/memories?user=tea")
        assert "I like tea." not in await keyed.text()
