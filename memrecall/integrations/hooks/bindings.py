"""The file of one installation: whose memory a client's hooks use, and the service for it.

Only its owner may read or change it, because it decides the user and may hold a key.
"""

import json
import os
from contextlib import suppress
from typing import Any, NamedTuple

from memrecall.integrations.hooks.client import ADDRESS, LOOPBACK, outbox_folder, read_settings

DEADLINE = 2.0  # seconds
BLOCK_CHARACTERS = 4_000


class HookError(ValueError):
    """A reason to leave an event alone, written to the log."""


def check_address(url: str, *, allow_remote: bool = False) -> None:
    """Raise HookError if a URL is not the address of a service that is allowed."""
    parts = ADDRESS.fullmatch(url)
    if parts is None:
        raise HookError(f"{url!r} is not the address of a service, like http://127.0.0.1:8765")
    if not allow_remote and not LOOPBACK.fullmatch(parts["host"]):
        raise HookError(f"{parts['host']} is another machine; --allow-remote sends prompts there")


class Binding(NamedTuple):
    """The settings of one installation."""

    client: str
    user: str
    agent: str | None = None
    workspace: str | None = None  # the project; None: the folder of each session
    url: str = "http://127.0.0.1:8765"  # of the service; "": always open the database
    key: str = ""
    allow_remote: bool = False
    db: str = ""
    deadline: float = DEADLINE
    characters: int = BLOCK_CHARACTERS
    capture: bool = True
    recall: bool = True
    redact_patterns: tuple[str, ...] = ()
    all_projects: bool = False  # recall from other projects too
    mcp: bool = False  # the client has the MCP server
    settings_file: str = ""
    created: tuple[str, ...] = ()  # what the installation added to the file besides its hooks
    mcp_created: tuple[str, ...] = ()  # the same of the file with the MCP server


def read_binding(path: str) -> Binding:
    """Return the installation of a file; ValueError if it is damaged or open to other users."""
    fields = read_settings(path)
    try:
        for name in ("redact_patterns", "created", "mcp_created"):
            fields[name] = tuple(fields.get(name, ()))
        known = {name: fields[name] for name in Binding._fields if name in fields}
        return Binding(**known)  # without the options of an earlier version
    except TypeError as error:
        raise HookError(f"{path} is damaged: {error}; install the hooks again") from None


def write_binding(path: str, binding: Binding) -> None:
    """Write the file of an installation for its owner only."""
    text = json.dumps(binding._asdict(), ensure_ascii=False, indent=2)
    write_private(path, f"{text}\n".encode())


def write_private(path: str, data: bytes) -> None:
    """Replace a file in one step; only its owner can read it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(draft, path)


MAX_PENDING = 2_000


class Outbox:
    """The pending messages of one installation."""

    def __init__(self, binding_path: str, binding: Binding) -> None:
        self._folder = outbox_folder(binding_path)
        self._binding = binding

    def keep(self, message: dict[str, Any]) -> None:
        """Keep a message until it is stored; the same one again changes nothing."""
        path = self._path(message["message_id"])
        if os.path.exists(path):
            return
        if len(self.pending_ids()) >= MAX_PENDING:
            raise HookError(
                f"{MAX_PENDING:,} messages are not stored yet; see `memrecall connect --status`"
            )
        fields = {"user": self._binding.user, "agent": self._binding.agent, "message": message}
        write_private(path, json.dumps(fields).encode())

    def pending_ids(self) -> list[str]:
        """Return the ids of the pending messages."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def read_all(self) -> list[dict[str, Any]]:
        """Return the pending messages of the binding's user and agent, the earliest first."""
        entries = [entry for each in self.pending_ids() if (entry := self._read(each))]
        return sorted(entries, key=lambda entry: str(entry["ts"]))

    def _read(self, message_id: str) -> dict[str, Any] | None:
        try:
            with open(self._path(message_id), "rb") as file:
                fields = json.loads(file.read())
            owner = (fields["user"], fields["agent"])
            message: dict[str, Any] = fields["message"]
        except FileNotFoundError:  # another process has stored it
            return None
        except (ValueError, KeyError, TypeError) as error:
            self.remove(message_id)
            raise HookError(f"a pending message was damaged and is removed: {error!r}") from None
        # After an installation for another user, earlier messages still belong to the former one.
        return message if owner == (self._binding.user, self._binding.agent) else None

    def remove(self, message_id: str) -> None:
        """Remove a message that is stored."""
        with suppress(FileNotFoundError):  # another process was faster
            os.unlink(self._path(message_id))

    def _path(self, message_id: str) -> str:
        return os.path.join(self._folder, f"{message_id}.json")
