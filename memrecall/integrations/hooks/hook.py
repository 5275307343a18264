"""Events that no service on this machine has handled: masked, kept, recalled for and delivered.

A service on another machine is used, or the database. What cannot be stored stays pending.
"""

import json
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from memrecall.integrations.hooks.bindings import Binding, HookError, check_address, read_binding
from memrecall.integrations.hooks.client import DELIVER, hook_command, post, quote_id, set_deadline
from memrecall.integrations.hooks.events import MAX_RECALLED, CapturedEvent, read_event
from memrecall.integrations.hooks.outbox import Outbox

_DELIVERY_SECONDS = 120.0
_STORED = (200, 409)  # 409: the same message is already stored, with another time


def handle_event(path: str, event_name: str, data: bytes, problem: str = "") -> None:
    """Capture an event, and recall for it if the client shows the result.

    After a `problem` of the service, the event is only kept until a later one.
    """
    binding = read_binding(path)
    outbox = Outbox(path, binding)
    if event_name == DELIVER:
        _deliver(binding, outbox, set_deadline(path, event_name, _DELIVERY_SECONDS))
        return
    deadline = set_deadline(path, event_name, binding.deadline)
    event = read_event(binding, event_name, data)
    if event is None:
        return
    earlier = outbox.pending_ids()
    if binding.capture:
        for message in event.messages:
            outbox.add(message, event.workspace)
    if problem:
        raise HookError(problem)
    is_recalled = binding.recall and event.recalls
    if binding.url:
        with suppress(ConnectionRefusedError):
            if is_recalled:
                _print(event, _recall_from_service(binding, event, deadline))
                is_recalled = False
            _deliver_to_service(binding, outbox, deadline)
            return
    if is_recalled:
        from memrecall.integrations.hooks import database

        # The prompt itself stays pending, because it would be the best match of the recall.
        messages = outbox.read(earlier)
        database.recall_block(
            binding, outbox, messages, event.messages[0], lambda block: _print(event, block)
        )
    elif outbox.pending_ids():
        _start_delivery(path)


def _print(event: CapturedEvent, block: str) -> None:
    sys.stdout.write(event.format_output(block))
    sys.stdout.flush()


def _recall_from_service(binding: Binding, event: CapturedEvent, deadline: float) -> str:
    body = {
        "query": event.messages[0].content[:MAX_RECALLED],
        "session_id": event.session_id,
        "block": {
            "characters": binding.characters,
            "min_confidence": binding.min_confidence,
            "if_needed": True,
            "when": binding.when,
            "only_sure": True,
        },
        "limits": {"seconds": max(deadline - time.monotonic(), 0.05)},
    }
    status, content = _post(binding, "recall", body, "text/plain", deadline)
    if status != 200:
        raise HookError(f"the service answered {status} to the recall")
    return content.decode()


def _deliver(binding: Binding, outbox: Outbox, deadline: float) -> None:
    """Store the pending messages, through the service or in the database."""
    if binding.url:
        with suppress(ConnectionRefusedError):
            _deliver_to_service(binding, outbox, deadline)
            return
    from memrecall.integrations.hooks import database

    database.deliver(binding, outbox, outbox.read(outbox.pending_ids()))


def _deliver_to_service(binding: Binding, outbox: Outbox, deadline: float) -> None:
    for message in outbox.read(outbox.pending_ids()):
        body = {"messages": [message]}
        status, _ = _post(binding, "messages", body, "application/json", deadline)
        if status not in _STORED:
            raise HookError(f"the service answered {status} to a message, which stays pending")
        outbox.remove(message["message_id"])


def _post(
    binding: Binding, resource: str, body: dict[str, Any], accept: str, deadline: float
) -> tuple[int, bytes]:
    check_address(binding.url, allow_remote=binding.allow_remote)
    path = f"/v1/users/{quote_id(binding.user)}/{resource}"
    data = json.dumps(body).encode()
    return post(binding._asdict(), path, data, f"Accept: {accept}", deadline)


def _start_delivery(path: str) -> None:
    """Start a process that stores the pending messages, and that no client waits for."""
    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = {"creationflags": subprocess.DETACHED_PROCESS | subprocess.CREATE_NO_WINDOW}
    subprocess.Popen(  # noqa: S603 -- this program, with the path it was given
        hook_command(DELIVER, path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
