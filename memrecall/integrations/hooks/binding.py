"""The file of one installation: whose memory a client's hooks use, and requests to its service.

Only its owner may read or change it, because it decides the user and may hold a key.
Standard library only: see the package.
"""

import json
import os
import re
import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple

from memrecall.integrations.hooks.client import exchange, request_path

DEADLINE = 2.0  # seconds
BLOCK_CHARACTERS = 4_000
MIN_CONFIDENCE = 0.5
OPTIONS_HEADER = "Memrecall-Hook"
# What the service needs to know; the user is in the path, and the key decides the agent.
REQUEST_OPTIONS = (
    *("workspace", "deadline", "characters", "min_confidence"),
    *("capture", "recall", "redact", "redact_patterns"),
)
_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^/:@?#\s]+)(?::(\d{1,5}))?/?")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1")
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_MAX_LOG = 1_000_000  # bytes; then the log starts anew, and the old one is kept once


class HookError(Exception):
    """A reason to leave an event alone, written to the log."""


def parse_url(url: str, *, allow_remote: bool = False) -> tuple[bool, str, int]:
    """Return whether a URL uses TLS, its host and its port; HookError if it is not allowed."""
    match = _URL.fullmatch(url)
    if match is None:
        raise HookError(f"{url!r} is not the address of a service, like http://127.0.0.1:8765")
    scheme, host, port = match.groups()
    host = host.strip("[]")
    if not _LOOPBACK.fullmatch(host) and not allow_remote:
        raise HookError(f"{host} is another machine; --allow-remote sends prompts there")
    return scheme == "https", host, int(port or (443 if scheme == "https" else 80))


def quote(text: str) -> str:
    """Return a text as one segment of a path; importing urllib would take longer."""
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in text.encode())


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
    """Write the files of an installation for their owner only."""
    text = json.dumps(binding._asdict(), ensure_ascii=False, indent=2)
    write_private(path, f"{text}\n".encode())
    request = _write_request(binding)
    if request:
        write_private(request_path(path), request.encode())
    else:
        remove_request(path)


def remove_request(path: str) -> None:
    """Remove the file with the requests of a binding."""
    with suppress(FileNotFoundError):
        os.unlink(request_path(path))


def _write_request(binding: Binding) -> str:
    """Return what `client.py` reads; "" if it cannot use the service of the binding."""
    if not binding.url:
        return ""
    uses_tls, host, port = parse_url(binding.url, allow_remote=binding.allow_remote)
    if uses_tls or not _LOOPBACK.fullmatch(host):  # then secrets are masked before they are sent
        return ""
    host = "127.0.0.1" if host == "localhost" else host
    fields = binding._asdict()
    options = {name: fields[name] for name in REQUEST_OPTIONS}
    path = f"/v1/users/{quote(binding.user)}/hooks/{quote(binding.client)}/{{event}}"
    head = write_head(path, host, binding.key, f"{OPTIONS_HEADER}: {json.dumps(options)}")
    return "\n".join([host, str(port), str(binding.deadline), head])


def write_head(path: str, host: str, key: str, header: str) -> str:
    """Return the head of a request with one more header; `{length}` stands for its length."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {f'[{host}]' if ':' in host else host}",
        header,
        *([f"Authorization: Bearer {key}"] if key else []),
        "Content-Type: application/json",
        "Content-Length: {length}",
        "Connection: close",
    ]
    return "\n".join([*lines, "", ""])


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


class NoService(HookError):
    """Nothing listens at the address of the service."""


class ServiceAccess(NamedTuple):
    """The service of a binding, used until a deadline."""

    binding: Binding
    deadline: float

    def post(self, path: str, body: dict[str, Any], accept: str) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the response."""
        binding = self.binding
        uses_tls, host, port = parse_url(binding.url, allow_remote=binding.allow_remote)
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline has passed")
        try:
            stream = socket.create_connection((host, port), seconds)
        except OSError as error:
            raise NoService(f"no service answers at {binding.url}") from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if uses_tls:
            import ssl

            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
        head = write_head(path, host, binding.key, f"Accept: {accept}")
        return exchange(stream, head, json.dumps(body).encode(), self.deadline)
