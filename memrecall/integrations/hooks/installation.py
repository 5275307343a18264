"""Connecting, disconnecting and describing a client."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from memrecall.errors import InvalidArgument, NotFound
from memrecall.integrations.hooks import settings_files
from memrecall.integrations.hooks.bindings import (
    Binding,
    HookError,
    Outbox,
    check_address,
    read_binding,
    write_binding,
)
from memrecall.integrations.hooks.client import log_path
from memrecall.integrations.hooks.clients import CLIENTS, Client, McpFile
from memrecall.integrations.hooks.settings_files import (
    SERVER,
    Entries,
    HookEntries,
    McpMember,
    McpTable,
    SettingsChange,
    read_text,
    refusing_unreadable,
)
from memrecall.settings import config_folder
from memrecall.types import check_id


class Installation(NamedTuple):
    """The hooks and the MCP server of a client, for the user or for one project."""

    client: Client
    project: Path | None
    binding_path: Path

    @property
    def settings_path(self) -> Path:
        """The file with the hooks, or with the MCP server of a client without hooks."""
        files = (self.client, self.client.mcp)
        return next(path for each in files if each and (path := self._file(each)))

    def read(self) -> Binding | None:
        """Return the binding, if the client is connected."""
        try:
            return read_binding(str(self.binding_path))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise InvalidArgument(str(error)) from None

    def known_key(self, binding: Binding) -> str:
        """Return the key of an earlier installation for the same user, agent and service."""
        known = self.read()
        names = ("user", "agent", "url")
        is_same = known and all(getattr(known, name) == getattr(binding, name) for name in names)
        return known.key if known and is_same else ""

    def plan(self, binding: Binding) -> list[SettingsChange]:
        """Return the changes of settings files that connect the client."""
        check_binding(binding)
        return self._plan_installation(binding)[0]

    def install(self, binding: Binding) -> list[SettingsChange]:
        """Write the binding and the settings of the client; return the changes of the latter."""
        check_binding(binding)
        changes, created = self._plan_installation(binding)
        bound = binding._replace(
            settings_file=str(self.settings_path),
            created=created.get("created", ()),
            mcp_created=created.get("mcp_created", ()),
        )
        write_binding(str(self.binding_path), bound)
        for change in changes:
            change.apply()
        return changes

    def plan_removal(self) -> list[SettingsChange]:
        """Return the changes of settings files that disconnect the client."""
        texts = _Texts()
        binding = self.read() or Binding(self.client.name, "")
        for field, entries in reversed(self._entries(binding).items()):
            if (text := texts.read(entries.path)) is not None:
                with refusing_unreadable(entries.path):
                    texts[entries.path] = entries.remove(text, getattr(binding, field))
        return texts.changes()

    def leftovers(self) -> list[str]:
        """Return what a removal leaves, because somebody has changed it since it was added."""
        after = {change.path: change.after for change in self.plan_removal()}
        binding = self.read() or Binding(self.client.name, "")
        return [
            f"{entries.path} keeps the entry {SERVER}, which was changed; remove it by hand"
            for field, entries in self._entries(binding).items()
            if getattr(binding, field)
            and (text := after.get(entries.path))
            and entries.is_installed(text)
        ]

    def remove(self) -> list[SettingsChange]:
        """Remove the entries from the client's settings, then the binding.

        Messages that are not stored yet stay in the folder of the binding.
        """
        changes = self.plan_removal()
        for change in changes:
            change.apply()
        self.binding_path.unlink(missing_ok=True)
        return changes

    def describe(self) -> dict[str, Any]:
        """Return the state of the installation as JSON."""
        binding = self.read()
        path = str(self.binding_path)
        state: dict[str, Any] = {
            "client": self.client.name,
            "project": None if self.project is None else str(self.project),
            "settings_file": str(self.settings_path),
            "installed": binding is not None and self._is_installed(binding),
            "injects": self.client.can_inject,
            "events": [event.name for event in self.client.events],
        }
        if binding is None:
            return state
        fields = {**binding._asdict(), "key": "set" if binding.key else ""}
        for name in ("client", "settings_file", "created", "mcp_created"):
            del fields[name]
        pending = len(Outbox(path, binding).pending_ids())
        return {**state, "binding": path, **fields, "pending": pending, "log": log_path(path)}

    def _plan_installation(
        self, binding: Binding
    ) -> tuple[list[SettingsChange], dict[str, tuple[str, ...]]]:
        texts = _Texts()
        known = self.read()
        created: dict[str, tuple[str, ...]] = {}
        for field, entries in self._entries(binding).items():
            text = texts.read(entries.path)
            with refusing_unreadable(entries.path):
                edited = entries.install(text, getattr(known, field) if known else ())
            texts[entries.path], created[field] = edited
        return texts.changes(), created

    def _is_installed(self, binding: Binding) -> bool:
        for entries in self._entries(binding).values():
            text = read_text(entries.path)
            with refusing_unreadable(entries.path):
                if text is None or not entries.is_installed(text):
                    return False
        return True

    def _entries(self, binding: Binding) -> dict[str, Entries]:
        """Return the entries, by the field of the binding with what was created for them."""
        entries: dict[str, Entries] = {}
        path = self._file(self.client)
        if path is not None:
            entries["created"] = HookEntries(self.client, path, self.binding_path, binding.deadline)
        mcp = self.client.mcp
        mcp_path = self._file(mcp) if mcp and binding.mcp else None
        if mcp and mcp_path:
            entry = mcp.entry(mcp_command(binding, mcp.folder))
            entries["mcp_created"] = (
                McpTable(mcp_path, mcp.keys[0], entry)
                if mcp_path.suffix == ".toml"
                else McpMember(mcp_path, self._mcp_keys(mcp, mcp_path), entry)
            )
        return entries

    def _mcp_keys(self, mcp: McpFile, path: Path) -> Sequence[str]:
        if self.project is not None and not mcp.project_file:
            return ("projects", str(self.project), *mcp.keys)
        if mcp.is_list and (text := read_text(path)):  # OpenCode 2 has moved its servers
            with refusing_unreadable(path):
                root = settings_files.parse_nodes(text)
                is_moved = settings_files.find_node(root, (*mcp.keys, "servers")) is not None
            return (*mcp.keys, "servers") if is_moved else mcp.keys
        return mcp.keys

    def _file(self, files: Client | McpFile) -> Path | None:
        if not files.user_file:
            return None
        if self.project is not None and files.project_file:
            path = self.project / files.project_file
        else:
            home = os.environ.get(self.client.home_variable or "")
            name = files.user_file
            path = Path(home) / Path(name).name if home else Path.home() / name
        with_comments = path.with_suffix(".jsonc")
        return with_comments if with_comments.exists() and not path.exists() else path


class _Texts(dict[Path, str | None]):
    """The texts of settings files while several changes of them are planned."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[Path, str | None] = {}

    def read(self, path: Path) -> str | None:
        """Return a text as it was changed last, or that of the file."""
        if path not in self:
            self[path] = self._before[path] = read_text(path)
        return self[path]

    def changes(self) -> list[SettingsChange]:
        """Return the change of each file."""
        return [SettingsChange(path, self._before[path], text) for path, text in self.items()]


def mcp_command(binding: Binding, folder: str) -> list[str]:
    """Return the command of the MCP server; it runs no code of the current folder."""
    command = [sys.executable, "-I", "-m", "memrecall", "mcp", "--user", binding.user]
    command += ["--agent", binding.agent] if binding.agent else []
    command += ["--db", binding.db] if binding.db else []
    return command if binding.all_projects else [*command, "--project", folder]


def find_clients() -> list[str]:
    """Return the clients of this machine: those with a folder of settings or a program."""
    return [
        client.name
        for client in CLIENTS.values()
        if shutil.which(client.program) or locate(client.name, None).settings_path.parent.is_dir()
    ]


def installed() -> list[Installation]:
    """Return all installations, those of projects too."""
    found = []
    for path in sorted((config_folder() / "hooks").glob("*.json")):
        binding = read_binding(str(path))
        project = Path(binding.workspace) if binding.workspace else None
        if client := CLIENTS.get(binding.client):
            found.append(Installation(client, project, path))
    return found


def locate(client_name: str, project: Path | None) -> Installation:
    """Return the installation of a client, installed or not; raise if the client is unknown."""
    client = CLIENTS.get(client_name)
    if client is None:
        raise InvalidArgument(f"unknown client {client_name!r}", hint=f"Use {', '.join(CLIENTS)}")
    if project is None:
        return Installation(client, None, _binding_path(client, ""))
    if not client.project_file and not client.mcp:
        raise InvalidArgument(
            f"{client.title} has no settings for a project", hint="Leave out --project"
        )
    project = Path(os.path.realpath(project))
    if not project.is_dir():
        raise NotFound(f"there is no folder {project}")
    return Installation(client, project, _binding_path(client, str(project)))


def check_binding(binding: Binding) -> None:
    """Raise InvalidArgument if a value cannot work."""
    check_id("user", binding.user)
    if binding.agent is not None:
        check_id("agent", binding.agent)
        if binding.url and not binding.key:
            raise InvalidArgument(
                "the service takes the agent from the key, but there is no key",
                hint="Add --create-key or --key-file, or --url '' to use no service",
            )
    try:
        if binding.url:
            check_address(binding.url, allow_remote=binding.allow_remote)
        for pattern in binding.redact_patterns:
            re.compile(pattern)
    except (HookError, re.error) as error:
        raise InvalidArgument(str(error)) from None


def _binding_path(client: Client, project: str) -> Path:
    suffix = f"-{hashlib.sha256(project.encode()).hexdigest()[:12]}" if project else ""
    return config_folder() / "hooks" / f"{client.name}{suffix}.json"
