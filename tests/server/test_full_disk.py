"""A service whose SQLite database is on a full disk: a small file system of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from memrecall.errors import StorageError, StorageFull
from memrecall.scope import Scope
from memrecall.store import Store

from ..store.samples import ANN, ids, numbered_messages
from .http_service import make_message
from .server_process import TIMEOUT, WITHOUT_DASHBOARD, ServerProcess, run_server

MOUNT = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
MESSAGES = "/v1/users/{}/messages"


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
        batch = [
            make_message(1, os.urandom(1_000).hex(), message_id=f"m{len(stored) + part}")
            for part in range(10)
        ]
        answer = client.post(MESSAGES.format("ann"), json={"messages": batch})
        if answer.status_code == 507:
            return stored
        assert answer.status_code == 200, answer.text
        stored += [message["message_id"] for message in batch]


@pytest.mark.service
def test_messages_and_users_are_erased_on_a_full_disk(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=TIMEOUT) as client:
        small = [make_message(n) for n in range(20)]
        client.post(MESSAGES.format("ben"), json={"messages": small}).raise_for_status()
        stored = post_until_full(client)
        state = client.get("/readyz")
        assert state.status_code == 200
        assert (state.json()["status"], state.json()["reason"]) == ("read-only", "disk full")
        for message_id in stored[:5]:
            assert client.delete(f"{MESSAGES.format('ann')}/{message_id}").status_code == 200
        assert client.delete("/v1/users/ben").json()["messages"] == 20
        # Ann's rows need more space than the reserve has: they are erased in parts.
        assert client.delete("/v1/users/ann").json()["messages"] == len(stored) - 5
        assert client.get(MESSAGES.format("ann")).status_code == 404
        client.post(MESSAGES.format("ann"), json={"messages": small}).raise_for_status()
        assert client.get("/readyz").json()["status"] == "ready"


async def fail(_: object) -> None:
    raise StorageFull("no space is left")


async def test_erasure_that_a_full_disk_stops_half_way_is_no_507(tmp_path: Path) -> None:
    async with await Store.open(str(tmp_path / "a.db")) as store:
        await store.timeline(ANN).add(numbered_messages("m", 2))

        async def erase(*message_ids: str) -> None:
            async with store.database.erasing():
                for message_id in message_ids:
                    await store.changes(ANN).delete_message(message_id)
                await store.database.transact(fail)

        with pytest.raises(StorageFull):
            await erase()
        with pytest.raises(StorageError, match="only a part was erased") as error:
            await erase("m0")
        assert not isinstance(error.value, StorageFull)
        assert await ids(store.timeline(ANN)) == ["m1"]


async def test_erasure_succeeds_when_its_log_cannot_be_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_open() -> None:
        raise StorageFull("no space is left")

    async with await Store.open(str(tmp_path / "a.db")) as store:
        await store.timeline(ANN).add(numbered_messages("m", 2))
        monkeypatch.setattr(store.database, "autocommit", fail_to_open)
        removal = await store.changes(Scope("ann")).delete_message("m0")
        assert removal.messages == ("m0",)
        assert await ids(store.timeline(ANN)) == ["m1"]
