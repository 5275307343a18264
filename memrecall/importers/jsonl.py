"""Messages as JSON lines, one message a line."""

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from memrecall.errors import CallerError, InvalidArgument, describe_validation_error
from memrecall.json_objects import parse_json_line
from memrecall.messages import join_content_parts, parse_role
from memrecall.progress import Advance
from memrecall.scope import Scope
from memrecall.store import ScopedMessage
from memrecall.types import NewMessage

SCOPE_FIELDS = ("user_id", "agent_id", "session_id")
_MESSAGE_FIELDS = frozenset(NewMessage.model_fields)
_REQUIRED = ("message_id", "ts", "role", "content")


def read_messages(
    path: Path, default_user: str | None, advance: Advance
) -> Iterator[tuple[int, ScopedMessage | CallerError]]:
    """Yield the number of each line with its message, or with the error that it raised."""
    for number, line in read_lines(path, advance):
        try:
            yield number, read_entry(line, default_user)
        except CallerError as error:
            yield number, error


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; raise InvalidArgument if it cannot be read."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InvalidArgument:
    return InvalidArgument(
        f"cannot read {path}: {error.strerror}", hint="Pass a readable file of JSON lines"
    )


def read_lines(path: Path, advance: Advance = lambda size: None) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file with their numbers."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                advance(len(line))
                if line.strip():
                    yield number, line
    except OSError as error:
        raise _unreadable(path, error) from None


def read_entry(line: bytes, default_user: str | None = None) -> ScopedMessage:
    """Return one line as a message with its scope; raise CallerError if it is invalid."""
    data = parse_json_line(line)
    scope = {name: data.get(name) or None for name in SCOPE_FIELDS}
    scope["user_id"] = scope["user_id"] or default_user
    for name, value in scope.items():
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} {value!r} is not a string", hint="Write it in quotes")
    missing = [name for name in _REQUIRED if data.get(name) is None]
    if not scope["user_id"]:
        missing.insert(0, "user_id")
    if missing:
        raise InvalidArgument(f"{missing[0]} is missing")
    fields = {name: data[name] for name in _MESSAGE_FIELDS if data.get(name) is not None}
    fields["role"] = parse_role(fields["role"])
    try:
        message = NewMessage.model_validate(join_content_parts(fields))
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return ScopedMessage(
        Scope(str(scope["user_id"]), scope["agent_id"], scope["session_id"]), message
    )
