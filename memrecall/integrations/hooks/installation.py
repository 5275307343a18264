"""Installing, removing and describing the hooks of a client."""

import difflib
import hashlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from memrecall.errors import InvalidArgument, NotFound
from memrecall.integrations.hooks.bindings import (
    Binding,
    HookError,
    check_address,
    read_binding,
    write_binding,
)
from memrecall.integrations.hooks.client import log_path
from memrecall.integrations.hooks.clients import CLIENTS, Client
from memrecall.integrations.hooks.outbox import Outbox
from memrecall.integrations.hooks.settings_files import SettingsChange, SettingsFile
from memrecall.settings import config_folder
from memrecall.types import check_id


class Installation(NamedTuple):
    """The hooks of a client, for the user or for one project."""

    client: Client
    project: Path | None
    binding_path: Path
    settings_path: Path

    @property
    def settings(self) -> SettingsFile:
        """The client's settings file."""
        return SettingsFile(self.client, self.settings_path, self.binding_path)

    def read(self) -> Binding | None:
        """Return the binding, if the hooks are installed."""
        try:
            return read_binding(str(self.binding_path))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise InvalidArgument(str(error)) from None

    def known_key(self, binding: Binding) -> str:
        """Return the key of an earlier installation for the same user, agent and service."""
        known = self.read()
        if known is None:
            return ""
        same = all(
            getattr(known, name) == getattr(binding, name) for name in ("user", "agent", "url")
        )
        return known.key if same else ""

    def plan(self, binding: Binding) -> SettingsChange:
        """Return the change of the settings file that installs the hooks."""
        check_binding(binding)
        return self.settings.plan_installation(binding.deadline, self._created())

    def install(self, binding: Binding) -> SettingsChange:
        """Write the binding and the settings of the client; return the change of the latter."""
        change = self.plan(binding)
        # What this installation created, and what an earlier one had created before it.
        created = tuple(dict.fromkeys((*self._created(), *change.created)))
        settings_file = str(self.settings_path)
        bound = binding._replace(settings_file=settings_file, created=created)
        write_binding(str(self.binding_path), bound)
        self.settings.apply(change)
        return change

    def plan_removal(self) -> SettingsChange:
        """Return the change of the settings file that removes the hooks."""
        return self.settings.plan_removal(self._created())

    def remove(self) -> SettingsChange:
        """Remove the hooks from the client's settings, then the binding.

        Messages that are not stored yet stay in the folder of the binding.
        """
        change = self.plan_removal()
        self.settings.apply(change)
        self.binding_path.unlink(missing_ok=True)
        return change

    def diff(self, change: SettingsChange) -> str:
        """Return a change of the settings file as a unified diff."""
        name = str(self.settings_path)
        lines = difflib.unified_diff(
            (change.before or "").splitlines(keepends=True),
            (change.after or "").splitlines(keepends=True),
            "/dev/null" if change.before is None else name,
            "/dev/null" if change.after is None else name,
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def describe(self) -> dict[str, Any]:
        """Return the state of the installation as JSON."""
        binding = self.read()
        path = str(self.binding_path)
        state: dict[str, Any] = {
            "client": self.client.name,
            "project": None if self.project is None else str(self.project),
            "settings_file": str(self.settings_path),
            "installed": binding is not None and self.settings.is_installed(),
            "injects": self.client.can_inject,
        }
        if binding is None:
            return state
        fields = {**binding._asdict(), "key": "set" if binding.key else ""}
        for name in ("client", "settings_file", "created"):
            del fields[name]
        pending = len(Outbox(path, binding).pending_ids())
        return {**state, "binding": path, **fields, "pending": pending, "log": log_path(path)}

    def _created(self) -> tuple[str, ...]:
        binding = self.read()
        return binding.created if binding else ()


def locate(client_name: str, project: Path | None) -> Installation:
    """Return the installation of a client, installed or not; raise if the client is unknown."""
    client = CLIENTS.get(client_name)
    if client is None:
        raise InvalidArgument(f"unknown client {client_name!r}", hint=f"Use {', '.join(CLIENTS)}")
    if project is None:
        return Installation(client, None, _binding_path(client, ""), _user_file(client))
    if not client.project_file:
        raise InvalidArgument(
            f"{client.title} has no settings for a project", hint="Leave out --project"
        )
    project = Path(os.path.realpath(project))
    if not project.is_dir():
        raise NotFound(f"there is no folder {project}")
    path = _binding_path(client, str(project))
    return Installation(client, project, path, project / client.project_file)


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


def _user_file(client: Client) -> Path:
    folder = os.environ.get(client.home_variable or "")
    if folder:
        return Path(folder) / Path(client.user_file).name
    return Path.home() / client.user_file
