"""A restore's directories: made beside the old ones, then put in their place by renames alone.

The database decides. Before its transaction a stage is only a promise, with a plan written last;
after it the plan is carried out, by whoever finds it, as often as it takes: each step can be
repeated, and a step that was done is recognised.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from memrecall.store.backup_folder import sync_folder
from memrecall.store.backup_format import Backup
from memrecall.store.workspaces import PRIVATE, list_tasks, remove_tree

PREFIX = ".restore-"
_PLAN = "plan.json"
_PLACING = "placing"
_OLD, _NEW = "old", "new"

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to be done once the database has decided."""

    restore_id: str
    agent_id: str
    database_id: str
    old: list[str]


@dataclass(frozen=True, slots=True)
class Stage:
    """One restore's directory under the root of the workspaces."""

    root: Path
    restore_id: str

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.root / f"{PREFIX}{self.restore_id}"

    def prepare(self, root: int, backup: Backup, plan: dict[str, str], at: Step) -> None:
        """Write the new workspaces, and last of all the plan."""
        self.folder.mkdir(mode=PRIVATE)
        for name in (_OLD, _NEW):
            (self.folder / name).mkdir(mode=PRIVATE)
        at("staging")
        for task_id, saved in backup.workspaces.items():
            home = self.folder / _NEW / task_id
            home.mkdir(mode=PRIVATE)
            for path in saved.folders:
                (home / path).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            for path, file in saved.files.items():
                (home / path).parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
                _write(home / path, file.data(), (file.mode & PRIVATE) | 0o600)
            at("staged a workspace")
        sync_folder(self.folder / _NEW)
        full = Plan(**plan, restore_id=self.restore_id, old=list_tasks(root))
        _write(self.folder / f"{_PLAN}.tmp", json.dumps(asdict(full)).encode(), 0o600)
        at("before the plan")
        (self.folder / f"{_PLAN}.tmp").rename(self.folder / _PLAN)
        sync_folder(self.folder)
        sync_folder(self.root)
        at("planned")

    def plan(self) -> Plan | None:
        """The plan; None if it was not finished, and so nothing was decided."""
        try:
            return Plan(**json.loads((self.folder / _PLAN).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def finish(self, root: int, plan: Plan, at: Step) -> None:
        """Put the new workspaces in the place of the old; may be repeated at any point."""
        marker = self.folder / _PLACING
        if not marker.exists():
            # Once new ones are being placed, a name under the root is no longer an old one's.
            for name in plan.old:
                self._set_aside(name)
                at("moved an old workspace")
            sync_folder(self.root)
            marker.touch(mode=0o600)
            sync_folder(self.folder)
        at("placing")
        for name in sorted(os.listdir(self.folder / _NEW)):
            self._set_aside(name)  # somebody may have made one of that name meanwhile
            (self.folder / _NEW / name).rename(self.root / name)
            at("placed a workspace")
        sync_folder(self.root)

    def remove(self, root: int, at: Step) -> None:
        """Remove the stage, its plan first: what is left is then recognised as rubbish."""
        (self.folder / _PLAN).unlink(missing_ok=True)
        sync_folder(self.folder)
        at("without a plan")
        remove_tree(root, self.folder.name)
        at("removed")

    def _set_aside(self, name: str) -> None:
        """Take away what lies under the root by that name; nothing may be there any more."""
        target = self.folder / _OLD / name
        if target.exists():
            target = target.with_name(f"{name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            (self.root / name).rename(target)


def _write(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def stages(root: Path) -> Iterator[Stage]:
    """The restores that did not come to their end, or have not yet."""
    for name in sorted(os.listdir(root)):
        if name.startswith(PREFIX):
            yield Stage(root, name.removeprefix(PREFIX))
