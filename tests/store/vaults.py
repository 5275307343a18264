"""States to back up and restore, and a process that does so until it is killed.

As a program it forks: starting Python anew for every kill would take most of the time.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge, Store
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.format import unseal
from memrecall.store.backup.restore import Backups
from memrecall.store.workspaces import Workspaces

AGENT = Scope("ops", "helper", permissions=frozenset({Permission.KNOWLEDGE}))
LARGEST = 4 * 1024 * 1024


class Place:
    """A database, a root and a folder of backups."""

    def __init__(self, location: str, home: Path) -> None:
        self.location = location
        self.home = home

    def vault(self, store: Store, at: Callable[[str], None] = lambda _step: None) -> Backups:
        spaces, folder = self.workspaces(), self.folder()
        return Backups(store, AGENT, spaces, folder, software="test", lock_timeout=20, on_step=at)

    def workspaces(self) -> Workspaces:
        return Workspaces(self.home / "root")

    def folder(self) -> BackupFolder:
        return BackupFolder(self.home / "backups", LARGEST)


async def write_state(store: Store, place: Place, name: str) -> None:
    """Make the state of that name: entries and files that all say it, more of them for a `b`."""
    room, spaces = store.knowledge(AGENT), place.workspaces()
    for entry in (await room.snapshot()).entries:
        await room.delete(entry.knowledge_key)
    for task in spaces.names():
        spaces.remove(task)
    size = 3 + (name == "b")
    for number in range(size):
        await room.add(NewKnowledge(f"{name} {number}", name, (name,), key=f"kb-{name}{number}"))
        home = spaces.create(f"shared-{number}" if number < 2 else f"task-{name}-{number}")
        (home / "deep").mkdir()
        (home / "deep" / "f.txt").write_text(name)
        (home / "bytes.bin").write_bytes(b"\0\xff" + name.encode())


async def read_state(store: Store, place: Place) -> str:
    """The state's name; AssertionError where it is between two."""
    entries = (await store.knowledge(AGENT).snapshot()).entries
    names = {entry.summary for entry in entries}
    assert len(names) == 1, names
    (name,) = names
    size = 3 + (name == "b")
    assert [e.knowledge_key for e in entries] == [f"kb-{name}{n}" for n in range(size)]
    assert [e.content for e in entries] == [f"{name} {n}" for n in range(size)]
    spaces = place.workspaces()
    wanted = [f"shared-{n}" if n < 2 else f"task-{name}-{n}" for n in range(size)]
    assert spaces.names() == wanted
    for task in wanted:
        home = spaces.root / task
        assert sorted(p.relative_to(home).as_posix() for p in home.rglob("*")) == [
            "bytes.bin",
            "deep",
            "deep/f.txt",
        ]
        assert (home / "deep" / "f.txt").read_text() == name
        assert (home / "bytes.bin").read_bytes() == b"\0\xff" + name.encode()
    return name


def check_backups(place: Place) -> None:
    """Every file that has a backup's name is a whole one."""
    folder = place.folder()
    for path in folder.folder.glob("memory_backup_*"):
        unseal(folder.read(path.name)[1])


async def work(place: Place, backups: list[str], kill_at: int) -> None:
    """Restore and back up in turns; at that step, if any, die."""
    steps = 0

    def at(_step: str) -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async with await Store.open(place.location, durability="normal") as store:
        vault = place.vault(store, at)
        await vault.recover()
        if kill_at:
            await vault.restore(backups[0])
            return
        while True:
            for name in backups:
                await vault.restore(name)
                made = await vault.backup()
                made.unlink()  # or the folder would fill


def main() -> None:
    """Fork a worker for each line `location home kill_at backup…`, and tell how each ended."""
    for line in sys.stdin:
        location, home, kill_at, *backups = line.rstrip("\n").split("\t")
        child = os.fork()
        if not child:
            asyncio.run(work(Place(location, Path(home)), backups, int(kill_at)))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
