"""One way to write a request, so that two can be compared by text and by digest.

What the model is not told is left out: who a message's `source` was, and secrets among the
options.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from autogen_core.models import CreateResult, LLMMessage, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import InvalidArgument, ModelFailure
from memrecall.model.client import AnyTool, JsonOutput, Request, tool_schema

VERSION = 1


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CassetteHeader(_Line):
    """What holds for all calls; `about` is the recorder's own, such as the time it counted from."""

    cassette: int
    model: str
    model_info: ModelInfo
    about: dict[str, Any] = {}


class RecordedFailure(_Line):
    """A call that ended in `ModelFailed`."""

    kind: ModelFailure
    message: str
    hint: str = ""


class RecordedCall(_Line):
    """A line: one call."""

    call: int
    header: CassetteHeader | None = None  # of the first call
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
    def _ends(self) -> Self:
        if (self.response is None) == (self.failure is None):
            raise ValueError("a call has either a response or a failure")
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
    """Write one line to the file, and let go of it: what was recorded survives a crash."""
    plain = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    _write(path, json.dumps(plain, ensure_ascii=False) + "\n", "a")


def create_cassette(path: Path, *, overwrite: bool) -> None:
    """Make an empty cassette; one that exists is kept unless it may be overwritten."""
    _write(path, "", "w" if overwrite else "x")


def _write(path: Path, text: str, mode: str) -> None:
    try:
        # A lone surrogate, which UTF-8 has not, is written as the escape that JSON has for it.
        with path.open(mode, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        hint = "Pass overwrite=True to record it anew"
        raise InvalidArgument(f"the cassette {path} exists already", hint=hint) from None
    except OSError as error:
        raise InvalidArgument(f"the cassette {path} cannot be written: {error}") from None


def read_cassette(path: Path) -> tuple[CassetteHeader, list[RecordedCall]]:
    """What holds for all calls, and the calls in the order in which they were made."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the cassette {path} cannot be read: {error}") from None
    calls = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    calls.sort(key=lambda call: call.call)  # calls that overlapped were written as they ended
    if [call.call for call in calls] != list(range(1, len(calls) + 1)):
        numbers = [call.call for call in calls]
        raise InvalidArgument(f"{path} has the calls {numbers}: one is missing or there twice")
    header = calls[0].header if calls else EMPTY_HEADER
    if header is None:
        raise InvalidArgument(f"{path}: its first call does not tell the model")
    if header.cassette != VERSION:
        raise InvalidArgument(
            f"{path}: a cassette of version {header.cassette}, and this reads {VERSION}",
            hint="Record it again",
        )
    return header, calls


def _parse(path: Path, number: int, line: str) -> RecordedCall:
    try:
        return RecordedCall.model_validate(json.loads(line))
    except ValueError as error:
        if not isinstance(error, ValidationError):
            raise InvalidArgument(
                f"{path} line {number} is no line of a cassette: {error}"
            ) from None
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        place = ".".join(map(str, problem["loc"]))
        told = f"{place}: {problem['msg']}" if place else problem["msg"]
        raise _bad_line(path, number, told) from None


def _bad_line(path: Path, number: int, told: str) -> InvalidArgument:
    return InvalidArgument(f"{path} line {number} is no line of a cassette: {told}")


SECRET_NAME = re.compile(
    r"api.?key|authori[sz]ation|headers?$|(^|_)(token|auth)$|secret|password|cookie|credential",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(r"\s*(Bearer\s|Basic\s|sk-)", re.IGNORECASE)


def to_canonical_json(value: object) -> str:
    """The one JSON text of a value: sorted, without needless space, in plain UTF-8."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def public_message(message: LLMMessage) -> dict[str, Any]:
    """A message as JSON, with what the model is told of it."""
    return message.model_dump(mode="json", exclude={"source"}, exclude_none=True)


def public_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options without what may be secret, whatever depth it hides at."""
    return {
        str(name): _plain(value)
        for name, value in (options or {}).items()
        if not SECRET_NAME.search(str(name)) and not _is_secret(value)
    }


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return public_options(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value if not _is_secret(item)]
    if value is None or isinstance(value, str | int | float):
        return value
    return getattr(value, "__name__", type(value).__name__)


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and SECRET_VALUE.match(value) is not None


class RequestFingerprints:
    """The parts of requests as digests; a history that only grows is read only where it is new."""

    def __init__(self) -> None:
        self.texts: list[str] = []  # of the last request's messages
        self.kept = 0  # how many of them the request before began with too
        self._messages: list[LLMMessage] = []
        self._chain: list[str] = []  # of each message, with all before it
        self._tools: tuple[AnyTool, ...] = ()
        self._tools_digest = digest("[]")

    def read(self, request: Request) -> dict[str, str]:
        """The digest of each part. Afterwards `texts` and `kept` are this request's."""
        self._read_messages(request.messages)
        return {
            "messages": self._chain[-1] if self._chain else "",
            "tools": self._read_tools(request.tools),
            "tool_choice": request.tool_choice,
            "json_output": _name_output(request.json_output),
            "options": digest(to_canonical_json(public_options(request.options))),
        }

    def _read_messages(self, messages: Sequence[LLMMessage]) -> None:
        kept = 0
        for mine, theirs in zip(self._messages, messages, strict=False):
            if mine is not theirs and mine != theirs:
                break
            kept += 1
        del self.texts[kept:], self._chain[kept:]
        self.kept = kept
        self._messages = list(messages)
        for message in messages[kept:]:
            text = to_canonical_json(public_message(message))
            before = self._chain[-1] if self._chain else ""
            self.texts.append(text)
            self._chain.append(digest(before + text))

    def _read_tools(self, tools: tuple[AnyTool, ...]) -> str:
        known = len(tools) == len(self._tools)
        if not known or any(a is not b for a, b in zip(tools, self._tools, strict=True)):
            self._tools_digest = digest(to_canonical_json([tool_schema(tool) for tool in tools]))
            self._tools = tools
        return self._tools_digest


def _name_output(json_output: JsonOutput) -> str:
    if json_output is None or isinstance(json_output, bool):
        return str(json_output).lower()
    schema = digest(to_canonical_json(json_output.model_json_schema()))
    return f"{json_output.__name__} {schema}"
