"""A service whose SQLite database is on a full disk: a small file system of its own."""

import asyncio
import contextvars
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.errors import StorageError, StorageFull
from memrecall.store import Store

from ..store.samples import ANN, ids, numbered_messages
from ..waiting import block_until
from .http_service import make_message
from .server_process import TIMEOUT, WITHOUT_DASHBOARD, ServerProcess, run_server

MOUNT = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MESSAGES = "/v1/users/ann/messages"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A service on a disk of 20 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=20m tmpfs {disk}"
    if shutil.which(MOUNT[0]) is None or subprocess.run([*MOUNT, mount], check=False).returncode:
        pytest.skip("this system lets no user mount a file system")
    prefix = [*MOUNT, f'{mount} && exec "$0" "$@"']
    with run_server(tmp_path, "--db", disk / "a.db", prefix=prefix, **WITHOUT_DASHBOARD) as running:
        yield running


def post_until_full(client: httpx.Client) -> list[str]:
    """Post messages of Ann until 507, and return the ids of those that were acknowledged."""
    stored: list[str] = []
    while True:
        names = [f"m{len(stored) + part}" for part in range(10)]
        batch = [make_message(1, os.urandom(1_000).hex(), message_id=name) for name in names]
        answer = client.post(MESSAGES, json={"messages": batch})
        if answer.status_code == 507:
            return stored
        answer.raise_for_status()
        stored += names


@pytest.mark.service
def test_messages_and_users_are_erased_on_a_full_disk(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=TIMEOUT) as client:
        block_until(lambda: client.get("/readyz").is_success)
        stored = post_until_full(client)
        assert client.get("/readyz").raise_for_status().json()["reason"] == "disk full"
        for message_id in stored[:5]:
            purged = client.post(f"/v1/memories/{message_id}/purge", params={"user_id": "ann"})
            assert purged.status_code == 200, purged.text
        # Ann's rows need more space than the reserve has: they are erased in parts.
        erased = client.delete("/v1/users/ann")
        assert erased.status_code == 200, erased.text
        assert erased.json()["messages"] == len(stored) - 5
        client.post(MESSAGES, json={"messages": [make_message(1)]}).raise_for_status()
        assert client.get("/readyz").json()["status"] == "ready"


async def test_only_an_erasure_that_changed_nothing_raises_storage_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise StorageFull("no space is left")

    async with await Store.open(str(tmp_path / "a.db")) as store:
        await store.timeline(ANN).add(numbered_messages("m", 2))
        monkeypatch.setattr(store.database, "autocommit", fail)  # The log is not truncated.

        async def erase(*message_ids: str) -> None:
            async with store.database.erasing():
                for message_id in message_ids:
                    await store.changes(ANN).purge_message(message_id)
                await store.database.transact(fail)

        with pytest.raises(StorageFull):
            await erase()
        with pytest.raises(StorageError, match="only a part was erased"):
            await erase("m0")
        assert (await store.changes(ANN).purge_message("m1")).messages == ("m1",)
        assert await ids(store.timeline(ANN)) == []


async def test_what_an_erasure_frees_on_a_full_disk_is_not_filled_by_others(tmp_path: Path) -> None:
    async with await Store.open(str(tmp_path / "a.db")) as store:
        failures = [StorageFull("no space is left")]

        def erase(_: object) -> None:
            if failures:
                raise failures.pop()

        def add(name: str) -> asyncio.Task[Any]:
            writing = store.timeline(ANN).add(numbered_messages(name, 1))
            return asyncio.create_task(writing, context=contextvars.Context())

        async with store.database.erasing():
            await store.database.transact(erase)
            with pytest.raises(StorageFull, match="for an erasure"):
                await add("during")
        await add("after")
        assert await ids(store.timeline(ANN)) == ["after0"]
