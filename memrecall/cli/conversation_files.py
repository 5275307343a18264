"""Conversations read from files: the messages for `recall`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.json_objects import parse_json_line
from memrecall.messages import parse_message

_MESSAGE_HINT = 'Write messages like {"role": "user", "content": "…"}, one per line or as a list'


def read_conversation_file(file: str) -> list[Any]:
    """Read messages from a file, or from standard input for "-"; errors name the line."""
    source = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror or error}") from None
    is_list = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    items = _load_list(data, source) if is_list else _load_lines(data, source)
    messages = [message for place, item in items for message in _read_message(item, place)]
    if not messages:
        raise InvalidArgument(f"{source} contains no message", hint=_MESSAGE_HINT)
    return messages


def _load_list(data: bytes, source: str) -> Iterator[tuple[str, Any]]:
    """Yield every item of a JSON list with its place."""
    try:
        items = json.loads(data)
    except json.JSONDecodeError as error:
        place = f"{source} line {error.lineno}"
        raise InvalidArgument(f"{place}: not JSON ({error.msg})", hint=_MESSAGE_HINT) from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{source} is not JSON ({error})", hint=_MESSAGE_HINT) from None
    for number, item in enumerate(items, 1):
        yield f"{source} message {number}", item


def _load_lines(data: bytes, source: str) -> Iterator[tuple[str, Any]]:
    """Yield the object of every line with its place."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            place = f"{source} line {number}"
            try:
                yield place, parse_json_line(line)
            except InvalidArgument as error:
                raise InvalidArgument(f"{place}: {error.message}", hint=_MESSAGE_HINT) from None


def _read_message(item: Any, place: str) -> tuple[Any, ...]:
    """Return the message, or nothing for one without text, such as a tool call."""
    if not isinstance(item, str | dict):
        raise InvalidArgument(f"{place}: not an object", hint=_MESSAGE_HINT)
    for name in ("role", "content"):
        if isinstance(item, dict) and name not in item:
            raise InvalidArgument(f"{place}: {name} is missing", hint=_MESSAGE_HINT)
    try:
        message = parse_message(item)
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=error.hint) from None
    return (message,) if message.text.strip() else ()
