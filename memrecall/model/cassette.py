"""Clients that record model calls in a cassette and replay them exactly."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult

from memrecall.errors import CassetteMismatch, ModelFailed
from memrecall.model.cassette_format import (
    VERSION,
    CassetteHeader,
    RecordedCall,
    RecordedFailure,
    RequestFingerprints,
    append_call,
    create_cassette,
    public_options,
    read_cassette,
    to_canonical_json,
)
from memrecall.model.client import BaseClient, Part, Request, check_token

_EXCERPT_LENGTH = 60
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
            cassette=VERSION,
            model=self.model,
            model_info=inner.model_info,
            about=dict(about or {}),
        )
        create_cassette(self._path, overwrite=overwrite)

    async def close(self) -> None:
        """Close the inner client; the cassette is complete after every call."""
        await self._inner.close()

    async def _answer(self, request: Request) -> CreateResult:
        line = self._start(request, stream=False)
        try:
            result = await self._inner.create(request.messages, **request.arguments())
            _record_result(line, result)
        except ModelFailed as failure:
            _record_failure(line, failure)
            raise
        finally:
            append_call(self._path, line)
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
                        _record_result(line, part)
                    yield part
        except ModelFailed as failure:
            _record_failure(line, failure)
            raise
        finally:
            append_call(self._path, line)

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
            options=public_options(request.options),
            stream=stream,
            failure=_CANCELLED,
        )


class ReplayClient(BaseClient):
    """A client that answers the recorded requests from a cassette, without a network.

    Any other request raises `CassetteMismatch`, which names the call and the part that differs.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        header, self._lines = read_cassette(self._path)
        super().__init__(header.model, header.model_info)
        self.about: Mapping[str, Any] = header.about
        self._fingerprints = RequestFingerprints()
        self._expected: list[str] = []
        self._call_count = 0

    def assert_exhausted(self) -> None:
        """Raise `CassetteMismatch` if recorded calls were never made."""
        rest = [line.call for line in self._lines[self._call_count :]]
        if rest:
            calls = (
                f"call {rest[0]} was" if len(rest) == 1 else f"calls {rest[0]} to {rest[-1]} were"
            )
            raise CassetteMismatch(f"{calls} never made, but {self._path} has {len(self._lines)}")

    async def _answer(self, request: Request) -> CreateResult:
        line = self._next_call(request, stream=False)
        return _replay(line)

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
        self._expected[line.kept :] = map(to_canonical_json, line.messages)
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
        """Return the recorded and the current value of a part, readable where possible."""
        if part == "messages":
            return _compare_messages(self._expected, self._fingerprints.texts)
        if part == "tools":
            return f"it was {line.tools}, now {list(request.tool_names)}"
        if part == "options":
            return f"it was {line.options}, now {public_options(request.options)}"
        return f"it was {line.digests.get(part, line.stream)}, now {now}"


def _record_result(line: RecordedCall, result: CreateResult) -> None:
    line.response = result
    line.failure = None


def _record_failure(line: RecordedCall, failure: ModelFailed) -> None:
    line.failure = RecordedFailure(kind=failure.kind, message=failure.message, hint=failure.hint)


def _replay(line: RecordedCall) -> CreateResult:
    if line.response is not None:
        return line.response
    failure = line.failure or _CANCELLED
    raise ModelFailed(failure.message, kind=failure.kind, hint=failure.hint)


def _first_difference(before: list[str], now: list[str]) -> int:
    pairs = zip(before, now, strict=False)
    shorter = min(len(before), len(now))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)


def _compare_messages(expected: list[str], texts: list[str]) -> str:
    index = _first_difference(expected, texts)
    recorded = expected[index] if index < len(expected) else "nothing"
    now = texts[index] if index < len(texts) else "nothing"
    start = max(0, _first_difference(list(recorded), list(now)) - _EXCERPT_LENGTH // 3)
    excerpt = slice(start, start + _EXCERPT_LENGTH)
    return f"message {index + 1} was …{recorded[excerpt]}…, now …{now[excerpt]}…"
