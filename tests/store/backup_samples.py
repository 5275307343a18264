"""States to back up and restore, and a process that does so until it is killed.

Run as a program it forks workers, because starting Python for every kill takes too long.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge, Store
from memrecall.store.backup import folder, restore
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.restore import Backups, unseal
from memrecall.store.knowledge import Knowledge
from memrecall.store.workspaces import Workspaces

AGENT = Scope("ops", "helper", permissions=frozenset({Permission.KNOWLEDGE}))
LARGEST = 4 * 1024 * 1024


class BackupLocations:
    """A database, a root of workspaces and a folder of backups."""

    def __init__(self, location: str, home: Path) -> None:
        self.location = location
        self.home = home

    def backups(self, store: Store) -> Backups:
        spaces, backups = self.workspaces(), self.folder()
        return Backups(store, AGENT, spaces, backups, software="test", lock_timeout=20)

    def workspaces(self) -> Workspaces:
        return Workspaces(self.home / "root")

    def folder(self) -> BackupFolder:
        return BackupFolder(self.home / "backups", LARGEST)


DECISION = "replace"  # the step before the transaction that decides a restore


@contextmanager
def watch_steps(on_step: Callable[[str], object]) -> Iterator[None]:
    """Call a function with the name of each step of a backup or restore, before it is done."""

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def run(*arguments: Any, **options: Any) -> Any:
            on_step(name)
            return original(*arguments, **options)

        patch.setattr(owner, name, run)

    with pytest.MonkeyPatch.context() as patch:
        for owner in (folder, restore):
            watch(owner, "write_synced")
            watch(owner, "sync_to_disk")
        watch(Path, "rename")
        watch(shutil, "rmtree")
        watch(Knowledge, DECISION)
        yield


async def write_state(store: Store, locations: BackupLocations, name: str) -> None:
    """Write the named state: entries and files that contain the name, one more for `b`."""
    knowledge, spaces = store.knowledge(AGENT), locations.workspaces()
    for entry in (await knowledge.snapshot()).entries:
        await knowledge.delete(entry.knowledge_key)
    for task in spaces.names():
        spaces.remove(task)
    size = 3 + (name == "b")
    for number in range(size):
        await knowledge.add(
            NewKnowledge(f"{name} {number}", name, (name,), key=f"kb-{name}{number}")
        )
        home = spaces.create(f"shared-{number}" if number < 2 else f"task-{name}-{number}")
        (home / "deep").mkdir()
        (home / "deep" / "f.txt").write_text(name)
        (home / "bytes.bin").write_bytes(b"\0\xff" + name.encode())


async def read_state(store: Store, locations: BackupLocations) -> str:
    """Return the name of the current state; raise AssertionError if it mixes two."""
    entries = (await store.knowledge(AGENT).snapshot()).entries
    names = {entry.summary for entry in entries}
    assert len(names) == 1, names
    (name,) = names
    size = 3 + (name == "b")
    assert [e.knowledge_key for e in entries] == [f"kb-{name}{n}" for n in range(size)]
    assert [e.content for e in entries] == [f"{name} {n}" for n in range(size)]
    spaces = locations.workspaces()
    expected = [f"shared-{n}" if n < 2 else f"task-{name}-{n}" for n in range(size)]
    assert spaces.names() == expected
    for task in expected:
        home = spaces.root / task
        assert sorted(p.relative_to(home).as_posix() for p in home.rglob("*")) == [
            "bytes.bin",
            "deep",
            "deep/f.txt",
        ]
        assert (home / "deep" / "f.txt").read_text() == name
        assert (home / "bytes.bin").read_bytes() == b"\0\xff" + name.encode()
    return name


def check_backups(locations: BackupLocations) -> None:
    """Assert that every backup file is complete."""
    backups = locations.folder()
    for path in backups.folder.glob("memory_backup_*"):
        unseal(backups.read(path.name)[1])


async def work(locations: BackupLocations, names: list[str], kill_at: int) -> None:
    """Restore and back up in turns; at step `kill_at`, if not 0, kill this process."""
    steps = 0

    def on_step(_step: str) -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async with await Store.open(locations.location, durability="normal") as store:
        backups = locations.backups(store)
        await backups.recover()
        if kill_at:
            with watch_steps(on_step):
                await backups.restore(names[0])
            return
        while True:
            for name in names:
                await backups.restore(name)
                path = await backups.backup()
                path.unlink()  # keeps the folder small


def main() -> None:
    """Fork a worker for each line `location home kill_at backup…`, and print its exit code."""
    for line in sys.stdin:
        location, home, kill_at, *names = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            asyncio.run(work(BackupLocations(location, Path(home)), names, int(kill_at)))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
