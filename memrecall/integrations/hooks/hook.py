"""Events that no process on this machine has handled: masked, kept, recalled for and delivered.

A service on another machine is used, or the helper is started. What cannot be stored stays pending.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memrecall.integrations.hooks.bindings import (
    Binding,
    HookError,
    Outbox,
    check_address,
    read_binding,
)
from memrecall.integrations.hooks.client import (
    allowed_seconds,
    detach,
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
from memrecall.types import NewMessage, Role, format_time

if TYPE_CHECKING:
    from memrecall.integrations.hooks.client import Answer

_OK, _CONFLICT = 200, 409
_TRANSCRIPT_MESSAGES = 400  # the latest ones, which are kept where none can be stored
_SHARE = 0.9  # of the deadline, for waiting; the rest is for the log
_START_SECONDS, _DELIVERY_SECONDS = 60.0, 300.0  # in the background
_PIECE_MESSAGES, _PIECE_BYTES = 100, 500_000  # that are stored at once: others wait for the rest


def handle_event(
    path: str, event_name: str, data: bytes, problem: str = "", started: float = 0.0
) -> None:
    """Capture an event, and recall for it if the client shows the result.

    After a `problem` of the service, the event is only kept until a later one.
    """
    binding = read_binding(path)
    outbox = Outbox(path, binding)
    event = read_event(binding, event_name, data)
    if event is None:
        return
    if binding.capture:
        for message in event.messages:
            outbox.keep(event.entry(message))
        if event.event.compacts:
            detach()
            _store_transcript(path, binding, outbox, event)
            return
    started = started or time.monotonic()
    seconds = allowed_seconds(event_name, binding.deadline)
    if time.monotonic() - started >= seconds:  # the client has gone on
        if not problem:
            _deliver_later(path, binding)
        return
    deadline = set_deadline(path, event_name, seconds, started)
    if problem:
        raise HookError(problem)
    if _answer(path, binding, event, data, (started, deadline)) and outbox.pending_ids():
        detach()
        deliver_pending(path)


def _answer(
    path: str, binding: Binding, event: CapturedEvent, data: bytes, times: tuple[float, float]
) -> bool:
    """Show the client what it waits for; return whether a service is running."""
    started, deadline = times
    if not _is_local(binding):
        if binding.recall and event.recalls:
            _print(event, _recall_from_service(binding, event, deadline))
        return True
    answer = _ask_helper(path, binding, event, data, started + (deadline - started) * _SHARE)
    if answer is None:
        return False
    finish(path, event.event.name, answer, started)
    for message in event.messages:
        Outbox(path, binding).remove(message.message_id)
    return True


def _deliver_later(path: str, binding: Binding) -> None:
    """Store what is pending, or let the helper do it."""
    if not _is_local(binding):
        deliver_pending(path)
        return
    from memrecall.integrations.hooks.helper import start_helper

    start_helper(path)


def _store_transcript(path: str, binding: Binding, outbox: Outbox, event: CapturedEvent) -> None:
    """Store what the client is about to drop: its transcript has what no event had.

    What cannot be stored is kept, the latest messages of it.
    """
    from memrecall.importers.past_sessions import read_session
    from memrecall.integrations.hooks.helper import warm_helper

    said = [
        _entry(binding, event, message)
        for message in read_session(event.client.name, event.session_id)
    ]
    try:
        if said and _is_local(binding):
            warm_helper(path, binding, _START_SECONDS)
        stored = _store(path, binding, said)
        write_log(path, event.event.name, stored=stored)
    except (OSError, ValueError):
        for entry in said[-_TRANSCRIPT_MESSAGES:]:
            outbox.keep(entry)
        raise


def _entry(binding: Binding, event: CapturedEvent, message: NewMessage) -> dict[str, Any]:
    """Return a message of a transcript as an event of the session would have it."""
    captured = CapturedMessage(
        message.message_id or "",
        event.session_id,
        "user" if message.role is Role.USER else "assistant",
        redact_patterns(message.content, binding.redact_patterns),
        format_time(message.ts) if message.ts else "",
    )
    return event.entry(captured)


def _ask_helper(
    path: str, binding: Binding, event: CapturedEvent, data: bytes, deadline: float
) -> "Answer | None":
    """Return what a local process answers; None if one was started that this event need not ask."""
    answer = forward(path, binding._asdict(), event.event.name, data, deadline)
    if answer is None:
        from memrecall.integrations.hooks.helper import start_helper, wait_for_helper

        if not event.shows:
            start_helper(path)  # it stores what is pending
            return None
        if not wait_for_helper(path, binding, deadline):
            raise HookError("the helper is still starting; the next prompt is answered")
        answer = forward(path, binding._asdict(), event.event.name, data, deadline)
    if answer is not None and answer[0] != _OK:
        raise HookError(f"the service answered {answer[0]}")
    return answer


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


def deliver_pending(path: str) -> None:
    """Store the pending messages of a binding."""
    binding = read_binding(path)
    deliver(path, binding, Outbox(path, binding))


def deliver(path: str, binding: Binding, outbox: Outbox) -> None:
    """Store the pending messages, as many as can be."""
    stored = _store(path, binding, outbox.read_all(), outbox.remove)
    if stored:
        write_log(path, "deliver", stored=stored)


def _store(
    path: str,
    binding: Binding,
    messages: Sequence[dict[str, Any]],
    forget: Callable[[str], None] = lambda _: None,
) -> int:
    """Store messages piece by piece, forgetting those of each; return how many are new."""
    deadline = time.monotonic() + _DELIVERY_SECONDS
    stored = 0
    for piece in _pieces(messages):
        stored += _store_piece(path, binding, piece, deadline)
        for message in piece:
            forget(message["message_id"])
    return stored


def _pieces(messages: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    piece, size = list[dict[str, Any]](), 0
    for message in messages:
        length = len(json.dumps(message))
        if piece and (len(piece) == _PIECE_MESSAGES or size + length > _PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(message)
        size += length
    if piece:
        yield piece


def _store_piece(
    path: str, binding: Binding, messages: Sequence[dict[str, Any]], deadline: float
) -> int:
    if not messages:
        return 0
    resource = f"/v1/users/{quote_id(binding.user)}/messages"
    data = json.dumps({"messages": messages}).encode()
    arguments = (resource, data, "Accept: application/json", deadline)
    target = binding._asdict()
    if _is_local(binding):
        answer = post_locally(path, target, *arguments)
    else:
        check_address(binding.url, allow_remote=binding.allow_remote)
        answer = post(target, *arguments)
    if answer is not None and answer[0] == _CONFLICT:
        # The same words are stored already, with another time: the hooks gave it to them.
        details = json.loads(answer[1])["error"]["details"]
        known = set(details.get("message_ids") or [each["message_id"] for each in messages])
        others = [each for each in messages if each["message_id"] not in known]
        return _store_piece(path, binding, others, deadline)
    if answer is None or answer[0] != _OK:
        status = answer[0] if answer else "nothing"
        raise HookError(f"the service answered {status} to messages, which stay pending")
    return int(json.loads(answer[1])["stored"])


def _is_local(binding: Binding) -> bool:
    return not binding.url or is_local(binding.url)
