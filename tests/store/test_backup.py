"""Backup and restore: atomic, for any file and any moment at which the process dies."""

import asyncio
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import (
    Conflict,
    Disabled,
    InvalidArgument,
    NotFound,
    StorageBusy,
    StorageError,
    StorageFull,
)
from memrecall.scope import Permission, Scope
from memrecall.store import NewKnowledge, Store
from memrecall.store.backup.folder import BackupFolder
from memrecall.store.backup.format import FORMAT, VERSION, checksum, seal, unseal
from memrecall.store.backup.restore import Backups, Stage
from memrecall.store.database.dialects import SQLITE
from memrecall.store.knowledge import Knowledge
from memrecall.store.workspaces import retry_while_busy

from ..waiting import wait_until
from .backup_samples import AGENT, LARGEST, BackupLocations, check_backups, read_state, write_state

ROOT = Path(__file__).parents[2]
CHANCE = random.Random(20260126)  # noqa: S311 -- nothing is kept secret


@pytest.fixture
def locations(location: str, tmp_path: Path) -> BackupLocations:
    return BackupLocations(location, tmp_path / "home")


@pytest.fixture
async def backup_files(store: Store, locations: BackupLocations) -> tuple[Path, Path]:
    """Backups of the states a and b; b is the current state."""
    await write_state(store, locations, "a")
    first = await locations.backups(store).backup()
    await write_state(store, locations, "b")
    return first, await locations.backups(store).backup()


def list_leftovers(locations: BackupLocations) -> list[str]:
    return [name for name in os.listdir(locations.home / "root") if name.startswith((".r", ".t"))]


class TestBackup:
    async def test_backup_file_is_complete_and_private(
        self, store: Store, locations: BackupLocations
    ) -> None:
        await write_state(store, locations, "a")
        (locations.home / "root" / "shared-0" / "run.sh").write_text("echo\n")
        (locations.home / "root" / "shared-0" / "run.sh").chmod(0o755)
        (locations.home / "root" / "shared-0" / "link").symlink_to("/etc/passwd")
        (locations.home / "root" / "shared-0" / "empty").mkdir()

        path = await locations.backups(store).backup()
        data = json.loads(path.read_bytes())

        assert path.is_absolute()
        assert path.parent == locations.home / "backups"
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert list(data) == ["format", "version", "knowledge", "workspaces", "manifest"]
        assert data["knowledge"]["kb-a0"]["content"] == "a 0"
        files = data["workspaces"]["shared-0"]["files"]
        assert files["deep/f.txt"]["text"] == "a"
        assert files["bytes.bin"]["base64"] == "AP9h"
        assert files["run.sh"]["mode"] & 0o100
        assert data["workspaces"]["shared-0"]["folders"] == ["deep", "empty"]
        assert data["manifest"]["left_out"] == ["shared-0/link"]
        assert data["manifest"]["agent_id"] == "helper"
        assert (data["manifest"]["entries"], data["manifest"]["workspaces"]) == (3, 3)

    async def test_backups_of_one_second_have_unique_names(
        self, store: Store, locations: BackupLocations
    ) -> None:
        backups = locations.backups(store)
        paths = [await backups.backup() for _ in range(5)]
        assert len(set(paths)) == 5
        check_backups(locations)

    @pytest.mark.concurrent
    async def test_backup_during_writes_is_a_snapshot(
        self, store: Store, locations: BackupLocations
    ) -> None:
        knowledge, backups = store.knowledge(AGENT), locations.backups(store)
        stop = asyncio.Event()
        is_written = 0

        async def write() -> None:
            nonlocal is_written
            while not stop.is_set():  # both entries of a pair have the same content
                pair = [NewKnowledge(str(is_written), key=f"kb-{name}") for name in "xy"]
                for entry in pair:
                    await knowledge.add(entry)
                is_written += 1

        writing = asyncio.create_task(write())
        await wait_until(lambda: is_written or writing.done())
        for _ in range(6):
            entries = json.loads((await backups.backup()).read_bytes())["knowledge"]
            first, second = (int(entries.get(f"kb-{n}", {"content": -1})["content"]) for n in "xy")
            assert first - second in (0, 1)
        await wait_until(lambda: is_written > 1 or writing.done())
        stop.set()
        await writing
        check_backups(locations)

    async def test_too_large_backup_is_refused(
        self, store: Store, locations: BackupLocations
    ) -> None:
        (locations.workspaces().create("t") / "big").write_bytes(b"x" * (LARGEST + 1))
        with pytest.raises(InvalidArgument, match="too large"):
            await locations.backups(store).backup()
        assert os.listdir(locations.home / "backups") == []

    async def test_full_disk_leaves_no_file(
        self, store: Store, locations: BackupLocations, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("memrecall.store.backup.folder.os.fsync", full)
        with pytest.raises(StorageFull):
            await locations.backups(store).backup()
        assert os.listdir(locations.home / "backups") == []


class TestRestore:
    async def test_restore_replaces_the_state_and_saves_the_previous_one(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        backups = locations.backups(store)
        previous = await backups.restore(str(backup_files[0]))
        assert await read_state(store, locations) == "a"

        assert previous not in backup_files
        await backups.restore(previous.name)
        assert await read_state(store, locations) == "b"
        assert list_leftovers(locations) == []
        check_backups(locations)

    async def test_restore_keeps_times_modes_and_empty_folders(
        self, store: Store, locations: BackupLocations
    ) -> None:
        home = locations.workspaces().create("t")
        (home / "empty").mkdir()
        (home / "run.sh").write_text("echo\n")
        (home / "run.sh").chmod(0o755)
        key = await store.knowledge(AGENT).add(NewKnowledge("x", "s", ("t",), {"a": 1.5}))
        before = await store.knowledge(AGENT).get(key)
        path = await locations.backups(store).backup()
        await store.knowledge(AGENT).delete(key)
        locations.workspaces().remove("t")

        await locations.backups(store).restore(str(path))

        assert await store.knowledge(AGENT).get(key) == before
        assert (home / "empty").is_dir()
        assert (home / "run.sh").stat().st_mode & 0o777 == 0o700
        assert home.stat().st_mode & 0o777 == 0o700

    async def test_restore_into_a_new_database(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        tmp_path: Path,
    ) -> None:
        other = BackupLocations(str(tmp_path / "other.db"), tmp_path / "other")
        other.folder()
        copied = other.home / "backups" / backup_files[0].name
        copied.write_bytes(backup_files[0].read_bytes())
        async with await Store.open(other.location) as fresh:
            await other.backups(fresh).restore(copied.name)
            assert await read_state(fresh, other) == "a"

    async def test_restore_needs_the_permission(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        reader = Scope("ops", "helper")
        backups = Backups(
            store, reader, locations.workspaces(), locations.folder(), software="test"
        )
        with pytest.raises(Disabled):
            await backups.restore(backup_files[0].name)
        assert await read_state(store, locations) == "b"

    async def test_concurrent_write_is_not_lost(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        replace = Knowledge.replace

        async def replace_after_write(
            knowledge: Knowledge, *arguments: Any, **options: Any
        ) -> None:
            monkeypatch.setattr(Knowledge, "replace", replace)
            await knowledge.add(NewKnowledge("late", "late"))
            await replace(knowledge, *arguments, **options)

        monkeypatch.setattr(Knowledge, "replace", replace_after_write)
        previous = await locations.backups(store).restore(backup_files[0].name)

        assert await read_state(store, locations) == "a"
        entries = json.loads(previous.read_bytes())["knowledge"].values()
        assert "late" in {entry["content"] for entry in entries}
        assert len(list((locations.home / "backups").iterdir())) == 3

    @pytest.mark.concurrent
    async def test_concurrent_restores_run_in_sequence(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        async with await Store.open(locations.location) as other:
            await asyncio.gather(
                *(
                    locations.backups(s).restore(p.name)
                    for p in backup_files
                    for s in (store, other)
                )
            )
        assert await read_state(store, locations) in ("a", "b")
        assert list_leftovers(locations) == []

    @pytest.mark.concurrent
    async def test_restore_raises_storage_busy_after_the_timeout(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        spaces, folder = locations.workspaces(), locations.folder()
        backups = Backups(store, AGENT, spaces, folder, software="test", lock_timeout=0.05)
        with locations.workspaces().lock(), pytest.raises(StorageBusy):
            await backups.restore(backup_files[0].name)
        assert await read_state(store, locations) == "b"

    @pytest.mark.concurrent
    async def test_many_waiting_tasks_do_not_block_each_other(
        self, store: Store, locations: BackupLocations
    ) -> None:
        """There are more tasks than threads."""
        spaces, backups = locations.workspaces(), locations.backups(store)
        work: list[Any] = [backups.backup() for _ in range(20)]
        work += [
            retry_while_busy(lambda n=n: spaces.create(f"t{n}"), 60)  # type: ignore[misc]
            for n in range(20)
        ]
        await asyncio.gather(*work)
        assert len(spaces.names()) == 20
        check_backups(locations)

    @pytest.mark.concurrent
    async def test_cancelled_restore_is_completed(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        steps: list[str] = []
        await locations.backups(store, steps.append).restore(backup_files[0].name)
        assert "decided" in steps
        for number, step in enumerate(dict.fromkeys(steps)):
            await cancel_restore_at(step, store, locations, backup_files[number % 2])
            assert await read_state(store, locations) == "ab"[number % 2], step
            assert list_leftovers(locations) == [], step


async def cancel_restore_at(
    stop_at: str, store: Store, locations: BackupLocations, backup: Path
) -> None:
    """Restore a backup and cancel the task at a step."""
    loop = asyncio.get_running_loop()

    def cancel_at_step(step: str) -> None:
        if step == stop_at:  # some steps run in threads
            loop.call_soon_threadsafe(task.cancel)

    task = asyncio.create_task(locations.backups(store, cancel_at_step).restore(backup.name))
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)


def with_members(data: bytes, **members: Any) -> bytes:
    """Return a backup with other members and a matching checksum."""
    content = {**json.loads(data), **members}
    content["manifest"]["sha256"] = checksum(content)
    return json.dumps(content).encode()


def with_file(data: bytes, task: str, path: str) -> bytes:
    """Return a backup that would write to a path that the attacker chose."""
    content = json.loads(data)
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    content["workspaces"][task] = {"folders": [], "files": {path: {"mode": 384, "text": "x"}}}
    content["manifest"]["workspaces"] = len(content["workspaces"])
    content["manifest"]["files"][f"{task}/{path}"] = {"size": 1, "sha256": digest}
    return with_members(json.dumps(content).encode())


ESCAPING_PATHS = [
    "../x",
    "/etc/x",
    "a/../../x",
    "a//b",
    "./x",
    "a/.",
    "",
    "a\0",
    "x" * 256,
    "a/" * 70 + "b",
]
DAMAGED: dict[str, Any] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one letter changed": lambda data: data.replace(b'"a 0"', b'"a 9"'),
    "a file changed": lambda data: data.replace(b'"text":"a"', b'"text":"b"', 1),
    "no checksum": lambda data: data.replace(b'"sha256"', b'"sha257"'),
    "not UTF-8": lambda data: data.replace(b"a 0", b"\xff\xfe0"),
    "another file of JSON": lambda data: b'{"hello": "world"}',
    "a list": lambda data: b"[]",
    "a number": lambda data: b"1",
    "a database": lambda data: b"SQLite format 3\0" + bytes(100),
    "nested without end": lambda data: b"[" * 100_000,
    "another format": lambda data: with_members(data, format="mem0-backup"),
    "a later version": lambda data: with_members(data, version=2),
    "a member more": lambda data: with_members(data, scripts=["rm"]),
    "a workspace less": lambda data: with_members(data, workspaces={}),
    "an entry without words": lambda data: with_members(
        data, knowledge={k: {**v, "content": " "} for k, v in json.loads(data)["knowledge"].items()}
    ),
    "an entry with a NUL": lambda data: with_members(
        data,
        knowledge={k: {**v, "content": "\0"} for k, v in json.loads(data)["knowledge"].items()},
    ),
    "too large": lambda data: data + b" " * LARGEST,
    "a workspace outside": lambda data: with_file(data, "../evil", "x"),
    "a workspace of no name": lambda data: with_file(data, "", "x"),
    "a hidden workspace": lambda data: with_file(data, ".restore-1", "plan.json"),
    **{
        f"a path astray {path[:9]!a}": lambda data, p=path: with_file(data, "t", p)
        for path in ESCAPING_PATHS
    },
}


class TestFiles:
    async def test_damaged_file_changes_nothing(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        whole = backup_files[0].read_bytes()
        before = sorted(os.listdir(locations.home / "backups"))
        for (
            damage,
            apply_damage,
        ) in DAMAGED.items():  # one test, because creating the states takes most of the time
            backup_files[0].write_bytes(apply_damage(whole))
            try:
                await locations.backups(store).restore(backup_files[0].name)
            except InvalidArgument:
                pass
            else:
                pytest.fail(f"{damage} was restored")
            assert await read_state(store, locations) == "b", damage
            assert sorted(os.listdir(locations.home / "backups")) == before, damage
            assert list_leftovers(locations) == [], damage
            assert sorted(os.listdir(locations.home)) == ["backups", "root"], damage

    def test_invalid_field_is_named_without_its_value(self) -> None:
        content = {"format": FORMAT, "version": VERSION, "knowledge": ["a secret"]}
        with pytest.raises(InvalidArgument, match="knowledge: must be a JSON object") as error:
            unseal(json.dumps(content).encode())
        assert "secret" not in str(error.value)

    async def test_edited_and_sealed_file_is_a_backup(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        """The checksum detects damage; it does not protect against those who can write files."""
        backup_files[0].write_bytes(with_file(backup_files[0].read_bytes(), "t", "deep/x.txt"))
        await locations.backups(store).restore(backup_files[0].name)
        assert (locations.home / "root" / "t" / "deep" / "x.txt").read_text() == "x"

    async def test_backup_of_another_agent_is_refused(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        other = Scope("ops", "other", permissions=frozenset({Permission.KNOWLEDGE}))
        backups = Backups(store, other, locations.workspaces(), locations.folder(), software="test")
        with pytest.raises(InvalidArgument, match="helper"):
            await backups.restore(backup_files[0].name)
        assert await read_state(store, locations) == "b"

    async def test_only_files_of_the_folder_are_read(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        tmp_path: Path,
    ) -> None:
        name = backup_files[0].name
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / name).write_bytes(backup_files[0].read_bytes())
        (locations.home / "backups" / "sub").mkdir()
        (locations.home / "backups" / "sub" / name).write_bytes(backup_files[0].read_bytes())
        link = locations.home / "backups" / "memory_backup_20200101_000000.json"
        link.symlink_to(outside / name)
        folder = locations.home / "backups" / "memory_backup_20200101_000001.json"
        folder.mkdir()
        os.mkfifo(locations.home / "backups" / "memory_backup_20200101_000002.json")
        invalid_paths = [
            str(outside / name),
            f"{locations.home}/backups/../../outside/{name}",
            f"../../outside/{name}",
            f"sub/{name}",
            str(locations.home / "backups" / "sub" / name),
            str(link),
            link.name,
            folder.name,
            "memory_backup_20200101_000002.json",
            "",
            ".",
            "/",
            "..",
            "/etc/passwd",
            name + "\0",
            name + "\n",
            "\ud800.json",
            "x" * 10_000,
        ]
        for name in invalid_paths:
            with pytest.raises(InvalidArgument):
                await locations.backups(store).restore(name)
        with pytest.raises(NotFound):
            await locations.backups(store).restore("memory_backup_19990101_000000.json")
        assert await read_state(store, locations) == "b"

    async def test_path_into_the_folder_is_accepted(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(locations.home)
        await locations.backups(store).restore(f"backups/{backup_files[0].name}")
        assert await read_state(store, locations) == "a"
        await locations.backups(store).restore(
            f"{locations.home}/root/../backups/{backup_files[1].name}"
        )
        assert await read_state(store, locations) == "b"

    def test_backup_round_trips(self, tmp_path: Path) -> None:
        folder = BackupFolder(tmp_path / "b", 1_000)
        path = folder.write(b"x")
        assert folder.read(path.name) == (path, b"x")
        with pytest.raises(InvalidArgument):
            folder.write(b"x" * 1_001)

    def test_stale_temporary_files_are_removed_after_an_hour(self, tmp_path: Path) -> None:
        folder = BackupFolder(tmp_path, 1_000)
        old, new = (tmp_path / f".memory_backup_{n:016x}.tmp" for n in (1, 2))
        for path in (old, new):
            path.write_text("x")
        os.utime(old, (time.time() - 4_000,) * 2)
        folder.write(b"x")
        assert (old.exists(), new.exists()) == (False, True)


class InjectedFailure(StorageError):
    """A failure injected by a test."""


class TestFailures:
    async def steps(self, store: Store, locations: BackupLocations, name: str) -> list[str]:
        steps: list[str] = []
        await locations.backups(store, steps.append).restore(name)
        return steps

    async def test_failure_before_the_decision_changes_nothing(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        steps = await self.steps(store, locations, backup_files[0].name)
        await locations.backups(store).restore(backup_files[1].name)
        before = sorted(os.listdir(locations.home / "backups"))
        for number in range(steps.index("decided")):
            counter = count()

            def fail(_step: str, number: int = number, counter: "count[int]" = counter) -> None:
                if next(counter) == number:
                    raise OSError(errno.ENOSPC, "No space left on device")

            with pytest.raises(StorageFull):
                await locations.backups(store, fail).restore(backup_files[0].name)
            assert await read_state(store, locations) == "b"
            assert list_leftovers(locations) == []
        assert len(os.listdir(locations.home / "backups")) <= len(before) + 1

    async def test_failure_after_the_decision_is_recovered(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        steps = await self.steps(store, locations, backup_files[0].name)
        for number in range(steps.index("decided"), len(steps)):
            await locations.backups(store).restore(backup_files[1].name)
            counter = count()

            def fail(_step: str, number: int = number, counter: "count[int]" = counter) -> None:
                if next(counter) == number:
                    raise OSError(errno.EIO, "Input/output error")

            with pytest.raises(StorageError):
                await locations.backups(store, fail).restore(backup_files[0].name)
            await locations.backups(store).recover()
            assert await read_state(store, locations) == "a"
            assert list_leftovers(locations) == []

    async def test_failed_transaction_changes_nothing(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        async def fail(*_args: Any, **_kwargs: Any) -> None:
            raise InjectedFailure("the connection broke")

        monkeypatch.setattr(Knowledge, "replace", fail)
        with pytest.raises(InjectedFailure):
            await locations.backups(store).restore(backup_files[0].name)
        assert await read_state(store, locations) == "b"
        assert list_leftovers(locations) == []

    async def test_lost_connection_after_the_decision_is_no_failure(
        self,
        store: Store,
        locations: BackupLocations,
        backup_files: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        replace = Knowledge.replace

        async def fail(knowledge: Knowledge, *arguments: Any, **options: Any) -> None:
            await replace(knowledge, *arguments, **options)
            raise InjectedFailure("the connection broke")

        monkeypatch.setattr(Knowledge, "replace", fail)
        await locations.backups(store).restore(backup_files[0].name)
        assert await read_state(store, locations) == "a"

    async def test_stage_of_another_database_is_left_alone(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        spaces = locations.workspaces()
        stage = Stage(spaces.root, "1")
        backup = unseal(backup_files[0].read_bytes())
        with spaces.lock(exclusive=True) as root:
            plan = {"agent_id": "helper", "database_id": "another"}
            stage.prepare(root, backup, plan, lambda _step: None)
        for operation in (locations.backups(store).recover(), locations.backups(store).backup()):
            with pytest.raises(Conflict, match="another database"):
                await operation
        assert stage.plan() is not None

    async def test_workspace_created_meanwhile_is_replaced(
        self, store: Store, locations: BackupLocations, backup_files: tuple[Path, Path]
    ) -> None:
        def fail(step: str) -> None:
            if step == "placing":
                raise OSError(errno.EIO, "Input/output error")

        with pytest.raises(StorageError):
            await locations.backups(store, fail).restore(backup_files[0].name)
        (locations.home / "root" / "shared-0").mkdir()
        (locations.home / "root" / "shared-0" / "new").write_text("x")
        await locations.backups(store).recover()
        assert await read_state(store, locations) == "a"


class WorkerServer:
    """A process that forks workers, which are cheap to start and to kill."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.backup_samples"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, locations: BackupLocations, kill_at: int, *backups: Path) -> int:
        """Start a worker and return its process id."""
        assert self._process.stdin is not None
        names = [path.name for path in backups]
        line = "\t".join([locations.location, str(locations.home), str(kill_at), *names])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return int(self.receive())

    def receive(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def worker_server() -> Iterator[WorkerServer]:
    """A shared server, because its start takes as long as dozens of workers."""
    worker_server = WorkerServer()
    yield worker_server
    worker_server.close()


async def check_after_death(locations: BackupLocations, expected: tuple[str, ...]) -> str:
    async with await Store.open(locations.location) as store:
        await locations.backups(store).recover()
        name = await read_state(store, locations)
        assert name in expected
        assert list_leftovers(locations) == []
        check_backups(locations)
        return name


@pytest.mark.service
@pytest.mark.concurrent
async def test_kill_at_every_step(
    store: Store,
    locations: BackupLocations,
    backup_files: tuple[Path, Path],
    worker_server: WorkerServer,
) -> None:
    steps: list[str] = []
    await locations.backups(store, steps.append).restore(backup_files[0].name)
    decision_step = steps.index("decided") + 1
    for number in range(1, len(steps) + 1):
        if store.database.dialect is not SQLITE and abs(number - decision_step) > 2 and number % 3:
            continue  # steps far from the decision do not involve the database
        await locations.backups(store).restore(backup_files[1].name)
        worker_server.start(locations, number, backup_files[0])
        assert int(worker_server.receive()) == -signal.SIGKILL
        expected = "b" if number < decision_step else "a"
        assert await check_after_death(locations, (expected,)) == expected


async def kill_at_random(
    locations: BackupLocations,
    backup_files: tuple[Path, Path],
    worker_server: WorkerServer,
    times: int,
) -> None:
    for _ in range(times):
        child = worker_server.start(locations, 0, *backup_files)
        await asyncio.sleep(CHANCE.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        assert int(worker_server.receive()) == -signal.SIGKILL
        await check_after_death(locations, ("a", "b"))
        for path in (locations.home / "backups").iterdir():
            if path not in backup_files:
                path.unlink()


@pytest.mark.service
@pytest.mark.concurrent
async def test_kill_at_random_moments(
    store: Store,
    locations: BackupLocations,
    backup_files: tuple[Path, Path],
    worker_server: WorkerServer,
) -> None:
    del store
    await kill_at_random(locations, backup_files, worker_server, 6)


@pytest.mark.long
async def test_kill_at_two_hundred_random_moments(
    store: Store,
    locations: BackupLocations,
    backup_files: tuple[Path, Path],
    worker_server: WorkerServer,
) -> None:
    del store
    await kill_at_random(locations, backup_files, worker_server, 200)


def test_checksum_matches_its_content() -> None:
    content = {"b": 1, "a": [1.5, "测"], "manifest": {"x": None}}
    sealed = json.loads(seal(content))
    assert sealed["manifest"]["sha256"] == checksum(sealed)
    assert checksum({**sealed, "b": 2}) != checksum(sealed)
