"""One turn: forced calls, then the model with real tools, until it has answered in clean words."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage

from memrecall.chat.events import ChatEvent, TextDelta, ToolCall, ToolResult
from memrecall.chat.history import call_items, without_calls
from memrecall.chat.options import ChatOptions
from memrecall.chat.phrases import say
from memrecall.chat.tools import Toolbox
from memrecall.chat.visible_text import Opening, Speech
from memrecall.errors import CallerError, ModelFailed
from memrecall.model.client import to_model_failure
from memrecall.model.prompts import Language

Events = AsyncGenerator[ChatEvent, None]


@dataclass(slots=True)
class TurnStart:
    """What a turn begins with: the context, the tools, and the calls that are made at once."""

    messages: list[LLMMessage]
    tools: Toolbox
    forged: Sequence[FunctionCall]
    language: Language
    names: Sequence[str] = ()  # of the member of a group whose turn it is
    may_pass: bool = False  # saying nothing is an answer


@dataclass(slots=True)
class _Cost:
    model_calls: int = 0
    usage: dict[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 0, "completion_tokens": 0}
    )

    def add(self, reply: CreateResult) -> None:
        self.usage["prompt_tokens"] += reply.usage.prompt_tokens
        self.usage["completion_tokens"] += reply.usage.completion_tokens


class Turn:
    """Plays one turn. Afterwards `speech`, `degraded`, `silent` and `cost` say how it went."""

    def __init__(
        self,
        client: ChatCompletionClient,
        start: TurnStart,
        options: ChatOptions,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self.model = str(getattr(client, "model", "") or type(client).__name__)
        opening = Opening(start.names, may_pass=start.may_pass) if start.names else None
        self.speech = Speech(start.tools.names, self.model, opening=opening, on_leak=on_leak)
        self.degraded = False
        self.silent = False
        self.cost = _Cost()
        self._client = client
        self._start = start
        self._messages = list(start.messages)
        self._most = options.model_calls
        self._seconds = options.seconds
        self._plainly = not client.model_info["function_calling"]
        self._reply: CreateResult | None = None
        self._is_over = False
        self._ids = {call.id for call in start.forged}

    @property
    def recalls(self) -> int:
        """How many recalls were run."""
        return self._start.tools.recalls.count

    @property
    def sources(self) -> tuple[str, ...]:
        """The keys of what was recalled, the first first."""
        return tuple(self._start.tools.recalls.keys)

    async def play(self) -> Events:
        """The events of the turn, up to its end. Raises ModelFailed if the model cannot answer."""
        for call in self._start.forged:
            async for event in self._force(call):
                yield event
        deadline = time.monotonic() + self._seconds
        while not self._is_over and self.cost.model_calls < self._most:
            async with aclosing(self._round(deadline)) as events:
                async for event in events:
                    yield event
        if self.degraded and not self.speech.text:
            yield TextDelta(self.speech.add(say(self._start.language, "no_answer")))

    async def _round(self, deadline: float) -> Events:
        """One answer of the model, and the calls that it makes, or the end of the turn.

        What is no answer is asked for once more plainly: with neither tools nor calls in sight.
        """
        plainly = self._plainly or self.cost.model_calls == self._most - 1
        async with aclosing(self._answer(plainly, deadline)) as pieces:
            async for piece in pieces:
                yield piece
        if self._reply is None:  # the server takes no tools
            self._plainly = True
            return
        calls = _calls(self._reply)
        if calls and not plainly:
            async for event in self._call_all(calls, self._reply.thought):
                yield event
            return
        answered = self._is_answered()
        self._is_over = answered or plainly
        self.degraded = plainly and not answered
        self._plainly = True

    def _is_answered(self) -> bool:
        """Whether the answer is one: clean words, or a silence that is allowed."""
        speech = self.speech
        self.silent = speech.passed and self._start.may_pass and not speech.text
        return self.silent or (speech.spoke and not speech.leaked)

    async def _answer(self, plainly: bool, deadline: float) -> AsyncGenerator[TextDelta, None]:
        """One answer of the model; its text as it comes, then `_reply`. None: it takes no tools."""
        self._reply = None
        self.speech.begin()
        self.cost.model_calls += 1
        messages, tools = self._messages, self._start.tools.schemas
        if plainly:
            messages = without_calls(messages, self.speech.text, self._start.language)
            tools = ()
        try:
            async with aclosing(self._client.create_stream(messages, tools=tools)) as parts:
                streamed = False
                while (part := await self._next(parts, deadline)) is not None:
                    if isinstance(part, CreateResult):
                        self._reply = part
                        self.cost.add(part)
                        part = "" if streamed or not isinstance(part.content, str) else part.content
                    streamed = streamed or bool(part)
                    if text := self.speech.feed(part):
                        yield TextDelta(text)
            if text := self.speech.end():
                yield TextDelta(text)
        except ModelFailed as error:
            if error.kind != "no_tools" or plainly:
                raise
        finally:  # whoever listens may go away as well
            self.speech.break_off()
        if self._reply is None and plainly:
            raise ModelFailed(f"{self.model} ended without a result", kind="malformed")

    async def _next(
        self, parts: AsyncGenerator[str | CreateResult, None], deadline: float
    ) -> str | CreateResult | None:
        """The next part, within what is left of the time. Raises ModelFailed or CallerError."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0.0)):
                return await anext(parts, None)
        except (CallerError, ModelFailed):
            raise  # a cassette that does not fit and a script that ran out are the caller's to see
        except TimeoutError:
            message = f"{self.model} did not answer in {self._seconds:g} seconds"
            raise ModelFailed(message, kind="timeout") from None
        except Exception as error:  # clients of others raise what they like
            raise to_model_failure(error) from error

    async def _call_all(self, calls: Sequence[FunctionCall], thought: str | None) -> Events:
        results = []
        calls = [self._with_own_id(call) for call in calls]
        for call in calls:
            yield ToolCall(call.id, call.name, call.arguments, forged=False)
            result = await self._start.tools.run(call)
            results.append(result)
            yield ToolResult(call.id, call.name, result.content, bool(result.is_error), False)
        self._messages += call_items(calls, results, thought)

    def _with_own_id(self, call: FunctionCall) -> FunctionCall:
        """The call under an id that no other call of the turn has: some servers repeat theirs."""
        own, number = call.id, len(self._ids)
        while not own or own in self._ids:
            number += 1
            own = f"call_{number}"
        self._ids.add(own)
        return replace(call, id=own)

    async def _force(self, call: FunctionCall) -> Events:
        yield ToolCall(call.id, call.name, call.arguments, forged=True)
        result = await self._start.tools.force(call)
        yield ToolResult(call.id, call.name, result.content, bool(result.is_error), True)
        self._messages += call_items([call], [result])


def _calls(reply: CreateResult) -> list[FunctionCall]:
    return [] if isinstance(reply.content, str) else list(reply.content)
