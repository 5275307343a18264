"""The file of a cassette: one recorded model call a line, and the canonical form of requests.

Requests are compared by the digests of their canonical form, which omits what the model does not
see: the `source` of messages, and secrets among the options.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Self

from autogen_core.models import CreateResult, LLMMessage, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    ModelFailure,
    describe_validation_error,
)
from memrecall.model.client import text_model_info

CASSETTE_VERSION = 1


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CassetteHeader(_StrictModel):
    """Facts about all calls; `about` is free for the recorder, such as its current time."""

    cassette: int
    model: str
    model_info: ModelInfo
    about: dict[str, Any] = {}


class RecordedFailure(_StrictModel):
    """A call that ended in `ModelFailed`."""

    kind: ModelFailure
    message: str
    hint: str = ""


class RecordedCall(_StrictModel):
    """One call, which is one line of the file.

    `kept` is the number of messages that are the same as in the previous call and not repeated.
    """

    call: int
    header: CassetteHeader | None = None  # only in the first call
    digests: dict[str, str]
    kept: int
    messages: list[dict[str, Any]]
    tools: list[str]
    options: dict[str, Any]
    stream: bool = False
    chunks: list[str] = []
    response: CreateResult | None = None
    failure: RecordedFailure | None = None

    @model_validator(mode="after")
    def _check_outcome(self) -> Self:
        if (self.response is None) == (self.failure is None):
            raise ValueError("a call must have either a response or a failure")
        return self


_LINE = "line"  # the digest of the whole line, which older cassettes do not have
EMPTY_HEADER = CassetteHeader(cassette=CASSETTE_VERSION, model="", model_info=text_model_info())


def append_call(path: Path, line: RecordedCall) -> None:
    """Append a call to the file of a cassette."""
    # The file is closed after each call, so that the record survives a crash.
    fields = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    fields["digests"][_LINE] = _digest_line(fields)
    write_text(path, json.dumps(fields, ensure_ascii=False) + "\n", "a")


def write_text(path: Path, text: str, mode: str) -> None:
    """Write text to the file of a cassette; mode `x` refuses to replace one."""
    try:
        # UTF-8 cannot encode lone surrogates; JSON has an escape for them.
        with path.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Pass overwrite=True to replace it"
        raise InvalidArgument(f"the cassette {path} exists already", hint=hint) from None
    except OSError as error:
        raise InvalidArgument(f"the cassette {path} cannot be written: {error}") from None


def read_cassette(path: Path) -> tuple[CassetteHeader, list[RecordedCall]]:
    """Return the header and the calls of a cassette, in the order in which they began."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the cassette {path} cannot be read: {error}") from None
    calls = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    calls.sort(key=lambda call: call.call)  # overlapping calls were written when they ended
    numbers = [call.call for call in calls]
    if numbers != list(range(1, len(calls) + 1)):
        raise InvalidArgument(f"{path} has the calls {numbers}: one is missing or duplicated")
    header = calls[0].header if calls else EMPTY_HEADER
    if header is None:
        raise InvalidArgument(f"{path}: the first call has no header")
    if header.cassette != CASSETTE_VERSION:
        raise InvalidArgument(
            f"{path}: cassette version {header.cassette} is unsupported;"
            f" only {CASSETTE_VERSION} can be read",
            hint="Record it again",
        )
    _check_lines(path, lines)
    return header, calls


def _parse(path: Path, number: int, line: str) -> RecordedCall:
    try:
        return RecordedCall.model_validate(json.loads(line))
    except ValidationError as error:
        problem = describe_validation_error(error).strip()
    except ValueError as error:
        problem = str(error)
    raise InvalidArgument(f"{path} line {number} is not a cassette line: {problem}")


def digest_messages(texts: Iterable[str]) -> str:
    """Return the digest of a history: each message is digested with all before it."""
    return reduce(lambda digest, text: make_digest(digest + text), texts, "")


def _check_lines(path: Path, lines: Sequence[str]) -> None:
    """Raise CassetteMismatch if anything was edited: a request, a response, its usage."""
    for number, line in enumerate(lines, 1):
        fields = json.loads(line) if line.strip() else {}
        digest = fields.get("digests", {}).get(_LINE)
        if digest is not None and digest != _digest_line(fields):
            raise CassetteMismatch(
                f"line {number} of {path} was edited: it does not match its digest",
                hint="Restore the file, or record it again",
                call=fields["call"],
                part=_LINE,
            )


def _digest_line(fields: Mapping[str, Any]) -> str:
    digests = {part: digest for part, digest in fields["digests"].items() if part != _LINE}
    return make_digest(to_canonical_json({**fields, "digests": digests}))


_SECRET_NAME = re.compile(
    r"api.?key|authori[sz]ation|headers?$|(^|_)(token|auth)$|secret|password|cookie|credential",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"\s*(Bearer\s|Basic\s|sk-)", re.IGNORECASE)


def to_canonical_json(value: object) -> str:
    """Return compact JSON with sorted keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def make_digest(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def public_message(message: LLMMessage) -> dict[str, Any]:
    """Return the fields of a message that the model sees."""
    return message.model_dump(mode="json", exclude={"source"}, exclude_none=True)


def public_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return options without secrets."""
    return {
        str(name): _public_value(value)
        for name, value in (options or {}).items()
        if not _SECRET_NAME.search(str(name)) and not _is_secret(value)
    }


def _public_value(value: object) -> object:
    if isinstance(value, Mapping):
        return public_options(value)
    if isinstance(value, list | tuple):
        return [_public_value(item) for item in value if not _is_secret(item)]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and _SECRET_VALUE.match(value) is not None
