"""The file of one installation: whose memory a client's hooks use, and how.

Only its owner may read or change it, because it decides the user and may hold a key.
Standard library only: see the package.
"""

import json
import os
import time
from contextlib import suppress
from typing import Any, NamedTuple

DEADLINE = 2.0  # seconds
BLOCK_CHARACTERS = 4_000
MIN_CONFIDENCE = 0.5
_MAX_LOG = 1_000_000  # bytes; then the log starts anew, and the old one is kept once


class HookError(Exception):
    """A reason to leave an event alone, written to the log."""


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
    min_confidence: float = MIN_CONFIDENCE
    capture: bool = True
    recall: bool = True
    redact: bool = True
    redact_patterns: tuple[str, ...] = ()
    settings_file: str = ""
    created: tuple[str, ...] = ()  # what the installation added to the file besides its entries


def read_binding(path: str) -> Binding:
    """Return the installation of a file; HookError if it is damaged or open to other users."""
    if not is_private(path):
        raise HookError(f"{path} must belong to this user, and be readable by no other")
    with open(path, "rb") as file:
        data = file.read()
    try:
        fields = json.loads(data)
        for name in ("redact_patterns", "created"):
            fields[name] = tuple(fields.get(name, ()))
        binding = Binding(**fields)
    except (ValueError, TypeError, AttributeError) as error:
        raise HookError(f"{path} is damaged: {error}; install the hooks again") from None
    return binding


def write_binding(path: str, binding: Binding) -> None:
    """Write the file of an installation for its owner only."""
    text = json.dumps(binding._asdict(), ensure_ascii=False, indent=2)
    write_private(path, f"{text}\n".encode())


def is_private(path: str) -> bool:
    """Return whether a file belongs to this user and is closed to all others."""
    if os.name == "nt":  # the user's folder is closed to others by its own access list
        return True
    status = os.stat(path)
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def write_private(path: str, data: bytes) -> None:
    """Replace a file in one step; only its owner can read it."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}.tmp"
    _write(draft, os.O_TRUNC, data)
    os.replace(draft, path)


def _write(path: str, flags: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def write_log(path: str, event: str, problem: str) -> None:
    """Append a line to the log beside a binding; a failure to do so has nobody to be told to."""
    log = log_path(path)
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event}
    fields: dict[str, Any] = {**line, "binding": os.path.basename(path), "problem": problem}
    with suppress(OSError):  # there is no log yet
        if os.path.getsize(log) > _MAX_LOG:
            os.replace(log, f"{log}.1")
    with suppress(OSError):
        _write(log, os.O_APPEND, f"{json.dumps(fields, ensure_ascii=False)}\n".encode())


def log_path(path: str) -> str:
    """Return the log of the installations in the folder of a binding."""
    return os.path.join(os.path.dirname(path), "hooks.log")
