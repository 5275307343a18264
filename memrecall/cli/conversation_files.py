"""Conversations read from files: messages for `recall`, a group for `chat --group`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from memrecall.chat import Member
from memrecall.cli.options import read_json_file
from memrecall.errors import InvalidArgument, describe_validation_error
from memrecall.json_objects import parse_json_line
from memrecall.messages import parse_message
from memrecall.types import Content, Id, Moment

_MESSAGE_HINT = 'Write messages like {"role": "user", "content": "…"}, one per line or as a list'
_GROUP_HINT = (
    'Write {"group_id": "…", "members": [{"member_id": "…", "name": "…"}], '
    '"messages": [{"speaker": "…", "content": "…"}]}'
)


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


class GroupMessage(BaseModel):
    """A message of a group member."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    speaker: Id
    content: Annotated[Content, StringConstraints(pattern=r"\S")]
    message_id: Id | None = None
    ts: Moment | None = None
    mentions: list[Id] | None = None


class GroupFile(BaseModel):
    """A group with its members, messages, and the members who answer (default: every `ai`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group_id: Id
    members: list[Member] = Field(min_length=1)
    messages: list[GroupMessage] = []
    answers: list[Id] | None = None

    @property
    def responders(self) -> list[str]:
        """The ids of the members who take a turn, in order."""
        if self.answers is not None:
            return self.answers
        return [member.member_id for member in self.members if member.ai]


def read_group(file: Path) -> GroupFile:
    """Read a group from a JSON file; errors name the field."""
    value = read_json_file(file, _GROUP_HINT)
    try:
        return GroupFile.model_validate(value)
    except ValidationError as error:
        problem = describe_validation_error(error)
        raise InvalidArgument(f"{file}: {problem}", hint=_GROUP_HINT) from None
