"""The program that clients run: it forwards an event to the service on this machine.

A prompt waits for it, so it runs as a file (`python -I -S client.py`) and imports next to nothing:
that takes as long as Python itself. The service does the rest. What the service does not handle is
handed to `memrecall hook`, with the problem in a variable.
"""

import _thread
import os
import sys
import time

try:
    import _socket as socket  # importing the module `socket` would double the time
except ImportError:  # another implementation of Python
    import socket  # type: ignore[no-redef]

MAX_INPUT = 1_000_000  # bytes
OFF_VARIABLE = "MEMRECALL_HOOKS"  # off: hooks do nothing
PROBLEM_VARIABLE = "MEMRECALL_HOOK_PROBLEM"  # why the service has not handled the event
_SHARE = 0.75  # of the deadline, for the service; the rest is for keeping what it did not handle
_UNKNOWN_DEADLINE = 60.0
_MAX_RESPONSE = 4_000_000  # bytes

TYPE_CHECKING = False  # importing typing would take longer
if TYPE_CHECKING:
    from typing import Any

Request = tuple[str, int, float, str]  # host, port, deadline in seconds, head of the request


def main(arguments: list[str]) -> None:
    """Print what the service answers to an event; the arguments are those of `memrecall hook`."""
    if os.environ.get(OFF_VARIABLE, "").lower() in ("off", "0", "false", "no"):
        return
    event, _, path, *rest = arguments
    request = read_request(path)
    _end_after(request[2] if request else _UNKNOWN_DEADLINE, path, event)
    if rest:
        data = rest[0].encode(errors="surrogateescape")
    else:
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
    problem = ""
    if request is not None and len(data) <= MAX_INPUT:
        try:
            status, body = forward(request, event, data)
        except ConnectionRefusedError:
            pass  # no service is running
        except (OSError, ValueError, IndexError) as error:
            problem = f"the service failed: {error}"
        else:
            if status == 200:
                os.write(1, body)
                return
            problem = f"the service answered {status}"
    _run_hook(arguments[:3], data, problem, as_argument=bool(rest))


def request_path(path: str) -> str:
    """Return the file with the requests of a binding."""
    return path.removesuffix(".json") + ".request"


def read_request(path: str) -> Request | None:
    """Return the request of a binding; None if the event is not for the service alone."""
    file, outbox = request_path(path), path.removesuffix(".json") + ".outbox"
    try:
        status = os.stat(file)
        with open(file, encoding="utf-8") as lines:
            host, port, seconds, head = lines.read().split("\n", 3)
        request = host, int(port), float(seconds), head
        is_private = os.name == "nt" or (status.st_uid == os.getuid() and not status.st_mode & 0o77)
    except (OSError, ValueError):
        return None
    # `memrecall hook` stores what is pending, and says what is wrong.
    return request if is_private and not (os.path.isdir(outbox) and os.listdir(outbox)) else None


def forward(request: Request, event: str, data: bytes) -> tuple[int, bytes]:
    """Send an event to the service; return the status and the body of its answer."""
    host, port, seconds, head = request
    deadline = time.monotonic() + seconds * _SHARE
    stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    stream.settimeout(seconds * _SHARE)
    stream.connect((host, port))
    return exchange(stream, head.replace("{event}", event), data, deadline)


def exchange(stream: "Any", head: str, data: bytes, deadline: float) -> tuple[int, bytes]:
    """Send a request, whose head ends the connection; return the status and the body."""
    lines = head.replace("{length}", str(len(data))).replace("\n", "\r\n")
    stream.sendall(lines.encode() + data)
    answer = b""
    while len(answer) <= _MAX_RESPONSE and (chunk := stream.recv(65_536)):
        answer += chunk
        stream.settimeout(max(deadline - time.monotonic(), 0.001))
    stream.close()
    top, _, body = answer.partition(b"\r\n\r\n")
    if not top.startswith(b"HTTP/1.") or len(answer) > _MAX_RESPONSE:
        raise ValueError("what answers at the address of the service is no memrecall service")
    return int(top.split(b" ", 2)[1]), body


def _end_after(seconds: float, path: str, event: str) -> None:
    """End the process silently after that time, whatever it waits for."""

    def end() -> None:
        time.sleep(seconds)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        name = "".join(letter for letter in event if letter.isalnum())
        problem = f"stopped after {seconds:g} s, the deadline of this installation"
        line = f'{{"time": "{now}", "event": "{name}", "problem": "{problem}"}}\n'
        try:
            log = os.path.join(os.path.dirname(path), "hooks.log")
            os.write(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), line.encode())
        finally:
            os._exit(0)

    _thread.start_new_thread(end, ())


def hook_command(*arguments: str) -> list[str]:
    """Return the command of `memrecall hook`, which runs no code of the current folder.

    That folder may be anybody's repository: `-P` keeps it from the import path, and empty and
    relative entries of PYTHONPATH, which would name it too, are removed.
    """
    if path := os.environ.get("PYTHONPATH"):
        entries = [entry for entry in path.split(os.pathsep) if os.path.isabs(entry)]
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
    return [sys.executable, "-P", "-m", "memrecall", "hook", *arguments]


def _run_hook(arguments: list[str], data: bytes, problem: str, *, as_argument: bool) -> None:
    """Replace this process by `memrecall hook`, with the input that was read here."""
    command = hook_command(*arguments)
    if as_argument:
        command.append(data.decode(errors="surrogateescape"))
    else:
        _put_back(data)
    if problem:
        os.environ[PROBLEM_VARIABLE] = problem
    if os.name == "nt":  # there, execv would not wait for the new process
        os.spawnv(os.P_WAIT, sys.executable, command)  # noqa: S606 -- this interpreter
        return
    os.execv(sys.executable, command)  # noqa: S606 -- this interpreter


def _put_back(data: bytes) -> None:
    """Let standard input be a file with this content, which has no name."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.dup2(file.fileno(), 0)


if __name__ == "__main__":
    try:  # noqa: SIM105 -- importing contextlib would take longer
        main(sys.argv[1:])
    except Exception:  # noqa: S110 -- nothing may fail the prompt
        pass
