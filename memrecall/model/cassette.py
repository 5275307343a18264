"""Cassettes: model calls that are recorded, and replayed exactly or not at all."""

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

EXCERPT_LENGTH = 60
# What a call was that its caller gave up: mostly, its time was over.
GIVEN_UP = RecordedFailure(kind="timeout", message="the call was given up before it was answered")


class RecordingClient(BaseClient):
    """Passes calls on to `inner` and writes each into a cassette as it ends.

    A call that is cancelled or left in the midst of its stream is recorded as timed out. `about` is
    kept for whoever replays: the time that the requests count from, say.
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
            _keep(line, result)
        except ModelFailed as failure:
            _keep_failure(line, failure)
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
                        _keep(line, part)
                    yield part
        except ModelFailed as failure:
            _keep_failure(line, failure)
            raise
        finally:
            append_call(self._path, line)

    def _start(self, request: Request, *, stream: bool) -> RecordedCall:
        digests = self._fingerprints.read(request)
        kept, texts = self._fingerprints.kept, self._fingerprints.texts
        self._calls += 1
        return RecordedCall(
            call=self._calls,
            header=self._header if self._calls == 1 else None,
            digests=digests,
            kept=kept,
            messages=[json.loads(text) for text in texts[kept:]],
            tools=list(request.tool_names),
            options=public_options(request.options),
            stream=stream,
            failure=GIVEN_UP,
        )


class ReplayClient(BaseClient):
    """Answers from a cassette, without a network, as long as it is asked what was recorded.

    Any other request is a `CassetteMismatch` that names the call and the part that differs.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        header, self._lines = read_cassette(self._path)
        super().__init__(header.model, header.model_info)
        self.about: Mapping[str, Any] = header.about
        self._fingerprints = RequestFingerprints()
        self._expected: list[str] = []
        self._made = 0

    def assert_exhausted(self) -> None:
        """Raise `CassetteMismatch` if recorded calls were never made."""
        left = [line.call for line in self._lines[self._made :]]
        if left:
            named = (
                f"call {left[0]} was" if len(left) == 1 else f"calls {left[0]} to {left[-1]} were"
            )
            raise CassetteMismatch(f"{named} never made, but {self._path} has {len(self._lines)}")

    async def _answer(self, request: Request) -> CreateResult:
        line = self._next(request, stream=False)
        return _replay(line)

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        line = self._next(request, stream=True)
        for chunk in line.chunks:
            yield chunk
        yield _replay(line)

    def _next(self, request: Request, *, stream: bool) -> RecordedCall:
        check_token(request.token)
        number = self._made + 1
        if number > len(self._lines):
            raise CassetteMismatch(
                f"call {number} was made, but {self._path} has {len(self._lines)}", call=number
            )
        line = self._lines[self._made]
        self._expected[line.kept :] = map(to_canonical_json, line.messages)
        self._verify(line, request, stream)
        self._made = number
        return line

    def _verify(self, line: RecordedCall, request: Request, stream: bool) -> None:
        recorded = {**line.digests, "stream": str(line.stream)}
        asked = {**self._fingerprints.read(request), "stream": str(stream)}
        for part, now in asked.items():
            if recorded.get(part) != now:
                raise self._mismatch(line, part, self._describe(line, part, request, now))

    def _describe(self, line: RecordedCall, part: str, request: Request, now: str) -> str:
        """What was recorded of a part and what it is now, as readable as can be."""
        if part == "messages":
            return _compare(self._expected, self._fingerprints.texts)
        if part == "tools":
            return f"it was {line.tools}, now {list(request.tool_names)}"
        if part == "options":
            return f"it was {line.options}, now {public_options(request.options)}"
        return f"it was {line.digests.get(part, line.stream)}, now {now}"

    def _mismatch(self, line: RecordedCall, part: str, told: str) -> CassetteMismatch:
        return CassetteMismatch(
            f"call {line.call} of {self._path} differs in {part}: {told}",
            hint="Record the cassette again if the change is meant",
            call=line.call,
            part=part,
        )


def _keep(line: RecordedCall, result: CreateResult) -> None:
    line.response = result
    line.failure = None


def _keep_failure(line: RecordedCall, failure: ModelFailed) -> None:
    line.failure = RecordedFailure(kind=failure.kind, message=failure.message, hint=failure.hint)


def _replay(line: RecordedCall) -> CreateResult:
    if line.response is not None:
        return line.response
    failure = line.failure or GIVEN_UP
    raise ModelFailed(failure.message, kind=failure.kind, hint=failure.hint)


def _first_difference(before: list[str], now: list[str]) -> int:
    pairs = zip(before, now, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    return min(len(before), len(now)) if same is None else same


def _compare(expected: list[str], texts: list[str]) -> str:
    place = _first_difference(expected, texts)
    recorded = expected[place] if place < len(expected) else "nothing"
    now = texts[place] if place < len(texts) else "nothing"
    start = max(0, _first_difference(list(recorded), list(now)) - EXCERPT_LENGTH // 3)
    shown = slice(start, start + EXCERPT_LENGTH)
    return f"message {place + 1} was …{recorded[shown]}…, now …{now[shown]}…"
