"""Messages as JSON lines, one message a line."""

from collections.abc import Iterator

from pydantic import ValidationError

from memrecall.errors import CallerError, InvalidArgument, describe_validation_error
from memrecall.importers.records import Fault, FileFormat, ReadItem, ReadOptions, Record
from memrecall.importers.source import MAX_LINE, SourceFile
from memrecall.json_objects import parse_json_line
from memrecall.messages import join_content_parts, parse_role
from memrecall.scope import Scope
from memrecall.store import ScopedMessage
from memrecall.types import NewMessage

SCOPE_FIELDS = ("user_id", "agent_id", "session_id")
_MESSAGE_FIELDS = frozenset(NewMessage.model_fields)
_REQUIRED = ("message_id", "ts", "role", "content")


def _read(file: SourceFile, options: ReadOptions) -> Iterator[ReadItem]:
    """Yield the message of each line, or the reason why it has none."""
    for number, line in read_lines(file):
        if isinstance(line, Fault):
            yield line
            continue
        try:
            entry = read_entry(line, options.user)
        except CallerError as error:
            yield Fault(number, str(error))
        else:
            scope = entry.scope
            yield Record(number, entry.message, scope.session_id, scope.user_id, scope.agent_id)


def read_lines(file: SourceFile) -> Iterator[tuple[int, bytes | Fault]]:
    """Yield the non-blank lines of a file with their numbers; a fault for one that is too long."""
    for number, line in file.byte_lines():
        if line is None:
            yield number, Fault(number, f"the line has more than {MAX_LINE:,} bytes")
        elif line.strip():
            yield number, line


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
    if isinstance(data.get("name"), str):  # as chat models call the speaker
        fields.setdefault("speaker", data["name"])
    try:
        message = NewMessage.model_validate(join_content_parts(fields))
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)) from None
    return ScopedMessage(
        Scope(str(scope["user_id"]), scope["agent_id"], scope["session_id"]), message
    )


def has_fields(file: SourceFile) -> bool:
    """Return True if a file names a field: any other text would be an error for each line."""
    text = file.sample.strip()
    return not text or any(f'"{name}"' in text for name in _REQUIRED)


# Any file that no other format recognises is read as JSON lines if it is named as such, or alone.
FORMAT = FileFormat(
    "jsonl", lambda file: file.suffix in (".jsonl", ".ndjson") and has_fields(file), _read
)
