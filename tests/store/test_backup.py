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
from contextlib import nullcontext
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
from memrecall.store.backup.restore import FORMAT, VERSION, Backups, Stage, checksum, seal, unseal
from memrecall.store.knowledge import Knowledge
from memrecall.store.workspaces import retry_while_busy

from ..waiting import wait_until
from .backup_samples import (
    AGENT,
    DECISION,
    LARGEST,
    BackupLocations,
    check_backups,
    read_state,
    watch_steps,
    write_state,
)

ROOT = Path(__file__).parents[2]
CHANCE = random.Random(20260126)  # noqa: S311 -- nothing is kept secret


class Place:
    """A database with workspaces and a folder of backups, of the states a and b once `saved`."""

    first: Path
    second: Path

    def __init__(self, store: Store, locations: BackupLocations) -> None:
        self.store = store
        self.locations = locations
        self.home = locations.home
        self.root = locations.home / "root"
        self.folder = locations.home / "backups"
        self.workspaces = locations.workspaces
        self.knowledge = store.knowledge(AGENT)

    def backups(self) -> Backups:
        return self.locations.backups(self.store)

    async def require_state(self, name: str, hint: str = "") -> None:
        """Fail unless the state is complete, and nothing is left of a restore."""
        assert await read_state(self.store, self.locations) == name, hint
        assert list_leftovers(self.locations) == [], hint

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))

    async def restore_steps(self) -> list[str]:
        """Restore the first backup and return the steps that it took."""
        steps: list[str] = []
        with watch_steps(steps.append):
            await self.backups().restore(self.first.name)
        return steps


@pytest.fixture
def place(store: Store, location: str, tmp_path: Path) -> Place:
    return Place(store, BackupLocations(location, tmp_path / "home"))


@pytest.fixture
async def saved(place: Place) -> Place:
    """A place with backups of the states a and b; b is the current state."""
    await write_state(place.store, place.locations, "a")
    place.first = await place.backups().backup()
    await write_state(place.store, place.locations, "b")
    place.second = await place.backups().backup()
    return place


def list_leftovers(locations: BackupLocations) -> list[str]:
    return [name for name in os.listdir(locations.home / "root") if name.startswith((".r", ".t"))]


class TestBackup:
    async def test_backup_file_is_complete_and_private(self, place: Place) -> None:
        await write_state(place.store, place.locations, "a")
        (place.root / "shared-0" / "run.sh").write_text("echo\n")
        (place.root / "shared-0" / "run.sh").chmod(0o755)
        (place.root / "shared-0" / "link").symlink_to("/etc/passwd")
        (place.root / "shared-0" / "empty").mkdir()

        path = await place.backups().backup()
        data = json.loads(path.read_bytes())

        assert path.is_absolute()
        assert path.parent == place.folder
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

    async def test_backups_of_one_second_have_unique_names(self, place: Place) -> None:
        backups = place.backups()
        assert len({await backups.backup() for _ in range(5)}) == 5
        check_backups(place.locations)

    @pytest.mark.concurrent
    async def test_backup_during_writes_is_a_snapshot(self, place: Place) -> None:
        knowledge, backups = place.knowledge, place.backups()
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
        check_backups(place.locations)

    async def test_too_large_backup_is_refused(self, place: Place) -> None:
        (place.workspaces().create("t") / "big").write_bytes(b"x" * (LARGEST + 1))
        with pytest.raises(InvalidArgument, match="too large"):
            await place.backups().backup()
        assert place.names() == []

    async def test_full_disk_leaves_no_file(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("memrecall.store.backup.folder.os.fsync", full)
        with pytest.raises(StorageFull):
            await place.backups().backup()
        assert place.names() == []


class TestRestore:
    async def test_restore_replaces_the_state_and_saves_the_previous_one(
        self, saved: Place
    ) -> None:
        backups = saved.backups()
        previous = await backups.restore(str(saved.first))
        await saved.require_state("a")

        assert previous not in (saved.first, saved.second)
        await backups.restore(previous.name)
        await saved.require_state("b")
        check_backups(saved.locations)

    async def test_restore_keeps_times_modes_and_empty_folders(self, place: Place) -> None:
        home = place.workspaces().create("t")
        (home / "empty").mkdir()
        (home / "run.sh").write_text("echo\n")
        (home / "run.sh").chmod(0o755)
        key = await place.knowledge.add(NewKnowledge("x", "s", ("t",), {"a": 1.5}))
        before = await place.knowledge.get(key)
        path = await place.backups().backup()
        await place.knowledge.delete(key)
        place.workspaces().remove("t")

        await place.backups().restore(str(path))

        assert await place.knowledge.get(key) == before
        assert (home / "empty").is_dir()
        assert (home / "run.sh").stat().st_mode & 0o777 == 0o700
        assert home.stat().st_mode & 0o777 == 0o700

    async def test_restore_into_a_new_database(self, saved: Place, tmp_path: Path) -> None:
        other = BackupLocations(str(tmp_path / "other.db"), tmp_path / "other")
        other.folder()
        copied = other.home / "backups" / saved.first.name
        copied.write_bytes(saved.first.read_bytes())
        async with await Store.open(other.location) as fresh:
            await other.backups(fresh).restore(copied.name)
            assert await read_state(fresh, other) == "a"

    async def test_restore_needs_the_permission_and_the_agent(self, saved: Place) -> None:
        reader = Scope("ops", "helper")
        other = Scope("ops", "other", permissions=frozenset({Permission.KNOWLEDGE}))
        parts = saved.workspaces(), saved.locations.folder()
        for scope, error in ((reader, Disabled), (other, InvalidArgument)):
            backups = Backups(saved.store, scope, *parts, software="test")
            with pytest.raises(error, match="helper" if scope is other else None):
                await backups.restore(saved.first.name)
            await saved.require_state("b")

    async def test_concurrent_write_is_not_lost(
        self, saved: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace = Knowledge.replace

        async def replace_after_write(
            knowledge: Knowledge, *arguments: Any, **options: Any
        ) -> None:
            monkeypatch.setattr(Knowledge, "replace", replace)
            await knowledge.add(NewKnowledge("late", "late"))
            await replace(knowledge, *arguments, **options)

        monkeypatch.setattr(Knowledge, "replace", replace_after_write)
        previous = await saved.backups().restore(saved.first.name)

        await saved.require_state("a")
        entries = json.loads(previous.read_bytes())["knowledge"].values()
        assert "late" in {entry["content"] for entry in entries}
        assert len(list((saved.folder).iterdir())) == 3

    @pytest.mark.concurrent
    async def test_concurrent_restores_run_in_sequence(self, saved: Place) -> None:
        async with await Store.open(saved.locations.location) as other:
            await asyncio.gather(
                *(
                    saved.locations.backups(s).restore(p.name)
                    for p in (saved.first, saved.second)
                    for s in (saved.store, other)
                )
            )
        assert await read_state(saved.store, saved.locations) in ("a", "b")

    @pytest.mark.concurrent
    async def test_restore_raises_storage_busy_after_the_timeout(self, saved: Place) -> None:
        spaces, folder = saved.workspaces(), saved.locations.folder()
        backups = Backups(saved.store, AGENT, spaces, folder, software="test", lock_timeout=0.05)
        with saved.workspaces().lock(), pytest.raises(StorageBusy):
            await backups.restore(saved.first.name)
        await saved.require_state("b")

    @pytest.mark.concurrent
    async def test_many_waiting_tasks_do_not_block_each_other(self, place: Place) -> None:
        """There are more tasks than threads."""
        spaces, backups = place.workspaces(), place.backups()
        work: list[Any] = [backups.backup() for _ in range(20)]
        work += [
            retry_while_busy(lambda n=n: spaces.create(f"t{n}"), 60)  # type: ignore[misc]
            for n in range(20)
        ]
        await asyncio.gather(*work)
        assert len(spaces.names()) == 20
        check_backups(place.locations)

    @pytest.mark.concurrent
    async def test_cancelled_restore_is_completed(self, saved: Place) -> None:
        for stop_at in range(len(await saved.restore_steps())):
            await cancel_restore_at(stop_at, saved, (saved.first, saved.second)[stop_at % 2])
            await saved.require_state("ab"[stop_at % 2], str(stop_at))


async def cancel_restore_at(stop_at: int, saved: Place, backup: Path) -> None:
    """Restore a backup and cancel the task at a step."""
    loop, steps = asyncio.get_running_loop(), count()

    def cancel_at_step(_step: str) -> None:
        if next(steps) == stop_at:  # some steps run in threads
            loop.call_soon_threadsafe(task.cancel)

    with watch_steps(cancel_at_step):
        task = asyncio.create_task(saved.backups().restore(backup.name))
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)


def with_members(data: bytes, **members: Any) -> bytes:
    """Return a backup with other members and a matching checksum."""
    content = {**json.loads(data), **members}
    content["manifest"]["sha256"] = checksum(content)
    return json.dumps(content).encode()


def with_content(data: bytes, content: str) -> bytes:
    """Return a backup whose entries all have this content."""
    entries = json.loads(data)["knowledge"].items()
    return with_members(data, knowledge={k: {**v, "content": content} for k, v in entries})


def with_file(data: bytes, task: str, path: str) -> bytes:
    """Return a backup that would write to a path that the attacker chose."""
    content = json.loads(data)
    content["workspaces"][task] = {"folders": [], "files": {path: {"mode": 384, "text": "x"}}}
    content["manifest"]["files"] = {f"{task}/{path}": {"size": 1}}  # as earlier versions wrote
    return with_members(json.dumps(content).encode())


ESCAPING_PATHS = [
    *("../x", "/etc/x", "a/../../x", "a//b", "./x", "a/.", "", "a\0", "x" * 256, "a/" * 70 + "b")
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
    "an entry without words": lambda data: with_content(data, " "),
    "an entry with a NUL": lambda data: with_content(data, "\0"),
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
    async def test_damaged_file_changes_nothing(self, saved: Place) -> None:
        whole = saved.first.read_bytes()
        before = saved.names()
        # One test, because creating the states takes most of the time.
        for damage, apply_damage in DAMAGED.items():
            saved.first.write_bytes(apply_damage(whole))
            try:
                await saved.backups().restore(saved.first.name)
            except InvalidArgument:
                pass
            else:
                pytest.fail(f"{damage} was restored")
            await saved.require_state("b", damage)
            assert saved.names() == before, damage
            assert sorted(os.listdir(saved.home)) == ["backups", "root"], damage

    def test_invalid_field_is_named_without_its_value(self) -> None:
        content = {"format": FORMAT, "version": VERSION, "knowledge": ["a secret"]}
        with pytest.raises(InvalidArgument, match="knowledge: must be a JSON object") as error:
            unseal(json.dumps(content).encode())
        assert "secret" not in str(error.value)

    async def test_edited_and_sealed_file_is_a_backup(self, saved: Place) -> None:
        """The checksum detects damage; it does not protect against those who can write files."""
        saved.first.write_bytes(with_file(saved.first.read_bytes(), "t", "deep/x.txt"))
        await saved.backups().restore(saved.first.name)
        assert (saved.root / "t" / "deep" / "x.txt").read_text() == "x"

    async def test_only_files_of_the_folder_are_read(self, saved: Place, tmp_path: Path) -> None:
        name = saved.first.name
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / name).write_bytes(saved.first.read_bytes())
        (saved.folder / "sub").mkdir()
        (saved.folder / "sub" / name).write_bytes(saved.first.read_bytes())
        link = saved.folder / "memory_backup_20200101_000000.json"
        link.symlink_to(outside / name)
        folder = saved.folder / "memory_backup_20200101_000001.json"
        folder.mkdir()
        os.mkfifo(saved.folder / "memory_backup_20200101_000002.json")
        invalid_paths = [
            str(outside / name),
            f"{saved.home}/backups/../../outside/{name}",
            f"../../outside/{name}",
            f"sub/{name}",
            str(saved.folder / "sub" / name),
            str(link),
            link.name,
            folder.name,
            "memory_backup_20200101_000002.json",
            *("", ".", "/", "..", "/etc/passwd"),
            *(name + "\0", name + "\n", "\ud800.json", "x" * 10_000),
        ]
        for name in invalid_paths:
            with pytest.raises(InvalidArgument):
                await saved.backups().restore(name)
        with pytest.raises(NotFound):
            await saved.backups().restore("memory_backup_19990101_000000.json")
        await saved.require_state("b")

    async def test_path_into_the_folder_is_accepted(
        self, saved: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(saved.home)
        await saved.backups().restore(f"backups/{saved.first.name}")
        await saved.require_state("a")
        await saved.backups().restore(f"{saved.home}/root/../backups/{saved.second.name}")
        await saved.require_state("b")

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


class TestFailures:
    @pytest.mark.parametrize("is_decided", [False, True])
    async def test_failure_is_undone_or_recovered(self, saved: Place, is_decided: bool) -> None:
        steps = await saved.restore_steps()
        decision = steps.index(DECISION) + 1
        before = saved.names()
        for number in range(decision, len(steps)) if is_decided else range(decision):
            await saved.backups().restore(saved.second.name)
            counter = count()

            def fail(_step: str, number: int = number, counter: "count[int]" = counter) -> None:
                if next(counter) == number:
                    raise OSError(errno.ENOSPC, "No space left on device")

            with watch_steps(fail), pytest.raises(StorageFull):
                await saved.backups().restore(saved.first.name)
            if is_decided:
                await saved.backups().recover()
            await saved.require_state("a" if is_decided else "b")
        if not is_decided:  # the failed restores removed their backups, except after one step
            assert len(saved.names()) <= len(before) + decision + 1

    @pytest.mark.parametrize("is_decided", [False, True])
    async def test_broken_transaction_is_a_failure_unless_it_was_committed(
        self, saved: Place, monkeypatch: pytest.MonkeyPatch, is_decided: bool
    ) -> None:
        replace = Knowledge.replace

        async def fail(knowledge: Knowledge, *arguments: Any, **options: Any) -> None:
            if is_decided:
                await replace(knowledge, *arguments, **options)
            raise StorageError("the connection broke")

        monkeypatch.setattr(Knowledge, "replace", fail)
        with nullcontext() if is_decided else pytest.raises(StorageError, match="broke"):
            await saved.backups().restore(saved.first.name)
        await saved.require_state("a" if is_decided else "b")

    async def test_stage_of_another_database_is_left_alone(self, saved: Place) -> None:
        spaces = saved.workspaces()
        stage = Stage(spaces.root, "1")
        backup = unseal(saved.first.read_bytes())
        with spaces.lock(exclusive=True) as root:
            plan = {"agent_id": "helper", "database_id": "another"}
            stage.prepare(root, backup, plan)
        for operation in (saved.backups().recover(), saved.backups().backup()):
            with pytest.raises(Conflict, match="another database"):
                await operation
        assert stage.plan() is not None

    async def test_workspace_created_meanwhile_is_replaced(self, saved: Place) -> None:
        steps = await saved.restore_steps()
        await saved.backups().restore(saved.second.name)
        last_rename = len(steps) - 1 - steps[::-1].index("rename")
        counter = count()

        def fail(_step: str) -> None:
            if next(counter) == last_rename:
                raise OSError(errno.EIO, "Input/output error")

        with watch_steps(fail), pytest.raises(StorageError):
            await saved.backups().restore(saved.first.name)
        (saved.root / "task-a-2").mkdir()
        (saved.root / "task-a-2" / "new").write_text("x")
        await saved.backups().recover()
        await saved.require_state("a")


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


async def check_after_death(locations: BackupLocations, expected: str) -> None:
    async with await Store.open(locations.location) as store:
        await locations.backups(store).recover()
        assert await read_state(store, locations) in expected
        assert list_leftovers(locations) == []
        check_backups(locations)


@pytest.mark.service
@pytest.mark.concurrent
async def test_kill_at_every_step(saved: Place, worker_server: WorkerServer) -> None:
    steps = await saved.restore_steps()
    decision_step = steps.index(DECISION) + 1
    is_file = saved.store.file is not None
    for number in range(1, len(steps) + 1):
        if not is_file and abs(number - decision_step) > 2 and number % 3:
            continue  # steps far from the decision do not involve the database
        await saved.backups().restore(saved.second.name)
        worker_server.start(saved.locations, number, saved.first)
        assert int(worker_server.receive()) == -signal.SIGKILL
        await check_after_death(saved.locations, "b" if number <= decision_step else "a")


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(6, marks=[pytest.mark.service, pytest.mark.concurrent]),
        pytest.param(200, marks=pytest.mark.long),
    ],
)
async def test_kill_at_random_moments(
    saved: Place, worker_server: WorkerServer, times: int
) -> None:
    backups = (saved.first, saved.second)
    for _ in range(times):
        child = worker_server.start(saved.locations, 0, *backups)
        await asyncio.sleep(CHANCE.uniform(0.0, 0.25))
        os.kill(child, signal.SIGKILL)
        assert int(worker_server.receive()) == -signal.SIGKILL
        await check_after_death(saved.locations, "ab")
        for path in saved.folder.iterdir():
            if path not in backups:
                path.unlink()


def test_checksum_matches_its_content() -> None:
    content = {"b": 1, "a": [1.5, "测"], "manifest": {"x": None}}
    sealed = json.loads(seal(content))
    assert sealed["manifest"]["sha256"] == checksum(sealed)
    assert checksum({**sealed, "b": 2}) != checksum(sealed)
