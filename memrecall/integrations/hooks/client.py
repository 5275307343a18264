"""The program that clients run for each event; `memrecall hook` does the same.

A prompt waits for it, so it runs as a file (`python -I -S client.py`) and imports only what sends
the event to a service on this machine, or to the helper that an earlier hook has left behind.
`hook.py` handles what neither does.
"""

import json
import os
import re
import sys
import time

try:  # What `signal` and `socket` add to these would take a tenth of the time of a prompt.
    import _signal as signal  # type: ignore[import-not-found]
    import _socket as socket
except ImportError:  # another implementation of Python
    import signal
    import socket  # type: ignore[no-redef]

MAX_INPUT = 1_000_000  # bytes
OFF_VARIABLE = "MEMRECALL_HOOKS"  # off: hooks do nothing
HELPER = "helper"  # the event of the process that stays; see `helper.py`
OPTIONS_HEADER, RECEIPT_HEADER = "Memrecall-Hook", "Memrecall-Receipt"
# What the service needs to know; the user is in the path, and a key of an agent decides the agent.
REQUEST_OPTIONS = (
    *("agent", "workspace", "all_projects", "deadline", "characters"),
    *("capture", "recall", "redact_patterns"),
)
ADDRESS = re.compile(
    r"(?P<scheme>https?)://(?P<netloc>\[?(?P<host>[^/@?#\s\]]+?)\]?(?::(?P<port>\d{1,5}))?)/?"
)
LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1")
_COMPACTIONS = ("precompact", "precompress")  # before them, the transcript is read
_PATIENT_EVENTS = (*_COMPACTIONS, "sessionstart")
_PATIENCE = 8.0  # seconds; a helper starts in that time, and no prompt waits
_SHARE = 0.75  # of the deadline, for the service; the rest is for keeping what it did not handle
_BACKGROUND_SECONDS = 600.0  # for what the client does not wait for
_CAN_DETACH = sys.platform != "win32"
_MAX_RESPONSE = 4_000_000  # bytes
_MAX_LOG = 1_000_000  # bytes; then a new log is started, and one old log is kept

TYPE_CHECKING = False  # importing typing would take longer
if TYPE_CHECKING:
    from typing import Any

    Answer = tuple[int, bytes, bytes]  # status, body and receipt


def main(arguments: list[str]) -> None:
    """Handle one event, given as EVENT --config FILE; never raise, print only a block."""
    if os.environ.get(OFF_VARIABLE, "").lower() in ("off", "0", "false", "no"):
        return
    event, _, path, *rest = arguments
    try:
        _handle(event, path, rest)
    except (OSError, ValueError) as error:
        write_log(path, event, problem=str(error))
    except Exception as error:  # a bug must not fail the prompt either
        write_log(path, event, problem=f"{type(error).__name__}: {error}")
    if sys.platform != "win32":  # Python drops the handler first: a late alarm would kill it.
        signal.setitimer(signal.ITIMER_REAL, 0)


def _handle(event: str, path: str, rest: list[str]) -> None:
    started = time.monotonic()
    binding = read_settings(path)
    if event == HELPER:
        _load_packages()
        _load_program("..", "..", "server", "helper.py")["run_helper"](path, int(rest[0]))
        return
    seconds = allowed_seconds(event, binding["deadline"])
    set_deadline(path, event, seconds, started)
    data = _read_input()
    problem = ""
    if len(data) <= MAX_INPUT and event.lower() not in _COMPACTIONS:
        try:
            answer = forward(path, binding, event, data, started + seconds * _SHARE)
        except (OSError, ValueError) as error:
            problem = f"the service failed: {error}"
        else:
            if answer is not None and answer[0] == 200:
                finish(path, event, answer, started)
                if _has_pending(path):
                    detach()
                    _load_hook()["deliver_pending"](path)
                return
            problem = f"the service answered {answer[0]}" if answer else ""
    # What was said is kept, although the packages for it may take longer to import.
    set_deadline(path, event, seconds, started, goes_on=True)
    _load_hook()["handle_event"](path, event, data, problem, started)


def _load_hook() -> "dict[str, Any]":
    if sys.flags.no_site:
        _load_packages()
    return _load_program("hook.py")


def _load_program(*names: str) -> "dict[str, Any]":
    """Load a module by its path, as a second program: the package's modules import this one."""
    import runpy

    return runpy.run_path(os.path.join(os.path.dirname(__file__), *names))


def allowed_seconds(event: str, deadline: float) -> float:
    """Return how long an event may take: a prompt not longer than the deadline."""
    return max(deadline, _PATIENCE) if event.lower() in _PATIENT_EVENTS else deadline


def finish(path: str, event: str, answer: "Answer", started: float) -> None:
    """Print what a service has answered, and write its receipt to the log."""
    os.write(1, answer[1])
    if answer[2]:
        milliseconds = round((time.monotonic() - started) * 1000)
        write_log(path, event, **json.loads(answer[2]), milliseconds=milliseconds)


def read_settings(path: str) -> "dict[str, Any]":
    """Return the fields of a binding; ValueError if it is damaged or open to other users."""
    data = read_private(path)
    try:
        binding = json.loads(data)
        binding["deadline"] = float(binding["deadline"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error!r}; connect the client again") from None
    return dict(binding)


def read_private(path: str) -> bytes:
    """Return the contents of a file that no other user may read or replace."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        # On Windows, the user's folder is closed to others by its own access list.
        if os.name != "nt" and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            raise ValueError(f"{path} must belong to this user, and be readable by no other")
        return file.read()


def _read_input() -> bytes:
    return sys.stdin.buffer.read(MAX_INPUT + 1)


def _has_pending(path: str) -> bool:
    """Return whether messages are pending, which are delivered with the event."""
    outbox = outbox_folder(path)
    return os.path.isdir(outbox) and bool(os.listdir(outbox))


def is_local(url: str) -> bool:
    """Return whether a service on this machine gets events as they are, secrets included."""
    parts = ADDRESS.fullmatch(url)
    return bool(parts and parts["scheme"] == "http" and LOOPBACK.fullmatch(parts["host"]))


def forward(
    path: str, binding: "dict[str, Any]", event: str, data: bytes, deadline: float
) -> "Answer | None":
    """Send an event to a process on this machine, if one is running and meant for it."""
    if binding["url"] and not is_local(binding["url"]):
        return None
    resource = f"/v1/users/{quote_id(binding['user'])}/hooks/{binding['client']}/{event}"
    options = json.dumps({name: binding[name] for name in REQUEST_OPTIONS if name in binding})
    return post_locally(path, binding, resource, data, f"{OPTIONS_HEADER}: {options}", deadline)


def post_locally(
    path: str, binding: "dict[str, Any]", resource: str, data: bytes, header: str, deadline: float
) -> "Answer | None":
    """Send a request to the service, else to the helper; None if neither is running."""
    if binding["url"]:
        try:
            return post(binding, resource, data, header, deadline)
        except ConnectionRefusedError:
            pass
    helper = find_helper(path, binding)
    try:
        return post(helper, resource, data, header, deadline) if helper else None
    except ConnectionRefusedError:
        return None


def find_helper(path: str, binding: "dict[str, Any]") -> "dict[str, Any] | None":
    """Return the binding with the address of the helper, if one is running for its database."""
    try:
        helper = json.loads(read_private(helper_path(path)))
    except FileNotFoundError:
        return None
    # Whatever listens at the address of a helper that was killed is another program.
    if helper["db"] != binding["db"] or not is_locked(path):
        return None
    return {**binding, "url": helper["url"], "key": helper["key"]}


def is_locked(path: str) -> bool:
    """Return whether a helper is running or starting."""
    import fcntl

    with open(f"{helper_path(path)}.lock", "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def helper_path(path: str) -> str:
    """Return the file with the address and the key of the helper."""
    return os.path.join(os.path.dirname(path), ".helper")


def quote_id(text: str) -> str:
    """Return an id as one segment of a path."""
    if re.fullmatch(r"[\w.~-]+", text, re.ASCII):
        return text
    from urllib.parse import quote  # importing it takes longer than the rest of this module

    return quote(text, safe="")


def post(
    binding: "dict[str, Any]", path: str, data: bytes, header: str, deadline: float
) -> "Answer":
    """Send a request with one more header; return the status, the body and the receipt.

    Importing http.client instead would add a third to the time of a prompt.
    """
    url = ADDRESS.fullmatch(binding["url"])
    if url is None:
        raise ValueError(f"{binding['url']!r} is not the address of a service")
    uses_tls = url["scheme"] == "https"
    address = url["host"], int(url["port"] or (443 if uses_tls else 80))
    stream = _connect(address, max(deadline - time.monotonic(), 0.001))
    if uses_tls:
        import ssl

        stream = ssl.create_default_context().wrap_socket(stream, server_hostname=url["host"])
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {url['netloc']}",
        header,
        *([f"Authorization: Bearer {binding['key']}"] if binding.get("key") else []),
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        "Connection: close",
    ]
    stream.sendall("\r\n".join([*lines, "", ""]).encode() + data)
    answer = b""
    while len(answer) <= _MAX_RESPONSE and (chunk := stream.recv(65_536)):
        answer += chunk
        stream.settimeout(max(deadline - time.monotonic(), 0.001))
    stream.close()
    top, _, body = answer.partition(b"\r\n\r\n")
    if not top.startswith(b"HTTP/1.") or len(answer) > _MAX_RESPONSE:
        raise ValueError("what answers at the address of the service is no memrecall service")
    receipt = re.search(rb"(?i)\r\n" + RECEIPT_HEADER.encode() + rb": *([^\r\n]+)", top)
    return int(top.split(b" ", 2)[1]), body, receipt[1] if receipt else b""


def _connect(address: tuple[str, int], seconds: float) -> "Any":
    """Return a connection; names of other machines are resolved by the module `socket`."""
    host, port = address
    if not LOOPBACK.fullmatch(host) or host == "localhost":
        import socket as sockets

        return sockets.create_connection(address, seconds)
    stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    stream.settimeout(seconds)
    stream.connect((host, port))
    return stream


def set_deadline(
    path: str, event: str, seconds: float, started: float, *, goes_on: bool = False
) -> float:
    """End the process silently at that time, not at an earlier one; return when that is.

    With `goes_on`, the client gets the end, and the work is done in the background.
    """

    def end(*_: object) -> None:
        problem = f"stopped after {seconds:g} s, the deadline of this installation"
        write_log(path, event, problem=problem)
        if goes_on and _CAN_DETACH:
            detach()
        else:
            os._exit(0)

    deadline = started + seconds
    left = max(deadline - time.monotonic(), 0.001)
    if sys.platform != "win32":  # a signal also interrupts a regular expression, unlike a thread
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, left)
    else:
        import threading

        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.cancel()
        timer = threading.Timer(left, end)
        timer.daemon = True
        timer.start()
    return deadline


def detach() -> None:
    """End the process that the client waits for, and go on in another one."""
    if sys.platform == "win32":  # the deadline ends what is left
        return
    if os.fork():
        os._exit(0)
    os.setsid()  # a client may end the group of its hooks
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, _BACKGROUND_SECONDS)


def write_log(path: str, event: str, **more: "Any") -> None:
    """Append a receipt or a problem to the log; errors are ignored: nowhere to report them."""
    log = log_path(path)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    fields = {"time": now, "event": event, "binding": os.path.basename(path), **more}
    try:
        if os.path.exists(log) and os.path.getsize(log) > _MAX_LOG:
            os.replace(log, f"{log}.1")
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "wb") as file:
            file.write(f"{json.dumps(fields, ensure_ascii=False)}\n".encode())
    except OSError:
        pass


def log_path(path: str) -> str:
    """Return the log of the installations in the folder of a binding."""
    return os.path.join(os.path.dirname(path), "hooks.log")


def outbox_folder(path: str) -> str:
    """Return the folder with the messages of a binding that are not stored yet."""
    return f"{path.removesuffix('.json')}.outbox"


def hook_command(event: str, path: str) -> list[str]:
    """Return the command that handles an event; it runs no code of the current folder."""
    return [sys.executable, "-I", "-S", __file__, event, "--config", path]


def _load_packages() -> None:
    """Make the installed packages importable, which `-I -S` leaves out.

    The current folder may be anybody's repository: relative entries of PYTHONPATH would name it.
    """
    import site

    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [root, *filter(os.path.isabs, entries)]
    site.main()


if __name__ == "__main__":
    main(sys.argv[1:])
