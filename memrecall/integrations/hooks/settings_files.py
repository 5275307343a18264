"""The settings files of clients: adding and removing the entries of memrecall, and nothing else."""

import difflib
import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from memrecall.errors import InvalidArgument
from memrecall.integrations.hooks import json_text
from memrecall.integrations.hooks.client import hook_command
from memrecall.integrations.hooks.clients import Client

_MARK = 3  # arguments that tell an installation: EVENT --config FILE
# A client ends or warns after a hook that fails; of one that Python does not find, Claude Code
# erases the prompt. The rest of the command is started, and whatever becomes of it, all is well.
_LAUNCHER = ("/bin/sh", "-c", 'exec 2>/dev/null; "$0" "$@" || :')
_PYTHON_LAUNCHER = (
    "import os, runpy, sys; del sys.argv[0]; path = sys.argv[0];"
    " os.path.isfile(path) and runpy.run_path(path, run_name='__main__')"
)
FILE = "file"  # among what an installation created: the file itself
SERVER = "memrecall"  # the name of the MCP server

Edited = tuple[str | None, tuple[str, ...]]  # a text, and what was created besides the entries


class SettingsChange(NamedTuple):
    """The text of a settings file before and after a change; None: there is no file."""

    path: Path
    before: str | None
    after: str | None

    @property
    def is_empty(self) -> bool:
        """Whether the file stays as it is."""
        return self.before == self.after

    def diff(self) -> str:
        """Return the change as a unified diff."""
        name = str(self.path)
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            "/dev/null" if self.before is None else name,
            "/dev/null" if self.after is None else name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the change in one step; a link to the file stays one."""
        if self.is_empty:
            return
        path = Path(os.path.realpath(self.path))
        draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            if self.after is None:
                path.unlink()
                with suppress(OSError):  # of files that others have in it
                    path.parent.rmdir()
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            # The modes of the file, before it has contents: some clients keep tokens in it.
            mode = path.stat().st_mode & 0o7777 if path.exists() else 0o666
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.after.encode())
            if path.exists():
                draft.chmod(mode)
            draft.replace(path)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise InvalidArgument(f"cannot write {self.path}: {error}") from None


def read_text(path: Path) -> str | None:
    """Return the text of a file, if there is one."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"cannot read {path}: {error}") from None


@contextmanager
def refusing_unreadable(path: Path) -> Iterator[None]:
    """Turn an error of a file's syntax into one that names the file."""
    try:
        yield
    except (json_text.JsonTextError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(
            f"{path} is left as it is: {error}", hint="Correct the file, and try again"
        ) from None


class Entries(Protocol):
    """Entries of memrecall in a settings file. `created` is what was created besides them."""

    path: Path

    def is_installed(self, text: str) -> bool:
        """Return whether a text has all entries."""

    def install(self, text: str | None, created: Sequence[str]) -> Edited:
        """Add the entries to a text, or replace those that are not current."""

    def remove(self, text: str, created: Sequence[str]) -> str | None:
        """Remove the entries, and what was created for them; None: the file itself."""


class HookEntries:
    """The hooks in a JSON file: an entry for each event."""

    def __init__(self, client: Client, path: Path, binding_path: Path, deadline: float) -> None:
        self.path = path
        self._client = client
        self._binding_path = binding_path
        self._deadline = deadline

    def is_installed(self, text: str) -> bool:
        """Return whether every event runs the hooks of this installation."""
        return all(self._find_entries(text, event.name) for event in self._client.events)

    def install(self, text: str | None, created: Sequence[str]) -> Edited:
        """Make the client run the hooks, each up to its deadline."""
        if text is not None and self.is_installed(text) and self._is_current(text):
            return text, tuple(created)
        text = None if text is None else self.remove(text, created)
        added = [FILE] if text is None else []
        text = "{}\n" if text is None else text
        for key, value in self._client.required:
            if json_text.find(json_text.parse_text(text), (key,)) is None:
                text, more = json_text.insert_member(text, (key,), value)
                added += more
        for event in self._client.events:
            entry = self._client.entry(self._command(event.name), self._deadline)
            text, more = json_text.add_item(text, ("hooks", event.name), entry)
            added += more
        # What an earlier installation had created is still to be removed with this one.
        return text, tuple(dict.fromkeys((*created, *added)))

    def remove(self, text: str, created: Sequence[str]) -> str | None:
        """Remove the hooks; of a group to which the user has added hooks, only the own one."""
        for event in self._client.events:
            for position in reversed(self._find_entries(text, event.name)):
                text = self._remove_entry(text, ("hooks", event.name, position))
        return _remove_created(text, created, dict(self._client.required))

    def _command(self, event: str) -> str:
        return _join(_launch(hook_command(event, str(self._binding_path))))

    def _is_current(self, text: str) -> bool:
        """Return whether the entries run this program, not one that has moved, and long enough."""
        names = [event.name for event in self._client.events]
        commands = [json.dumps(self._command(name), ensure_ascii=False) for name in names]
        return all(command in text for command in commands) and self._is_patient(text)

    def _is_patient(self, text: str) -> bool:
        """Return whether no entry has a timeout that is shorter than the deadline requires."""
        timeout = self._client.timeout(self._deadline)
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
        mark = _join(hook_command(event, str(self._binding_path))[-_MARK:])
        return lambda hook: isinstance(hook, dict) and mark in str(hook.get("command"))

    def _remove_entry(self, text: str, path: tuple[str, str, int]) -> str:
        node = json_text.find(json_text.parse_text(text), path)
        hooks = _hooks(node.value if node else None)
        is_own = self._is_own(path[1])
        own = [position for position, hook in enumerate(hooks) if is_own(hook)]
        if len(own) == len(hooks):
            return json_text.remove(text, path)
        for position in reversed(own):
            text = json_text.remove(text, (*path, "hooks", position))
        return text


class McpMember:
    """The MCP server in a JSON file: a member of the object at a path."""

    def __init__(self, path: Path, keys: Sequence[str], entry: dict[str, Any]) -> None:
        self.path = path
        self._member = (*keys, SERVER)
        self._entry = entry

    def is_installed(self, text: str) -> bool:
        """Return whether the client has a server of this name."""
        return json_text.find(json_text.parse_text(text), self._member) is not None

    def install(self, text: str | None, created: Sequence[str]) -> Edited:
        """Add the server, unless there is one of this name that memrecall has not added."""
        if text is not None and self.is_installed(text):
            node = json_text.find(json_text.parse_text(text), self._member)
            is_own = json_text.join_path(self._member) in created
            if not is_own or (node is not None and node.value == self._entry):
                return text, tuple(created)
            text = self.remove(text, created)
        added = [FILE] if text is None else []
        text, more = json_text.insert_member(text or "{}\n", self._member, self._entry)
        return text, tuple(dict.fromkeys((*created, *added, *more)))

    def remove(self, text: str, created: Sequence[str]) -> str | None:
        """Remove the server if memrecall has added it."""
        if json_text.join_path(self._member) in created and self.is_installed(text):
            text = json_text.remove(text, self._member)
        return _remove_created(text, created, {})


class McpTable:
    """The MCP server in a TOML file: a table at its end, which `created` keeps as it was added."""

    def __init__(self, path: Path, key: str, entry: dict[str, Any]) -> None:
        self.path = path
        self._key = key
        self._lines = [f"[{key}.{SERVER}]", *(f"{k} = {json.dumps(v)}" for k, v in entry.items())]

    def is_installed(self, text: str) -> bool:
        """Return whether Codex has a server of this name."""
        servers = _parse_toml(text).get(self._key)
        return isinstance(servers, dict) and SERVER in servers

    def install(self, text: str | None, created: Sequence[str]) -> Edited:
        """Add the server, unless there is one of this name that memrecall has not added."""
        newline = _newline(text or "")
        table = newline.join([*self._lines, ""])
        if text is not None and self.is_installed(text):
            if table in text or not any(table in text for table in created):
                return text, tuple(created)
            text = self.remove(text, created)
        if text is not None and self.is_installed(text):  # somebody has changed the table
            return text, tuple(created)
        added = (FILE,) if text is None or FILE in created else ()
        text = text or ""
        gap = "" if not text.strip("\ufeff") else newline
        if text and not text.endswith("\n"):
            gap += newline
        return f"{text}{gap}{table}", (*added, f"{gap}{table}")

    def remove(self, text: str, created: Sequence[str]) -> str | None:
        """Remove the table if it is as it was added, and nothing else changes with it.

        A key that was added to its end would become one of the table before it.
        """
        rest = text
        for table in created:
            if table != FILE:
                rest = rest.replace(table, "", 1)
        try:
            is_clean = self._others(rest) == self._others(text) and not self.is_installed(rest)
        except tomllib.TOMLDecodeError:
            is_clean = False
        if not is_clean:
            return text
        return None if FILE in created and not rest.strip() else rest

    def _others(self, text: str) -> tuple[dict[str, object], dict[str, object]]:
        """Return what a text has besides the server: other settings, and other servers."""
        settings = _parse_toml(text)
        servers = settings.pop(self._key, None)
        found = servers if isinstance(servers, dict) else {}
        return settings, {name: each for name, each in found.items() if name != SERVER}


def _remove_created(text: str, created: Sequence[str], required: dict[str, int]) -> str | None:
    for each in reversed([name for name in created if name != FILE]):
        path = json_text.split_path(each)
        node = json_text.find(json_text.parse_text(text), path)
        if node is not None and (each in required or not node.value):
            text = json_text.remove(text, path)
    is_blank = not json_text.parse_text(text).value
    return None if FILE in created and is_blank else text


def _parse_toml(text: str) -> dict[str, object]:
    return tomllib.loads(text.removeprefix("\ufeff"))


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _launch(command: list[str]) -> list[str]:
    """Return a command that succeeds in silence where the given one is gone or fails."""
    if sys.platform == "win32":
        return [*command[:3], "-c", _PYTHON_LAUNCHER, *command[3:]]
    return [*_LAUNCHER, *command]


def _join(arguments: list[str]) -> str:
    if sys.platform == "win32":
        import subprocess

        return subprocess.list2cmdline(arguments)
    return shlex.join(arguments)


def _hooks(entry: object) -> list[object]:
    """Return the hooks of an entry: those of a group, or the entry itself."""
    hooks = entry.get("hooks") if isinstance(entry, dict) else None
    return hooks if isinstance(hooks, list) else [entry]
