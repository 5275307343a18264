"""Cassettes: recorded model calls, one a line, and the clients that record and replay them exactly.

Requests are compared by the digests of their canonical form, which omits what the model does not
see: the `source` of messages, and secrets among the options.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, Self

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    ModelFailed,
    ModelFailure,
    describe_validation_error,
)
from memrecall.model.client import (
    BaseClient,
    Part,
    Request,
    check_token,
    text_model_info,
    tool_schema,
)
from memrecall.model.failures import create_accepted

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
    # Anything may have been edited since: a request, a response, its usage.
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


_EXCERPT_LENGTH = 60
_PARTS = ("messages", "tools", "tool_choice", "json_output", "options", "stream")


def canonical_messages(messages: Sequence[LLMMessage]) -> list[str]:
    """Return the canonical form of each message."""
    return [to_canonical_json(public_message(message)) for message in messages]


def read_digests(request: Request, texts: Sequence[str]) -> dict[str, str]:
    """Return the digest of each part of a request, whose messages have these canonical texts."""
    output = str(request.json_output).lower()
    if isinstance(request.json_output, type):
        schema = to_canonical_json(request.json_output.model_json_schema())
        output = f"{request.json_output.__name__} {make_digest(schema)}"
    return {
        "messages": digest_messages(texts),
        "tools": make_digest(to_canonical_json([tool_schema(tool) for tool in request.tools])),
        "tool_choice": request.tool_choice,
        "json_output": output,
        "options": make_digest(to_canonical_json(public_options(request.options))),
    }


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
        self._texts: list[str] = []  # the messages of the last request
        self._calls = 0
        self._header = CassetteHeader(
            cassette=CASSETTE_VERSION,
            model=self.model,
            model_info=inner.model_info,
            about=dict(about or {}),
        )
        write_text(self._path, "", "w" if overwrite else "x")

    async def close(self) -> None:
        """Close the inner client; the cassette is complete after every call."""
        await self._inner.close()

    async def _answer(self, request: Request) -> CreateResult:
        with self._recorded(request, stream=False) as line:
            line.response = await create_accepted(
                self._inner, request.messages, **request.arguments()
            )
        return line.response

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        parts = self._inner.create_stream(request.messages, **request.arguments())
        with self._recorded(request, stream=True) as line:
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, str):
                        line.chunks.append(part)
                    else:
                        line.response = part
                    yield part

    @contextmanager
    def _recorded(self, request: Request, *, stream: bool) -> Iterator[RecordedCall]:
        """Yield the record of a call, and write it with its answer or failure when it ends."""
        texts = canonical_messages(request.messages)
        shared = _first_difference(self._texts, texts)
        self._texts = texts
        self._calls += 1
        line = RecordedCall(
            call=self._calls,
            header=self._header if self._calls == 1 else None,
            digests=read_digests(request, texts),
            kept=shared,
            messages=[json.loads(text) for text in texts[shared:]],
            tools=list(request.tool_names),
            options=public_options(request.options),
            stream=stream,
            failure=_CANCELLED,
        )
        try:
            yield line
        except ModelFailed as error:
            line.failure = RecordedFailure(kind=error.kind, message=error.message, hint=error.hint)
            raise
        finally:
            if line.response is not None:
                line.failure = None
            append_call(self._path, line)


class ReplayClient(BaseClient):
    """A client that answers the recorded requests from a cassette, without a network.

    Requests may come in any order, as they do from parallel recalls; equal ones are answered in
    recorded order. Any other request raises `CassetteMismatch`, which names the nearest recorded
    call and the part that differs. After it, every call raises the same error: a framework may have
    caught the first.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        header, self._lines = read_cassette(self._path)
        super().__init__(header.model, header.model_info)
        self.about: Mapping[str, Any] = header.about
        self.mismatch: CassetteMismatch | None = None  # the first
        self._unused = {line.call: line for line in self._lines}
        self._by_digest: dict[str, deque[RecordedCall]] = {}
        for line in self._lines:
            self._by_digest.setdefault(_join(_recorded_digests(line)), deque()).append(line)

    def assert_exhausted(self) -> None:
        """Raise `CassetteMismatch` if a call differed or recorded calls were never made."""
        if self.mismatch is not None:
            raise self.mismatch
        if rest := list(self._unused):
            is_row = rest[-1] - rest[0] == len(rest) - 1
            several = f"{rest[0]} to {rest[-1]}" if is_row else ", ".join(map(str, rest))
            calls = f"call {rest[0]} was" if len(rest) == 1 else f"calls {several} were"
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
        if self.mismatch is not None:
            raise self.mismatch
        texts = canonical_messages(request.messages)
        digests = {**read_digests(request, texts), "stream": str(stream)}
        lines = self._by_digest.get(_join(digests))
        if not lines:
            self.mismatch = self._explain(request, texts, digests, is_known=lines is not None)
            raise self.mismatch
        line = lines.popleft()
        del self._unused[line.call]
        return line

    def _explain(
        self, request: Request, texts: list[str], digests: Mapping[str, str], *, is_known: bool
    ) -> CassetteMismatch:
        """Return the error for a request that was not recorded, or not as often."""
        number = len(self._lines) - len(self._unused) + 1
        surplus = f"call {number} was made, but {self._path} has {len(self._lines)}"
        if is_known or not self._lines:
            return CassetteMismatch(surplus + " as often" * bool(self._unused), call=number)
        line, expected = self._nearest(texts, digests)
        recorded = _recorded_digests(line)
        part = next(part for part, now in digests.items() if recorded.get(part) != now)
        match part:
            case "messages":
                difference = _compare_messages(expected, texts)
            case "tools":
                difference = f"it was {line.tools}, now {list(request.tool_names)}"
            case "options":
                difference = f"it was {line.options}, now {public_options(request.options)}"
            case _:
                was = line.digests.get(part, line.stream)
                difference = f"it was {was}, now {digests[part]}"
        nearest = f"call {line.call} of {self._path} differs in {part}: {difference}"
        return CassetteMismatch(
            nearest if self._unused else f"{surplus}; {nearest}",
            hint="Record the cassette again if the change is intended",
            call=line.call,
            part=part,
        )

    def _nearest(
        self, texts: list[str], digests: Mapping[str, str]
    ) -> tuple[RecordedCall, list[str]]:
        """Return the call that is unused, shares most parts, then most messages; and these."""
        ranked: list[tuple[tuple[int, ...], RecordedCall, list[str]]] = []
        messages: list[str] = []
        for line in self._lines:
            messages[line.kept :] = map(to_canonical_json, line.messages)
            recorded = _recorded_digests(line)
            same = sum(recorded.get(part) == now for part, now in digests.items())
            shared = _first_difference(messages, texts), -abs(len(messages) - len(texts))
            ranked.append(((line.call in self._unused, same, *shared), line, list(messages)))
        return max(ranked, key=lambda each: each[0])[1:]


def _recorded_digests(line: RecordedCall) -> dict[str, str]:
    return {**line.digests, "stream": str(line.stream)}


def _join(digests: Mapping[str, str]) -> str:
    """Return one key for the digests of all parts that a request has."""
    return "\n".join(f"{part} {digests.get(part)}" for part in _PARTS)


def _replay(line: RecordedCall) -> CreateResult:
    if line.response is not None:
        return line.response
    failure = line.failure or _CANCELLED
    raise ModelFailed(failure.message, kind=failure.kind, hint=failure.hint)


def _first_difference(before: Sequence[object], now: Sequence[object]) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    shorter = min(len(before), len(now))
    return next((i for i, (a, b) in pairs if a != b), shorter)


def _compare_messages(expected: list[str], texts: list[str]) -> str:
    index = _first_difference(expected, texts)
    recorded = expected[index] if index < len(expected) else "nothing"
    now = texts[index] if index < len(texts) else "nothing"
    start = max(0, _first_difference(recorded, now) - _EXCERPT_LENGTH // 3)
    excerpt = slice(start, start + _EXCERPT_LENGTH)
    return f"message {index + 1} was …{recorded[excerpt]}…, now …{now[excerpt]}…"
