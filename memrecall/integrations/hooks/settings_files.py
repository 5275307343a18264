"""The settings files of clients: adding and removing the entries of memrecall, and nothing else."""

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from memrecall.errors import InvalidArgument
from memrecall.integrations.hooks import json_text
from memrecall.integrations.hooks.client import hook_command
from memrecall.integrations.hooks.clients import Client

_MARK = 3  # arguments that tell an installation: EVENT --config FILE
FILE = "file"  # among what an installation created: the file itself


class SettingsChange(NamedTuple):
    """The text of a settings file before and after a change; None: there is no file."""

    before: str | None
    after: str | None
    created: tuple[str, ...] = ()  # what was added besides the entries

    @property
    def is_empty(self) -> bool:
        """Whether the file stays as it is."""
        return self.before == self.after


class SettingsFile:
    """The settings file of a client, and the command that its hooks run."""

    def __init__(self, client: Client, path: Path, binding_path: Path) -> None:
        self._client = client
        self._path = path
        self._binding_path = binding_path

    def command(self, event: str) -> list[str]:
        """Return the arguments of the command that handles an event."""
        return hook_command(event, str(self._binding_path))

    def read(self) -> str | None:
        """Return the text of the file, if there is one."""
        try:
            return self._path.read_bytes().decode()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"cannot read {self._path}: {error}") from None

    def is_installed(self) -> bool:
        """Return whether every event runs the hooks of this installation."""
        text = self.read()
        if text is None:
            return False
        with self._refusing_unreadable():
            if self._is_toml:
                return self._is_notified(text)
            return all(self._find_entries(text, event.name) for event in self._client.events)

    def plan_installation(self, deadline: float, created: Sequence[str] = ()) -> SettingsChange:
        """Return the change that makes the client run the hooks, each up to its deadline.

        `created` is what an earlier installation has added.
        """
        before = self.read()
        if before is not None and self.is_installed() and self._is_current(before, deadline):
            return SettingsChange(before, before, tuple(created))
        text = self.plan_removal(created).after
        added = [FILE] if text is None else []
        with self._refusing_unreadable():
            if self._is_toml:
                text = self._add_notify(text or "")
            else:
                text, more = self._add_entries("{}\n" if text is None else text, deadline)
                added += more
        return SettingsChange(before, text, tuple(added))

    def plan_removal(self, created: Sequence[str]) -> SettingsChange:
        """Return the change that removes the entries, and what the installation had created."""
        text = self.read()
        if text is None:
            return SettingsChange(None, None)
        with self._refusing_unreadable():
            after = self._remove_notify(text) if self._is_toml else self._remove(text, created)
            is_blank = not after.strip() if self._is_toml else not json_text.parse_text(after).value
        return SettingsChange(text, None if FILE in created and is_blank else after)

    def apply(self, change: SettingsChange) -> None:
        """Write the change in one step; a link to the file stays one."""
        if change.is_empty:
            return
        path = Path(os.path.realpath(self._path))
        try:
            if change.after is None:
                path.unlink()
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            draft.write_bytes(change.after.encode())
            if path.exists():
                draft.chmod(path.stat().st_mode & 0o7777)
            draft.replace(path)
        except OSError as error:
            raise InvalidArgument(f"cannot write {self._path}: {error}") from None

    @property
    def _is_toml(self) -> bool:
        return self._path.suffix == ".toml"

    @contextmanager
    def _refusing_unreadable(self) -> Iterator[None]:
        try:
            yield
        except (json_text.JsonTextError, tomllib.TOMLDecodeError) as error:
            raise InvalidArgument(
                f"{self._path} is left as it is: {error}",
                hint="Correct the file, and try again",
            ) from None

    def _add_entries(self, text: str, deadline: float) -> tuple[str, list[str]]:
        added: list[str] = []
        for key, value in self._client.required:
            if json_text.find(json_text.parse_text(text), (key,)) is None:
                text = json_text.set_member(text, key, value)
                added.append(key)
        for event in self._client.events:
            entry = self._client.entry(_join(self.command(event.name)), deadline)
            text, more = json_text.add_item(text, ("hooks", event.name), entry)
            added += more
        return text, added

    def _is_current(self, text: str, deadline: float) -> bool:
        """Return whether the entries run this program, not one that has moved, and long enough."""
        commands = [self.command(event.name) for event in self._client.events]
        quoted = [command if self._is_toml else _join(command) for command in commands]
        runs_this = all(json.dumps(each, ensure_ascii=False) in text for each in quoted)
        return runs_this and (self._is_toml or self._waits_for(text, deadline))

    def _waits_for(self, text: str, deadline: float) -> bool:
        """Return whether no entry has a timeout that is shorter than the deadline requires."""
        timeout = self._client.timeout(deadline)
        hooks = [
            hook
            for event in self._client.events
            for entry in self._entries(text, event.name)
            for hook in filter(self._is_own(event.name), _hooks(entry))
            if isinstance(hook, dict)
        ]
        return timeout is None or all(hook.get("timeout", timeout) >= timeout for hook in hooks)

    def _find_entries(self, text: str, event: str) -> list[int]:
        """Return the positions of the entries of an event that run its hook."""
        entries = enumerate(self._entries(text, event))
        return [n for n, entry in entries if any(map(self._is_own(event), _hooks(entry)))]

    def _entries(self, text: str, event: str) -> list[object]:
        node = json_text.find(json_text.parse_text(text), ("hooks", event))
        return node.value if node is not None and isinstance(node.value, list) else []

    def _is_own(self, event: str) -> Callable[[object], bool]:
        """Return the test for a hook of this installation, whatever program it runs."""
        mark = _join(self.command(event)[-_MARK:])
        return lambda hook: isinstance(hook, dict) and mark in str(hook.get("command"))

    def _remove(self, text: str, created: Sequence[str]) -> str:
        for event in self._client.events:
            for position in reversed(self._find_entries(text, event.name)):
                text = self._remove_entry(text, ("hooks", event.name, position))
        return self._remove_created(text, created)

    def _remove_entry(self, text: str, path: tuple[str, str, int]) -> str:
        """Remove an entry; of a group to which the user has added hooks, only the own one."""
        node = json_text.find(json_text.parse_text(text), path)
        hooks = _hooks(node.value if node else None)
        is_own = self._is_own(path[1])
        own = [position for position, hook in enumerate(hooks) if is_own(hook)]
        if len(own) == len(hooks):
            return json_text.remove(text, path)
        for position in reversed(own):
            text = json_text.remove(text, (*path, "hooks", position))
        return text

    def _remove_created(self, text: str, created: Sequence[str]) -> str:
        required = dict(self._client.required)
        for each in reversed([name for name in created if name != FILE]):
            path = each.split("/")
            node = json_text.find(json_text.parse_text(text), path)
            if node is not None and (each in required or not node.value):
                text = json_text.remove(text, path)
        return text

    def _add_notify(self, text: str) -> str:
        if "notify" in self._parse_toml(text):
            raise InvalidArgument(
                f"{self._path} already has a notify program",
                hint="Codex runs only one: remove it, or install codex instead",
            )
        (event,) = self._client.events
        newline = "\r\n" if "\r\n" in text else "\n"
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        # At the beginning: a key after the first table would belong to that table.
        line = f"notify = {json.dumps(self.command(event.name))}{newline}"
        return f"{mark}{line}{text.removeprefix(mark)}"

    def _remove_notify(self, text: str) -> str:
        if not self._is_notified(text):
            return text
        return re.sub(r"(?m)^notify *=.*(?:\r?\n|\Z)", "", text, count=1)

    def _is_notified(self, text: str) -> bool:
        (event,) = self._client.events
        program = self._parse_toml(text).get("notify")
        return isinstance(program, list) and program[-_MARK:] == self.command(event.name)[-_MARK:]

    def _parse_toml(self, text: str) -> dict[str, object]:
        return tomllib.loads(text.removeprefix("\ufeff"))


def _join(arguments: list[str]) -> str:
    if sys.platform == "win32":
        import subprocess

        return subprocess.list2cmdline(arguments)
    return shlex.join(arguments)


def _hooks(entry: object) -> list[object]:
    """Return the hooks of an entry: those of a group, or the entry itself."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    return hooks if isinstance(hooks, list) else [entry]
