"""Events that no process on this machine has handled: masked, kept, recalled for and delivered.

A service on another machine is used, or the helper is started. What cannot be stored stays pending.
"""

import json
import sys
import time
from typing import TYPE_CHECKING

from memrecall.integrations.hooks.bindings import Binding, HookError, check_address, read_binding
from memrecall.integrations.hooks.client import (
    allowed_seconds,
    finish,
    forward,
    is_local,
    post,
    post_locally,
    quote_id,
    set_deadline,
    write_log,
)
from memrecall.integrations.hooks.events import (
    MAX_RECALLED,
    CapturedEvent,
    CapturedMessage,
    read_event,
    redact_patterns,
)
from memrecall.integrations.hooks.outbox import Outbox
from memrecall.types import Role, format_time

if TYPE_CHECKING:
    from memrecall.integrations.hooks.client import Answer

_STORED = (200, 409)  # 409: the same message is already stored, with another time
_TRANSCRIPT_MESSAGES = 400  # the latest ones; an import reads the others
_SHARE = 0.9  # of the deadline, for waiting; the rest is for the log


def handle_event(
    path: str, event_name: str, data: bytes, problem: str = "", started: float = 0.0
) -> None:
    """Capture an event, and recall for it if the client shows the result.

    After a `problem` of the service, the event is only kept until a later one.
    """
    binding = read_binding(path)
    outbox = Outbox(path, binding)
    seconds = allowed_seconds(event_name, binding.deadline)
    deadline = set_deadline(path, event_name, seconds)
    event = read_event(binding, event_name, data)
    if event is None:
        return
    if binding.capture:
        for message in event.messages or _read_transcript(binding, event):
            outbox.add(message, event)
    if problem:
        raise HookError(problem)
    if binding.url and not is_local(binding.url):
        if binding.recall and event.recalls:
            _print(event, _recall_from_service(binding, event, deadline))
        deliver(path, binding, outbox, deadline)
        return
    wait_until = deadline - seconds * (1 - _SHARE)
    answer = _ask_helper(path, binding, event, data, wait_until)
    if answer is None:
        return
    if answer[0] != 200:
        raise HookError(f"the service answered {answer[0]}")
    finish(path, event_name, answer, started or time.monotonic())
    for message in event.messages:
        outbox.remove(message.message_id)
    deliver(path, binding, outbox, deadline)


def _read_transcript(binding: Binding, event: CapturedEvent) -> list[CapturedMessage]:
    """Return what the client is about to drop: its transcript has what no event had."""
    if not event.event.compacts:
        return []
    from memrecall.importers.past_sessions import read_session

    messages = read_session(event.client.name, event.session_id)[-_TRANSCRIPT_MESSAGES:]
    return [
        CapturedMessage(
            message.message_id or "",
            event.session_id,
            "user" if message.role is Role.USER else "assistant",
            redact_patterns(message.content, binding.redact_patterns),
            format_time(message.ts) if message.ts else "",
        )
        for message in messages
    ]


def _ask_helper(
    path: str, binding: Binding, event: CapturedEvent, data: bytes, deadline: float
) -> "Answer | None":
    """Return what a local process answers; None if one was started that this event need not ask."""
    answer = forward(path, binding._asdict(), event.event.name, data, deadline)
    if answer is not None:
        return answer
    from memrecall.integrations.hooks.helper import start_helper, wait_for_helper

    if not event.shows:
        start_helper(path)  # it stores what is pending
        return None
    if not wait_for_helper(path, binding, deadline):
        raise HookError("the helper is still starting; the next prompt is answered")
    return forward(path, binding._asdict(), event.event.name, data, deadline)


def _print(event: CapturedEvent, block: str) -> None:
    sys.stdout.write(event.format_output(block))
    sys.stdout.flush()


def _recall_from_service(binding: Binding, event: CapturedEvent, deadline: float) -> str:
    body = {
        "query": event.messages[0].content[:MAX_RECALLED],
        "session_id": event.session_id,
        "project": event.project,
        "block": {
            "characters": binding.characters,
            "if_needed": True,
            "only_sure": True,
        },
        "limits": {"seconds": max(deadline - time.monotonic(), 0.05)},
    }
    check_address(binding.url, allow_remote=binding.allow_remote)
    path = f"/v1/users/{quote_id(binding.user)}/recall"
    data = json.dumps(body).encode()
    status, content, _ = post(binding._asdict(), path, data, "Accept: text/plain", deadline)
    if status != 200:
        raise HookError(f"the service answered {status} to the recall")
    return content.decode()


def deliver(path: str, binding: Binding, outbox: Outbox, deadline: float) -> None:
    """Store the pending messages, as many as a run may."""
    is_remote = bool(binding.url) and not is_local(binding.url)
    if is_remote:
        check_address(binding.url, allow_remote=binding.allow_remote)
    resource = f"/v1/users/{quote_id(binding.user)}/messages"
    target = binding._asdict()
    stored = 0
    for message in outbox.read_all():
        data = json.dumps({"messages": [message]}).encode()
        arguments = (resource, data, "Accept: application/json", deadline)
        answer = post(target, *arguments) if is_remote else post_locally(path, target, *arguments)
        if answer is None or answer[0] not in _STORED:
            status = answer[0] if answer else "nothing"
            raise HookError(f"the service answered {status} to a message, which stays pending")
        stored += answer[0] == 200
        outbox.remove(message["message_id"])
    if stored:
        write_log(path, "deliver", stored=stored)
