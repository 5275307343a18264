"""`memrecall hook EVENT`: one event of a client, from its JSON to the recalled block.

Nothing here may fail the user's prompt: whatever goes wrong ends in silence, exit code 0 and a line
in the log. Standard library only, as long as a service is running: see the package.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from memrecall.integrations.hooks.binding import (
    Binding,
    HookError,
    NoService,
    ServiceAccess,
    quote,
    read_binding,
    write_log,
)
from memrecall.integrations.hooks.client import (
    MAX_INPUT,
    OFF_VARIABLE,
    PROBLEM_VARIABLE,
    hook_command,
)
from memrecall.integrations.hooks.events import CapturedEvent, find_event, read_event
from memrecall.integrations.hooks.outbox import Outbox
from memrecall.integrations.hooks.payload import MAX_QUERY

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
    except (HookError, OSError, ValueError) as error:
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
    client, _ = find_event(binding.client, event_name)
    if client.payload_in_arguments:
        data = rest[0].encode(errors="surrogateescape") if rest else b""
    else:
        data = sys.stdin.buffer.read(MAX_INPUT + 1)
    event = read_event(binding, event_name, data)
    if event is not None:
        HookRun(path, binding, event, deadline).handle(os.environ.get(PROBLEM_VARIABLE, ""))


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


class HookRun:
    """The handling of one event."""

    def __init__(self, path: str, binding: Binding, event: CapturedEvent, deadline: float) -> None:
        self._path = path
        self._binding = binding
        self._event = event
        self._deadline = deadline
        self._outbox = Outbox(path, binding)

    def handle(self, problem: str) -> None:
        """Capture the event, and recall for it if the client shows the result.

        After a `problem` of the service, it is only kept until a later event.
        """
        binding = self._binding
        earlier = self._outbox.pending_ids()
        if binding.capture:
            for message in self._event.messages:
                self._outbox.add(message, self._event.workspace)
        if problem:
            raise HookError(problem)
        recalls = binding.recall and self._event.recalls
        if binding.url:
            service = ServiceAccess(binding, self._deadline)
            with suppress(NoService):
                if recalls:
                    self._print(_recall(service, self._event))
                    recalls = False
                _deliver(service, self._outbox)
                return
        self._use_database(earlier, recalls=recalls)

    def _use_database(self, earlier: list[str], *, recalls: bool) -> None:
        """Recall from the database; without a recall, another process stores what is pending."""
        if not recalls:
            if self._outbox.pending_ids():
                _start_delivery(self._path)
            return
        from memrecall.integrations.hooks import database

        # The prompt itself stays pending, because it would be the best match of the recall.
        messages = self._outbox.read(earlier)
        database.recall_block(
            self._binding, self._outbox, messages, self._event.messages[0], self._print
        )

    def _print(self, block: str) -> None:
        sys.stdout.write(self._event.format_output(block))
        sys.stdout.flush()


def _recall(service: ServiceAccess, event: CapturedEvent) -> str:
    binding = service.binding
    body = {
        "query": event.messages[0].content[:MAX_QUERY],
        "session_id": event.session_id,
        "block": {
            "characters": binding.characters,
            "min_confidence": binding.min_confidence,
            "if_needed": True,
        },
        "limits": {"seconds": max(service.deadline - time.monotonic(), 0.05)},
    }
    status, content = service.post(f"/v1/users/{quote(binding.user)}/recall", body, "text/plain")
    if status != 200:
        raise HookError(f"the service answered {status} to the recall")
    return content.decode()


def _deliver(service: ServiceAccess, outbox: Outbox) -> None:
    """Store the pending messages through the service."""
    path = f"/v1/users/{quote(service.binding.user)}/messages"
    for message in outbox.read(outbox.pending_ids()):
        status, _ = service.post(path, {"messages": [message]}, "application/json")
        if status not in _STORED:
            raise HookError(f"the service answered {status} to a message, which stays pending")
        outbox.remove(message["message_id"])


def _deliver_all(path: str, binding: Binding) -> None:
    """Store the pending messages, through the service or in the database."""
    outbox = Outbox(path, binding)
    if binding.url:
        with suppress(NoService):
            _deliver(ServiceAccess(binding, time.monotonic() + _DELIVERY_SECONDS), outbox)
            return
    from memrecall.integrations.hooks import database

    database.deliver(binding, outbox, outbox.read(outbox.pending_ids()))


def _start_delivery(path: str) -> None:
    """Start a process that stores the pending messages, and that no client waits for."""
    import subprocess

    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NO_WINDOW}
    subprocess.Popen(  # noqa: S603 -- this program, with the path it was given
        hook_command(DELIVER, "--config", path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
