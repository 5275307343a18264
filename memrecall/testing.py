"""Test support for code that uses memrecall: a scripted model.

    client = ScriptedClient([call("search_memory", query="tea"), say("You like tea.")])

Nothing here needs a network, a key or a model.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

from memrecall.errors import (
    CassetteMismatch,
    InvalidArgument,
    ModelFailed,
    ModelFailure,
    ScriptExhausted,
)
from memrecall.model.cassette import RecordingClient, ReplayClient
from memrecall.model.client import BaseClient, Part, Request, check_token, run_cancellable

__all__ = [
    "CassetteRun",
    "Request",
    "ScriptedClient",
    "Step",
    "call",
    "call_raw",
    "calls",
    "fail",
    "record_run",
    "repeat",
    "replay_run",
    "say",
    "silence",
    "think",
    "wait",
]


@dataclass(frozen=True, slots=True)
class Step:
    """One response of a scripted model, made by the functions below."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thought: str | None = None
    failure: tuple[ModelFailure, str] | None = None
    seconds: float = 0.0


Reaction = Callable[[Request], Step]
Script = Iterable[Step | Reaction | Sequence[Step | Reaction]]


def call(name: str, /, **arguments: Any) -> Step:
    """Call one tool."""
    return call_raw(name, json.dumps(arguments, ensure_ascii=False))


def call_raw(name: str, arguments_text: str) -> Step:
    """Call one tool with arguments as raw text, JSON or not."""
    return Step(calls=((name, arguments_text),))


def calls(*steps: Step) -> Step:
    """Make several calls in one turn."""
    return Step(calls=tuple(call for step in steps for call in step.calls))


def say(text: str) -> Step:
    """Answer with text and call nothing."""
    return Step(text=text)


def silence() -> Step:
    """Answer with nothing at all."""
    return Step()


def fail(kind: ModelFailure, message: str = "the script says so") -> Step:
    """Raise `ModelFailed` of that kind."""
    return Step(failure=(kind, message))


def wait(seconds: float, then: Step) -> Step:
    """Wait before a step; cancelling ends the wait."""
    return replace(then, seconds=then.seconds + seconds)


def think(thought: str, then: Step) -> Step:
    """Add a thought to a step, as reasoning models do."""
    return replace(then, thought=thought)


def repeat(step: Step | Reaction, times: int) -> list[Step | Reaction]:
    """Repeat a step; the list can be an item of a script."""
    return [step] * times


class ScriptedClient(BaseClient):
    """A model that plays the steps of a script and records its requests.

    A step may be a function of the request that returns the step. `requests` holds every
    request; a call beyond the script raises `ScriptExhausted`. Each call uses `tokens`,
    prompt and completion.
    """

    def __init__(
        self,
        steps: Script,
        *,
        model: str = "scripted",
        function_calling: bool = True,
        tokens: tuple[int, int] = (0, 0),
    ) -> None:
        info = ModelInfo(
            vision=False,
            function_calling=function_calling,
            json_output=True,
            family="scripted",
            structured_output=False,
            multiple_system_messages=True,
        )
        super().__init__(model, info)
        self.requests: list[Request] = []
        self._steps = [
            step for item in steps for step in (item if isinstance(item, Sequence) else (item,))
        ]
        self._call_count = 0
        self._tokens = tokens

    @property
    def remaining(self) -> int:
        """The number of steps not played yet."""
        return max(0, len(self._steps) - len(self.requests))

    async def _answer(self, request: Request) -> CreateResult:
        check_token(request.token)
        step = self._next(request)
        if step.seconds:
            await run_cancellable(request.token, asyncio.sleep(step.seconds))
        if step.failure is not None:
            kind, message = step.failure
            raise ModelFailed(message, kind=kind)
        return self._result(step)

    async def _stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Yield the text word by word, then the result."""
        result = await self._answer(request)
        if isinstance(result.content, str):
            for word in re.findall(r"\s*\S+|\s+$", result.content):
                yield word
        yield result

    def _next(self, request: Request) -> Step:
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._steps):
            raise ScriptExhausted(
                f"the script has {len(self._steps)} steps, and the model was called {number} times",
                hint="Add steps to the script",
            )
        step = self._steps[number - 1]
        return step if isinstance(step, Step) else step(request)

    def _result(self, step: Step) -> CreateResult:
        tool_calls = [
            FunctionCall(id=f"call_{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(step.calls, self._call_count + 1)
        ]
        self._call_count += len(tool_calls)
        return CreateResult.model_construct(  # Validation would take five times as long.
            finish_reason="function_calls" if tool_calls else "stop",
            content=tool_calls or step.text,
            usage=RequestUsage(*self._tokens),
            cached=False,
            thought=step.thought,
        )


@dataclass(frozen=True, slots=True)
class CassetteRun:
    """A run whose models are recorded or replayed, each in a cassette of one folder.

    `client(name, model)` wraps a model of the run: the parent's, and the one of its recalls. A
    replay needs no model. `clock` is the clock of the run.
    """

    now: datetime
    client: Callable[..., BaseClient]

    def clock(self) -> datetime:
        """Return the time at which the run was recorded."""
        return self.now


@contextmanager
def record_run(
    folder: Path | str,
    *,
    overwrite: bool = False,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Iterator[CassetteRun]:
    """Record the models of a run to a folder: `NAME.jsonl` for each."""
    from memrecall.types import format_time

    path, now = Path(folder), clock().replace(microsecond=0)
    path.mkdir(parents=True, exist_ok=True)

    def record(name: str, model: ChatCompletionClient) -> BaseClient:
        if not name.isidentifier():
            raise InvalidArgument(f"{name!r} cannot name a cassette", hint="Use letters and digits")
        about = {"now": format_time(now)}
        file = path / f"{name}.jsonl"
        return RecordingClient(model, file, overwrite=overwrite, about=about)

    yield CassetteRun(now, record)


@contextmanager
def replay_run(folder: Path | str) -> Iterator[CassetteRun]:
    """Replay a recorded run; raise `CassetteMismatch` at the end if any model call differed.

    A framework may have caught the first error: AutoGen gives errors of tools to the model, and
    teams raise a RuntimeError instead.
    """
    from memrecall.types import parse_time

    clients = {path.stem: ReplayClient(path) for path in sorted(Path(folder).glob("*.jsonl"))}
    if not clients:
        raise InvalidArgument(f"{folder} contains no cassettes", hint="Record the run first")

    def replay(name: str, model: ChatCompletionClient | None = None) -> BaseClient:
        if name not in clients:
            hint = f"The run has {', '.join(clients)}"
            raise CassetteMismatch(f"{folder} has no cassette {name}", hint=hint)
        return clients[name]

    times = [client.about["now"] for client in clients.values() if "now" in client.about]
    now = parse_time(times[0], "now") if times else datetime.now(UTC)  # none: no call was made
    try:
        yield CassetteRun(now, replay)
    except RuntimeError as error:
        mismatches = [client.mismatch for client in clients.values() if client.mismatch]
        if mismatches:
            raise mismatches[0] from error
        raise
    for client in clients.values():
        client.assert_exhausted()
