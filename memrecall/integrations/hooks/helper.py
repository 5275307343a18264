"""The helper, seen from the hooks: the process that the first of them leaves behind.

Starting Python with an embedder takes longer than a prompt may wait. So a hook that finds no
service starts one of its own (`memrecall.server.helper`). A lock that the hook takes and the
process inherits makes sure that there is never more than one.
"""

import fcntl
import json
import os
import subprocess
import time
from contextlib import suppress

from memrecall.integrations.hooks.bindings import Binding, HookError
from memrecall.integrations.hooks.client import (
    HELPER,
    find_helper,
    helper_path,
    hook_command,
    is_locked,
    post,
)

_POLL_SECONDS = 0.02
_WARM_SECONDS = 0.5  # between requests that the helper logs
_MAX_LOG = 1_000_000  # bytes; then a new log is started


def start_helper(path: str) -> bool:
    """Start the helper in the folder of a binding; return False if there is one already."""
    lock = os.open(f"{helper_path(path)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(FileNotFoundError):  # of a helper that was killed
            os.unlink(helper_path(path))
        log_path = f"{helper_path(path)}.log"
        is_full = os.path.exists(log_path) and os.path.getsize(log_path) > _MAX_LOG
        with open(log_path, "wb" if is_full else "ab", opener=_open_private) as file:
            subprocess.Popen(  # noqa: S603 -- this program, with the path it was given
                [*hook_command(HELPER, path), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=os.path.dirname(path),  # not the project, whose folder it would keep in use
                pass_fds=[lock],
                start_new_session=True,
            )
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def wait_for_helper(path: str, binding: Binding, deadline: float) -> bool:
    """Start a helper if there is none; return whether it answers before the deadline.

    Raise HookError if it has ended.
    """
    is_started = False
    while time.monotonic() < deadline:
        if find_helper(path, binding._asdict()):
            return True
        if not is_started:
            is_started = start_helper(path)
        elif not is_locked(path):
            raise HookError(f"the helper has failed: see {helper_path(path)}.log")
        time.sleep(_POLL_SECONDS)
    return False


def warm_helper(path: str, binding: Binding, seconds: float) -> None:
    """Start a helper unless a service is running, and wait until its first recall is quick."""
    from http.client import HTTPConnection, HTTPException

    deadline = time.monotonic() + seconds
    target = binding._asdict()
    with suppress(ConnectionRefusedError):
        if binding.url:  # whatever it answers, a service is running
            post(target, "/healthz", b"", "Accept: */*", deadline)
            return
    if not wait_for_helper(path, binding, deadline):
        return
    while time.monotonic() < deadline and (helper := find_helper(path, target)):
        connection = HTTPConnection(helper["url"].removeprefix("http://"), timeout=seconds)
        with suppress(OSError, HTTPException):
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(_WARM_SECONDS)


def stop_helper(path: str) -> None:
    """End the helper in the folder of a binding, if one is running."""
    import signal

    with suppress(FileNotFoundError, ProcessLookupError):
        with open(helper_path(path), "rb") as file:
            pid = int(json.load(file)["pid"])
        if is_locked(path):
            os.kill(pid, signal.SIGTERM)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
