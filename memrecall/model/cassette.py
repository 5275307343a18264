"""Cassettes: files of model calls, and the clients that record and replay them exactly.

Requests are compared by the digests of their canonical form, which omits what the model does not
see: the `source` of messages, and secrets among the options.
"""

import hashlib
import json
import operator
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import CassetteMismatch, InvalidArgument, ModelFailed, ModelFailure
from memrecall.model.client import (
    AnyTool,
    BaseClient,
    JsonOutput,
    Part,
    Request,
    check_token,
    text_model_info,
    tool_schema,
)
from memrecall.types import describe_validation_error

_VERSION = 1
_EXCERPT_LENGTH = 60


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


_EMPTY_HEADER = CassetteHeader(cassette=_VERSION, model="", model_info=text_model_info())


def _append_call(path: Path, line: RecordedCall) -> None:
    # The file is closed after each call, so that the record survives a crash.
    fields = line.model_dump(mode="json", exclude_none=True, exclude={"response": {"logprobs"}})
    _write(path, json.dumps(fields, ensure_ascii=False) + "\n", "a")


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


def _read_cassette(path: Path) -> tuple[CassetteHeader, list[RecordedCall]]:
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the cassette {path} cannot be read: {error}") from None
    calls = [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    calls.sort(key=lambda call: call.call)  # overlapping calls were written when they ended
    numbers = [call.call for call in calls]
    if numbers != list(range(1, len(calls) + 1)):
        raise InvalidArgument(f"{path} has the calls {numbers}: one is missing or duplicated")
    header = calls[0].header if calls else _EMPTY_HEADER
    if header is None:
        raise InvalidArgument(f"{path}: the first call has no header")
    if header.cassette != _VERSION:
        raise InvalidArgument(
            f"{path}: unsupported cassette version {header.cassette}; only {_VERSION} can be read",
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


def _to_canonical_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def public_message(message: LLMMessage) -> dict[str, Any]:
    """Return the fields of a message that the model sees."""
    return message.model_dump(mode="json", exclude={"source"}, exclude_none=True)


def _public_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        str(name): _public_value(value)
        for name, value in (options or {}).items()
        if not _SECRET_NAME.search(str(name)) and not _is_secret(value)
    }


def _public_value(value: object) -> object:
    if isinstance(value, Mapping):
        return _public_options(value)
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
        self._tools_digest = _digest("[]")

    def read(self, request: Request) -> dict[str, str]:
        """Return the digest of each part, and update `texts` and `shared`."""
        self._read_messages(request.messages)
        return {
            "messages": self._chain[-1] if self._chain else "",
            "tools": self._read_tools(request.tools),
            "tool_choice": request.tool_choice,
            "json_output": _describe_output(request.json_output),
            "options": _digest(_to_canonical_json(_public_options(request.options))),
        }

    def _read_messages(self, messages: Sequence[LLMMessage]) -> None:
        self.shared = shared = _first_difference(self._messages, messages)
        del self.texts[shared:], self._chain[shared:]
        self._messages = list(messages)
        for message in messages[shared:]:
            text = _to_canonical_json(public_message(message))
            before = self._chain[-1] if self._chain else ""
            self.texts.append(text)
            self._chain.append(_digest(before + text))

    def _read_tools(self, tools: tuple[AnyTool, ...]) -> str:
        # Schemas are expensive to compute, and the tools rarely change.
        is_same = len(tools) == len(self._tools) and all(map(operator.is_, tools, self._tools))
        if not is_same:
            self._tools_digest = _digest(_to_canonical_json([tool_schema(tool) for tool in tools]))
            self._tools = tools
        return self._tools_digest


def _describe_output(json_output: JsonOutput) -> str:
    if json_output is None or isinstance(json_output, bool):
        return str(json_output).lower()
    schema = _digest(_to_canonical_json(json_output.model_json_schema()))
    return f"{json_output.__name__} {schema}"


# The record of a call that its caller cancelled, mostly because of a timeout.
_CANCELLED = RecordedFailure(kind="timeout", message="the call was given up before it was answered")


class RecordingClient(BaseClient):
    """A client that forwards calls to `inner` and writes each to a cassette when it ends.

    A cancelled call or an abandoned stream is recorded as a timeout. `about` is stored for the
    replay, for example the time that the requests refer to.
    """

    def __init__(
        self,
        inner: ChatCompletionClient,
        path: Path | str,
        *,
        overwrite: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(str(getattr(inner, "model", "")), inner.model_info)
        self._inner = inner
        self._path = Path(path)
        self._fingerprints = RequestFingerprints()
        self._calls = 0
        self._header = CassetteHeader(
            cassette=_VERSION,
            model=self.model,
            model_info=inner.model_info,
            about=dict(about or {}),
        )
        _write(self._path, "", "w" if overwrite else "x")

    async def close(self) -> None:
        """Close the inner client; the cassette is complete after every call."""
        await self._inner.close()

    async def _answer(self, request: Request) -> CreateResult:
        line = self._start(request, stream=False)
        try:
            result = await self._inner.create(request.messages, **request.arguments())
            line.response, line.failure = result, None
        except ModelFailed as failure:
            _record_failure(line, failure)
            raise
        finally:
            _append_call(self._path, line)
        return result

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        line = self._start(request, stream=True)
        parts = self._inner.create_stream(request.messages, **request.arguments())
        try:
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, str):
                        line.chunks.append(part)
                    else:
                        line.response, line.failure = part, None
                    yield part
        except ModelFailed as failure:
            _record_failure(line, failure)
            raise
        finally:
            _append_call(self._path, line)

    def _start(self, request: Request, *, stream: bool) -> RecordedCall:
        digests = self._fingerprints.read(request)
        shared, texts = self._fingerprints.shared, self._fingerprints.texts
        self._calls += 1
        return RecordedCall(
            call=self._calls,
            header=self._header if self._calls == 1 else None,
            digests=digests,
            kept=shared,
            messages=[json.loads(text) for text in texts[shared:]],
            tools=list(request.tool_names),
            options=_public_options(request.options),
            stream=stream,
            failure=_CANCELLED,
        )


class ReplayClient(BaseClient):
    """A client that answers the recorded requests from a cassette, without a network.

    Any other request raises `CassetteMismatch`, which names the call and the part that differs.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        header, self._lines = _read_cassette(self._path)
        super().__init__(header.model, header.model_info)
        self.about: Mapping[str, Any] = header.about
        self._fingerprints = RequestFingerprints()
        self._expected: list[str] = []
        self._call_count = 0

    def assert_exhausted(self) -> None:
        """Raise `CassetteMismatch` if recorded calls were never made."""
        if rest := [line.call for line in self._lines[self._call_count :]]:
            is_single = len(rest) == 1
            calls = f"call {rest[0]} was" if is_single else f"calls {rest[0]} to {rest[-1]} were"
            raise CassetteMismatch(f"{calls} never made, but {self._path} has {len(self._lines)}")

    async def _answer(self, request: Request) -> CreateResult:
        return _replay(self._next_call(request, stream=False))

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        line = self._next_call(request, stream=True)
        for chunk in line.chunks:
            yield chunk
        yield _replay(line)

    def _next_call(self, request: Request, *, stream: bool) -> RecordedCall:
        check_token(request.token)
        number = self._call_count + 1
        if number > len(self._lines):
            raise CassetteMismatch(
                f"call {number} was made, but {self._path} has {len(self._lines)}", call=number
            )
        line = self._lines[self._call_count]
        self._expected[line.kept :] = map(_to_canonical_json, line.messages)
        self._verify(line, request, stream)
        self._call_count = number
        return line

    def _verify(self, line: RecordedCall, request: Request, stream: bool) -> None:
        recorded = {**line.digests, "stream": str(line.stream)}
        current = {**self._fingerprints.read(request), "stream": str(stream)}
        for part, now in current.items():
            if recorded.get(part) != now:
                difference = self._describe_difference(line, part, request, now)
                raise CassetteMismatch(
                    f"call {line.call} of {self._path} differs in {part}: {difference}",
                    hint="Record the cassette again if the change is intended",
                    call=line.call,
                    part=part,
                )

    def _describe_difference(
        self, line: RecordedCall, part: str, request: Request, now: str
    ) -> str:
        if part == "messages":
            return _compare_messages(self._expected, self._fingerprints.texts)
        if part == "tools":
            return f"it was {line.tools}, now {list(request.tool_names)}"
        if part == "options":
            return f"it was {line.options}, now {_public_options(request.options)}"
        return f"it was {line.digests.get(part, line.stream)}, now {now}"


def _record_failure(line: RecordedCall, failure: ModelFailed) -> None:
    line.failure = RecordedFailure(kind=failure.kind, message=failure.message, hint=failure.hint)


def _replay(line: RecordedCall) -> CreateResult:
    if line.response is not None:
        return line.response
    failure = line.failure or _CANCELLED
    raise ModelFailed(failure.message, kind=failure.kind, hint=failure.hint)


def _first_difference(before: Sequence[object], now: Sequence[object]) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    shorter = min(len(before), len(now))
    # Identity first: most messages of a history are the same objects.
    return next((i for i, (a, b) in pairs if a is not b and a != b), shorter)


def _compare_messages(expected: list[str], texts: list[str]) -> str:
    index = _first_difference(expected, texts)
    recorded = expected[index] if index < len(expected) else "nothing"
    now = texts[index] if index < len(texts) else "nothing"
    start = max(0, _first_difference(recorded, now) - _EXCERPT_LENGTH // 3)
    excerpt = slice(start, start + _EXCERPT_LENGTH)
    return f"message {index + 1} was …{recorded[excerpt]}…, now …{now[excerpt]}…"
