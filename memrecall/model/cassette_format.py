"""The cassette file format, and canonical requests that compare by text and digest.

A canonical request omits what the model does not see, the `source` of messages, and secrets among
the options.
"""

import hashlib
import json
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from autogen_core.models import CreateResult, LLMMessage, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import InvalidArgument, ModelFailure
from memrecall.model.client import AnyTool, JsonOutput, Request, tool_schema
from memrecall.types import describe_validation_error

VERSION = 1


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


EMPTY_HEADER = CassetteHeader(
    cassette=VERSION,
    model="",
    model_info=ModelInfo(
        vision=False,
        function_calling=True,
        json_output=True,
        family="unknown",
        structured_output=False,
    ),
)


def append_call(path: Path, line: RecordedCall) -> None:
    """Append a call to the file and close it, so that the record survives a crash."""
    fields = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    _write(path, json.dumps(fields, ensure_ascii=False) + "\n", "a")


def create_cassette(path: Path, *, overwrite: bool) -> None:
    """Create an empty cassette; an existing one is an error unless `overwrite`."""
    _write(path, "", "w" if overwrite else "x")


def _write(path: Path, text: str, mode: str) -> None:
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
    """Return the header and the calls, in the order in which they were made."""
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
    if header.cassette != VERSION:
        raise InvalidArgument(
            f"{path}: unsupported cassette version {header.cassette}; only {VERSION} can be read",
            hint="Record it again",
        )
    return header, calls


def _parse(path: Path, number: int, line: str) -> RecordedCall:
    try:
        return RecordedCall.model_validate(json.loads(line))
    except ValidationError as error:
        problem = describe_validation_error(error).strip()
    except ValueError as error:
        problem = str(error)
    raise InvalidArgument(f"{path} line {number} is not a cassette line: {problem}")


_SECRET_NAME = re.compile(
    r"api.?key|authori[sz]ation|headers?$|(^|_)(token|auth)$|secret|password|cookie|credential",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"\s*(Bearer\s|Basic\s|sk-)", re.IGNORECASE)


def to_canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, not escaped."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """Return a short fingerprint of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def public_message(message: LLMMessage) -> dict[str, Any]:
    """Return the fields of a message that the model sees."""
    return message.model_dump(mode="json", exclude={"source"}, exclude_none=True)


def public_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options without possible secrets at any depth."""
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


class RequestFingerprints:
    """Digests of the parts of requests; only new messages of a history are read."""

    def __init__(self) -> None:
        self.texts: list[str] = []  # the canonical messages of the last request
        self.shared = 0  # how many of them the previous request began with
        self._messages: list[LLMMessage] = []
        self._chain: list[str] = []  # digests of each message and all before it
        self._tools: tuple[AnyTool, ...] = ()
        self._tools_digest = digest("[]")

    def read(self, request: Request) -> dict[str, str]:
        """Return the digest of each part, and update `texts` and `shared`."""
        self._read_messages(request.messages)
        return {
            "messages": self._chain[-1] if self._chain else "",
            "tools": self._read_tools(request.tools),
            "tool_choice": request.tool_choice,
            "json_output": _describe_output(request.json_output),
            "options": digest(to_canonical_json(public_options(request.options))),
        }

    def _read_messages(self, messages: Sequence[LLMMessage]) -> None:
        shared = 0
        for previous, current in zip(self._messages, messages, strict=False):
            if previous is not current and previous != current:
                break
            shared += 1
        del self.texts[shared:], self._chain[shared:]
        self.shared = shared
        self._messages = list(messages)
        for message in messages[shared:]:
            text = to_canonical_json(public_message(message))
            before = self._chain[-1] if self._chain else ""
            self.texts.append(text)
            self._chain.append(digest(before + text))

    def _read_tools(self, tools: tuple[AnyTool, ...]) -> str:
        # Schemas are expensive to compute, and the tools rarely change.
        is_same = len(tools) == len(self._tools) and all(map(operator.is_, tools, self._tools))
        if not is_same:
            self._tools_digest = digest(to_canonical_json([tool_schema(tool) for tool in tools]))
            self._tools = tools
        return self._tools_digest


def _describe_output(json_output: JsonOutput) -> str:
    if json_output is None or isinstance(json_output, bool):
        return str(json_output).lower()
    schema = digest(to_canonical_json(json_output.model_json_schema()))
    return f"{json_output.__name__} {schema}"
