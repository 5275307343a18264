"""`memrecall hook EVENT`: one event of a client, from its JSON to the recalled block.

Nothing here may fail the user's prompt: whatever goes wrong ends in silence, exit code 0 and a line
in the log. Standard library only, as long as a service is running: see the package.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from memrecall.integrations.hooks.binding import Binding, HookError, read_binding, write_log
from memrecall.integrations.hooks.clients import CLIENTS, Client, HookEvent
from memrecall.integrations.hooks.ignore import is_ignored
from memrecall.integrations.hooks.outbox import Outbox
from memrecall.integrations.hooks.payload import (
    MAX_INPUT,
    MAX_QUERY,
    BadPayload,
    Payload,
    parse_payload,
)
from memrecall.integrations.hooks.redaction import redact_patterns, redact_secrets
from memrecall.integrations.hooks.service import ServiceConnection, quote

OFF_VARIABLE = "MEMRECALL_HOOKS"  # off: hooks do nothing
DELIVER = "deliver"  # the event of the background process that stores pending messages
_USAGE = "usage: memrecall hook EVENT --config FILE; `memrecall hooks install` writes this command"
_DELIVERY_SECONDS = 120.0
_STORED = (200, 409)  # 409: the same message is already stored, with another time


def run_hook(arguments: Sequence[str]) -> None:
    """Handle one event; never raise, and print nothing but a block."""
    if os.environ.get(OFF_VARIABLE, "").lower() in ("off", "0", "false", "no"):
        return
    if not 3 <= len(arguments) <= 4 or arguments[1] != "--config":
        sys.stderr.write(f"{_USAGE}\n")
        return
    event, _, path, *rest = arguments
    try:
        _handle(path, event, rest)
    except (HookError, BadPayload, OSError) as error:
        write_log(path, event, str(error))
    except Exception as error:  # a bug must not fail the prompt either
        write_log(path, event, f"{type(error).__name__}: {error}")


def _handle(path: str, event_name: str, rest: list[str]) -> None:
    binding = read_binding(path)
    if event_name == DELIVER:
        _set_deadline(path, event_name, _DELIVERY_SECONDS)
        _deliver_all(path, binding)
        return
    deadline = _set_deadline(path, event_name, binding.deadline)
    client = CLIENTS.get(binding.client)
    event = client.event(event_name) if client else None
    if client is None or event is None:
        raise HookError("the client has no such event; install the hooks again")
    if client.payload_in_arguments:
        data = rest[0].encode(errors="surrogateescape") if rest else b""
    else:
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
    payload = _redact(binding, parse_payload(client, event, data))
    folder = payload.folder or binding.workspace or os.getcwd()
    if payload.messages and not is_ignored(folder):
        HookRun(path, binding, client, event, deadline).handle(payload, folder)


def _set_deadline(path: str, event: str, seconds: float) -> float:
    """End the process silently after that time; return when that is."""

    def end(*_: object) -> None:
        write_log(path, event, f"stopped after {seconds:g} s, the deadline of this installation")
        os._exit(0)

    if sys.platform != "win32":  # a signal also interrupts a regular expression, unlike a thread
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    else:
        import threading

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
    return time.monotonic() + seconds


def _redact(binding: Binding, payload: Payload) -> Payload:
    def redact(text: str) -> str:
        text = redact_secrets(text) if binding.redact else text
        return redact_patterns(text, binding.redact_patterns)

    messages = (each._replace(content=redact(each.content)) for each in payload.messages)
    return payload._replace(messages=tuple(each for each in messages if each.content))


class HookRun:
    """The handling of one checked event."""

    def __init__(
        self, path: str, binding: Binding, client: Client, event: HookEvent, deadline: float
    ) -> None:
        self._path = path
        self._binding = binding
        self._client = client
        self._event = event
        self._deadline = deadline
        self._outbox = Outbox(path, binding)

    def handle(self, payload: Payload, folder: str) -> None:
        """Capture the messages of the event; recall for them if the client shows the result."""
        binding = self._binding
        earlier = self._outbox.pending_ids()
        if binding.capture:
            workspace = binding.workspace or _find_workspace(folder)
            for message in payload.messages:
                self._outbox.add(message, workspace)
        recalls = binding.recall and self._event.recalls and self._client.can_inject
        service = ServiceConnection.open(binding, self._deadline) if binding.url else None
        if service is None:
            self._use_database(payload, earlier, recalls=recalls)
            return
        try:
            if recalls:
                self._print(_recall(service, binding, payload, self._deadline))
            _deliver(service, binding, self._outbox)
        finally:
            service.close()

    def _use_database(self, payload: Payload, earlier: list[str], *, recalls: bool) -> None:
        """Recall from the database; without a recall, another process stores what is pending."""
        if not recalls:
            if self._outbox.pending_ids():
                _start_delivery(self._path)
            return
        from memrecall.integrations.hooks import database

        # The prompt itself stays pending, because it would be the best match of the recall.
        messages = self._outbox.read(earlier)
        database.recall_block(
            self._binding, self._outbox, messages, payload.messages[0], self._print
        )

    def _print(self, block: str) -> None:
        if block:
            sys.stdout.write(self._client.format_output(self._event.name, block))
            sys.stdout.flush()


def _recall(service: ServiceConnection, binding: Binding, payload: Payload, deadline: float) -> str:
    body = {
        "query": payload.messages[0].content[:MAX_QUERY],
        "session_id": payload.session_id,
        "block": {"characters": binding.characters, "min_confidence": binding.min_confidence},
        "limits": {"seconds": max(deadline - time.monotonic(), 0.05)},
    }
    status, content = service.post(f"/v1/users/{quote(binding.user)}/recall", body, "text/plain")
    if status != 200:
        raise HookError(f"the service answered {status} to the recall")
    return content.decode()


def _deliver(service: ServiceConnection, binding: Binding, outbox: Outbox) -> None:
    """Store the pending messages through the service."""
    for message in outbox.read(outbox.pending_ids()):
        path = f"/v1/users/{quote(binding.user)}/messages"
        status, _ = service.post(path, {"messages": [message]}, "application/json")
        if status not in _STORED:
            raise HookError(f"the service answered {status} to a message, which stays pending")
        outbox.remove(message["message_id"])


def _deliver_all(path: str, binding: Binding) -> None:
    """Store the pending messages, through the service or in the database."""
    outbox = Outbox(path, binding)
    deadline = time.monotonic() + _DELIVERY_SECONDS
    service = ServiceConnection.open(binding, deadline) if binding.url else None
    if service is None:
        from memrecall.integrations.hooks import database

        database.deliver(binding, outbox, outbox.read(outbox.pending_ids()))
        return
    try:
        _deliver(service, binding, outbox)
    finally:
        service.close()


def _start_delivery(path: str) -> None:
    """Start a process that stores the pending messages, and that no client waits for."""
    import subprocess

    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NO_WINDOW}
    subprocess.Popen(  # noqa: S603 -- this program, with the path it was given
        [sys.executable, "-m", "memrecall", "hook", DELIVER, "--config", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )


def _find_workspace(folder: str) -> str:
    """Return the repository that a folder belongs to, or the folder itself."""
    top = folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            return folder
        top = above
    return top
