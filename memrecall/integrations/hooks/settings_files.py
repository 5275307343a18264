"""The settings files of clients: adding and removing the entries of memrecall, and nothing else."""

import difflib
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from memrecall.errors import InvalidArgument
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
    except (JsonTextError, tomllib.TOMLDecodeError) as error:
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
            if find_node(parse_nodes(text), (key,)) is None:
                text, more = insert_member(text, (key,), value)
                added += more
        for event in self._client.events:
            entry = self._client.entry(self._command(event.name), self._deadline)
            text, more = add_item(text, ("hooks", event.name), entry)
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
        node = find_node(parse_nodes(text), ("hooks", event))
        return node.value if node is not None and isinstance(node.value, list) else []

    def _is_own(self, event: str) -> Callable[[object], bool]:
        """Return the test for a hook of this installation, whatever program it runs."""
        mark = _join(hook_command(event, str(self._binding_path))[-_MARK:])
        return lambda hook: isinstance(hook, dict) and mark in str(hook.get("command"))

    def _remove_entry(self, text: str, path: tuple[str, str, int]) -> str:
        node = find_node(parse_nodes(text), path)
        hooks = _hooks(node.value if node else None)
        is_own = self._is_own(path[1])
        own = [position for position, hook in enumerate(hooks) if is_own(hook)]
        if len(own) == len(hooks):
            return remove(text, path)
        for position in reversed(own):
            text = remove(text, (*path, "hooks", position))
        return text


class McpMember:
    """The MCP server in a JSON file: a member of the object at a path."""

    def __init__(self, path: Path, keys: Sequence[str], entry: dict[str, Any]) -> None:
        self.path = path
        self._member = (*keys, SERVER)
        self._entry = entry

    def is_installed(self, text: str) -> bool:
        """Return whether the client has a server of this name."""
        return find_node(parse_nodes(text), self._member) is not None

    def install(self, text: str | None, created: Sequence[str]) -> Edited:
        """Add the server, unless there is one of this name that memrecall has not added."""
        if text is not None and self.is_installed(text):
            node = find_node(parse_nodes(text), self._member)
            is_own = join_path(self._member) in created
            if not is_own or (node is not None and node.value == self._entry):
                return text, tuple(created)
            text = self.remove(text, created)
        added = [FILE] if text is None else []
        text, more = insert_member(text or "{}\n", self._member, self._entry)
        return text, tuple(dict.fromkeys((*created, *added, *more)))

    def remove(self, text: str, created: Sequence[str]) -> str | None:
        """Remove the server if memrecall has added it."""
        if join_path(self._member) in created and self.is_installed(text):
            text = remove(text, self._member)
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
        path = split_path(each)
        node = find_node(parse_nodes(text), path)
        if node is not None and (each in required or not node.value):
            text = remove(text, path)
    is_blank = not parse_nodes(text).value
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


_SKIPPED = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")

_NodePath = Sequence[str | int]  # keys of objects, and positions in arrays


_NAMES = ("an object", "an array")


class JsonTextError(ValueError):
    """A text that is not JSON, or that does not have the expected form."""


class JsonNode(NamedTuple):
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Any
    children: tuple["Child", ...] = ()


class Child(NamedTuple):
    """A member of an object (which starts at its key) or an item of an array."""

    start: int
    node: JsonNode
    key: str | None = None

    @property
    def end(self) -> int:
        """The end of the value."""
        return self.node.end


def parse_nodes(text: str) -> JsonNode:
    """Return the value of JSON with comments, with the places of its parts."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    try:
        root = _parse_value(text, start)
    except RecursionError:
        raise JsonTextError("it is nested too deeply") from None
    if _skip(text, root.end) != len(text):
        raise _error(text, _skip(text, root.end))
    return root


def find_node(node: JsonNode, path: _NodePath) -> JsonNode | None:
    """Return the value at a path, if there is one."""
    for key in path:
        is_position = isinstance(key, int)
        if not isinstance(node.value, list if is_position else dict):
            raise JsonTextError(f"what contains {key!r} is not {_NAMES[is_position]}")
        children = node.children[key:] if isinstance(key, int) else node.children
        child = next((child for child in children if is_position or child.key == key), None)
        if child is None:
            return None
        node = child.node
    return node


def add_item(text: str, path: Sequence[str], item: Any) -> tuple[str, list[str]]:
    """Append an item to the array at a path; return the text and the paths that were created."""
    if find_node(parse_nodes(text), path) is None:
        return insert_member(text, path, [item])
    return _append(text, path, None, item, list), []


def insert_member(text: str, path: Sequence[str], value: Any) -> tuple[str, list[str]]:
    """Set a member that does not exist; return the text and the paths that were created."""
    root = parse_nodes(text)
    missing = [n for n in range(1, len(path) + 1) if find_node(root, path[:n]) is None]
    first = missing[0]
    for key in reversed(path[first:]):
        value = {key: value}
    text = _append(text, path[: first - 1], path[first - 1], value, dict)
    return text, [join_path(path[:n]) for n in missing]


def join_path(path: Sequence[str]) -> str:
    """Return a path as one string, in which a key may contain a slash."""
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)


def split_path(text: str) -> list[str]:
    """Return the path of a string of `join_path`."""
    return [key.replace("~1", "/").replace("~0", "~") for key in text.split("/")]


def remove(text: str, path: _NodePath) -> str:
    """Remove the member or item at a path, which must exist."""
    parent = find_node(parse_nodes(text), path[:-1])
    last = path[-1]
    if parent is None:
        raise KeyError(last)
    keys = [child.key for child in parent.children]
    return _cut(text, parent, last if isinstance(last, int) else keys.index(last))


def _append(text: str, path: _NodePath, key: str | None, value: Any, kind: type) -> str:
    node = find_node(parse_nodes(text), path)
    if node is None or not isinstance(node.value, kind):
        name = "/".join(map(str, path)) or "the file"
        raise JsonTextError(f"{name} is not {_NAMES[kind is list]}")
    addition = json.dumps(value, ensure_ascii=False)
    if key is not None:
        addition = f"{json.dumps(key)}: {addition}"
    if not node.children:
        at = node.start + 1
        return text[:at] + addition + text[at:]
    last = node.children[-1]
    # The new part stands where the last one does: on a line of its own, or on the same line.
    before = re.search(r"\r?\n[ \t]*$", text[: last.start])
    at = last.end
    return f"{text[:at]},{before.group() if before else ' '}{addition}{text[at:]}"


def _cut(text: str, container: JsonNode, position: int) -> str:
    """Remove a child and its comma; comments beside it stay."""
    child = container.children[position]
    if position > 0:
        previous = container.children[position - 1].end
        return text[:previous] + _without_comma(text[previous : child.start]) + text[child.end :]
    if len(container.children) == 1:
        return text[: child.start] + text[child.end :]
    following = container.children[1].start
    return text[: child.start] + _without_comma(text[child.end : following]) + text[following:]


def _without_comma(between: str) -> str:
    """Return what is worth keeping between two parts: nothing, or comments."""
    return "" if not between.strip().strip(",") else between.replace(",", "", 1)


def _skip(text: str, at: int) -> int:
    match = _SKIPPED.match(text, at)
    return match.end() if match else at


def _parse_value(text: str, at: int) -> JsonNode:
    if text[at : at + 1] == "{":
        return _parse_container(text, at, "}", is_object=True)
    if text[at : at + 1] == "[":
        return _parse_container(text, at, "]", is_object=False)
    match = _STRING.match(text, at) or _SCALAR.match(text, at)
    if match is None:
        raise _error(text, at)
    try:
        return JsonNode(at, match.end(), json.loads(match.group()))
    except ValueError:
        raise _error(text, at) from None


def _parse_container(text: str, start: int, closing: str, *, is_object: bool) -> JsonNode:
    children: list[Child] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        child = _parse_member(text, at) if is_object else Child(at, _parse_value(text, at))
        children.append(child)
        at = _skip(text, child.end)
        if text[at : at + 1] == ",":  # also after the last one, as some clients allow
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _error(text, at)
    values = [child.node.value for child in children]
    value = {child.key: child.node.value for child in children} if is_object else values
    return JsonNode(start, at + 1, value, tuple(children))


def _parse_member(text: str, at: int) -> Child:
    match = _STRING.match(text, at)
    colon = _skip(text, match.end()) if match else at
    if match is None or text[colon : colon + 1] != ":":
        raise _error(text, at)
    node = _parse_value(text, _skip(text, colon + 1))
    return Child(at, node, json.loads(match.group()))


def _error(text: str, at: int) -> JsonTextError:
    line = text.count("\n", 0, at) + 1
    return JsonTextError(f"it is not JSON: line {line} cannot be read")
