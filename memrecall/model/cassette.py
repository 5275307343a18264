"""Clients that record model calls to a cassette and replay them exactly."""

import json
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage

from memrecall.errors import CassetteMismatch, ModelFailed
from memrecall.model.cassette_file import (
    CASSETTE_VERSION,
    CassetteHeader,
    RecordedCall,
    RecordedFailure,
    append_call,
    digest_messages,
    make_digest,
    public_message,
    public_options,
    read_cassette,
    to_canonical_json,
    write_text,
)
from memrecall.model.client import BaseClient, JsonOutput, Part, Request, check_token, tool_schema
from memrecall.model.failures import create_accepted

_EXCERPT_LENGTH = 60
_PARTS = ("messages", "tools", "tool_choice", "json_output", "options", "stream")


def canonical_messages(messages: Sequence[LLMMessage]) -> list[str]:
    """Return the canonical form of each message."""
    return [to_canonical_json(public_message(message)) for message in messages]


def read_digests(request: Request, texts: Sequence[str]) -> dict[str, str]:
    """Return the digest of each part of a request, whose messages have these canonical texts."""
    return {
        "messages": digest_messages(texts),
        "tools": make_digest(to_canonical_json([tool_schema(tool) for tool in request.tools])),
        "tool_choice": request.tool_choice,
        "json_output": _describe_output(request.json_output),
        "options": make_digest(to_canonical_json(public_options(request.options))),
    }


def _describe_output(json_output: JsonOutput) -> str:
    if json_output is None or isinstance(json_output, bool):
        return str(json_output).lower()
    schema = make_digest(to_canonical_json(json_output.model_json_schema()))
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

    Requests may come in any order, as those of parallel recalls do; equal ones are answered in
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
        difference = (
            _compare_messages(expected, texts)
            if part == "messages"
            else _describe_difference(line, part, request, digests[part])
        )
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


def _describe_difference(line: RecordedCall, part: str, request: Request, now: str) -> str:
    if part == "tools":
        return f"it was {line.tools}, now {list(request.tool_names)}"
    if part == "options":
        return f"it was {line.options}, now {public_options(request.options)}"
    return f"it was {line.digests.get(part, line.stream)}, now {now}"


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
