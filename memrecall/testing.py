"""For tests of code that uses memrecall: a model that follows a script, a library to fill.

    client = ScriptedClient([call("search_memory", query="tea"), say("You like tea.")])

Nothing here needs a network, a key or a model.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult, ModelInfo, RequestUsage

from memrecall.errors import ModelFailed, ModelFailure, ScriptExhausted
from memrecall.model.client import BaseClient, Part, Request, check_token, run_cancellable

if TYPE_CHECKING:
    from memrecall.memory import Library
    from memrecall.scope import Scope
    from memrecall.types import NewMemory, NewMessage

__all__ = [
    "Request",
    "ScriptedClient",
    "Step",
    "call",
    "call_raw",
    "calls",
    "fail",
    "open_library",
    "repeat",
    "say",
    "silence",
    "think",
    "wait",
]


@dataclass(frozen=True, slots=True)
class Step:
    """What a scripted model does once. Made by the functions below, not by hand."""

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
    """Call one tool with arguments as they are written, JSON or not."""
    return Step(calls=((name, arguments_text),))


def calls(*steps: Step) -> Step:
    """Make several calls in one turn."""
    return Step(calls=tuple(one for step in steps for one in step.calls))


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
    """Let time pass first; cancelling ends the wait."""
    return replace(then, seconds=then.seconds + seconds)


def think(thought: str, then: Step) -> Step:
    """Give a thought beside the step, as reasoning models do."""
    return replace(then, thought=thought)


def repeat(step: Step | Reaction, times: int) -> list[Step | Reaction]:
    """Do the same several times; goes into a script as it is."""
    return [step] * times


class ScriptedClient(BaseClient):
    """A model that plays steps in order and remembers what it was asked.

    A step may be a function that looks at the request and returns the step. `requests` holds every
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
        self._steps = _flatten(steps)
        self._made = 0
        self._tokens = tokens

    @property
    def remaining(self) -> int:
        """How many steps have not been played."""
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
        """Give the text word by word, then the result."""
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
        made = [
            FunctionCall(id=f"call_{number}", name=name, arguments=arguments)
            for number, (name, arguments) in enumerate(step.calls, self._made + 1)
        ]
        self._made += len(made)
        return CreateResult.model_construct(  # nothing to validate, and this is five times faster
            finish_reason="function_calls" if made else "stop",
            content=made or step.text,
            usage=RequestUsage(*self._tokens),
            cached=False,
            thought=step.thought,
        )


@asynccontextmanager
async def open_library(
    *,
    scope: "Scope | str" = "user",
    messages: "Sequence[NewMessage | str]" = (),
    memories: "Sequence[NewMemory | str]" = (),
    **settings: Any,
) -> AsyncIterator["Library"]:
    """Open a library on a temporary SQLite file, with what one user said and is known for.

    A plain text is a message by the user, or the content of a memory. `settings` are fields of
    `Settings`; the embedder is the fast `hash` unless they say otherwise.
    """
    from memrecall.memory import Library
    from memrecall.scope import Scope
    from memrecall.settings import Settings
    from memrecall.types import NewMemory, NewMessage, Origin, Role

    owner = Scope(scope) if isinstance(scope, str) else scope
    said = [NewMessage(role=Role.USER, content=m) if isinstance(m, str) else m for m in messages]
    known = [NewMemory(content=m) if isinstance(m, str) else m for m in memories]
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        given = {"db": str(Path(folder) / "memrecall.db"), "embedder": "hash", **settings}
        async with await Library.open(Settings(**given)) as library:
            if said:
                await library.add_messages(owner, said)
            if known:
                await library.add_memories(owner, known, origin=Origin.USER, actor="test")
            yield library


def _flatten(script: Script) -> list[Step | Reaction]:
    steps: list[Step | Reaction] = []
    for item in script:
        if isinstance(item, Sequence):
            steps.extend(item)
        else:
            steps.append(item)
    return steps
